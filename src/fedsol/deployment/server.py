"""The ServerApp of a deployment: the round loop, with the nodes of the federation as its engine."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from fedsol.config.experiment import Experiment, read_toml
from fedsol.config.overrides import apply_overrides, parse_override
from fedsol.engines.flower.grid import GridEngine
from fedsol.errors import FedsolError, InputError
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalSettings, check_held_out, check_settings
from fedsol.personalization.loop import personalize
from fedsol.personalization.results import PersonalDirectory
from fedsol.runs.directory import RunDirectory
from fedsol.training.loop import train
from fedsol.training.progress import PlainProgress


class FailedError(Exception):
    """Tells Flower that the run failed; anything that is no `Exception` would leave it in the dark."""


def make_server_app(experiment_file: Path) -> ServerApp:
    """The app of the server, for the experiment of a file."""
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
            print("interrupted: what was finished is saved", flush=True)
            raise FailedError("interrupted") from None

    return app


def run(experiment_file: Path, config: Any, grid: Grid) -> None:
    """Trains in the run directory that the run configuration names; with `resume`, goes on with what is there."""
    out = Path(str(config.get("out", ""))).expanduser()
    if not out.is_absolute():
        raise InputError(f"out: {str(out)!r} is not allowed in the run configuration: it must be an absolute path")
    changes = dict(parse_override(change) for change in str(config.get("set", "")).split(";") if change.strip())
    if any(key.partition(".")[0] == "privacy" for key in changes):
        raise InputError(
            "--set: privacy cannot be changed for one start: it is what the clients agreed to; write a new app"
        )
    experiment = Experiment(**apply_overrides(read_toml(experiment_file), changes))
    asked = _personal_settings(str(config.get("personalize", "")), experiment)

    def engine(federation: Federation) -> GridEngine:
        if asked:
            check_settings(federation, PersonalSettings(**asked))
        return GridEngine(federation, grid, out)

    label = experiment.algorithm["name"].rpartition(":")[2]
    run = train(
        experiment,
        [PlainProgress(Console(), label)],
        out,
        resume=bool(config.get("resume", False)),
        engine=engine,
    )
    if asked:
        _personalize(out, asked, engine)
    print(f"{len(run.rows)} rounds are done; everything is in {out}", flush=True)


def _personal_settings(text: str, experiment: Experiment) -> dict[str, Any]:
    """`METHOD;key=value;…` of the run configuration, checked before the first round; nothing stands for nothing."""
    if not text.strip():
        return {}
    method, *changes = text.split(";")
    settings = {"method": method.strip(), **dict(parse_override(change) for change in changes if change.strip())}
    if "after_round" in settings:
        raise InputError("personalize: 'after_round' is not allowed: it is the number of rounds of the run")
    check_held_out(experiment.data.partition.held_out, PersonalSettings(**settings))
    return settings


def _personal_place(out: Path, method: str) -> PersonalDirectory:
    """`personal/METHOD`; if that holds models of fewer rounds, as the run was given more, a folder beside it."""
    place = PersonalDirectory(out / "personal" / method)
    rounds = RunDirectory(out).read_experiment().rounds
    if place.exists and place.read_description()["settings"]["after_round"] not in (0, rounds):
        return PersonalDirectory(out / "personal" / f"{method}-{rounds}")
    return place


def _personalize(out: Path, settings: dict[str, Any], engine: Callable[[Federation], GridEngine]) -> None:
    """Every client's own model, made and tested on its node; what comes back is kept beside the run."""
    changes = {key: value for key, value in settings.items() if key != "method"}
    place = _personal_place(out, settings["method"])
    found = personalize(
        out,
        settings["method"],
        changes,
        place.path,
        resume=place.exists,
        engine=engine,
    )
    place.finish(found.results, None)
