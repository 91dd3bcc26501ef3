"""The paper's figures of what happens inside training: each is a few runs, analyzed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Cell, Drawn, Figure, Folders, Ours, TrainedTable, is_partial, run_cell
from fedsol.paper.settings import CIFAR, LDA, METHODS, experiment, fedsol
from fedsol.training.loop import Callback


def orthogonality() -> Figure:
    """Proximal loss and cosine by rho."""
    runs = {f"rho {rho:g}": experiment(CIFAR, LDA, fedsol(rho=rho)) for rho in (0.0, 0.5, 1.0, 2.0)}
    title = f"Proximal loss, and cosine of g_u and g_p, by rho (CIFAR-10, LDA {LDA})"
    return _figure("orthogonality", title, "fig:fedsol_analysis", runs)


def strength() -> Figure:
    """Lambda by layer."""
    title = f"Mean Lambda by layer at round 200 (CIFAR-10, LDA {LDA}, rho 1); (a) of that figure: `adaptive-strength`"
    run = experiment(CIFAR, LDA, fedsol(rho=1.0), changes={"rounds": 200})
    return _recorded(_figure("strength", title, "fig:adaptive_strength", {"FedSOL, rho 1": run}))


def divergence() -> Figure:
    """Distance between the weights of clients."""
    title = f"Weight divergence (CIFAR-10, LDA {LDA})"
    return _recorded(_figure("divergence", title, "fig:weight_divergence", _runs(LDA, "FedAvg", "FedSOL")))


def preservation() -> Figure:
    """What local training forgets, by class."""
    title = "Knowledge preservation and class-wise accuracy (CIFAR-10, sharding s = 2)"
    return _recorded(_figure("preservation", title, "fig:knowledge_preservation", _runs("s = 2", "FedAvg", "FedSOL")))


def landscape() -> Figure:
    """The loss around the final models."""
    runs = _runs(LDA, "FedAvg", "FedASAM", "FedSOL")
    return _figure("landscape", f"Loss landscape (CIFAR-10, LDA {LDA})", "fig:loss_landscape", runs)


def _runs(level: str, *methods: str) -> dict[str, Experiment]:
    return {method: experiment(CIFAR, level, METHODS[method]) for method in methods}


def _figure(name: str, title: str, label: str, runs: Mapping[str, Experiment]) -> Figure:
    """Return runs analyzed together by `fedsol analyze`, after the last round; the numbers are their accuracies."""

    def draw(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
        from fedsol.analysis.analyze import Options, Runs, analyze, find_runs

        sources = find_runs([run.path for found in ours.values() for run in found.runs])
        note = "PARTIAL" if is_partial(cells, ours) else ""
        found = analyze(name, Runs(sources, sources[0].run.experiment, note), Options(folders.out / "analysis"))
        return Drawn(found.files, found.lines)

    cells = [run_cell(("", row, "accuracy"), run, {"method": row.lower()}) for row, run in runs.items()]
    return Figure(TrainedTable(name, title, label, cells), draw)


def _recorded(figure: Figure) -> Figure:
    """Return the figure with its analysis recorded in every round."""

    def callbacks(run: Experiment, path: Path) -> list[Callback]:
        from fedsol.analysis.callbacks import callbacks_for

        return callbacks_for([figure.table.name], path, run)

    assert isinstance(figure.table, TrainedTable)
    return replace(figure, table=replace(figure.table, callbacks=callbacks))
