"""`fedsol estimate`: reads what was asked for, and shows what was found as tables or JSON."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsol.cli.commands import console, read_experiment, say
from fedsol.engines import available_cores
from fedsol.studies.estimate.calibration import STEPS
from fedsol.studies.estimate.plan import Plan, Request, make_plans
from fedsol.studies.estimate.prediction import Deployment, Estimate, Network, estimate
from fedsol.studies.estimate.units import parse_bandwidth, parse_duration, show_bytes, show_seconds
from fedsol.studies.variants import Variant, parse_variants

Columns = dict[str, Callable[[Estimate], str]]


def show_estimate(
    name: str | None,
    changes: Sequence[str],
    algorithms: Sequence[str],
    request: Request,
    network: Network,
    as_json: bool,
) -> None:
    """Estimates, and prints the result."""
    request.check()
    network.check()
    experiment = read_experiment(name, changes)
    own = [Variant(experiment.algorithm["name"], experiment)]
    plans = make_plans(parse_variants(algorithms, experiment) if algorithms else own, request)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with Console(stderr=True).status("measuring …"):
        found = estimate(plans, network)
    notes = assumptions(plans, found, network, load)
    if as_json:
        print(json.dumps(as_dict(plans, found, notes), indent=2))
    else:
        _print(plans, found, notes)


def parse_network(
    up: str | None,
    down: str | None,
    server_up: str | None,
    server_down: str | None,
    device_speed: float | None,
    interval: str | None,
) -> Network:
    """The deployment that the options describe."""
    given = {"up": up, "down": down, "server_up": server_up, "server_down": server_down}
    rates = {
        key: None if text is None else parse_bandwidth(f"--{key.replace('_', '-')}", text)
        for key, text in given.items()
    }
    pause = None if interval is None else parse_duration("--interval", interval)
    return Network(**rates, device_speed=device_speed, interval=pause)


def as_dict(plans: Sequence[Plan], found: Sequence[Estimate], notes: Sequence[str]) -> dict[str, Any]:
    """The result as plain values: bytes and seconds."""
    methods = [{**asdict(one), "algorithm": plan.experiment.algorithm} for plan, one in zip(plans, found, strict=True)]
    return {"data": plans[0].experiment.data.name, "methods": methods, "assumptions": list(notes)}


TRAFFIC: Columns = {
    "to a client": lambda one: show_bytes(one.bytes.client_down),
    "from a client": lambda one: show_bytes(one.bytes.client_up),
    "client state": lambda one: show_bytes(one.bytes.client_state),
    "round, down": lambda one: show_bytes(one.bytes.round_down),
    "round, up": lambda one: show_bytes(one.bytes.round_up),
    "all, both": lambda one: show_bytes(one.bytes.total_down + one.bytes.total_up),
}
HERE: Columns = {
    "round": lambda one: f"{show_seconds(one.seconds.round)} ± {100 * one.seconds.spread:.0f} %",
    "all rounds": lambda one: show_seconds(one.seconds.total),
    "memory": lambda one: show_bytes(one.memory.server),
    "+ each worker": lambda one: show_bytes(one.memory.worker),
    "disk": lambda one: show_bytes(one.memory.states_on_disk + one.memory.checkpoints),
}


def _deployed(show: Callable[[Deployment], str]) -> Callable[[Estimate], str]:
    def cell(one: Estimate) -> str:
        assert one.deployment is not None
        return show(one.deployment)

    return cell


ROUND: Columns = {
    "download": _deployed(lambda it: show_seconds(it.download)),
    "train": _deployed(lambda it: show_seconds(it.training)),
    "upload": _deployed(lambda it: show_seconds(it.upload)),
    "server": _deployed(lambda it: show_seconds(it.server)),
    "round": _deployed(lambda it: show_seconds(it.round)),
    "all": _deployed(lambda it: show_seconds(it.total)),
    "memory": _deployed(lambda it: show_bytes(it.server_memory)),
}
CLIENT: Columns = {
    "rounds": _deployed(lambda it: f"{it.client_rounds:.3g}"),
    "bytes in one": lambda one: show_bytes(one.bytes.client_down + one.bytes.client_up),
    "bytes in all": _deployed(lambda it: show_bytes(it.client_bytes)),
    "bytes in 30 days": _deployed(lambda it: show_bytes(it.client_bytes_per_month)),
    "memory": _deployed(lambda it: show_bytes(it.client_memory)),
    "disk": _deployed(lambda it: show_bytes(it.client_disk)),
}


def _print(plans: Sequence[Plan], found: Sequence[Estimate], notes: Sequence[str]) -> None:
    plan = plans[0]
    epochs = plan.experiment.client.epochs
    say(
        f"{plan.experiment.data.name}, {plan.experiment.model.name} ({show_bytes(found[0].memory.model)}): "
        f"{plan.clients:,} clients, {plan.per_round:,} in a round, {plan.rounds:,} rounds, "
        f"{epochs} local epoch{'s' if epochs > 1 else ''}, batches of {plan.experiment.client.batch_size}"
    )
    say("")
    _table("Bytes", TRAFFIC, found)
    _table(f"This machine, {plan.workers} at a time", HERE, found)
    if found[0].deployment is not None:
        _table("Deployment: a round, and the server's memory", ROUND, found)
        _table("Deployment: a client, on average", CLIENT, found)
    say("Assumptions")
    for note in notes:
        say(f"- {note}")


def _table(title: str, columns: Columns, found: Sequence[Estimate]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("method", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(escape(one.label), *(show(one) for show in columns.values()))
    console.print(table)


def assumptions(plans: Sequence[Plan], found: Sequence[Estimate], network: Network, load: float | None) -> list[str]:
    """What an estimate takes for granted, one line each."""
    given = list(dict.fromkeys(note for plan in plans for note in plan.assumptions))
    seconds, cores = found[0].seconds, available_cores()
    busy = f" (load {load:.1f} on {cores} cores when it began)" if load is not None else ""
    lines = [
        *given,
        "bytes: exact for the tensors of weights, broadcast and payload as metrics.jsonl counts them, uncompressed; a "
        "network adds its framing; client states are not among them",
        f"time: the median of {seconds.repeats} short measurements ({STEPS} local steps, some updates aggregated, some "
        f"of the test set evaluated) on this machine as busy as it is now{busy}; ± is half the way from the 10th to "
        "the 90th percentile of the repeats: it knows nothing of a machine that is busier or hotter later",
        "time: left out are starting up, reading data, checkpoints and client states on disk, and what [faults] does",
        "memory: tensors are counted, the process itself (with what it reads data with) is measured; a round's updates "
        "are held until they are averaged; torch's scratch memory and the allocator's reserve come on top",
        "disk: checkpoints and client states of a simulation; its results need little beside them",
    ]
    if any(plan.experiment.faults.dropout for plan in plans):
        lines.append("bytes up: the expected number, as a share faults.dropout of the sampled clients never answers")
    if network.is_stated:
        lines += _deployment_assumptions(network)
    return lines


def _deployment_assumptions(network: Network) -> list[str]:
    unlimited = [
        option
        for option, value in (
            ("--down", network.down),
            ("--up", network.up),
            ("--server-up", network.server_up),
            ("--server-down", network.server_down),
        )
        if value is None
    ]
    lines = [
        "deployment: all clients of a round download, then train, then upload, side by side; latency, stragglers, "
        "drop-outs and retries are not modelled",
        f"deployment: a device trains {network.device_speed or 1.0:g} times as fast as a worker of this machine; "
        "the server aggregates and evaluates as fast as this machine",
        "deployment: client states stay on the clients; a client's memory is that of its tensors and messages, without "
        "its own data and the interpreter",
    ]
    if unlimited:
        lines.append(f"deployment: not limited, as not stated: {', '.join(unlimited)}")
    return lines
