"""Adaptive strength: Lambda of equation 7, layer by layer, after a round of local training."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast, get_args

import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Strength, adaptive_lambda
from fedsol.analysis.base import Runs, Series
from fedsol.analysis.replay import LocalRound, Replay
from fedsol.analysis.rounds import RoundAnalysis
from fedsol.config.tables import unknown_name
from fedsol.core.statistics import sample_mean_std
from fedsol.federation.federation import Federation
from fedsol.plots.panels import bar_panel, log_axis, short_layer
from fedsol.plots.style import Figure, new_figure

MOST_LISTED = 12
"""Layers whose Lambda is listed one by one."""

PANELS = (
    ("mean", "mean Lambda", "mean of Lambda (log scale)"),
    ("evenness", "mean Lambda × √n", "1: n weights moved equally far"),
    ("movement", "movement", "‖w − a‖ / ‖a‖"),
)


@dataclass(frozen=True)
class LayerStrength:
    """One tensor of the model; means over the clients of a round."""

    size: int
    """Number of its weights."""
    mean: float
    """Mean of Lambda over the weights. Where n weights share a norm (all of them for `adaptive`, those of a column for
    `adaptive-column`) it is at most 1/sqrt(n), so it is large for a small n, whatever the weights did."""
    evenness: float
    """The mean times sqrt(n): 1 if the weights of each norm moved equally far, less the fewer of them moved."""
    movement: float | None
    """`||w - a|| / ||a||`: how far the tensor moved, relative to its length; None if it was 0 before."""


@dataclass(frozen=True)
class LayerStrengths:
    """Lambda by layer (FedSOL, figure "Effect of adaptive perturbation strength", part b)."""

    round: int
    strength: Strength
    clients: tuple[int, ...]
    layers: dict[str, LayerStrength]


def own_strength(algorithm: Algorithm) -> Strength | None:
    """Return the Lambda that a method perturbs with; None if it perturbs nothing, or not by a Lambda."""
    own = getattr(algorithm, "strength", None)
    if own not in get_args(Strength) or "strength" in algorithm.settings_without_effect():
        return None
    return cast(Strength, own)


def common_strength(algorithms: Iterable[Algorithm]) -> Strength:
    """Return one Lambda to show for several methods: their own if all that have one agree."""
    own = {strength for algorithm in algorithms if (strength := own_strength(algorithm)) is not None}
    return own.pop() if len(own) == 1 else DEFAULT_STRENGTH


def strengths(done: LocalRound, names: Sequence[str], strength: Strength) -> LayerStrengths:
    """Return Lambda of every named tensor at the clients' weights; the anchor is the global model they started from."""
    before, clients = done.before.weights, tuple(update.client for update in done.updates)
    layers = {name: _layer(before[name], [one.weights[name] for one in done.updates], strength) for name in names}
    return LayerStrengths(done.round, strength, clients, layers)


def _layer(anchor: torch.Tensor, local: Sequence[torch.Tensor], strength: Strength) -> LayerStrength:
    moves = [weights - anchor for weights in local]
    means = [1.0 if strength == "fixed" else float(adaptive_lambda(move, strength).double().mean()) for move in moves]
    mean, size = fmean(means), anchor.numel()
    share_a_norm = {"fixed": 1, "adaptive": size, "adaptive-column": len(anchor) if anchor.dim() else 1}
    length = float(torch.linalg.vector_norm(anchor.double()))
    movement = fmean(float(torch.linalg.vector_norm(move.double())) for move in moves) / length if length > 0 else None
    return LayerStrength(size, mean, mean * math.sqrt(share_a_norm[strength]), movement)


Found = list[Series[LayerStrengths]]


@dataclass(frozen=True)
class StrengthAnalysis(RoundAnalysis[Found, LayerStrengths]):
    """Lambda and movement by layer: means over clients (and seeds, with one standard deviation)."""

    stem = "strength"
    row = LayerStrengths
    strength: Strength | None = None
    """The Lambda to show; None for the runs' own."""

    def __post_init__(self) -> None:
        if self.strength not in (None, *get_args(Strength)):
            raise unknown_name("--strength", str(self.strength), get_args(Strength))

    def measure_round(self, federation: Federation, done: LocalRound) -> LayerStrengths:
        return strengths(done, federation.model.names, self.strength or common_strength([federation.algorithm]))

    def measure(self, runs: Runs) -> Found:
        algorithms = [make_algorithm(replay.run.experiment.algorithm) for replay in runs.replays]
        shown = self.strength or common_strength(algorithms)

        def of(replay: Replay) -> LayerStrengths:
            if (recorded := self.recorded(replay.run.path)) and recorded[-1].strength == shown:
                return recorded[-1]
            return strengths(replay.local_round(self.clients), replay.federation.model.names, shown)

        return [item.map(of) for item in runs.series]

    def draw(self, found: Found, subject: str) -> Figure:
        first = found[0].runs[0]
        title = f"{first.strength} strength by layer, {subject}, round {first.round}"
        figure = new_figure(9.6, 1.7 + 0.2 * len(first.layers) * (1 + 0.4 * len(found)), title)
        layers = [short_layer(layer) for layer in first.layers]
        for axes, (name, heading, label) in zip(figure.subplots(1, 3, sharey=True), PANELS, strict=True):
            bars = {
                item.label: [
                    sample_mean_std(getattr(run.layers[layer], name) for run in item.runs if layer in run.layers)
                    for layer in first.layers
                ]
                for item in found
            }
            patches = bar_panel(axes, layers, bars, label, True)
            axes.set_title(heading)
            if name == "mean":
                positive = [value[0] for row in bars.values() for value in row if value and value[0] > 0] or [0.25]
                # Over several decades, one tick label per decade is enough; within one, more are required.
                log_axis(axes, *([(1.0,)] if max(positive) > 20 * min(positive) else []))
                axes.set_xlim(left=0.4 * min(positive))
        figure.legend(patches, [item.label for item in found], loc="outside right upper")
        return figure

    def say(self, found: Found) -> Iterator[str]:
        for item in found:
            layers = {name: [run.layers[name] for run in item.runs] for name in item.runs[0].layers}
            means = {name: fmean(one.mean for one in ones) for name, ones in layers.items()}
            listed = [f"{name} {means[name]:.3g}" for name in sorted(means, key=means.__getitem__)]
            shown = ", ".join(listed) if len(listed) <= MOST_LISTED else f"{listed[0]} to {listed[-1]}"
            yield f"{item.label}: mean Lambda {shown}"
            moves = {name: [one.movement for one in ones if one.movement is not None] for name, ones in layers.items()}
            moved = {name: fmean(values) for name, values in moves.items() if len(values) == len(item.runs)}
            if moved:
                most = max(moved, key=moved.__getitem__)
                yield f"{item.label}: {most} moved most, {moved[most]:.2%} of its length"
