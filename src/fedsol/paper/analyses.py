"""The paper's figures of what happens inside training: each is a few runs, analysed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsol.experiment import Experiment
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Cell, Draw, Ours, Recipe, Watch
from fedsol.paper.setting import METHODS, experiment, fedsol
from fedsol.paper.tables import CIFAR, LDA, facts_of
from fedsol.training import Callback


def analysis_recipes() -> list[Recipe]:
    """In the order of the paper."""
    by_rho = {f"rho {rho:g}": fedsol(rho=rho) for rho in (0.0, 0.5, 1.0, 2.0)}
    two = {"FedAvg": METHODS["FedAvg"], "FedSOL": fedsol()}
    three = {**two, "FedASAM": METHODS["FedASAM"]}
    rho_one = {"FedSOL, rho 1": fedsol(rho=1.0)}
    return [
        _figure("orthogonality", "Proximal loss and cosine of g_u and g_p by rho", "fig:fedsol_analysis", by_rho),
        _figure("strength", "Mean Lambda by layer (the paper: rho 1, round 200)", "fig:adaptive_strength", rho_one),
        _figure("divergence", "Weight divergence", "fig:weight_divergence", two, watched=True),
        _figure("preservation", "Knowledge preservation (s = 2)", "fig:knowledge_preservation", two, "s = 2", True),
        _figure("landscape", "Loss landscape", "fig:loss_landscape", three),
    ]


def _figure(
    name: str,
    title: str,
    label: str,
    methods: Mapping[str, Mapping[str, Any]],
    level: str = LDA,
    watched: bool = False,
) -> Recipe:
    """Runs on CIFAR-10, analysed together by `fedsol analyze`; the numbers are their accuracies."""

    def cells() -> list[Cell]:
        runs = {row: experiment(CIFAR, level, table) for row, table in methods.items()}
        return [Cell(("", row, "accuracy"), {**facts_of(run), "method": row.lower()}, run) for row, run in runs.items()]

    return Recipe(
        name,
        "figure",
        f"{title} (CIFAR-10)",
        label,
        cells,
        draw=_analysed(name),
        watch=_watching(name) if watched else None,
    )


def _watching(name: str) -> Watch:
    def watch(run: Experiment, place: Path) -> list[Callback]:
        from fedsol.analysis.callbacks import callbacks_for

        return callbacks_for([name], place, run)

    return watch


def _analysed(name: str) -> Draw:
    def draw(_cells: Sequence[Cell], ours: Mapping[Key, Ours], folder: Path) -> list[Path]:
        from fedsol.analyze import Options, Runs, analyze, find_runs

        sources = find_runs([run.path for found in ours.values() for run in found.runs])
        return analyze(name, Runs(sources, sources[0].run.experiment), Options(folder / "analysis")).files

    return draw
