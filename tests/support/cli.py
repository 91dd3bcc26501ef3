"""The command line as a user calls it."""

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
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
