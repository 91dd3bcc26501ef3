"""Orthogonality: the angle between the update of every local step and the proximal gradient (FedSOL's figure 3)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import get_args

import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedsol import ProximalName, proximal_by_name
from fedsol.algorithms.proximal import OutputLoss, Proximal
from fedsol.algorithms.task import Where
from fedsol.analysis.base import Analysis, Runs, Series
from fedsol.analysis.replay import LocalRound, Step, observed
from fedsol.analysis.rounds import RoundAnalysis, curves_by_round
from fedsol.config.experiment import Experiment
from fedsol.config.tables import unknown_name
from fedsol.core.messages import Job, Update
from fedsol.core.statistics import known_mean
from fedsol.core.weights import dot, norm, pick
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.plots.curves import Curve, curve_panel
from fedsol.plots.panels import percent_ticks
from fedsol.plots.style import INK, Figure, new_figure

FEDSOLS_TAU = 3.0
RHOS = (0.0, 0.5, 1.0, 2.0)
"""Strengths to try with a single run of FedSOL."""
POINTS = 20
"""Of the curves over local training."""


@dataclass(frozen=True)
class Measure:
    """What is measured: the proximal loss, and over which part of the weights angles are taken."""

    proximal: ProximalName = "kl"
    tau: float = FEDSOLS_TAU
    where: Where = "all"


@dataclass(frozen=True)
class LocalSteps:
    """The local training of one client, step by step."""

    client: int
    cosine: tuple[float | None, ...]
    """cos(g_u, g_p); None where g_p is 0, as at the anchor."""
    proximal_loss: tuple[float, ...]
    """On the batch of the step, before it."""
    local_loss: tuple[float, ...]

    @property
    def mean_cosine(self) -> float | None:
        """Over the steps that have one."""
        return known_mean(self.cosine)


@dataclass(frozen=True)
class Orthogonality:
    """A round of local training under one rule."""

    label: str
    rho: float | None
    """The perturbation's strength, where the algorithm has one."""
    round: int
    measure: Measure
    clients: tuple[LocalSteps, ...]


@dataclass(frozen=True)
class RoundOrthogonality:
    """The local steps of the first client of a round."""

    round: int
    client: int
    steps: int
    cosine: float | None
    """Mean of cos(g_u, g_p) over the steps that have one."""
    proximal_loss: float
    """At the last step."""


def own_measure(algorithm: Algorithm, where: Where = "all") -> Measure:
    """Return the algorithm's own proximal loss if it names one, otherwise FedSOL's (KL, tau 3)."""
    own = getattr(algorithm, "proximal", None)
    return Measure(where=where) if own is None else Measure(own, getattr(algorithm, "tau", FEDSOLS_TAU), where)


def _perturbs(algorithm: Algorithm) -> bool:
    return hasattr(algorithm, "rho") and getattr(algorithm, "usage", "perturbed") == "perturbed"


def with_rho(algorithm: Algorithm, rho: float) -> Algorithm:
    """Return the same algorithm with another strength of its perturbation."""
    if not _perturbs(algorithm):
        raise InputError(
            f"--rho: is not allowed for a run of {type(algorithm).__name__}, which perturbs nothing; allowed: runs of "
            "fedsol, fedsam, fedasam, or of a proximal method with usage = 'perturbed'"
        )
    if rho < 0:
        raise InputError(f"--rho: must be 0 or more (got {rho})")
    return replace(algorithm, **{"rho": rho})


def record(federation: Federation, measure: Measure, job: Job) -> tuple[LocalSteps, Update]:
    """Train one client and measure every step."""
    rows: list[tuple[float | None, float, float]] = []
    proximal = proximal_by_name(measure.proximal, measure.tau)

    def observe(step: Step) -> None:
        rows.append((*angle(step, proximal, measure.where, federation.untrained), float(step.loss)))

    update = replace(federation, algorithm=observed(federation.algorithm, observe)).train(job)
    return LocalSteps(job.client, *zip(*rows, strict=True)), update


def angle(step: Step, proximal: Proximal, where: Where, frozen: Collection[str] = ()) -> tuple[float | None, float]:
    """Return cos(g_u, g_p) at a step over the trained weights (None where g_p is 0), and the proximal loss there.

    Weights that are `frozen` do not count toward the angle: the optimizer does not get their gradients.
    """
    point = step.task.at(step.weights, step.batch)
    if proximal.vanishes_at(point):
        return None, 0.0
    if isinstance(proximal, OutputLoss):
        value = float(proximal.loss(point.outputs, point).detach())
    else:
        value = float(0.5 * norm(proximal.gradient(point, "all")) ** 2)
    gradient = proximal.gradient(point, where, keep=True)
    direction = {name: tensor for name, tensor in gradient.items() if name not in frozen}
    if not direction:
        return None, value
    update = pick(step.update, direction)
    lengths = float(norm(update) * norm(direction))
    return (float(dot(update, direction)) / lengths if lengths > 0 else None), value


def progress_curve(label: str, values: Sequence[Sequence[float | None]], points: int = POINTS) -> Curve:
    """Return series of different lengths on one axis: the share of local training done, in `points` places.

    A place takes the value of the nearest step at or before it; places without one (None) stay empty.
    """
    shares = [(place + 0.5) / points for place in range(points)]
    rows = [[row[min(int(share * len(row)), len(row) - 1)] if row else None for share in shares] for row in values]
    return Curve(label, shares, rows)


Rounds = list[Series[tuple[RoundOrthogonality, ...]]]


@dataclass(frozen=True)
class OverRounds(Analysis[Rounds]):
    """The mean cosine and the proximal loss at the end of local training, of runs that recorded them."""

    stem = "orthogonality-rounds"

    def measure(self, runs: Runs) -> Rounds | None:
        found = [item.map(lambda replay: OrthogonalityAnalysis().recorded(replay.run.path)) for item in runs.series]
        return found if any(any(item.runs) for item in found) else None

    def draw(self, found: Rounds, subject: str) -> Figure:
        titles = ("cos(g_u, g_p), mean over local steps", "proximal loss at the last step")
        return _two_panels(lambda field: curves_by_round(found, field), subject, titles, ("round", "loss"))


@dataclass(frozen=True)
class OrthogonalityAnalysis(RoundAnalysis[list[Orthogonality], RoundOrthogonality]):
    """Cosine and proximal loss over the share of local training done; bands are standard deviations over clients."""

    stem = "orthogonality"
    also = (OverRounds,)
    row = RoundOrthogonality
    rho: tuple[float, ...] | None = None
    """Strengths to try; None for several with a single run that perturbs, for its own with other runs."""
    where: Where = "all"

    def __post_init__(self) -> None:
        if self.where not in get_args(Where):
            raise unknown_name("--where", self.where, get_args(Where))

    def check(self, runs: Runs) -> None:
        super().check(runs)
        if self.rho is not None:
            if len(runs.series) > 1:
                raise InputError(
                    "--rho: is not allowed for runs of several methods; allowed: runs that differ only in their seed"
                )
            for rho in self.rho:
                with_rho(make_algorithm(runs.experiment.algorithm), rho)

    def check_experiment(self, experiment: Experiment) -> None:
        if make_algorithm(experiment.algorithm).init_client({"weight": torch.zeros(1)}, {}):
            raise InputError(
                f"--analyze: orthogonality is not allowed for {experiment.algorithm['name']}: retraining a client "
                "requires the state it had; allowed: methods whose clients have none, or `fedsol analyze RUN`"
            )

    def measure_round(self, federation: Federation, done: LocalRound) -> RoundOrthogonality:
        """Retrain the round's first client: its job is a function of the round, so these are its steps."""
        rule, client = federation.algorithm, done.updates[0].client
        work = federation.faults([client], done.round)[client].work
        job = Job(client, done.round, done.before.weights, rule.broadcast(done.before), work=work)
        steps, _ = record(federation, own_measure(rule), job)
        return RoundOrthogonality(done.round, client, len(steps.cosine), steps.mean_cosine, steps.proximal_loss[-1])

    def measure(self, runs: Runs) -> list[Orthogonality]:
        """Measure under the runs' own rule, or under the rule of a single run with several strengths."""
        found = []
        for item in runs.series:
            first = item.runs[0]
            own = first.federation.algorithm
            several = len(runs.series) == 1 and _perturbs(own) and hasattr(own, "perturb")
            rhos = self.rho or (RHOS if several else ())
            rules = {f"rho = {rho:g}": with_rho(own, rho) for rho in rhos} or {item.label: own}
            for label, rule in rules.items():
                measure = own_measure(rule, self.where)
                steps = tuple(
                    record(replace(replay.federation, algorithm=rule), measure, replay.job(client))[0]
                    for replay in item.runs
                    for client in replay.clients(self.clients)
                )
                found.append(Orthogonality(label, getattr(rule, "rho", None), first.next_round, measure, steps))
        return found

    def draw(self, found: list[Orthogonality], subject: str) -> Figure:
        figure = _two_panels(
            lambda field: [
                progress_curve(item.label, [getattr(client, field) for client in item.clients]) for item in found
            ],
            f"{subject}, round {found[0].round}",
            ("cos(g_u, g_p)", "proximal loss"),
            ("share of local training", f"{found[0].measure.proximal} loss"),
        )
        for axes in figure.axes:
            axes.set_xlim(0, 1)
            percent_ticks(axes.xaxis)
        return figure

    def say(self, found: list[Orthogonality]) -> Iterator[str]:
        for item in found:
            cosine = known_mean(client.mean_cosine for client in item.clients)
            shown = "none" if cosine is None else f"{cosine:+.3f}"
            loss = fmean(client.proximal_loss[-1] for client in item.clients)
            yield f"{item.label}: mean cosine {shown}, proximal loss at the end {loss:.4g}"


def _two_panels(
    curves: Callable[[str], list[Curve]], subject: str, titles: tuple[str, str], labels: tuple[str, str]
) -> Figure:
    """Draw cosines next to losses; `labels` are those of the horizontal axes and of the losses."""
    figure = new_figure(9.2, 3.9, f"local learning, {subject}")
    left, right = figure.subplots(1, 2)
    cosines = curves("cosine")
    lines = curve_panel(left, cosines, titles[0], labels[0], "cosine")
    curve_panel(right, curves("proximal_loss"), titles[1], *labels)
    left.axhline(0.0, color=INK, linewidth=0.7)
    figure.legend(lines, [curve.label for curve in cosines], loc="outside right upper", handlelength=3.2)
    return figure
