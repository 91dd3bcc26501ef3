"""What a race showed: a ranking with intervals, a recommendation in a sentence, and what the budget cannot tell."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedsol.config.experiment import Experiment
from fedsol.config.task import Measure
from fedsol.core.messages import Job
from fedsol.core.randomness import generator_for, one_torch_thread
from fedsol.core.weights import Weights
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.sampling import sample_size
from fedsol.studies.choose import RACING, Race, Racer

CONFIDENCE = 0.95
ALONE_ROUNDS = 10
"""How many times a client that trains alone goes through the local training of a round."""


@dataclass(frozen=True)
class Place:
    """A method in the ranking, compared with the winner where both had the same rounds and seeds."""

    name: str
    rounds: int
    seeds: int
    mean: float | None
    """On validation data, over the seeds; None if a run failed."""
    half: float | None
    """Half the width of the mean's interval; None for one seed."""
    low: float | None
    """How much better the winner is, at least: the interval of the difference, paired by seeds."""
    high: float | None

    @property
    def is_level(self) -> bool:
        """Whether the difference to the winner may be none."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True)
class Alone:
    """Clients for which a model that they train alone does better on their own validation samples."""

    better: int
    clients: int
    """Of these, all or as many as the budget allowed."""
    samples: float
    """Validation samples of a client, in the median."""


def interval(values: Sequence[float], least: float = 0.0) -> tuple[float, float | None]:
    """Return the mean and half the width of its 95 % interval (Student's t), at least `least`; None for one value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    from scipy.stats import t

    factor = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return mean, max(least, factor * statistics.stdev(values) / math.sqrt(len(values)))


def chance(shares: Sequence[float], samples: int) -> float:
    """Return half the width of the 95 % interval that drawing this many samples alone gives a sum of shares.

    It is the floor of an interval: seeds that agree by accident do not make a small validation set a large one. As
    Agresti and Coull do, two right and two wrong answers are added, so that 100 % is not taken for certain.
    """
    smoothed = [(share * samples + 2) / (samples + 4) for share in shares]
    return statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(
        sum(share * (1 - share) for share in smoothed) / (samples + 4)
    )


def ranking(race: Race, racer: Racer, samples: int) -> list[Place]:
    """Return the methods from best to worst: by how far they came, then by their mean there.

    `samples` is the size of a seed's validation set.
    """
    order: list[tuple[str, int]] = []  # with the last part of the race that each was in
    for number in reversed(range(len(race.rungs))):
        known = {name for name, _ in order}
        order += [(name, number) for name in racer.ranked(race.results[number]) if name not in known]
    ranks = _Ranks(race, order[0][0], racer.selection.measure, samples)
    return [ranks.place(name, number) for name, number in order]


@dataclass(frozen=True)
class _Ranks:
    race: Race
    winner: str
    measure: Measure
    samples: int

    def place(self, name: str, number: int) -> Place:
        """Return the place of a method whose last part of the race was this one."""
        rung, results = self.race.rungs[number], self.race.results[number]
        values, best = results[name], results[self.winner]
        place = Place(name, rung.rounds, rung.seeds, None, None, None, None)
        known, theirs = ([one for one in group if one is not None] for group in (values, best))
        if len(known) < len(values):
            return place
        mean, half = interval(known, self._chance([statistics.fmean(known)], rung.seeds))
        place = replace(place, mean=mean, half=half)
        if name == self.winner or len(theirs) < len(known):
            return place
        sign = 1 if self.measure.higher_is_better else -1
        pairs = [sign * (better - worse) for better, worse in zip(theirs, known, strict=True)]
        floor = self._chance([mean, statistics.fmean(theirs)], rung.seeds)
        difference, width = interval(pairs, floor)
        return place if width is None else replace(place, low=difference - width, high=difference + width)

    def _chance(self, shares: Sequence[float], seeds: int) -> float:
        """Return the floor of an interval: none for a metric that is no share."""
        return chance(shares, self.samples * seeds) if self.measure.is_share else 0.0


def recommendation(places: Sequence[Place], measure: Measure, alone: Alone | None) -> str:
    """Return what to use, in one sentence."""
    winner, others = places[0], places[1:]
    if winner.mean is None:
        return "Every method failed; try a smaller client.lr."
    level = [place for place in others if place.is_level and place.rounds == winner.rounds]
    names = [winner.name, *(place.name for place in level)]
    best = f"{_listed(names)} are level" if level else f"{winner.name} is best"
    behind = [place for place in others if place.low is not None and place.low > 0]
    parts = [best, *(f"{place.name} is {_points(place, measure)} behind" for place in behind)]
    unclear = [place.name for place in others if place.mean is not None and place not in level and place not in behind]
    if unclear:
        parts.append(f"{_listed(unclear)} left early, without a clear difference")
    if failed := [place.name for place in others if place.mean is None]:
        parts.append(f"{_listed(failed)} failed")
    if alone is not None:
        parts.append(f"{alone.better} of {alone.clients} clients tried would do better alone")
    return "; ".join(parts) + "."


def _points(place: Place, measure: Measure) -> str:
    assert place.low is not None
    assert place.high is not None
    ends = [f"{100 * end:.0f}" if measure.is_share else f"{end:.3g}" for end in (place.low, place.high)]
    return " to ".join(dict.fromkeys(ends)) + " points" * measure.is_share


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def limits(places: Sequence[Place], experiment: Experiment, alone: Alone | None) -> list[str]:
    """Return what the budget cannot tell, as far as it follows from the numbers."""
    winner, measure = places[0], experiment.task.primary
    found = [
        f"Each method ran with its default settings and {experiment.client.lr:g} as the learning rate; tuning may "
        "change the order."
    ]
    assert experiment.rounds is not None
    if winner.rounds < experiment.rounds:
        found.append(
            f"The last methods trained {winner.rounds} of {experiment.rounds} rounds: one that is slow at first may "
            "still overtake."
        )
    finalists = [place for place in places[1:] if place.rounds == winner.rounds and place.high is not None]
    if finalists:
        width = max((place.high or 0) - (place.low or 0) for place in finalists) / 2
        text = f"{100 * width:.1f} points" if measure.is_share else f"{width:.3g}"
        found.append(f"With {winner.seeds} seeds, differences below about {text} cannot be told from chance.")
    if early := sorted({place.rounds for place in places if place.rounds < winner.rounds}):
        count = sum(place.rounds < winner.rounds for place in places)
        span = " to ".join(str(number) for number in dict.fromkeys((early[0], early[-1])))
        was = "was" if count == 1 else "were"
        found.append(f"{count} of {len(places)} methods {was} judged by their first {span} rounds alone.")
    if alone is not None:
        found.append(
            f"Clients were compared on {alone.samples:g} validation samples each (median), so the number "
            "that does better alone is rough."
        )
    else:
        found.append("Which clients would do better alone was not measured.")
    found.append("The winner was chosen by these numbers, so they are optimistic; the test set was not used.")
    return found


def who_does_better_alone(experiment: Experiment, weights: Weights, work: int) -> Alone | None:
    """Count the clients whose own model beats the global one on their own validation samples.

    A client alone starts from the initial weights and trains as FedAvg's clients do, ten rounds' worth. The part of the
    budget that the race left, `work` rounds in all, decides how many clients are tried, drawn at random. None if there
    are none, or none that have validation samples.
    """
    with one_torch_thread():
        federation = build_federation(experiment.override({"algorithm.name": "fedavg"}))
        testers = [client for client in range(federation.clients) if len(federation.samples(client).validation)]
        jobs = (1 - RACING) * work * sample_size(federation.experiment, federation.clients)
        order = torch.randperm(len(testers), generator=generator_for(experiment.seed, "alone")).tolist()
        tried = sorted(testers[place] for place in order[: int(jobs / ALONE_ROUNDS)])
        if not tried:
            return None
        sizes = [len(federation.samples(client).validation) for client in tried]
        better = sum(_does_better(federation, client, weights) for client in tried)
    return Alone(better, len(tried), statistics.median(sizes))


def _does_better(federation: Federation, client: int, weights: Weights) -> bool:
    own = federation.initial_weights()
    for number in range(1, ALONE_ROUNDS + 1):
        own = {**own, **federation.train(Job(client, number, own)).weights}
    alone, together = (_validated(federation, client, one) for one in (own, weights))
    if alone is None or together is None:
        return False
    return federation.objective.primary.better(alone, together)


def _validated(federation: Federation, client: int, weights: Weights) -> float | None:
    validation = federation.samples(client).validation
    tally = federation.evaluate_on(weights, federation.dataset.train, torch.as_tensor(validation))
    value = federation.metrics(tally)[federation.objective.primary.key]
    return value if isinstance(value, float) else None
