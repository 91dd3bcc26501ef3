"""Write docs/results.md from `results/`: `python -m tools.results_page results docs/results.md`.

The same files give the same page, byte for byte. Written by hand are `results/discussion.md`, and the words of
`results/claims.toml`.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from fedsol.algorithms.gradients import DEFAULT_STRENGTH
from fedsol.config.overrides import keys_without_effect
from fedsol.core.files import write_atomically
from fedsol.data.heterogeneity import Heterogeneity
from fedsol.errors import InputError
from fedsol.paper.figures import draw_smoothed
from fedsol.paper.numbers import Number
from fedsol.paper.printing import as_markdown
from fedsol.paper.recipe import Accuracy, Cell, Table, TrainedTable, table_of
from fedsol.paper.registry import RECIPES
from fedsol.paper.settings import DATASETS, METHODS
from fedsol.paper.store import LAST, first_round_at, last_mean
from tools.claims import claims
from tools.partitions import Key, key_of, read_partitions
from tools.results import (
    ComputedTable,
    Group,
    Index,
    Result,
    at_common_rounds,
    read_computed_tables,
    read_groups,
    read_results,
    setting_of,
)

INTRODUCTION = """# Results

Real runs of fedsol beside the paper's published numbers. This page is made from the files in
[results](../results) by `make results`; a test checks that it is current. Every run is listed [below](#every-run) with
its command, seed and commit.
"""

CURVES = f"""## Learning curves

Test accuracy in %. Single rounds jump, so runs are compared by the mean of the last {LAST} rounds: "gain over FedAvg"
is the difference of these means, "as FedAvg in round" the first round in which a run's mean of {LAST} is as high as
FedAvg's last one ("–": never). Runs of one group are compared after the rounds that all of them have; what longer ones
came to stands below. The paper's numbers are those after all its rounds.
"""

PICTURES = Path("images") / "results"

FIXED = {key: value for key, value in METHODS["FedSOL"].items() if key not in ("strength", "perturb", "rho")}
"""What the runs of a table of perturbations have in common: all of FedSOL's settings but those that it shows."""


def render(results: Path) -> str:
    """Return the whole page."""
    groups = groups_of(results)
    names = {group.name for group in groups}
    runs = [result for result in read_results(results) if result.group in names]
    parts = [INTRODUCTION]
    discussion = results / "discussion.md"
    if discussion.is_file():
        parts.append(discussion.read_text(encoding="utf-8"))
    parts += claims(results / "claims.toml", runs)
    index = Index(at_common_rounds(runs))
    all_tables = [table_of(make()) for make in RECIPES.values()]
    tables = _tables(all_tables, read_computed_tables(results), index)
    parts += ["## Tables of the paper\n", *tables] if tables else []
    paper = _paper_numbers([cell for table in all_tables if _shows_accuracy(table) for cell in table.cells], index)
    partitions = read_partitions(results)
    parts += [CURVES, *(_group(group, paper, partitions) for group in groups)]
    parts.append(_every_run(runs))
    return "\n".join(parts)


def groups_of(results: Path) -> list[Group]:
    """Return the groups of this page."""
    return read_groups(results, read_results(results), "results")


def draw(groups: Sequence[Group], folder: Path) -> list[Path]:
    """Draw the learning curves of every group, as its page shows them."""
    return [
        draw_smoothed(
            {name: [result.run for result in seeds] for name, seeds in by_name(group.results).items()},
            folder / f"{group.name}.png",
            f"{title_of(group)}: mean of {LAST} rounds",
        )
        for group in groups
    ]


def by_name(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs of a group by name, the best first."""
    named: dict[str, list[Result]] = {}
    for result in results:
        named.setdefault(result.name, []).append(result)
    return dict(sorted(named.items(), key=lambda pair: (-fmean(last_mean(one.run) for one in pair[1]), pair[0])))


def _shows_accuracy(table: Table) -> bool:
    """Return whether the numbers are accuracies of runs; others take their models, which are not in results/."""
    return isinstance(table, TrainedTable) and type(table.evaluation) is Accuracy


def _tables(tables: Sequence[Table], computed: Mapping[str, ComputedTable], index: Index) -> list[str]:
    """Return every table that has a number of ours, cut to the rows and columns that do."""
    parts = []
    for table in tables:
        trained = index.ours(table.cells) if _shows_accuracy(table) else {}
        made = computed.get(table.name)
        ours = {**(made.numbers if made else {}), **trained}
        different = {tuple(run.path for run in found.runs) for found in trained.values()}
        has_numbers = any(cell.paper for cell in table.cells if cell.key in ours)
        # A table that shares nothing but FedAvg with the runs says nothing.
        if has_numbers and (len(different) > 1 or made):
            source = f"- Made by {_source(made.environment)}.\n" if made else ""
            parts.append(as_markdown(table, ours, "###", only_filled=True) + source)
    return parts


def _source(environment: Mapping[str, Any]) -> str:
    return f"`{environment['command']}` at commit {commit_of(environment)}, on {machine_of(environment)}"


def commit_of(environment: Mapping[str, Any]) -> str:
    return str(environment.get("commit", "not recorded"))[:12]


def machine_of(environment: Mapping[str, Any]) -> str:
    return f"{environment['cores']} cores, Python {environment['python']}, torch {environment['packages']['torch']}"


def _paper_numbers(cells: Sequence[Cell], index: Index) -> dict[Path, Number]:
    """Return the paper's number after all its rounds, by run; the first table that has one counts."""
    found: dict[Path, Number] = {}
    for cell in cells:
        if cell.paper is not None:
            for result in index.alike(cell):
                found.setdefault(result.run.path, cell.paper)
    return found


def _group(group: Group, paper: Mapping[Path, Number], partitions: Mapping[Key, Heterogeneity]) -> str:
    """Return a picture of all runs on the same data, and a table of where they were after the rounds that all have."""
    common = at_common_rounds(group.results)
    for result in common:
        if not result.run.accuracies:
            raise InputError(f"{result.run.path}: no round up to {result.rounds}, which {group.name} shows, was tested")
    named = by_name(common)
    runs = {name: seeds[0].experiment for name, seeds in named.items()}
    bases = {setting_of(run): name for name, run in runs.items() if run.algorithm["name"] == "fedavg"}
    ours = {name: fmean(last_mean(result.run) for result in seeds) for name, seeds in named.items()}
    theirs = {
        name: paper[result.run.path] for name, seeds in named.items() for result in seeds if result.run.path in paper
    }
    titles = ["run", "seeds", "rounds", "last round", f"mean of the last {LAST}", "best", "as FedAvg in round"]
    titles += ["gain over FedAvg", "paper, all rounds", "paper's gain"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    for name, seeds in named.items():
        values = [
            name,
            ", ".join(str(result.experiment.seed) for result in seeds),
            " to ".join(map(str, sorted({result.rounds for result in seeds}))),
            percent(result.run.accuracies[-1][1] for result in seeds),
            percent(last_mean(result.run) for result in seeds),
            percent(max(accuracy for _, accuracy in result.run.accuracies) for result in seeds),
            str(theirs.get(name, "")),
        ]
        compared = ["", "", ""]
        base = bases.get(setting_of(runs[name]), name)
        if base != name:
            reached = [first_round_at(ours[base], result.run) for result in seeds]
            compared[0] = ", ".join("–" if found is None else str(found) for found in reached)
            compared[1] = f"{100 * (ours[name] - ours[base]):+.2f}"
            if name in theirs and base in theirs:
                compared[2] = f"{theirs[name].mean - theirs[base].mean:+.2f}"
        lines.append(f"| {' | '.join([*values[:-1], *compared[:2], values[-1], compared[2]])} |")
    lines += heterogeneity_lines(common, partitions)
    picture = f"![Learning curves: {title_of(group)}]({(PICTURES / group.name).as_posix()}.png)"
    lines += [*_by_rounds(named), *_perturbations(common), *_longer_runs(group.results)]
    return f"### {title_of(group)}\n\n{picture}\n\n" + "\n".join(lines) + "\n"


def heterogeneity_lines(results: Sequence[Result], partitions: Mapping[Key, Heterogeneity]) -> list[str]:
    """Return how heterogeneous the clients of each seed are; nothing of partitions that are not known."""
    keys = sorted({key_of(result.experiment) for result in results if result.experiment.data.part == 1}, key=_seed)
    found = [
        f"seed {key[2]}: Jensen-Shannon distance {partitions[key].jensen_shannon:.2f}, effective classes "
        f"{partitions[key].effective_classes:.2f}, Gini of sizes {partitions[key].gini:.2f}"
        for key in keys
        if key in partitions
    ]
    return ["", f"[How heterogeneous](data.md#how-heterogeneous) the clients are: {'; '.join(found)}."] if found else []


def _seed(key: Key) -> int:
    return key[2]


def _by_rounds(named: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return means of ten rounds each, counted from the end; nothing of a handful of rounds."""
    last = max(row["round"] for seeds in named.values() for row in seeds[0].run.rows)
    if last <= LAST:
        return []
    blocks = [(max(1, end - LAST + 1), end) for end in range(last, 0, -LAST)][::-1]
    lines = ["", f"| mean of rounds | {' | '.join(f'{first}–{end}' for first, end in blocks)} |"]
    lines.append("|---|" + "---:|" * len(blocks))
    for name, seeds in named.items():
        values = [
            [accuracy for result in seeds for number, accuracy in result.run.accuracies if first <= number <= end]
            for first, end in blocks
        ]
        lines.append(f"| {name} | {' | '.join(percent(block) if block else '' for block in values)} |")
    return lines


def _perturbations(results: Sequence[Result]) -> list[str]:
    """Return Markdown lines: a row by Lambda and perturbed weights, a column by rho, the means of the last rounds in %.

    Nothing without two values of rho or two kinds of perturbed weights. rho = 0 is FedAvg's run, the same in every row.
    Left out are runs of FedSOL with another proximal loss than the paper's, and runs of other settings than most have.
    """
    by_setting: dict[str, list[Result]] = {}
    for result in results:
        by_setting.setdefault(setting_of(result.experiment), []).append(result)
    alike = max(by_setting.values(), key=len)
    base = _mean([result for result in alike if result.experiment.algorithm["name"] == "fedavg"])
    rows: dict[tuple[str, str], dict[float, list[Result]]] = {}
    for result in alike:
        table = result.experiment.algorithm
        if all(table.get(key) == value for key, value in FIXED.items()) and table["rho"] > 0:
            rows.setdefault((table["strength"], table["perturb"]), {}).setdefault(table["rho"], []).append(result)
    rhos = sorted({rho for row in rows.values() for rho in row})
    if len(rhos) < 2 and len({perturb for _, perturb in rows}) < 2:
        return []
    titles = ["Lambda", "perturbed", *(["rho = 0 (FedAvg)"] if base else []), *(f"rho = {rho:g}" for rho in rhos)]
    lines = ["", f"FedSOL by what is perturbed, and rho (mean of the last {LAST} of these rounds):", ""]
    lines += [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    for (strength, perturb), row in sorted(rows.items()):
        values = [*([base] if base else []), *(_mean(row.get(rho, [])) for rho in rhos)]
        lines.append(f"| {' | '.join([f'`{strength}`', perturb, *values])} |")
    return lines


def _mean(results: Sequence[Result]) -> str:
    """Return the mean over seeds, in %; empty without a run."""
    return f"{100 * fmean(last_mean(result.run) for result in results):.2f}" if results else ""


def _longer_runs(runs: Sequence[Result]) -> list[str]:
    """Return the accuracy of runs that have more rounds than others of their group."""
    common = min(result.rounds for result in runs)
    longer = [
        f"{result.name} (seed {result.experiment.seed}) after {result.rounds} rounds: "
        f"{percent([result.run.accuracies[-1][1]])}, mean of the last {LAST} {percent([last_mean(result.run)])}"
        for result in runs
        if result.rounds > common
    ]
    return ["", f"Longer runs: {'; '.join(longer)}."] if longer else []


def title_of(group: Group) -> str:
    """Return `CIFAR-10, LDA alpha = 0.1, cnn`."""
    experiment = group.results[0].experiment
    names = {name: title for title, name in DATASETS.items()}
    partition = experiment.data.partition
    levels = {
        "sharding": f"sharding s = {partition.shards}",
        "dirichlet": f"LDA alpha = {partition.alpha:g}",
        "dirichlet-client": f"Dirichlet per client, alpha = {partition.alpha:g}",
    }
    level = levels.get(partition.kind, partition.kind)
    part = f", {100 * experiment.data.part:g} % of the data" if experiment.data.part < 1 else ""
    about = f": {group.about}" if group.about else ""
    return f"{names.get(experiment.data.name, experiment.data.name)}, {level}, {experiment.model.name}{part}{about}"


def _every_run(results: Sequence[Result]) -> str:
    """Return command, seed, commit and machine time of every run."""
    lines = [
        "## Every run\n",
        "Each has experiment.toml, metrics.jsonl, summary.json and environment.json in `results/<run>`. The commands "
        "name neither the folder of the data (`--set data.root=…`) nor that of the run (`--out`).\n",
        "| run | command | seed | commit | rounds | machine time |",
        "|---|---|---:|---|---:|---:|",
    ]
    for result in results:
        seconds = round(sum(row["seconds"] for row in result.run.rows))
        lines.append(
            f"| {result.group}/{result.name} | {command_of(result)} | {result.experiment.seed} "
            f"| {commit_of(result.run.environment)} | {result.rounds} | {seconds // 3600}:{seconds // 60 % 60:02d} h |"
        )
    machines = {machine_of(result.run.environment) for result in results}
    total = sum(row["seconds"] for result in results for row in result.run.rows) / 3600
    lines.append(f"\nMade on: {'; '.join(sorted(machines))}. Machine time in all: {total:.1f} hours.\n")
    return "\n".join(lines)


def command_of(result: Result) -> str:
    """Return the command, and what it takes beside it today: added rounds, a setting whose default has changed."""
    command = result.run.environment["command"]
    parts = [f"`{command}`"]
    parts += [
        f"then `--set rounds={note['to']}` (at {commit_of(note)})"
        for note in result.run.environment.get("lengthened", [])
    ]
    parts += [f"after round {note['after']} at {commit_of(note)}" for note in result.run.environment.get("went_on", [])]
    strength = result.experiment.algorithm.get("strength")
    used = "algorithm.strength" not in keys_without_effect(result.experiment)
    if used and strength not in (None, DEFAULT_STRENGTH) and "strength=" not in command:
        parts.append(f"today with `--set algorithm.strength={strength}`")
    return "; ".join(parts).replace("|", "\\|")  # else a `|` in it would end the cell


def percent(values: Iterable[float]) -> str:
    return f"{100 * fmean(values):.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.results_page", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, help="folder of the runs")
    parser.add_argument("page", type=Path, help="the page to write; its pictures go to images/results beside it")
    options = parser.parse_args(arguments)
    results, page = options.results, options.page
    try:
        text = render(results)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    draw(groups_of(results), page.parent / PICTURES)
    write_atomically(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
