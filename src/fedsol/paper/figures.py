"""The paper's figures that are drawn from training runs. They carry no printed numbers to compare with."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import LAST, Cell, Draw, Drawn, FinishedRun, Folders, Ours, Recipe
from fedsol.paper.results import titled
from fedsol.paper.setting import DATASETS, METHODS, experiment, fedsol
from fedsol.paper.tables import CIFAR, LDA, facts_of, main_cells

FACTORS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sampling ratio": ("server.fraction", (0.02, 0.05, 0.1, 0.2, 0.5)),
    "local epochs": ("client.epochs", (1, 3, 5, 10)),
    "learning rate": ("client.lr", (0.001, 0.01, 0.03, 0.1)),
}
"""The paper names the factors, not the values (but for a ratio of 0.02): these are our choice."""

RHOS = (0.1, 0.5, 1.0, 1.5, 2.0)


def curve_cells() -> list[Cell]:
    """Learning curves: the runs of the main table with LDA (alpha = 0.1), also those that are not the paper's own."""
    found = []
    for cell in main_cells():
        dataset, _, level = cell.key[2].partition(", ")
        if level == LDA:
            found.append(Cell(("", cell.key[1], dataset), cell.facts, cell.experiment, extra=cell.extra))
    return found


def factor_cells(*methods: str) -> list[Cell]:
    """CIFAR-10 (alpha = 0.1) by sampling ratio, local epochs, learning rate and rho."""
    cells = []
    for method in methods:
        for factor, (key, values) in FACTORS.items():
            for value in values:
                run = experiment(CIFAR, LDA, METHODS[method], changes={key: value})
                cells.append(
                    _cell(factor, method, f"{value:g}", run, method=method.lower(), factor=factor, value=f"{value:g}")
                )
        for value in RHOS if method != "FedAvg" else ():
            run = experiment(CIFAR, LDA, {**METHODS[method], "rho": value})
            cells.append(
                _cell("rho", method, f"{value:g}", run, method=method.lower(), factor="rho", value=f"{value:g}")
            )
    return cells


def strength_cells() -> list[Cell]:
    """Fixed against adaptive strength by rho."""
    return [
        _cell("", strength, f"rho = {rho:g}", experiment(CIFAR, LDA, fedsol(rho=rho, strength=strength)), **facts)
        for strength in ("fixed", "adaptive")
        for rho in RHOS
        for facts in ({"strength": strength, "rho": f"{rho:g}"},)
    ]


def _cell(block: str, row: str, column: str, run: Experiment, **facts: str) -> Cell:
    return Cell((block, row, column), {**facts_of(run), **facts}, run)


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
        runs = {method: [run.smoothed() for run in one.runs] for method, one in found.items()}
        title = titled(f"{dataset}, LDA {LDA}, mean of {LAST} rounds", of_it, ours)
        stem = f"learning-curves-{DATASETS[dataset]}"
        written += [draw_runs(runs, folders.out / f"{stem}.{kind}", title) for kind in ("png", "pdf")]
        lines += _as_far_as_fedavg(dataset, found)
    return Drawn(written, lines)


def _as_far_as_fedavg(dataset: str, found: Mapping[str, Ours]) -> list[str]:
    """In which round each seed of the other methods was first as good as FedAvg in the end."""
    others = [method for method in found if method != "FedAvg"]
    if "FedAvg" not in found or not others or any(len(run.means) < LAST for run in found["FedAvg"].runs):
        return []
    last = statistics.fmean(run.means[-1] for run in found["FedAvg"].runs)
    rounds = {method: [run.reached(last) for run in found[method].runs] for method in others}
    shown = [
        f"{method} {', '.join('–' if one is None else str(one) for one in each)}" for method, each in rounds.items()
    ]
    level = f"FedAvg's mean of the last {LAST} rounds is {100 * last:.2f} %"
    return [f"{dataset}: {level}; as high in round: {'; '.join(shown)}"]


def draw_runs(runs: Mapping[str, Sequence[FinishedRun]], path: Path, title: str) -> Path:
    """Learning curves by label, a run per seed; seeds are cut to the shortest."""
    from fedsol.plots.curves import Curve, draw_curves

    curves = []
    for label, seeds in runs.items():
        shortest = min((run.rows for run in seeds), key=len)
        values: list[list[Any]] = [[row["test_accuracy"] for row in run.rows[: len(shortest)]] for run in seeds]
        curves.append(Curve(label, [row["round"] for row in shortest], values))
    return draw_curves(curves, path, title=title)


def figure_recipes() -> list[Recipe]:
    """The figures, in the order of the paper."""
    own = "The paper's figure has no printed numbers and names no values but the ratio 0.02: the grid is our choice."
    return [
        Recipe(
            "learning-factors",
            "figure",
            "Sampling ratio, local epochs, learning rate and rho (CIFAR-10, LDA alpha = 0.1)",
            "fig:ablation",
            lambda: factor_cells("FedAvg", "FedSOL"),
            notes=[own],
            draw=draw_factor_panels("learning-factors", f"CIFAR-10, LDA {LDA}"),
        ),
        Recipe(
            "adaptive-strength",
            "figure",
            "Fixed and adaptive strength by rho (CIFAR-10, LDA alpha = 0.1); (b) of that figure: `strength`",
            "fig:adaptive_strength",
            strength_cells,
            notes=["Head perturbation. The paper's figure has no printed numbers; the values of rho are our choice."],
            draw=draw_factor_panels("adaptive-strength", f"FedSOL (head), CIFAR-10, LDA {LDA}"),
        ),
        Recipe(
            "learning-curves",
            "figure",
            "Learning curves of all methods (LDA alpha = 0.1)",
            "fig:learning_curve",
            curve_cells,
            notes=["The runs are those of `main`, so FedSOL's rho is 1.5 on CIFAR-10; curves are means of ten rounds."],
            draw=draw_learning_curves,
        ),
        Recipe(
            "learning-factors-sam",
            "figure",
            "The same factors for FedSAM and FedASAM (CIFAR-10, LDA alpha = 0.1)",
            "fig:ablation_R",
            lambda: factor_cells("FedSAM", "FedASAM"),
            notes=[own],
            draw=draw_factor_panels("learning-factors-sam", f"CIFAR-10, LDA {LDA}"),
        ),
    ]
