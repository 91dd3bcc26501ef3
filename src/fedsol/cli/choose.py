"""`fedsol choose`: which method for this data, within a budget."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsol.cli.console import resume_hint, say, say_table, show_warnings
from fedsol.cli.options import ExperimentArgument, OutOption, SetOption, new_directory, read_experiment
from fedsol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fedsol.config.experiment import Experiment
    from fedsol.config.task import Measure
    from fedsol.data.types import Dataset
    from fedsol.studies.choice import Place

RECOMMENDED = "recommended.toml"


def choose(
    experiment: ExperimentArgument = None,
    budget: Annotated[
        str, typer.Option("--budget", help="A time, such as 20min or 2h, or work, such as 600rounds.")
    ] = "20min",
    algorithms: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm", "-a", help="Only these methods: fedavg,fedsol; repeatable (default: all that fit)."
        ),
    ] = None,
    changes: SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the race in --out.")] = False,
) -> None:
    """Find the method for your data: race those that fit on validation data, and recommend one."""
    from fedsol.config.overrides import split_list
    from fedsol.config.tables import PRIVATE
    from fedsol.core.files import write_output
    from fedsol.data.catalog import load_dataset
    from fedsol.federation.federation import fill_defaults, partition_of
    from fedsol.federation.sampling import validation_size
    from fedsol.studies.choice import limits, ranking, recommendation, who_does_better_alone
    from fedsol.studies.choose import Place as RacePlace
    from fedsol.studies.choose import open_race, parse_budget, plan_race, with_validation

    show_warnings()
    request = parse_budget(budget)
    if resume and out is None:
        raise InputError("--resume: needs --out, the directory of the race")
    given = read_experiment(experiment, changes)
    base = with_validation(given)
    if base.data.name == PRIVATE:
        raise InputError("data.name: 'private' is not allowed here: only the nodes have that data")
    dataset = load_dataset(base.data, base.task.kind)
    base = fill_defaults(base, dataset)
    partition = partition_of(base, dataset)
    out = out or new_directory(f"{Path(base.data.name).stem}-choose")
    names = [name for text in algorithms or [] for name in split_list(text)]
    _say_split(base, dataset, partition)
    samples = validation_size(base, partition)
    say(f"Methods are compared on {samples} validation samples, which no client trains on; never on the test set.")
    with resume_hint(out, f"the same command, --out {out} and --resume", "*.toml"):
        record, racer = open_race(request, base, names, RacePlace(out, resume, say))
        assert base.rounds is not None
        rungs = plan_race(len(record.methods), record.work, base.rounds)
        say(f"The budget is {record.work} rounds for {len(record.methods)} methods: {', '.join(record.methods)}.")
        race = racer.race(rungs)
        places = ranking(race, racer, samples)
        winner = racer.run(places[0].name, 0, rungs[-1].rounds)
        alone = None
        if winner is not None and winner.weights:
            say("Which clients would do better alone …")
            alone = who_does_better_alone(winner.experiment, winner.weights, record.work)
    _say_ranking(places, base.task.primary)
    sentence = recommendation(places, base.task.primary, alone)
    say(f"\n{sentence}\n")
    notes = limits(places, base, alone)
    say("What this budget cannot tell:")
    for note in notes:
        say(f"- {note}")
    chosen = given.override({"algorithm.name": places[0].name, "rounds": base.rounds})
    comments = "".join(f"# {line}\n" for line in (sentence, *notes))
    write_output(
        out / RECOMMENDED, f"{comments}# Repeat the choice: --budget {record.work}rounds\n\n{chosen.to_toml()}"
    )
    say(f"\nRun it: fedsol run {out / RECOMMENDED}   To repeat the race anywhere: --budget {record.work}rounds")


def _say_split(base: "Experiment", dataset: "Dataset", partition: "list[Tensor]") -> None:
    """Say how the clients' data differs."""
    from fedsol.cli.partition import heterogeneity_text
    from fedsol.data.summary import partition_summary

    clients = [indices.numpy() for indices in partition]
    summary = partition_summary(dataset.train.labels.numpy(), clients, dataset.classes)
    sizes = " to ".join(str(size) for size in dict.fromkeys((summary.smallest, summary.largest)))
    say(
        f"{dataset.name}: {summary.clients} clients, {sizes} samples each; "
        f"{heterogeneity_text(summary.heterogeneity, base.task.kind == 'classification')}"
    )


def _say_ranking(places: "Sequence[Place]", measure: "Measure") -> None:
    headings = ["method", f"validation {measure.title}", "the winner is better by", "rounds", "seeds"]
    rows = []
    for place in places:
        if place.mean is None:
            rows.append([place.name, "failed", "–", str(place.rounds), str(place.seeds)])
            continue
        score = measure.text(place.mean) if place.half is None else measure.spread_text(place.mean, place.half)
        rows.append([place.name, score, _difference(place, measure), str(place.rounds), str(place.seeds)])
    caption = (
        "± and differences: 95 % intervals over seeds and samples; a difference is at equal rounds, paired by seed"
    )
    say_table(headings, rows, caption=caption)


def _difference(place: "Place", measure: "Measure") -> str:
    if place.low is None or place.high is None:
        return "–"
    scale = 100 if measure.is_share else 1
    unit = " points" if measure.is_share else ""
    return f"{scale * place.low:+.3g} to {scale * place.high:+.3g}{unit}"
