"""`fedsol doctor`: what this machine is, and which precision is fastest on it."""

import json

from fedsol.cli.console import say, say_table
from fedsol.cli.options import JsonOption


def doctor(as_json: JsonOption = False) -> None:
    """Show cores, memory, devices and versions, and time a local step in every precision, for bug reports."""
    from fedsol.studies.doctor import METHODS, Trial, diagnose

    found = diagnose()
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
        return

    def row(trial: Trial) -> list[str]:
        times = [f"{trial.milliseconds[method]:.1f}" if trial.milliseconds else "" for method in METHODS]
        repeats = {True: "yes", False: "no", None: ""}[trial.is_deterministic]
        needs = ", ".join(f"needs {name}={value}" for name, value in trial.environment.items())
        return [trial.device, trial.precision, trial.failure or needs or "works", repeats, *times]

    facts = {key: value for key, value in found.machine.items() if key != "devices"}
    facts |= {f"device {name}": what for name, what in found.machine["devices"].items()}
    rows = [[key.replace("_", " "), str(value)] for key, value in facts.items()]
    say_table(["machine", "value"], rows, text_columns=2)
    headings = ["device", "precision", "result", "repeats exactly", *(f"{method}, ms" for method in METHODS)]
    caption = "Milliseconds of a local step: the paper's CNN, 50 images, one thread."
    say_table(headings, map(row, found.trials), "precisions", caption, 4)
    for line in found.advice:
        say(line)
