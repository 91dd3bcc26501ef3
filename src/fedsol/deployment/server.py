"""The ServerApp of a deployment: the round loop, with the nodes of the federation as its engine."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsol.config.experiment import Experiment, read_toml
from fedsol.config.overrides import apply_overrides, parse_override
from fedsol.engines.flower.grid import GridEngine
from fedsol.errors import FedsolError, InputError
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalSettings, check_held_out, check_settings
from fedsol.personalization.loop import Personalizer
from fedsol.personalization.results import PersonalDirectory
from fedsol.runs.run import Run
from fedsol.training.loop import train
from fedsol.training.progress import PlainProgress


class FailedError(Exception):
    """Tell Flower that the run failed; it only notices an `Exception`."""


def make_server_app(experiment_file: Path) -> ServerApp:
    """Make the server's app for the experiment in a file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        logging.getLogger("fedsol").addHandler(logging.StreamHandler())
        try:
            run(experiment_file, context.run_config, grid)
        except FedsolError as error:
            print(f"error: {error}", flush=True)
            raise FailedError(str(error)) from None
        except KeyboardInterrupt:
            print("interrupted: finished rounds are saved", flush=True)
            raise FailedError("interrupted") from None

    return app


def run(experiment_file: Path, config: Any, grid: Grid) -> None:
    """Train in the run directory that the run configuration names; with `resume`, continue the run in it."""
    out = Path(str(config.get("out", ""))).expanduser()
    if not out.is_absolute():
        raise InputError(f"out: must be an absolute path in the run configuration (got {str(out)!r})")
    changes = dict(parse_override(change) for change in str(config.get("set", "")).split(";") if change.strip())
    if any(key.partition(".")[0] == "privacy" for key in changes):
        raise InputError(
            "set: [privacy] cannot be changed in the run configuration: clients agreed to it; write a new app"
        )
    experiment = Experiment(**apply_overrides(read_toml(experiment_file), changes))
    personal = _personal_settings(str(config.get("personalize", "")), experiment)

    def engine(federation: Federation) -> GridEngine:
        if personal:
            check_settings(federation, PersonalSettings(**personal))
        return GridEngine(federation, grid, out)

    label = experiment.algorithm["name"].rpartition(":")[2]
    run = train(
        experiment, [PlainProgress(partial(print, flush=True), label)], out, bool(config.get("resume", False)), engine
    )
    if personal:
        _personalize(out, personal, engine)
    print(f"{len(run.rows)} rounds are done; results are in {out}", flush=True)


def _personal_settings(text: str, experiment: Experiment) -> dict[str, Any]:
    """Parse and check `METHOD;key=value;…` of the run configuration; nothing if it is empty."""
    if not text.strip():
        return {}
    method, *changes = text.split(";")
    settings = {"method": method.strip(), **dict(parse_override(change) for change in changes if change.strip())}
    if "after_round" in settings:
        raise InputError("personalize: 'after_round' is not allowed; it is the number of rounds of the run")
    if experiment.privacy.covers_samples:
        raise InputError(
            "personalize: is not allowed with privacy.level = 'example', whose nodes send no results on their samples"
        )
    check_held_out(experiment.data.partition.held_out, PersonalSettings(**settings))
    return settings


def _personal_place(out: Path, method: str) -> PersonalDirectory:
    """Return `personal/METHOD`, or a sibling if that has models of fewer rounds (the run was extended)."""
    place = PersonalDirectory(out / "personal" / method)
    rounds = Run.load(out).trained_rounds
    if place.exists and place.read_description()["settings"]["after_round"] not in (0, rounds):
        return PersonalDirectory(out / "personal" / f"{method}-{rounds}")
    return place


def _personalize(out: Path, settings: dict[str, Any], engine: Callable[[Federation], GridEngine]) -> None:
    """Make and test every client's own model on its node; save the results in the run directory."""
    changes = {key: value for key, value in settings.items() if key != "method"}
    place = _personal_place(out, settings["method"])
    found = Personalizer(engine=engine).run(out, settings["method"], changes, place.path, resume=place.exists)
    place.finish(found.results, None)
