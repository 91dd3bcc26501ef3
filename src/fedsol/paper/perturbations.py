"""What FedSOL perturbs, and how far: the runs of a group by Lambda, perturbed weights and rho."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedsol.paper.kept import Kept
from fedsol.paper.recipe import LAST
from fedsol.paper.setting import METHODS

VARIED = ("strength", "perturb", "rho")


def perturbation_table(runs: Sequence[Kept]) -> list[str]:
    """Markdown lines: a row by Lambda and perturbed weights, a column by rho, the means of the last rounds in %.

    Nothing without two values of rho or two kinds of perturbed weights. rho = 0 is FedAvg's run, the same in every row.
    Runs of FedSOL whose other settings are not the paper's are left out.
    """
    base = _mean([item for item in runs if item.run.experiment.algorithm["name"] == "fedavg"])
    cells: dict[tuple[str, str], dict[float, list[Kept]]] = {}
    for item in runs:
        table = item.run.experiment.algorithm
        if _plain(table) == _plain(METHODS["FedSOL"]):
            cells.setdefault((table["strength"], table["perturb"]), {}).setdefault(table["rho"], []).append(item)
    rhos = sorted({rho for row in cells.values() for rho in row})
    if len(rhos) < 2 and len({perturb for _, perturb in cells}) < 2:
        return []
    titles = ["Lambda", "perturbed", *(["rho = 0 (FedAvg)"] if base else []), *(f"rho = {rho:g}" for rho in rhos)]
    lines = ["", f"FedSOL by what is perturbed, and rho (mean of the last {LAST} of these rounds):", ""]
    lines += [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    for (strength, perturb), row in sorted(cells.items()):
        values = [*([base] if base else []), *(_mean(row.get(rho, [])) for rho in rhos)]
        lines.append(f"| {' | '.join([f'`{strength}`', perturb, *values])} |")
    return lines


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in VARIED}


def _mean(items: Sequence[Kept]) -> str:
    """Over seeds, in %; empty without a run."""
    return f"{100 * statistics.fmean(item.run.means[-1] for item in items):.2f}" if items else ""
