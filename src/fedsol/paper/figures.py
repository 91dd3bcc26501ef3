"""The paper's figures that are drawn from training runs. They carry no printed numbers to compare with."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Cell, Draw, Drawn, Figure, Folders, Ours, TrainedTable, run_cell, titled
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol
from fedsol.paper.store import LAST, first_round_at, last_mean, smoothed
from fedsol.paper.tables import main
from fedsol.runs.run import Run

FACTORS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sampling ratio": ("server.fraction", (0.02, 0.05, 0.1, 0.2, 0.5)),
    "local epochs": ("client.epochs", (1, 3, 5, 10)),
    "learning rate": ("client.lr", (0.001, 0.01, 0.03, 0.1)),
}
"""The paper names the factors, not the values (but for a ratio of 0.02): these are our choice."""

RHOS = (0.1, 0.5, 1.0, 1.5, 2.0)


GRID_IS_OURS = (
    "The paper's figure has no printed numbers and names no values but the ratio 0.02: the grid is our choice."
)


def learning_factors() -> Figure:
    """Accuracy by sampling ratio, local epochs, learning rate and rho."""
    title = "Sampling ratio, local epochs, learning rate and rho (CIFAR-10, LDA alpha = 0.1)"
    cells = _factor_cells("FedAvg", "FedSOL")
    table = TrainedTable("learning-factors", title, "fig:ablation", cells, notes=[GRID_IS_OURS])
    return Figure(table, draw_factor_panels("learning-factors", f"CIFAR-10, LDA {LDA}"))


def learning_factors_sam() -> Figure:
    """The same for FedSAM and FedASAM."""
    title = "The same factors for FedSAM and FedASAM (CIFAR-10, LDA alpha = 0.1)"
    cells = _factor_cells("FedSAM", "FedASAM")
    table = TrainedTable("learning-factors-sam", title, "fig:ablation_R", cells, notes=[GRID_IS_OURS])
    return Figure(table, draw_factor_panels("learning-factors-sam", f"CIFAR-10, LDA {LDA}"))


def _factor_cells(*methods: str) -> list[Cell]:
    cells = []
    for method in methods:
        runs = {
            (factor, value): experiment(CIFAR, LDA, METHODS[method], changes={key: value})
            for factor, (key, values) in FACTORS.items()
            for value in values
        }
        if method != "FedAvg":
            runs |= {("rho", rho): experiment(CIFAR, LDA, {**METHODS[method], "rho": rho}) for rho in RHOS}
        for (factor, value), run in runs.items():
            facts = {"method": method.lower(), "factor": factor, "value": f"{value:g}"}
            cells.append(run_cell((factor, method, f"{value:g}"), run, facts))
    return cells


def adaptive_strength() -> Figure:
    """Fixed against adaptive strength by rho."""
    cells = [
        run_cell(
            ("", strength, f"rho = {rho:g}"),
            experiment(CIFAR, LDA, fedsol(rho=rho, strength=strength)),
            {"strength": strength, "rho": f"{rho:g}"},
        )
        for strength in ("fixed", "adaptive")
        for rho in RHOS
    ]
    title = "Fixed and adaptive strength by rho (CIFAR-10, LDA alpha = 0.1); (b) of that figure: `strength`"
    notes = ["Head perturbation. The paper's figure has no printed numbers; the values of rho are our choice."]
    table = TrainedTable("adaptive-strength", title, "fig:adaptive_strength", cells, notes=notes)
    return Figure(table, draw_factor_panels("adaptive-strength", f"FedSOL (head), CIFAR-10, LDA {LDA}"))


def learning_curves() -> Figure:
    """The runs of the main table with LDA (alpha = 0.1), round by round, with the extra rows."""
    cells = []
    for cell in main().cells:
        dataset, _, level = cell.key[2].partition(", ")
        if level == LDA:
            cells.append(Cell(("", cell.key[1], dataset), cell.facts, cell.experiment, extra=cell.extra))
    title = "Learning curves of all methods (LDA alpha = 0.1)"
    notes = ["The runs are those of `main`, so FedSOL's rho is 1.5 on CIFAR-10; curves are means of ten rounds."]
    return Figure(
        TrainedTable("learning-curves", title, "fig:learning_curve", cells, notes=notes), draw_learning_curves
    )


def draw_factor_panels(name: str, title: str) -> Draw:
    """A panel for each factor, with a line for each method. FedAvg, which has no rho, is a level line there."""

    def draw(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
        from fedsol.plots.factor import draw_factors

        panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for cell in cells:
            if cell.key in ours:
                factor = cell.facts.get("factor", "rho")
                place = float(cell.facts["value"] if "value" in cell.facts else cell.facts[factor])
                lines = panels.setdefault(factor, {})
                lines.setdefault(cell.key[1], []).append((place, *_share(ours[cell.key])))
        level = ours.get(("sampling ratio", "FedAvg", f"{SPECS[CIFAR].fraction:g}"))
        if level is not None and "rho" in panels:
            places = sorted({point[0] for points in panels["rho"].values() for point in points})
            panels["rho"] = {"FedAvg": [(place, *_share(level)) for place in places], **panels["rho"]}
        return Drawn(draw_factors(panels, folders.out / name, titled(title, cells, ours)))

    return draw


def _share(found: Ours) -> tuple[float, float]:
    """Mean and deviation as shares; a single seed has no deviation."""
    return found.mean / 100, (found.std or 0.0) / 100


def draw_learning_curves(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
    """One picture for each dataset that has runs, smoothed as the paper's, and when methods came as far as FedAvg."""
    written: list[Path] = []
    lines: list[str] = []
    for dataset in dict.fromkeys(cell.key[2] for cell in cells if cell.key in ours):
        of_it = [cell for cell in cells if cell.key[2] == dataset]
        found = {cell.key[1]: ours[cell.key] for cell in of_it if cell.key in ours}
        runs = {method: one.runs for method, one in found.items()}
        title = titled(f"{dataset}, LDA {LDA}, mean of {LAST} rounds", of_it, ours)
        stem = f"learning-curves-{DATASETS[dataset]}"
        written += [draw_smoothed(runs, folders.out / f"{stem}.{kind}", title) for kind in ("png", "pdf")]
        lines += _as_far_as_fedavg(dataset, found)
    return Drawn(written, lines)


def _as_far_as_fedavg(dataset: str, found: Mapping[str, Ours]) -> list[str]:
    """In which round each seed of the other methods was first as good as FedAvg in the end."""
    others = [method for method in found if method != "FedAvg"]
    if "FedAvg" not in found or not others or any(len(run.accuracies) < LAST for run in found["FedAvg"].runs):
        return []
    last = statistics.fmean(last_mean(run) for run in found["FedAvg"].runs)
    rounds = {method: [first_round_at(last, run) for run in found[method].runs] for method in others}
    shown = [
        f"{method} {', '.join('–' if one is None else str(one) for one in each)}" for method, each in rounds.items()
    ]
    level = f"FedAvg's mean of the last {LAST} rounds is {100 * last:.2f} %"
    return [f"{dataset}: {level}; as high in round: {'; '.join(shown)}"]


def draw_smoothed(runs: Mapping[str, Sequence[Run]], path: Path, title: str) -> Path:
    """Draw smoothed learning curves by label, from a run per seed; seeds are cut to the shortest."""
    from fedsol.plots.curves import Curve, draw_curves

    curves = []
    for label, seeds in runs.items():
        lines = [smoothed(run) for run in seeds]
        rounds = [number for number, _ in min(lines, key=len)]
        curves.append(Curve(label, rounds, [[mean for _, mean in line[: len(rounds)]] for line in lines]))
    return draw_curves(curves, path, title=title)
