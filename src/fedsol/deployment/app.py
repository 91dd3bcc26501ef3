"""Write a Flower app for an experiment, ready for `flwr run`."""

import re
from pathlib import Path

import tomli_w

from fedsol.config.experiment import Experiment
from fedsol.core.files import disk_errors_named, write_atomically
from fedsol.errors import InputError

PACKAGE = "fedsol_app"

SERVER = '''"""The server of this federation."""

from pathlib import Path

from fedsol.deployment.server import make_server_app

app = make_server_app(Path(__file__).with_name("experiment.toml"))
'''

CLIENT = '''"""The app that every node of this federation runs."""

from fedsol.engines.flower.client import make_client_app

app = make_client_app()
'''

README = """# {name}

A Flower app made by `fedsol flower app`: {algorithm} on {data}, {clients} clients.

    flwr run . LINK --stream                                # the first time
    flwr run . LINK --stream --run-config "resume=true"     # to resume after the server was stopped

`LINK` is a SuperLink named in Flower's configuration. The run directory is `{out}`, on the SuperLink's machine.
Start each node with its own `--node-config "partition-id=N"`; {hint}
"""


def write_app(experiment: Experiment, folder: Path, out: Path, name: str) -> None:
    """Write the app's folder: its package, Flower's configuration and the experiment."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: must be empty; choose another directory (--out)")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise InputError(f"--name: must be lowercase letters, digits and -, a letter first (got {name!r})")
    private = experiment.data.name == "private"
    text = README.format(
        name=name,
        algorithm=experiment.algorithm["name"],
        data="the nodes' own data" if private else experiment.data.name,
        clients=experiment.data.partition.clients or "all",
        out=out,
        hint='and `data="/path/to/its.npz"` (or a folder of images by class).' if private else "it plays that client.",
    )
    with disk_errors_named(folder):
        (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / PACKAGE / "__init__.py", '"""A fedsol federation."""\n')
        write_atomically(folder / PACKAGE / "server_app.py", SERVER)
        write_atomically(folder / PACKAGE / "client_app.py", CLIENT)
        write_atomically(folder / PACKAGE / "experiment.toml", experiment.to_toml())
        write_atomically(folder / "README.md", text)
        write_atomically(folder / "pyproject.toml", tomli_w.dumps(_project(name, out)))


def _project(name: str, out: Path) -> dict[str, object]:
    return {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": name,
            "version": "1.0.0",
            "description": "A fedsol federation",
            "license": "MIT",
            "dependencies": ["fedsol[flower]"],
        },
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": ["."]}}}},
            "flwr": {
                "app": {
                    "publisher": "fedsol",
                    "components": {
                        "serverapp": f"{PACKAGE}.server_app:app",
                        "clientapp": f"{PACKAGE}.client_app:app",
                    },
                    "config": {"out": str(out), "resume": False, "set": "", "personalize": ""},
                }
            },
        },
    }
