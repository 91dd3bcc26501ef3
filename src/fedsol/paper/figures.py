"""The paper's figures that are drawn from training runs. They carry no printed numbers to compare with."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsol.config.experiment import Experiment
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key, figure_heading
from fedsol.paper.recipe import Cell, Draw, Drawn, Figure, Folders, Ours, TrainedTable, is_partial, run_cell, titled
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol
from fedsol.paper.store import LAST, first_round_at, last_mean, smoothed
from fedsol.paper.tables import main
from fedsol.runs.run import Run
from fedsol.training.loop import Callback

FACTORS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sampling ratio": ("server.fraction", (0.02, 0.05, 0.1, 0.2, 0.5)),
    "local epochs": ("client.epochs", (1, 3, 5, 10)),
    "learning rate": ("client.lr", (0.001, 0.01, 0.03, 0.1)),
}
"""The paper names the factors, not the values (but for a ratio of 0.02): these are our choice."""

RHOS = (0.1, 0.5, 1.0, 1.5, 2.0)


# --- factors ---------------------------------------------------------------------------------------------------------


def learning_factors() -> Figure:
    """Accuracy by sampling ratio, local epochs, learning rate and rho."""
    return _factor_figure("learning-factors", f"CIFAR-10, LDA {LDA}", _factor_cells("FedAvg", "FedSOL"))


def learning_factors_sam() -> Figure:
    """The same for FedSAM and FedASAM."""
    return _factor_figure("learning-factors-sam", f"CIFAR-10, LDA {LDA}", _factor_cells("FedSAM", "FedASAM"))


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
    return _factor_figure("adaptive-strength", f"FedSOL (head), CIFAR-10, LDA {LDA}", cells)


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


def _factor_figure(name: str, title: str, cells: Sequence[Cell]) -> Figure:
    return Figure(TrainedTable(figure_heading(name), cells), draw_factor_panels(name, title))


def draw_factor_panels(name: str, title: str) -> Draw:
    """Return what draws a panel for each factor, with a line for each method; FedAvg is a level line by rho."""

    def draw(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
        from fedsol.plots.sweep import draw_factors

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
    """Return mean and deviation as shares; a single seed has no deviation."""
    return found.mean / 100, (found.std or 0.0) / 100


# --- learning curves -------------------------------------------------------------------------------------------------


def learning_curves() -> Figure:
    """The runs of the main table with LDA (alpha = 0.1), round by round, with the extra rows."""
    cells = []
    for cell in main().cells:
        dataset, _, level = cell.key[2].partition(", ")
        if level == LDA:
            cells.append(Cell(("", cell.key[1], dataset), cell.facts, cell.experiment, extra=cell.extra))
    return Figure(TrainedTable(figure_heading("learning-curves"), cells), draw_learning_curves)


def draw_learning_curves(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
    """Draw the smoothed curves of each dataset that has runs, and say when methods were as good as FedAvg."""
    written: list[Path] = []
    lines: list[str] = []
    for dataset in dict.fromkeys(cell.key[2] for cell in cells if cell.key in ours):
        of_it = [cell for cell in cells if cell.key[2] == dataset]
        runs = {cell.key[1]: ours[cell.key].runs for cell in of_it if cell.key in ours}
        title = titled(f"{dataset}, LDA {LDA}, mean of {LAST} rounds", of_it, ours)
        stem = f"learning-curves-{DATASETS[dataset]}"
        written += [draw_smoothed(runs, folders.out / f"{stem}.{kind}", title) for kind in ("png", "pdf")]
        lines += _as_good_as_fedavg(dataset, runs)
    return Drawn(written, lines)


def _as_good_as_fedavg(dataset: str, runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return in which round each seed of the other methods was first as good as FedAvg in the end."""
    base = runs.get("FedAvg", [])
    if not base or len(runs) == 1 or any(len(run.accuracies) < LAST for run in base):
        return []
    last = statistics.fmean(last_mean(run) for run in base)
    shown = [
        f"{method} {', '.join(str(first_round_at(last, run) or '–') for run in seeds)}"
        for method, seeds in runs.items()
        if method != "FedAvg"
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


# --- what happens inside training: a few runs, analyzed ---------------------------------------------------------------


def orthogonality() -> Figure:
    """Proximal loss and cosine by rho."""
    runs = {f"rho {rho:g}": experiment(CIFAR, LDA, fedsol(rho=rho)) for rho in (0.0, 0.5, 1.0, 2.0)}
    return _analysis("orthogonality", runs)


def landscape() -> Figure:
    """The loss around the final models."""
    return _analysis("landscape", _runs(LDA, "FedAvg", "FedASAM", "FedSOL"))


def strength() -> Figure:
    """Lambda by layer."""
    run = experiment(CIFAR, LDA, fedsol(rho=1.0), changes={"rounds": 200})
    return _recorded_analysis("strength", {"FedSOL, rho 1": run})


def divergence() -> Figure:
    """Distance between the weights of clients."""
    return _recorded_analysis("divergence", _runs(LDA, "FedAvg", "FedSOL"))


def preservation() -> Figure:
    """What local training forgets, by class."""
    return _recorded_analysis("preservation", _runs("s = 2", "FedAvg", "FedSOL"))


def _runs(level: str, *methods: str) -> dict[str, Experiment]:
    return {method: experiment(CIFAR, level, METHODS[method]) for method in methods}


def _analysis(name: str, runs: Mapping[str, Experiment]) -> Figure:
    """Return runs analyzed together by `fedsol analyze` after the last round."""
    return Figure(TrainedTable(figure_heading(name), _accuracies(runs)), _draw_analysis(name))


def _recorded_analysis(name: str, runs: Mapping[str, Experiment]) -> Figure:
    """Return runs whose analysis is recorded in every round."""

    def callbacks(run: Experiment, path: Path) -> list[Callback]:
        from fedsol.analysis.rounds import callbacks_for

        return callbacks_for([name], path, run)

    table = TrainedTable(figure_heading(name), _accuracies(runs), callbacks=callbacks)
    return Figure(table, _draw_analysis(name))


def _accuracies(runs: Mapping[str, Experiment]) -> list[Cell]:
    return [run_cell(("", row, "accuracy"), run, {"method": row.lower()}) for row, run in runs.items()]


def _draw_analysis(name: str) -> Draw:
    def draw(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
        from fedsol.analysis import make_analysis
        from fedsol.analysis.base import Runs, run_analysis

        runs = [run for found in ours.values() for run in found.runs]
        note = "PARTIAL" if is_partial(cells, ours) else ""
        output = run_analysis(make_analysis(name), Runs(runs, note=note), folders.out / "analysis")
        return Drawn(output.files, output.lines)

    return draw
