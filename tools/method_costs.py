"""Write the table of costs in docs/algorithms/README.md: counted from the code, not typed.

`python -m tools.method_costs`. FLOPs of a local step are torch's count on the paper's CNN; bytes are those of the
tensors that a sampled client receives, sends and stores, and that the server stores besides the weights.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsol.algorithms import make_algorithm
from fedsol.analysis.cost import LocalStep, flops, random_batch, without_data
from fedsol.config.catalog import GROUPS
from fedsol.config.experiment import Experiment
from fedsol.core.weights import size_in_bytes
from fedsol.federation.federation import Federation
from fedsol.studies.estimate import bytes_per_client
from tools.personal_table import filled

PAGES = Path(__file__).resolve().parents[1] / "docs" / "algorithms"
TITLES = {
    "fedsol": "FedSOL",
    "fedsol-ablation": "FedSOL's ablation A1",
    "fedlesam-s": "FedLESAM-S",
    "fedlesam-d": "FedLESAM-D",
    "perturbed": "`perturbed`",
}
"""Titles of methods whose page has another heading."""
PLACES = {"fedsol-ablation": "ablation", "fedlesam-s": "fedlesam", "fedlesam-d": "fedlesam"}
FURTHER: dict[str, list[dict[str, Any]]] = {
    "fednova": [{"control": True}],
    "fedsol": [{"proximal": "l2"}, {"perturb": "body"}, {"perturb": "all"}, {"perturb": "all", "proximal": "l2"}],
    "perturbed": [
        {"direction": direction, "strength": "fixed"} for direction in ("local", "last-change", "momentum", "control")
    ],
}
"""Settings whose cost differs from that of the defaults."""
HEAD = (
    "| method | FLOPs per step | bytes down | bytes up | state on a client | state on the server |\n"
    "|---|---|---|---|---|---|"
)


def render() -> str:
    """Return the table, group by group."""
    federation = without_data(Experiment(data={"name": "cifar10"}, client={"batch_size": 2}))
    plain = _flops(replace(federation, algorithm=make_algorithm({"name": "fedavg"})))
    lines = [HEAD]
    for group, years in GROUPS.items():
        lines.append(f"| **{group}** | | | | | |")
        for name in years:
            for settings in ({}, *FURTHER.get(name, [])):
                lines.append(_row(federation, name, settings, plain))
    return "\n".join(lines)


def _row(base: Federation, name: str, settings: dict[str, Any], plain: int) -> str:
    algorithm = make_algorithm({"name": name, **settings})
    federation = replace(base, algorithm=algorithm)
    label = ", ".join([_title(name), *(f"`{key} = {_toml(value)}`" for key, value in settings.items())])
    if algorithm.personal_settings().get("method") == "local-only":
        return f"| {label} | – | – | – | – | – |"
    model, server = size_in_bytes(federation.initial_weights()), federation.initial_server()
    traffic = bytes_per_client(federation)
    batches = algorithm.batches_per_step
    step = f"{_flops(federation) / plain:.2f}" + (f" ({batches} batches)" if batches > 1 else "")
    cells = [step, *(_size(n, model) for n in (traffic.down, traffic.up, traffic.state))]
    return f"| {label} | {' | '.join(cells)} | {_size(size_in_bytes(server.state), model)} |"


def _flops(federation: Federation) -> int:
    """Count the FLOPs of a step."""
    return flops(LocalStep(federation, federation.algorithm, random_batch(federation)).gradient)


def _size(count: int, model: int) -> str:
    """Return bytes in units of the model's size, and what is over, such as a number, in bytes."""
    whole, rest = divmod(count, model)
    if 100 * rest > model:  # some of the weights
        return f"{count / model:.2f}"
    parts = [str(whole)] * bool(whole) + [f"{rest} B"] * bool(rest)
    return " + ".join(parts) or "–"


def _title(name: str) -> str:
    page = PLACES.get(name, name)
    heading = (PAGES / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{TITLES.get(name, heading)}]({page}.md)"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def page() -> str:
    """Return the page with the current table."""
    return filled((PAGES / "README.md").read_text(encoding="utf-8"), {"costs": render()})


if __name__ == "__main__":
    (PAGES / "README.md").write_text(page(), encoding="utf-8")
