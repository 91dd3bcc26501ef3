"""What `fedsol flower …` does, once its arguments are known."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedsol.cli.commands import console, read_experiment
from fedsol.engines import require_flower
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import build_federation

STARTED = re.compile(r"started run (\d+)")
COMPLETED = "finished:completed"
LOOKS = 30
"""How often, a second apart, Flower is asked whether a run whose stream has ended is over."""


def write_app_for(name: str | None, changes: Sequence[str], folder: Path, out: Path, app_name: str) -> None:
    """`fedsol flower app`. The experiment is made concrete first: what fails here would fail on the server."""
    require_flower()
    from fedsol.deployment.app import write_app
    from fedsol.engines.flower.grid import check_privacy

    experiment = read_experiment(name, ["engine.kind=flower", *changes])
    if experiment.data.private.test is not None:  # the server has another working directory than this command
        test = Path(experiment.data.private.test).expanduser().absolute()
        experiment = experiment.override({"data.private.test": str(test)})
    federation = build_federation(experiment)
    check_privacy(federation)
    write_app(federation.experiment, folder, out.expanduser().absolute(), app_name)
    console.print(f"The app is in {folder}. Start it on a SuperLink: fedsol flower run {folder} LINK", highlight=False)


def run_app(folder: Path, link: str, resume: bool, changes: Sequence[str], personalize: str = "") -> None:
    """`fedsol flower run`: `flwr run` with the run configuration written out."""
    require_flower()
    if not (folder / "pyproject.toml").is_file():
        raise InputError(f"{folder}: is no Flower app (no pyproject.toml); make one with: fedsol flower app")
    config = [f"resume={'true' if resume else 'false'}"]
    if changes:
        if any("'" in change or ";" in change for change in changes):
            raise InputError("--set: values with ' or ; are not allowed here; write a new app")
        config.append(f"set='{';'.join(changes)}'")
    if personalize:
        if "'" in personalize:
            raise InputError("--personalize: values with ' are not allowed")
        config.append(f"personalize='{personalize}'")
    flwr = str(Path(sys.executable).with_name("flwr"))
    identifier = _stream([flwr, "run", str(folder), link, "--stream", "--run-config", " ".join(config)])
    status = _status(flwr, link, identifier) if identifier else "not started"
    if status != COMPLETED:
        raise RunError(f"the run {identifier or ''} on {link} is {status}; what it said is above")


def _stream(command: list[str]) -> str | None:
    """Runs `flwr run`, showing what it says; returns the id of the run that it started."""
    found = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if match := STARTED.search(line):
                found = match[1]
    return found


def _status(flwr: str, link: str, identifier: str) -> str:
    """What Flower says about a run that is over; its stream may end a moment before the run does."""
    status = "unknown"
    for _ in range(LOOKS):
        command = [flwr, "list", link, "--run-id", identifier, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        runs = json.loads(done.stdout or "{}").get("runs", [])
        if not runs:
            return "unknown: its SuperLink does not answer"
        status = str(runs[0]["status"])
        if status.startswith("finished"):
            break
        time.sleep(1)
    return status
