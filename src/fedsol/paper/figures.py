"""The paper's figures that are drawn from training runs. They carry no printed numbers to compare with."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fedsol.analysis.base import Output
from fedsol.config.experiment import Experiment
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key, figure_heading
from fedsol.paper.recipe import Cell, Figure, Folders, Ours, Table, TrainedTable, is_partial, run_cell, titled
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol
from fedsol.paper.store import LAST, first_round_at, last_mean, smoothed
from fedsol.paper.tables import main
from fedsol.runs.run import Run
from fedsol.training.callbacks import Callback

FACTORS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sampling ratio": ("server.fraction", (0.02, 0.05, 0.1, 0.2, 0.5)),
    "local epochs": ("client.epochs", (1, 3, 5, 10)),
    "learning rate": ("client.lr", (0.001, 0.01, 0.03, 0.1)),
    "rho": ("algorithm.rho", (0.1, 0.5, 1.0, 1.5, 2.0)),
}
"""The paper names the factors, not the values (except for a ratio of 0.02): these are our choice."""


# --- factors ---------------------------------------------------------------------------------------------------------


def learning_factors(name: str = "learning-factors", methods: Sequence[str] = ("FedAvg", "FedSOL")) -> Figure:
    """Return the figure of accuracy by sampling ratio, local epochs, learning rate and rho."""
    cells = [
        run_cell(
            (factor, method, f"{value:g}"),
            experiment(CIFAR, LDA, METHODS[method], changes={key: value}),
            {"method": method.lower(), "factor": factor, "value": f"{value:g}"},
        )
        for method in methods
        for factor, (key, values) in FACTORS.items()
        if "rho" in METHODS[method] or factor != "rho"
        for value in values
    ]
    return Figure(TrainedTable(figure_heading(name), cells), partial(draw_factors, f"CIFAR-10, LDA {LDA}"))


def learning_factors_sam() -> Figure:
    """Return the same figure for FedSAM and FedASAM."""
    return learning_factors("learning-factors-sam", ("FedSAM", "FedASAM"))


def adaptive_strength() -> Figure:
    """Return the figure of fixed and adaptive strength by rho."""
    cells = [
        run_cell(
            ("", strength, f"rho = {rho:g}"),
            experiment(CIFAR, LDA, fedsol(rho=rho, strength=strength)),
            {"strength": strength, "rho": f"{rho:g}"},
        )
        for strength in ("fixed", "adaptive")
        for rho in FACTORS["rho"][1]
    ]
    draw = partial(draw_factors, f"FedSOL (head), CIFAR-10, LDA {LDA}")
    return Figure(TrainedTable(figure_heading("adaptive-strength"), cells), draw)


def draw_factors(title: str, table: Table, ours: Mapping[Key, Ours], folders: Folders) -> Output:
    """Draw a panel for each factor, with a line for each method; FedAvg is a horizontal line over rho."""
    from fedsol.plots import sweep

    def shares(found: Ours) -> tuple[float, float]:
        return found.mean / 100, (found.std or 0.0) / 100  # a single seed has no deviation

    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for cell in table.cells:
        if cell.key in ours:
            factor = cell.facts.get("factor", "rho")
            place = float(cell.facts["value"] if "value" in cell.facts else cell.facts[factor])
            panels.setdefault(factor, {}).setdefault(cell.key[1], []).append((place, *shares(ours[cell.key])))
    level = ours.get(("sampling ratio", "FedAvg", f"{SPECS[CIFAR].fraction:g}"))
    if level is not None and "rho" in panels:
        places = sorted({point[0] for points in panels["rho"].values() for point in points})
        panels["rho"] = {"FedAvg": [(place, *shares(level)) for place in places], **panels["rho"]}
    return Output(sweep.draw_factors(panels, folders.out / table.name, titled(title, table.cells, ours)), [])


# --- learning curves -------------------------------------------------------------------------------------------------


def learning_curves() -> Figure:
    """Return the figure of the main table's runs with LDA (alpha = 0.1), round by round, with the extra rows."""
    cells = [
        Cell(("", cell.key[1], cell.key[2].removesuffix(f", {LDA}")), cell.facts, cell.experiment, extra=cell.extra)
        for cell in main().cells
        if cell.key[2].endswith(f", {LDA}")
    ]
    return Figure(TrainedTable(figure_heading("learning-curves"), cells), draw_learning_curves)


def draw_learning_curves(table: Table, ours: Mapping[Key, Ours], folders: Folders) -> Output:
    """Draw the smoothed curves of each dataset that has runs, and say when methods reached FedAvg's accuracy."""
    output = Output([], [])
    for dataset in dict.fromkeys(cell.key[2] for cell in table.cells if cell.key in ours):
        cells = [cell for cell in table.cells if cell.key[2] == dataset]
        runs = {cell.key[1]: ours[cell.key].runs for cell in cells if cell.key in ours}
        title = titled(f"{dataset}, LDA {LDA}, mean of {LAST} rounds", cells, ours)
        for kind in ("png", "pdf"):
            path = folders.out / f"learning-curves-{DATASETS[dataset]}.{kind}"
            output.files.append(draw_smoothed(runs, path, title))
        base = runs.pop("FedAvg", ())
        if base and runs and all(len(run.accuracies) >= LAST for run in base):
            last = statistics.fmean(map(last_mean, base))
            shown = [
                f"{method} {', '.join(str(first_round_at(last, run) or '–') for run in seeds)}"
                for method, seeds in runs.items()
            ]
            level = f"FedAvg's mean of the last {LAST} rounds is {100 * last:.2f} %"
            output.lines.append(f"{dataset}: {level}; reached in round: {'; '.join(shown)}")
    return output


def draw_smoothed(runs: Mapping[str, Sequence[Run]], path: Path, title: str) -> Path:
    """Draw smoothed learning curves by label, from a run per seed; seeds are cut to the shortest."""
    from fedsol.plots.curves import Curve, draw_curves

    curves = []
    for label, seeds in runs.items():
        lines = [smoothed(run) for run in seeds]
        rounds = [number for number, _ in min(lines, key=len)]
        curves.append(Curve(label, rounds, [[mean for _, mean in line[: len(rounds)]] for line in lines]))
    return draw_curves(curves, path, title=title)


# --- inside training: a few runs, analyzed ----------------------------------------------------------------------------


def orthogonality() -> Figure:
    """Return the figure of proximal loss and cosine by rho."""
    runs = {f"rho {rho:g}": experiment(CIFAR, LDA, fedsol(rho=rho)) for rho in (0.0, 0.5, 1.0, 2.0)}
    return _analysis("orthogonality", runs)


def landscape() -> Figure:
    """Return the figure of the loss around the final models."""
    return _analysis("landscape", _runs(LDA, "FedAvg", "FedASAM", "FedSOL"))


def strength() -> Figure:
    """Return the figure of Lambda by layer."""
    run = experiment(CIFAR, LDA, fedsol(rho=1.0), changes={"rounds": 200})
    return _recorded_analysis("strength", {"FedSOL, rho 1": run})


def divergence() -> Figure:
    """Return the figure of the distance between the weights of clients."""
    return _recorded_analysis("divergence", _runs(LDA, "FedAvg", "FedSOL"))


def preservation() -> Figure:
    """Return the figure of what local training forgets, by class."""
    return _recorded_analysis("preservation", _runs("s = 2", "FedAvg", "FedSOL"))


def _runs(level: str, *methods: str) -> dict[str, Experiment]:
    return {method: experiment(CIFAR, level, METHODS[method]) for method in methods}


def _recorded_analysis(name: str, runs: Mapping[str, Experiment]) -> Figure:
    """Return runs whose analysis is recorded in every round."""

    def callbacks(run: Experiment, path: Path) -> list[Callback]:
        from fedsol.analysis.rounds import callbacks_for

        return callbacks_for([name], path, run)

    return _analysis(name, runs, callbacks)


def _analysis(
    name: str, runs: Mapping[str, Experiment], callbacks: Callable[[Experiment, Path], list[Callback]] | None = None
) -> Figure:
    """Return runs analyzed together by `fedsol analyze` after the last round."""
    cells = [run_cell(("", row, "accuracy"), run, {"method": row.lower()}) for row, run in runs.items()]
    return Figure(TrainedTable(figure_heading(name), cells, callbacks=callbacks), _draw_analysis)


def _draw_analysis(table: Table, ours: Mapping[Key, Ours], folders: Folders) -> Output:
    from fedsol.analysis import make_analysis
    from fedsol.analysis.base import Runs, run_analysis

    note = "PARTIAL" if is_partial(table.cells, ours) else ""
    runs = Runs([run for found in ours.values() for run in found.runs], note=note)
    return run_analysis(make_analysis(table.name), runs, folders.out / "analysis")
