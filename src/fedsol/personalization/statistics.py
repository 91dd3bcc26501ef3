"""Statistics of the results of all clients: spread, deciles, and which clients lose by federating."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsol.core.statistics import population_mean_std
from fedsol.federation.personal import PersonalResult


@dataclass(frozen=True)
class Spread:
    """Accuracies over clients; those without a test set are left out."""

    clients: int
    mean: float | None
    std: float | None
    """Of the population: these are all clients."""
    worst_decile: float | None
    """Mean accuracy of the tenth of the clients that do worst (at least one)."""
    best_decile: float | None


def spread(accuracies: Sequence[float | None]) -> Spread:
    """Return mean, deviation and the means of the outer deciles."""
    known = sorted(accuracy for accuracy in accuracies if accuracy is not None)
    found = population_mean_std(known)
    if found is None:
        return Spread(0, None, None, None, None)
    tenth, mean = math.ceil(len(known) / 10), statistics.fmean
    return Spread(len(known), found.mean, found.std, mean(known[:tenth]), mean(known[-tenth:]))


@dataclass(frozen=True)
class Losers:
    """Clients whose model, trained alone, is better than the one that federating gave them."""

    clients: tuple[int, ...]
    of: int
    mean_loss: float | None
    """Accuracy that they lose, on average."""
    largest_loss: float | None
    median_size: float | None
    """Of their training sets."""
    others_median_size: float | None


def losers(results: Sequence[PersonalResult], epochs: int, alone: Mapping[int, float]) -> Losers:
    """Compare a method after some epochs with accuracies trained alone, client by client; a tie is not a loss."""
    sizes = {result.client: result.size for result in results}
    found = {
        client: accuracy
        for client, accuracy in accuracies_after(results, epochs).items()
        if accuracy is not None and client in alone
    }
    losses = {client: alone[client] - own for client, own in found.items() if alone[client] > own}
    others = [sizes[client] for client in found if client not in losses]
    return Losers(
        tuple(sorted(losses)),
        len(found),
        statistics.fmean(losses.values()) if losses else None,
        max(losses.values(), default=None),
        float(statistics.median(sizes[client] for client in losses)) if losses else None,
        float(statistics.median(others)) if others else None,
    )


def accuracies_after(results: Sequence[PersonalResult], epochs: int) -> dict[int, float | None]:
    """Return the accuracy by client after `epochs` epochs."""
    return {
        result.client: outcome.accuracy for result in results for outcome in result.after if outcome.epochs == epochs
    }


def summary_of(
    results: Sequence[PersonalResult],
    alone: Mapping[int, float] | None = None,
    unseen: Collection[int] = (),
) -> dict[str, Any]:
    """Return the content of summary.json: the spread before and after, and the losers where `alone` is known.

    Clients that the federation never saw are reported apart, under `unseen`.
    """
    if unseen:
        apart = [result for result in results if result.client in unseen]
        others = [result for result in results if result.client not in unseen]
        return {**summary_of(others, alone), "unseen": summary_of(apart, alone)}
    after = []
    for epochs in epochs_of(results):
        accuracies = list(accuracies_after(results, epochs).values())
        row: dict[str, Any] = {"epochs": epochs, **asdict(spread(accuracies))}
        if alone is not None:
            row["losers"] = asdict(losers(results, epochs, alone))
        after.append(row)
    return {"before": asdict(spread([result.before for result in results])), "after": after}


def epochs_of(results: Sequence[PersonalResult]) -> list[int]:
    """Return the numbers of epochs after which models were tested."""
    return [outcome.epochs for outcome in results[0].after] if results else []
