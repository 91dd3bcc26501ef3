"""fedsol with short trainings, for code that is written for readers: one round of one epoch, in one process."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsol import api
from fedsol.__main__ import main as command

EPOCH = {"rounds": 1, "client.epochs": 1}
QUICK = {**EPOCH, "engine.kind": "local"}
SHORT: Mapping[tuple[str, ...], Mapping[str, Any]] = {("run",): QUICK, ("compare",): QUICK, ("flower", "app"): EPOCH}
"""What is set by commands that train."""


def options(arguments: Sequence[str]) -> list[str]:
    """Return the options that make a command short."""
    changes = next((SHORT[key] for key in SHORT if tuple(arguments[: len(key)]) == key), {})
    return [f"--set={key}={value}" for key, value in changes.items()]


def experiment_of() -> Callable[..., Any]:
    """Return the function that reads the experiment of every training in Python, made short."""
    complete = api.experiment_of

    def quickly(*arguments: Any) -> tuple[Any, Any]:
        experiment, values = complete(*arguments)
        return experiment.override(QUICK), values

    return quickly


CLIENT = """#!{python} -IS
import json, os, socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(link, [request.encode()], [0, 1, 2])
sys.exit(int(link.recv(9) or 1))
"""


@contextlib.contextmanager
def command_in(folder: Path) -> Iterator[None]:
    """Put a command `fedsol` into a folder: its processes are forked from this one, so none imports torch again."""
    program, address = folder / "fedsol", str(folder / "link")
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        server = os.fork()
        if not server:
            while True:
                link, _ = listener.accept()
                if not os.fork():
                    _answer(link)
                link.close()
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
        try:
            yield
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)


def _answer(link: socket.socket) -> None:
    """Be the process of one command."""
    request, files, *_ = socket.recv_fds(link, 2**20, 3)
    arguments, folder, environment = json.loads(request)
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    logging.getLogger().handlers.clear()
    warnings.resetwarnings()
    sys.argv = ["fedsol", *arguments, *options(arguments)]
    code: Any = 1
    try:
        command()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    link.send(str(code).encode())
    os._exit(0)
