"""What `fedsol analyze` does: each analysis makes a figure (PNG and PDF) and a data file, and says its main numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.gradients import Strength
from fedsol.algorithms.task import Where
from fedsol.analysis import callbacks
from fedsol.analysis.divergence import divergence
from fedsol.analysis.landscape import Landscape, check_options, landscape
from fedsol.analysis.orthogonality import LocalSteps, Orthogonality, own_measure, record, with_rho
from fedsol.analysis.preservation import forgetting, preservation
from fedsol.analysis.saving import write_data
from fedsol.analysis.series import Series, group
from fedsol.analysis.source import LocalRound, SavedRun, chosen_clients, local_round, open_run
from fedsol.analysis.strength import common_strength, means_by_layer, strengths
from fedsol.config.experiment import Experiment
from fedsol.config.tables import PRIVATE
from fedsol.core.randomness import one_torch_thread
from fedsol.errors import InputError
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run
from fedsol.studies.variants import parse_variants

RHOS = (0.0, 0.5, 1.0, 2.0)
"""Strengths that a single run of FedSOL is tried with."""


@dataclass(frozen=True)
class Options:
    """What the options of the command chose."""

    out: Path
    rhos: tuple[float, ...] | None = None
    clients: tuple[int, ...] | None = None
    where: Where = "all"
    strength: Strength | None = None
    """Lambda that `strength` shows; None: that of the runs themselves."""
    examples: int = 512
    points: int = 21
    radius: float = 1.0
    repetitions: int = 20
    algorithms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("where", get_args(Where)), ("strength", get_args(Strength))):
            if getattr(self, name) not in allowed and (name, getattr(self, name)) != ("strength", None):
                raise InputError(f"--{name}: {getattr(self, name)!r} is not allowed; allowed: {', '.join(allowed)}")
        check_options(self.examples, self.points, self.radius)
        if self.repetitions < 1:
            raise InputError(f"--repetitions: {self.repetitions} is not allowed; it must be 1 or more")


@dataclass(frozen=True)
class Found:
    """What an analysis has written, and what it says."""

    files: list[Path]
    lines: list[str] = field(default_factory=list)


class Source:
    """A run directory, read as far as an analysis needs it, and only once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def run(self) -> Run:
        """Experiment and metrics."""
        directory = RunDirectory(self.path)
        return Run(directory.read_experiment(), directory.read_rows(), {}, self.path)

    @cached_property
    def saved(self) -> SavedRun:
        """With data, model and the newest checkpoint."""
        return open_run(self.path)

    def round(self, options: Options) -> LocalRound:
        """One round of local training from the newest global weights."""
        if options.clients not in self._rounds:
            self._rounds[options.clients] = local_round(self.saved, clients=options.clients)
        return self._rounds[options.clients]

    @cached_property
    def _rounds(self) -> dict[tuple[int, ...] | None, LocalRound]:
        return {}


@dataclass(frozen=True)
class Runs:
    """The runs that are analysed together."""

    sources: list[Source]
    experiment: Experiment
    """Of the first run; what `cost` measures."""
    note: str = ""
    """Stands in the titles after data and partition."""

    @property
    def series(self) -> list[Series[Source]]:
        """By label; several seeds of one experiment together."""
        return group(self.sources, lambda source: source.run.experiment)

    @property
    def title(self) -> str:
        """Data and partition."""
        partition = self.experiment.data.partition
        detail = {"dirichlet": f", alpha {partition.alpha:g}", "sharding": f", {partition.shards} shards"}
        data = f"{Path(self.experiment.data.name).stem}, {partition.kind}{detail.get(partition.kind, '')}"
        return f"{data}, {self.note}" if self.note else data


def find_runs(paths: Sequence[Path]) -> list[Source]:
    """The run directories among the paths and below them (as `fedsol compare` and `fedsol sweep` leave them)."""
    found: list[Path] = []
    for path in paths:
        inside = [path] if RunDirectory(path).exists else sorted(p.parent for p in path.rglob("experiment.toml"))
        if not inside:
            raise InputError(f"{path}: there is no run here, nor in a folder below (no experiment.toml)")
        found += [folder for folder in inside if folder not in found]
    return [Source(folder) for folder in found]


def check(what: Sequence[str], runs: Runs, options: Options) -> None:
    """Finds what is wrong with the options for these runs before anything is computed or written."""
    if needing := [name for name in what if name not in ("curves", *WITHOUT_RUNS)]:
        for source in runs.sources:
            if source.run.experiment.data.name == PRIVATE:
                raise InputError(
                    f"{source.path}: {needing[0]} needs the clients' data, which only the nodes of that deployment "
                    f"have; allowed: --what {','.join(('curves', *WITHOUT_RUNS))}"
                )
    if "orthogonality" in what and options.rhos is not None:
        for series in runs.series:
            if len(runs.series) > 1:
                raise InputError(
                    "--rho: is not allowed for runs of several methods; allowed: runs that differ in their seed alone"
                )
            for rho in options.rhos:
                with_rho(make_algorithm(series.runs[0].run.experiment.algorithm), rho)
    if options.clients is not None:
        for source in runs.sources:
            chosen_clients(source.saved, options.clients)
    if "cost" in what and options.algorithms:
        parse_variants(options.algorithms, runs.experiment)


def analyze(what: str, runs: Runs, options: Options) -> Found:
    """Makes one analysis, on one thread as training is: the same numbers on every machine."""
    with one_torch_thread():
        return ANALYSES[what](runs, options)


def _orthogonality(runs: Runs, options: Options) -> Found:
    from fedsol.plots.orthogonality import draw_orthogonality, draw_orthogonality_by_round

    found = [item for series in runs.series for item in _local_steps(series, options, len(runs.series) == 1)]
    stem = options.out / "orthogonality"
    files = draw_orthogonality(found, stem, f"local learning, {runs.title}, round {found[0].round}")
    files.append(write_data(stem.with_suffix(".json"), found))
    written = [item.map(lambda source: callbacks.round_orthogonalities(source.path)) for item in runs.series]
    if any(rows for item in written for rows in item.runs):
        by_round = options.out / "orthogonality-rounds"
        files += draw_orthogonality_by_round(written, by_round, f"local learning, {runs.title}")
        files.append(write_data(by_round.with_suffix(".json"), written))
    lines = []
    for item in found:
        cosines = [client.mean_cosine for client in item.clients if client.mean_cosine is not None]
        losses = [client.proximal_loss[-1] for client in item.clients]
        cosine = f"{sum(cosines) / len(cosines):+.3f}" if cosines else "none"
        lines.append(f"{item.label}: mean cosine {cosine}, proximal loss at the end {sum(losses) / len(losses):.4g}")
    return Found(files, lines)


def _local_steps(series: Series[Source], options: Options, alone: bool) -> list[Orthogonality]:
    """The run's own rule, or a single run's rule with several strengths."""
    first = series.runs[0].saved
    algorithm = first.federation.algorithm
    perturbs = hasattr(algorithm, "perturb") and getattr(algorithm, "usage", "perturbed") == "perturbed"
    rhos = options.rhos or (RHOS if alone and perturbs else None)
    rules = {series.label: algorithm} if rhos is None else {f"rho = {rho:g}": with_rho(algorithm, rho) for rho in rhos}
    return [
        Orthogonality(
            label,
            getattr(rule, "rho", None),
            first.next_round,
            own_measure(rule, options.where),
            tuple(
                _recorded(source.saved, rule, client, options.where)
                for source in series.runs
                for client in chosen_clients(source.saved, options.clients)
            ),
        )
        for label, rule in rules.items()
    ]


def _recorded(saved: SavedRun, rule: Algorithm, client: int, where: Where) -> LocalSteps:
    steps, _ = record(
        rule,
        own_measure(rule, where),
        lambda recorder: local_round(saved, recorder, [client]).updates[0],
        saved.federation.frozen,
    )
    return steps


def _divergence(runs: Runs, options: Options) -> Found:
    from fedsol.plots.divergence import draw_divergence

    def of(source: Source) -> tuple[Any, ...]:
        if written := callbacks.divergences(source.path):
            return written
        done = source.round(options)
        return (divergence(done.round, done.before.weights, done.updates, source.saved.federation.model.names),)

    series = [item.map(of) for item in runs.series]
    stem = options.out / "divergence"
    files = draw_divergence(series, stem, f"weight divergence, {runs.title}")
    files.append(write_data(stem.with_suffix(".json"), series))
    lines = []
    for item in series:
        last = [run[-1] for run in item.runs]
        apart = [one.local_local for one in last if one.local_local is not None]
        between = f", local–local {fmean(apart):.4g}" if apart else ""
        distance = fmean([one.global_local for one in last])
        lines.append(f"{item.label}: round {last[0].round}, global–local {distance:.4g}{between}")
    return Found(files, lines)


def _preservation(runs: Runs, options: Options) -> Found:
    from fedsol.plots.preservation import draw_forgetting, draw_preservation

    def of(source: Source) -> tuple[Any, ...]:
        if written := callbacks.preservations(source.path):
            return written
        done = source.round(options)
        return (preservation(source.saved.federation, done.round, done.before.weights, done.updates),)

    series = [item.map(of) for item in runs.series]
    stem, classes = options.out / "preservation", options.out / "forgetting"
    files = draw_preservation(series, stem, f"knowledge preservation, {runs.title}")
    files.append(write_data(stem.with_suffix(".json"), series))
    lines = []
    for item in series:
        last = [run[-1] for run in item.runs]
        before, after = fmean([one.before for one in last]), fmean([value for one in last for value in one.after])
        lines.append(
            f"{item.label}: round {last[0].round}, accuracy {before:.1%} before, {after:.1%} after local training"
        )
    lost = [item.map(lambda source: forgetting(source.run.rows)) for item in runs.series]
    if any(run.rounds for item in lost for run in item.runs):
        files += draw_forgetting(lost, classes, f"class-wise accuracy, {runs.title}")
        files.append(write_data(classes.with_suffix(".json"), lost))
        for one in lost:
            shares = [run.forgetting[-1] for run in one.runs if run.rounds]
            lines += [f"{one.label}: forgetting {fmean(shares):.1%} after the last round"] if shares else []
    return Found(files, lines)


def _strength(runs: Runs, options: Options) -> Found:
    from fedsol.plots.strength import draw_strength

    algorithms = [make_algorithm(source.run.experiment.algorithm) for source in runs.sources]
    shown = options.strength or common_strength(algorithms)

    def of(source: Source) -> Any:
        if (written := callbacks.strength_rows(source.path)) and written[-1].strength == shown:
            return written[-1]
        done, names = source.round(options), source.saved.federation.model.names
        return strengths(done.round, done.before.weights, done.updates, names, shown)

    series = [item.map(of) for item in runs.series]
    stem = options.out / "strength"
    number = series[0].runs[0].round
    files = draw_strength(series, stem, f"{shown} strength by layer, {runs.title}, round {number}")
    files.append(write_data(stem.with_suffix(".json"), series))
    lines = []
    for item in series:
        lines.append(f"{item.label}: mean Lambda {means_by_layer(item.runs)}")
        movements = {name: [run.layers[name].movement for run in item.runs] for name in item.runs[0].layers}
        moved = {name: fmean(values) for name, values in movements.items() if None not in values}
        if moved:
            most = max(moved, key=lambda name: moved[name])
            lines.append(f"{item.label}: {most} moved most, {moved[most]:.2%} of its length")
    return Found(files, lines)


def _landscape(runs: Runs, options: Options) -> Found:
    from fedsol.plots.landscape import draw_landscapes

    found: list[tuple[str, Landscape]] = []
    for item in runs.series:
        for source in item.runs:
            saved = source.saved
            made = landscape(
                saved.federation, saved.server.weights, saved.finished, options.examples, options.points, options.radius
            )
            seed = f" seed {source.run.experiment.seed}" if len(item.runs) > 1 else ""
            found.append((item.label + seed, made))
    stem = options.out / "landscape"
    files = draw_landscapes(found, stem, f"loss landscape of the global model, {runs.title}")
    files.append(write_data(stem.with_suffix(".json"), dict(found)))
    lines = [
        f"{label}: lambda_1 {one.eigenvalues[0]:.4g}, lambda_5 {one.eigenvalues[4]:.4g}"
        + ("" if one.ratio is None else f", ratio {one.ratio:.3f}")
        for label, one in found
    ]
    return Found(files, lines)


def _cost(runs: Runs, options: Options) -> Found:
    from fedsol.analysis.cost import costs
    from fedsol.analysis.outline import outline
    from fedsol.plots.cost import draw_costs

    methods = None
    if options.algorithms:
        variants = parse_variants(options.algorithms, runs.experiment)
        methods = {variant.label: make_algorithm(variant.experiment.algorithm) for variant in variants}
    found = costs(outline(runs.experiment), methods, options.repetitions)
    stem = options.out / "cost"
    title = f"cost of a local step: {found.model}, {found.parameters:,} weights, batches of {found.batch_size}"
    files = draw_costs(found, stem, title)
    files.append(write_data(stem.with_suffix(".json"), found))
    flops, seconds = found.relative(lambda row: row.flops), found.relative(lambda row: row.seconds)
    base = found.methods[0].flops
    lines = [
        f"{row.method}: FLOPs {flops[row.method]:.2f} (two passes {row.two_pass_flops / base:.2f}, of these "
        f"the proximal loss {row.proximal_flops / base:.2f}), time {seconds[row.method]:.2f}"
        for row in found.methods
    ]
    return Found(files, lines)


def _curves(runs: Runs, options: Options) -> Found:
    from fedsol.plots.curves import accuracy_curves, draw_curves

    curves, shown = accuracy_curves([(item.label, [source.run.rows for source in item.runs]) for item in runs.series])
    stem = options.out / "curves"
    files = [draw_curves(curves, stem.with_suffix(kind), title=runs.title, ylabel=shown) for kind in (".png", ".pdf")]
    files.append(write_data(stem.with_suffix(".json"), curves))
    return Found(files)


def _partition(runs: Runs, options: Options) -> Found:
    from fedsol.data.manifest import label_counts
    from fedsol.data.summary import partition_summary
    from fedsol.plots.partition import draw_partition

    federation = runs.sources[0].saved.federation
    labels, classes = federation.dataset.train.labels.numpy(), federation.dataset.classes
    clients = [indices.numpy() for indices in federation.partition]
    stem = options.out / "partition-picture"
    title = f"{runs.title}, seed {federation.experiment.seed}"
    files = [draw_partition(labels, clients, stem.with_suffix(kind), classes, title) for kind in (".png", ".pdf")]
    counts = label_counts(labels, clients, classes).tolist()
    summary = partition_summary(labels, clients, classes)
    files.append(write_data(stem.with_suffix(".json"), {"summary": summary, "samples": counts}))
    return Found(files, [f"{summary.clients} clients, {summary.smallest} to {summary.largest} samples each"])


def _toy(_runs: Runs, options: Options) -> Found:
    from fedsol.analysis.toy import toy
    from fedsol.plots.toy import draw_toy

    found = toy()
    stem = options.out / "toy"
    files = [*draw_toy(found, stem), write_data(stem.with_suffix(".json"), found)]
    lines = [
        f"{path.method}: ends at ({path.places[-1][0]:.4f}, {path.places[-1][1]:.4f}), fixed point "
        f"({path.fixed_point[0]:.4f}, {path.fixed_point[1]:.4f})"
        for path in found.paths
    ]
    return Found(files, lines)


ANALYSES: dict[str, Callable[[Runs, Options], Found]] = {
    "curves": _curves,
    "partition": _partition,
    "orthogonality": _orthogonality,
    "divergence": _divergence,
    "preservation": _preservation,
    "strength": _strength,
    "landscape": _landscape,
    "cost": _cost,
    "toy": _toy,
}
"""Every analysis by its name."""

WITHOUT_RUNS = ("cost", "toy")
"""Those that need no run."""
