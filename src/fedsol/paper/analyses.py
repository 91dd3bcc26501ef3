"""The paper's figures of what happens inside training: each is a few runs, analysed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Cell, Draw, Drawn, Folders, Ours, Recipe, Watch
from fedsol.paper.results import is_partial
from fedsol.paper.setting import METHODS, experiment, fedsol
from fedsol.paper.tables import CIFAR, LDA, facts_of
from fedsol.training.loop import Callback


def analysis_recipes() -> list[Recipe]:
    """In the order of the paper."""
    by_rho = {f"rho {rho:g}": fedsol(rho=rho) for rho in (0.0, 0.5, 1.0, 2.0)}
    two = {"FedAvg": METHODS["FedAvg"], "FedSOL": fedsol()}
    three = {"FedAvg": METHODS["FedAvg"], "FedASAM": METHODS["FedASAM"], "FedSOL": fedsol()}
    rho_one = {"FedSOL, rho 1": fedsol(rho=1.0)}
    return [
        _figure(
            "orthogonality",
            f"Proximal loss, and cosine of g_u and g_p, by rho (CIFAR-10, LDA {LDA})",
            "fig:fedsol_analysis",
            by_rho,
        ),
        _figure(
            "strength",
            f"Mean Lambda by layer at round 200 (CIFAR-10, LDA {LDA}, rho 1); (a) of that figure: `adaptive-strength`",
            "fig:adaptive_strength",
            rho_one,
            watched=True,
            rounds=200,
        ),
        _figure("divergence", f"Weight divergence (CIFAR-10, LDA {LDA})", "fig:weight_divergence", two, watched=True),
        _figure(
            "preservation",
            "Knowledge preservation and class-wise accuracy (CIFAR-10, sharding s = 2)",
            "fig:knowledge_preservation",
            two,
            level="s = 2",
            watched=True,
        ),
        _figure("landscape", f"Loss landscape (CIFAR-10, LDA {LDA})", "fig:loss_landscape", three),
    ]


def _figure(
    name: str,
    title: str,
    label: str,
    methods: Mapping[str, Mapping[str, Any]],
    level: str = LDA,
    watched: bool = False,
    rounds: int | None = None,
) -> Recipe:
    """Runs on CIFAR-10, analysed together by `fedsol analyze`; the numbers are their accuracies.

    What is `watched` is measured in every round; else the analysis is of the model after the last one (`rounds`).
    """
    changes = {} if rounds is None else {"rounds": rounds}

    def cells() -> list[Cell]:
        runs = {row: experiment(CIFAR, level, table, changes=changes) for row, table in methods.items()}
        return [Cell(("", row, "accuracy"), {**facts_of(run), "method": row.lower()}, run) for row, run in runs.items()]

    return Recipe(
        name,
        "figure",
        title,
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
    def draw(cells: Sequence[Cell], ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
        from fedsol.analysis.analyze import Options, Runs, analyze, find_runs

        sources = find_runs([run.path for found in ours.values() for run in found.runs])
        note = "PARTIAL" if is_partial(cells, ours) else ""
        found = analyze(name, Runs(sources, sources[0].run.experiment, note), Options(folders.out / "analysis"))
        return Drawn(found.files, found.lines)

    return draw
