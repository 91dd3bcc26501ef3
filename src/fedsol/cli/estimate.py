"""`fedsol estimate`: time, memory and bytes of an experiment before it runs."""

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsol.cli.console import say, say_table
from fedsol.cli.options import ExperimentArgument, JsonOption, SetOption, read_experiment
from fedsol.config.fields import LARGEST_COUNT
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.studies.estimate import Network
    from fedsol.studies.plan import Plan

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BANDWIDTHS = {
    prefix + unit: factor / parts
    for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))
    for unit, parts in (("bit", 8), ("bit/s", 8), ("B", 1), ("B/s", 1))
}
TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "Bytes": {
        "to a client": ("B", "bytes.client_down"),
        "from a client": ("B", "bytes.client_up"),
        "client state": ("B", "bytes.client_state"),
        "round, down": ("B", "bytes.round_down"),
        "round, up": ("B", "bytes.round_up"),
        "all, both": ("B", "bytes.total_down", "bytes.total_up"),
    },
    "This machine": {
        "round": ("s", "seconds.round"),
        "±": ("%", "seconds.spread"),
        "all rounds": ("s", "seconds.total"),
        "memory": ("B", "memory.server"),
        "+ each worker": ("B", "memory.worker"),
        "disk": ("B", "memory.states_on_disk", "memory.checkpoints"),
    },
    "Deployment: a round, and the server's memory": {
        "download": ("s", "deployment.download"),
        "train": ("s", "deployment.training"),
        "upload": ("s", "deployment.upload"),
        "server": ("s", "deployment.server"),
        "round": ("s", "deployment.round"),
        "all": ("s", "deployment.total"),
        "memory": ("B", "deployment.server_memory"),
    },
    "Deployment: a client, on average": {
        "rounds": ("", "deployment.client_rounds"),
        "bytes in one": ("B", "bytes.client_down", "bytes.client_up"),
        "bytes in all": ("B", "deployment.client_bytes"),
        "bytes in 30 days": ("B", "deployment.client_bytes_per_month"),
        "memory": ("B", "deployment.client_memory"),
        "disk": ("B", "deployment.client_disk"),
    },
}
"""The printed tables: for each column, its unit (bytes, seconds, a share or none) and the values to add up."""


def estimate(
    experiment: ExperimentArgument = None,
    changes: SetOption = None,
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", "-a", help="As in compare (default: the experiment's own).")
    ] = None,
    clients: Annotated[
        int | None, typer.Option("--clients", min=1, max=LARGEST_COUNT, help="Total number of clients.")
    ] = None,
    per_round: Annotated[
        int | None, typer.Option("--per-round", min=1, max=LARGEST_COUNT, help="Clients per round.")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, max=LARGEST_COUNT, help="Number of rounds.")] = None,
    examples: Annotated[
        int | None, typer.Option("--examples", min=1, max=LARGEST_COUNT, help="Samples per client.")
    ] = None,
    up: Annotated[str | None, typer.Option("--up", help="A client's upload, such as 10Mbit.")] = None,
    down: Annotated[str | None, typer.Option("--down", help="A client's download, such as 50Mbit.")] = None,
    server_up: Annotated[str | None, typer.Option("--server-up", help="The server's link to all clients.")] = None,
    server_down: Annotated[str | None, typer.Option("--server-down", help="The server's link from them.")] = None,
    device_speed: Annotated[
        float | None, typer.Option("--device-speed", help="Speed of a client's device relative to a worker here.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", help="Time between the starts of rounds, such as 10min.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate time, memory and bytes, here and in a deployment, without downloading or writing anything."""
    from rich.console import Console

    from fedsol.studies.estimate import Network
    from fedsol.studies.estimate import estimate as estimate_plans
    from fedsol.studies.plan import make_plans
    from fedsol.studies.variants import Variant, parse_variants

    if device_speed is not None and not 0 < device_speed < math.inf:
        raise InputError(f"--device-speed: must be greater than 0 (got {device_speed})")
    network = Network(
        up=parse_quantity("--up", up, _BANDWIDTHS, "10Mbit"),
        down=parse_quantity("--down", down, _BANDWIDTHS, "10Mbit"),
        server_up=parse_quantity("--server-up", server_up, _BANDWIDTHS, "10Mbit"),
        server_down=parse_quantity("--server-down", server_down, _BANDWIDTHS, "10Mbit"),
        device_speed=device_speed,
        interval=parse_quantity("--interval", interval, _SECONDS, "10min"),
    )
    numbers = {"data.partition.clients": clients, "rounds": rounds}
    stated = [f"{key}={value}" for key, value in numbers.items() if value is not None]
    base = read_experiment(experiment, [*(changes or []), *stated])
    own = [Variant(base.algorithm["name"], base)]
    plans = make_plans(parse_variants(algorithms, base) if algorithms else own, per_round, examples)
    with Console(stderr=True).status("running three short rounds of each method …"):
        found = estimate_plans(plans, network)
    notes = assumptions(plans, network)
    if as_json:
        print(json.dumps({"data": base.data.name, "methods": found, "assumptions": notes}, indent=2))
    else:
        _say_tables(plans[0], found, notes)


def parse_quantity(option: str, text: str | None, units: Mapping[str, float], example: str) -> float | None:
    """Return a number with a unit, such as `10Mbit` or `1.5 h`, in bytes per second or in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z/]+)", text.strip())
    value = float(match[1]) * units.get(match[2], 0.0) if match else 0.0
    if not 0 < value < math.inf:
        known = ", ".join(unit for unit in units if "/" not in unit)
        raise InputError(
            f"{option}: must be a number greater than 0 with a unit, such as {example} (got {text!r}); units: {known}"
        )
    return value


def _say_tables(plan: "Plan", found: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> None:
    from fedsol.config.overrides import flatten
    from fedsol.studies.estimate import show_bytes, show_seconds

    client = plan.experiment.client
    number, unit = (client.epochs, "epoch") if client.steps is None else (client.steps, "step")
    work = f"{number:,} local {unit}{'s' * (number > 1)}"
    say(
        f"{plan.experiment.data.name}, {plan.experiment.model.name} ({show_bytes(found[0]['memory']['model'])}): "
        f"{plan.clients:,} clients, {plan.per_round:,} in a round, {plan.rounds:,} rounds, {plan.workers} at a time on "
        f"this machine, {work}, batches of {client.batch_size}\n"
    )
    show = {"B": show_bytes, "s": show_seconds, "%": "{:.0%}".format, "": "{:.3g}".format}
    values = [flatten(method) for method in found]
    for title, columns in TABLES.items():
        if found[0]["deployment"] is not None or not title.startswith("Deployment"):
            rows = [
                [one["label"], *(show[unit](sum(one[key] for key in keys)) for unit, *keys in columns.values())]
                for one in values
            ]
            say_table(["method", *columns], rows, title)
    say("\n- ".join(["Assumptions", *notes]))


def _held(plan: "Plan") -> str:
    """Return how many updates of a round are in memory at once, and why."""
    from fedsol.studies.estimate import reason_held, updates_held

    if reason := reason_held(plan):
        return f"memory: {plan.label} holds all {plan.per_round:,} updates of a round: {reason}"
    return f"memory: {plan.label} averages updates as they arrive; at most {updates_held(plan):,} are held at once"


def _private(plan: "Plan") -> str:
    """Return what the run will spend; empty without privacy."""
    from fedsol.studies.estimate import make_trial
    from fedsol.training.private import plan_privacy, remembered

    if not plan.experiment.privacy.is_on:
        return ""
    return plan_privacy(plan.experiment, plan.sizes.tolist(), remembered(make_trial(plan)))


def assumptions(plans: "Sequence[Plan]", network: "Network") -> list[str]:
    """Return the assumptions behind the estimate, one per line."""
    from fedsol.studies.estimate import Network

    load = f" (average {os.getloadavg()[0]:.1f})" if hasattr(os, "getloadavg") else ""
    process = "that of the process is not known on Windows" if sys.platform == "win32" else "the process is measured"
    lines = [
        *dict.fromkeys(note for plan in plans for note in plan.assumptions),
        "bytes: exact for weights, broadcast and payload, as in metrics.jsonl; framing and client states excluded",
        f"time: three short rounds on this machine at its current load{load}, scaled by samples, clients and rounds; "
        "± is half the difference between the two that are timed and knows nothing of a busier machine later; "
        "startup, reading data, checkpoints and [faults] excluded",
        f"memory: tensors are counted, for the largest client, and {process}; torch's scratch memory excluded",
        "disk: checkpoints and client states of a simulation",
    ]
    lines += dict.fromkeys(_held(plan) for plan in plans)
    lines += filter(None, dict.fromkeys(_private(plan) for plan in plans))
    if any(plan.experiment.faults.dropout for plan in plans):
        lines += ["bytes up: an expected value, since a share faults.dropout of the sampled clients never answers"]
    if network != Network():
        links = ("up", "down", "server_up", "server_down")
        unlimited = [f"--{name.replace('_', '-')}" for name in links if getattr(network, name) is None]
        lines += [
            "deployment: all clients of a round download, train, then upload; latency, stragglers, drop-outs and "
            "retries excluded",
            f"deployment: a device trains {network.device_speed or 1.0:g} times as fast as a worker of this machine; "
            "the server is as fast as this machine",
            "deployment: client states stay on the clients; a client's memory excludes its data and the interpreter",
        ]
        if unlimited:
            lines += [f"deployment: not given, so unlimited: {', '.join(unlimited)}"]
    return lines
