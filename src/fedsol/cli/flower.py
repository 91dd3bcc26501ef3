"""`fedsol flower app` and `fedsol flower run`: federations of many machines."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say
from fedsol.cli.options import ExperimentArgument, SetOption, read_experiment
from fedsol.errors import InputError, RunError

STARTED = re.compile(r"started run (\d+)")
COMPLETED = "finished:completed"
STATUS_CHECKS = 30
"""How many times, a second apart, to ask Flower whether a run whose stream has ended is over."""


def app(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the app.")],
    experiment: ExperimentArgument = None,
    changes: SetOption = None,
    run_directory: Annotated[Path, typer.Option("--run", help="Directory of the run, on the server's machine.")] = Path(
        "runs/flower"
    ),
    name: Annotated[str, typer.Option("--name", help="Name of the app.")] = "fedsol-app",
) -> None:
    """Write an experiment as a Flower app, ready for `flwr run`."""
    from fedsol.engines import require_flower

    require_flower()
    from fedsol.config.tables import PRIVATE
    from fedsol.data.catalog import load_dataset
    from fedsol.deployment.app import write_app
    from fedsol.federation.federation import assemble, fill_defaults, partition_of
    from fedsol.studies.plan import read_data
    from fedsol.training.private import private_rounds, with_privacy

    settings = read_experiment(experiment, ["engine.kind=flower", *(changes or [])])
    is_private = settings.data.name == PRIVATE
    if settings.data.private.test is not None:  # the server's working directory is not this one
        test = Path(settings.data.private.test).expanduser().absolute()
        settings = settings.override({"data.private.test": str(test)})
    # So that errors appear here and not on the server; the data itself need not be here.
    dataset, is_here = (load_dataset(settings.data, settings.task.kind), True) if is_private else read_data(settings)
    settings = fill_defaults(settings, dataset)
    federation = with_privacy(assemble(settings, dataset, partition_of(settings, dataset)))
    private_rounds(federation, run_directory)
    write_app(federation.experiment, folder, run_directory.expanduser().absolute(), name)
    if not is_here:
        say(f"{settings.data.name} is not here; the machines that run the app download it, or find it in data.root.")
    say(f"The app is in {folder}. Start it on a SuperLink: fedsol flower run {folder} LINK")


def run(
    folder: Annotated[Path, typer.Argument(help="The app's folder.")],
    link: Annotated[str, typer.Argument(help="A SuperLink named in Flower's configuration.")] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run of this app.")] = False,
    changes: SetOption = None,
    personalize: Annotated[
        str, typer.Option("--personalize", help="Afterward, train a model for every node: 'finetune; test=held-out'.")
    ] = "",
) -> None:
    """Start an app on a SuperLink and show its output."""
    from fedsol.engines import require_flower

    require_flower()
    if not (folder / "pyproject.toml").is_file():
        raise InputError(f"{folder}: must be a Flower app (no pyproject.toml); create one with: fedsol flower app")
    config = [f"resume={'true' if resume else 'false'}"]
    if changes:
        if any("'" in change or ";" in change for change in changes):
            raise InputError("--set: values with ' or ; are not allowed here; write a new app")
        config.append(f"set='{';'.join(changes)}'")
    if personalize:
        if "'" in personalize:
            raise InputError(f"--personalize: values with ' are not allowed (got {personalize})")
        config.append(f"personalize='{personalize}'")
    flwr = str(Path(sys.executable).with_name("flwr"))
    identifier = _stream([flwr, "run", str(folder), link, "--stream", "--run-config", " ".join(config)])
    status = _status(flwr, link, identifier) if identifier else "not started"
    if status != COMPLETED:
        raise RunError(f"the run {identifier or ''} on {link} is {status}; its output is above")


def _stream(command: list[str]) -> str | None:
    """Show the output of `flwr run`; return the id of the run that it started."""
    found = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if match := STARTED.search(line):
                found = match[1]
    return found


def _status(flwr: str, link: str, identifier: str) -> str:
    """Return the status of a run, once it is over: its stream may end a moment before the run does."""
    plain = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}  # notebooks set it
    status = "unknown"
    for _ in range(STATUS_CHECKS):
        command = [flwr, "list", link, "--run-id", identifier, "--format", "json"]
        done = subprocess.run(command, env=plain, capture_output=True, text=True)
        runs = json.loads(done.stdout or "{}").get("runs", [])
        if not runs:
            return "unknown: its SuperLink does not answer"
        status = str(runs[0]["status"])
        if status.startswith("finished"):
            break
        time.sleep(1)
    return status
