"""What FedSOL perturbs, and how far: the runs of a group by Lambda, perturbed weights and rho."""

import statistics
from collections.abc import Sequence

from fedsol.paper.settings import METHODS
from fedsol.paper.store import LAST, last_mean
from tools.results import Kept, setting_of

FIXED = {key: value for key, value in METHODS["FedSOL"].items() if key not in ("strength", "perturb", "rho")}
"""What the runs of the table have in common: all of FedSOL's settings but those that it shows."""


def perturbation_table(runs: Sequence[Kept]) -> list[str]:
    """Markdown lines: a row by Lambda and perturbed weights, a column by rho, the means of the last rounds in %.

    Nothing without two values of rho or two kinds of perturbed weights. rho = 0 is FedAvg's run, the same in every row.
    Left out are runs of FedSOL with another proximal loss than the paper's, and runs of other settings than most have.
    """
    by_setting: dict[str, list[Kept]] = {}
    for item in runs:
        by_setting.setdefault(setting_of(item.run.experiment), []).append(item)
    alike = max(by_setting.values(), key=len)
    base = _mean([item for item in alike if item.run.experiment.algorithm["name"] == "fedavg"])
    cells: dict[tuple[str, str], dict[float, list[Kept]]] = {}
    for item in alike:
        table = item.run.experiment.algorithm
        if all(table.get(key) == value for key, value in FIXED.items()) and table["rho"] > 0:
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


def _mean(items: Sequence[Kept]) -> str:
    """Over seeds, in %; empty without a run."""
    return f"{100 * statistics.fmean(last_mean(item.run) for item in items):.2f}" if items else ""
