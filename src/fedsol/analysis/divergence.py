"""Weight divergence: how far local training moves the clients from the global model and from each other."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from fedsol.analysis.base import Series
from fedsol.analysis.replay import LocalRound
from fedsol.analysis.rounds import RoundAnalysis, curves_by_round
from fedsol.core.statistics import known_mean, sample_mean_std
from fedsol.federation.federation import Federation
from fedsol.plots.curves import curve_panel
from fedsol.plots.panels import bar_panel, short_layer
from fedsol.plots.style import Figure, new_figure

DISTANCES = (
    ("global–local", "to_global", "global_local", "layers_to_global"),
    ("local–local", "between", "local_local", "layers_between"),
)
"""A distance: its name, and its fields of a `Divergence` by client, as their mean, and by layer."""


@dataclass(frozen=True)
class Divergence:
    """Euclidean distances after one round of local training (FedSOL, section 5, "Weight Divergence")."""

    round: int
    clients: tuple[int, ...]
    to_global: tuple[float, ...]
    """`||w_g - w_k||` of each client."""
    between: tuple[float, ...]
    """Mean of `||w_k - w_j||` over the other clients j, for each client; empty for a single client."""
    layers_to_global: dict[str, float]
    """The same for each tensor separately: means over the clients."""
    layers_between: dict[str, float]

    @property
    def global_local(self) -> float:
        """Mean over the clients."""
        return fmean(self.to_global)

    @property
    def local_local(self) -> float | None:
        """Mean over all pairs of clients; None for a single client."""
        return known_mean(self.between)


def divergence(done: LocalRound, names: Sequence[str]) -> Divergence:
    """Return the distances over the named tensors (the trained ones)."""
    to_global, between = {}, {}
    for name in names:
        local = torch.stack([update.weights[name] for update in done.updates])
        to_global[name] = (local - done.before.weights[name]).double().reshape(len(local), -1).norm(dim=1)
        # By differences, not by the formula with products, which loses small values.
        flat = local.double().reshape(len(local), -1)
        between[name] = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    pairs = len(done.updates) > 1
    return Divergence(
        done.round,
        tuple(update.client for update in done.updates),
        tuple(_root_of_squares(to_global.values()).tolist()),
        tuple(_mean_of_others(_root_of_squares(between.values())).tolist()) if pairs else (),
        {name: float(distances.mean()) for name, distances in to_global.items()},
        {name: float(_mean_of_others(distances).mean()) for name, distances in between.items()} if pairs else {},
    )


def _root_of_squares(distances: Iterable[Tensor]) -> Tensor:
    return torch.stack([part.square() for part in distances]).sum(dim=0).sqrt()


def _mean_of_others(distances: Tensor) -> Tensor:
    return distances.sum(dim=1) / (len(distances) - 1)


Found = list[Series[tuple[Divergence, ...]]]


@dataclass(frozen=True)
class DivergenceAnalysis(RoundAnalysis[Found, Divergence]):
    """Global–local and local–local distances, over rounds if there are several, and by layer in the last one."""

    stem = "divergence"
    row = Divergence

    def measure_round(self, federation: Federation, done: LocalRound) -> Divergence:
        return divergence(done, federation.model.names)

    def draw(self, found: Found, subject: str) -> Figure:
        layers = list(found[0].runs[0][-1].layers_to_global)
        last = {item.label: [run[-1] for run in item.runs] for item in found}
        depth = 0.2 * len(layers) * (1 + 0.4 * len(found))
        figure = new_figure(9.6, 4.4 + depth, f"weight divergence, {subject}")
        panels = figure.subplots(2, 2, height_ratios=(2.8, 0.5 + depth))
        for (upper, lower), (name, each, mean, by_layer) in zip(panels.T, DISTANCES, strict=True):
            if any(len(run) > 1 for item in found for run in item.runs):
                curve_panel(upper, curves_by_round(found, mean), name, "round", "distance")
            else:
                bars = {
                    key: [sample_mean_std(value for one in ones for value in getattr(one, each))]
                    for key, ones in last.items()
                }
                bar_panel(upper, ["mean and std over clients"], bars, "distance")
                upper.set_title(name)
            bars = {
                label: [sample_mean_std(getattr(one, by_layer).get(layer) for one in ones) for layer in layers]
                for label, ones in last.items()
            }
            shown = [short_layer(layer) if name == DISTANCES[0][0] else "" for layer in layers]
            patches = bar_panel(lower, shown, bars, "distance, last round", horizontal=True)
            lower.set_title(f"{name}, by layer")
        figure.legend(patches, list(last), loc="outside right upper")
        return figure

    def say(self, found: Found) -> Iterator[str]:
        for item in found:
            last = [run[-1] for run in item.runs]
            apart = known_mean(one.local_local for one in last)
            between = "" if apart is None else f", local–local {apart:.4g}"
            distance = fmean(one.global_local for one in last)
            yield f"{item.label}: round {last[0].round}, global–local {distance:.4g}{between}"
