"""The command line as a user calls it."""

import signal

from typer.testing import CliRunner

from fedsol.cli.app import app

TINY = [
    "--set",
    "data.name=digits",
    "--set",
    "engine.kind=local",
    "--set",
    "rounds=2",
    "--set",
    "data.partition.clients=8",
    "--set",
    "client.epochs=1",
]


def fedsol(*arguments):
    before = signal.getsignal(signal.SIGINT)
    try:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGINT, before)  # a command that was interrupted ignores it, and this process continues
