"""Write the tables of docs/personalization.md from results/personalization.

`python tools/personal_table.py`; with `--check` nothing is written, and the exit code says whether the page is
current. A cell whose results are not here says so.
"""

import sys
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fedsol.core.statistics import sample_mean_std
from fedsol.personalization.comparison import Entry, read_entries
from fedsol.personalization.statistics import accuracies_after, epochs_of, losers, spread

REPOSITORY = Path(__file__).resolve().parents[1]
HERE = REPOSITORY / "results" / "personalization"
PAGE = REPOSITORY / "docs" / "personalization.md"
MISSING = "not run"

IN_PAPER = {
    "local-only": "Local-only",
    "fedavg": "FedAvg",
    "perfedavg": "PerFedAvg",
    "fedbabu": "FedBABU",
    "knn-per": "kNN-Per",
    "fedsol": "FedSOL-FT",
}
"""What the rows are called in the paper's table, whose first column is CIFAR-10."""

METHODS = {
    "local-only": "Local-only",
    "fedavg": "FedAvg + fine-tuning",
    "perfedavg": "PerFedAvg",
    "perfedavg-plain": "PerFedAvg, plain fine-tuning (`steps=plain`)",
    "fedbabu": "FedBABU",
    "knn-per": "kNN-Per",
    "fedsol": "FedSOL-FT, `adaptive`",
    "fedsol-column": "FedSOL-FT, `adaptive-column`",
    "fedsol-knn-per": "FedSOL, `adaptive`, + kNN-Per",
    "fedsol-babu": 'FedSOL, `adaptive`, + FedBABU (`perturb = "body"`)',
}
HELD_OUT = {
    "local-only": "Local-only",
    "fedavg": "FedAvg + fine-tuning",
    "knn-per": "kNN-Per, mixing weight 0.5",
    "knn-per-chosen": "kNN-Per, mixing weight chosen by each client",
}


def render() -> dict[str, str]:
    """Return the tables by the name of their place in the page."""
    digits, cifar10 = HERE / "digits", HERE / "cifar10"
    ours = "mean ± std | worst / best 10 % | lose"
    head = (
        f"| method | e | digits: {ours} | CIFAR-10: {ours} | paper, CIFAR-10 |\n|---|---|---|---|---|---|---|---|---|"
    )
    lines = [head]
    paper = tomllib.loads(resources.files("fedsol.paper").joinpath("numbers", "personalized.toml").read_text("utf-8"))
    for name, title in METHODS.items():
        for row, epochs in enumerate(["–"] if name == "local-only" else [1, 5]):
            cells = [*_cells(digits, name, row), *_cells(cifar10, name, row), _paper(paper, name, epochs)]
            lines.append(f"| {title if not row else ''} | {epochs} | {' | '.join(cells)} |")
    held_out = ["| method | e | mean ± std | worst / best 10 % | lose |\n|---|---|---|---|---|"]
    for name, title in HELD_OUT.items():
        for row, epochs in enumerate(["–"] if name == "local-only" else [1, 5]):
            cells = _cells(digits, f"held-out/{name}", row, alone="held-out/local-only")
            held_out.append(f"| {title if not row else ''} | {epochs} | {' | '.join(cells)} |")
    return {"methods": "\n".join(lines), "held-out": "\n".join(held_out)}


def _cells(folder: Path, name: str, row: int, alone: str = "local-only") -> list[str]:
    """Return mean, deviation (in brackets: of the seeds' means), outer deciles, losers, over all clients and seeds."""
    entries = [_entry(seed / name, seed / alone) for seed in sorted(folder.glob("seed-*")) if (seed / name).is_dir()]
    if not entries:
        return [MISSING, "", ""]
    epochs = epochs_of(entries[0].results)[row]
    by_seed = [list(accuracies_after(entry.results, epochs).values()) for entry in entries]
    total = spread([accuracy for accuracies in by_seed for accuracy in accuracies])
    means = [mean for accuracies in by_seed if (mean := spread(accuracies).mean) is not None]
    between = f" ({_points(of_seeds.std)})" if len(means) > 1 and (of_seeds := sample_mean_std(means)) else ""
    lost = [losers(entry.results, epochs, entry.alone) for entry in entries if entry.alone is not None]
    return [
        f"{_points(total.mean)} ± {_points(total.std)}{between}",
        f"{_points(total.worst_decile)} / {_points(total.best_decile)}",
        f"{sum(len(one.clients) for one in lost)} of {sum(one.of for one in lost)}" if lost else "–",
    ]


def _paper(paper: dict[str, Any], name: str, epochs: int | str) -> str:
    if name not in IN_PAPER:
        return "–"
    key = IN_PAPER[name] if epochs == "–" else f"{IN_PAPER[name]}, e = {epochs}"
    return str(paper["block"][0]["rows"][key][0])


def _entry(path: Path, alone: Path) -> Entry:
    baselines = [alone] if alone.is_dir() and alone != path else []
    return read_entries([path], baselines)[0]


def _points(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def filled(page: str, tables: dict[str, str]) -> str:
    """Return the page with its tables replaced, each between two comments."""
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(start)
        page = f"{before}{start}{table}\n{end}{rest.split(end)[1]}"
    return page


def main(arguments: Sequence[str]) -> int:
    """Return 0 if the page is, or now is, current."""
    page = PAGE.read_text(encoding="utf-8")
    current = filled(page, render())
    if "--check" in arguments:
        return int(current != page)
    PAGE.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
