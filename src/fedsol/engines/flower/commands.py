"""What `fedsol flower …` does, once its arguments are known."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsol.commands import console, read_experiment
from fedsol.engines import require_flower
from fedsol.errors import InputError, RunError
from fedsol.federation import build_federation


def write_app_for(name: str | None, changes: Sequence[str], folder: Path, out: Path, app_name: str) -> None:
    """`fedsol flower app`. The experiment is made concrete first: what fails here would fail on the server."""
    require_flower()
    from fedsol.engines.flower.app import write_app
    from fedsol.engines.flower.grid import check_privacy

    experiment = read_experiment(name, ["engine.kind=flower", *changes])
    federation = build_federation(experiment)
    check_privacy(federation)
    write_app(federation.experiment, folder, out.expanduser().absolute(), app_name)
    console.print(f"The app is in {folder}. Start it on a SuperLink: fedsol flower run {folder} LINK", highlight=False)


def run_app(folder: Path, link: str, resume: bool, changes: Sequence[str]) -> None:
    """`fedsol flower run`: `flwr run` with the run configuration written out."""
    require_flower()
    if not (folder / "pyproject.toml").is_file():
        raise InputError(f"{folder}: is no Flower app (no pyproject.toml); make one with: fedsol flower app")
    config = [f"resume={'true' if resume else 'false'}"]
    if changes:
        if any("'" in change or ";" in change for change in changes):
            raise InputError("--set: values with ' or ; are not allowed here; write a new app")
        config.append(f"set='{';'.join(changes)}'")
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run([str(flwr), "run", str(folder), link, "--stream", "--run-config", " ".join(config)])
    if done.returncode:
        raise RunError(f"flwr run ended with exit code {done.returncode}")
