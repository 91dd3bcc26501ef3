"""Writes docs/results.md from `results/`: `python -m tools.results_page results docs/results.md`.

The same files give the same page, byte for byte. The discussion is `results/discussion.md`, written by hand.
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
from fedsol.errors import InputError
from fedsol.paper.figures import draw_smoothed
from fedsol.paper.numbers import Number
from fedsol.paper.printing import as_markdown
from fedsol.paper.recipe import Accuracy, Cell, Table, TrainedTable, table_of
from fedsol.paper.registry import RECIPES
from fedsol.paper.settings import DATASETS
from fedsol.paper.store import LAST, first_round_at, last_mean
from tools.results import (
    Group,
    Index,
    Kept,
    Measured,
    at_common_rounds,
    read_groups,
    read_kept,
    read_measured,
    setting_of,
)
from tools.results_perturbations import perturbation_table

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


def render(results: Path) -> str:
    """The whole page."""
    kept = read_kept(results)
    parts = [INTRODUCTION]
    discussion = results / "discussion.md"
    if discussion.is_file():
        parts.append(discussion.read_text(encoding="utf-8"))
    index = Index(at_common_rounds(kept))
    all_tables = [table_of(make()) for make in RECIPES.values()]
    tables = _tables(all_tables, read_measured(results), index)
    parts += ["## Tables of the paper\n", *tables] if tables else []
    paper = _paper_numbers([cell for table in all_tables if _shows_accuracy(table) for cell in table.cells], index)
    parts += [CURVES, *(_group(group, paper) for group in read_groups(results, kept))]
    parts.append(_every_run(kept))
    return "\n".join(parts)


def draw(results: Path, folder: Path) -> list[Path]:
    """The learning curves of every group, as the page shows them."""
    return [
        draw_smoothed(
            {cell: [item.run for item in items] for cell, items in _cells(group.runs).items()},
            folder / f"{group.name}.png",
            f"{_title(group)}: mean of {LAST} rounds",
        )
        for group in read_groups(results, read_kept(results))
    ]


def _cells(runs: Sequence[Kept]) -> dict[str, list[Kept]]:
    """The runs of a group by cell, the best first."""
    cells: dict[str, list[Kept]] = {}
    for item in runs:
        cells.setdefault(item.cell, []).append(item)
    return dict(sorted(cells.items(), key=lambda pair: (-fmean(last_mean(item.run) for item in pair[1]), pair[0])))


def _shows_accuracy(table: Table) -> bool:
    """Return whether the numbers are accuracies of runs; others take their models, which are not in results/."""
    return isinstance(table, TrainedTable) and type(table.evaluation) is Accuracy


def _tables(tables: Sequence[Table], computed: Mapping[str, Measured], index: Index) -> list[str]:
    """Every table that has a number of ours, cut to the rows and columns that do."""
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
    return f"`{environment['command']}` at commit {_commit(environment)}, on {_machine(environment)}"


def _commit(environment: Mapping[str, Any]) -> str:
    return str(environment.get("commit", "not recorded"))[:12]


def _machine(environment: Mapping[str, Any]) -> str:
    return f"{environment['cores']} cores, Python {environment['python']}, torch {environment['packages']['torch']}"


def _paper_numbers(cells: Sequence[Cell], index: Index) -> dict[Path, Number]:
    """The paper's number after all its rounds, by run; the first table that has one counts."""
    found: dict[Path, Number] = {}
    for cell in cells:
        if cell.paper is not None:
            for item in index.of(cell):
                found.setdefault(item.run.path, cell.paper)
    return found


def _group(group: Group, paper: Mapping[Path, Number]) -> str:
    """A picture of all runs on the same data, and a table of where they stood after the rounds that all have."""
    common = at_common_rounds(group.runs)
    for item in common:
        if not item.run.accuracies:
            raise InputError(
                f"{item.run.path}: no round up to {len(item.run.rows)}, which {group.name} shows, was tested"
            )
    cells = _cells(common)
    runs = {cell: items[0].run.experiment for cell, items in cells.items()}
    bases = {setting_of(run): cell for cell, run in runs.items() if run.algorithm["name"] == "fedavg"}
    ours = {cell: fmean(last_mean(item.run) for item in items) for cell, items in cells.items()}
    theirs = {cell: paper[item.run.path] for cell, items in cells.items() for item in items if item.run.path in paper}
    titles = ["run", "seeds", "rounds", "last round", f"mean of the last {LAST}", "best", "as FedAvg in round"]
    titles += ["gain over FedAvg", "paper, all rounds", "paper's gain"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    for cell, items in cells.items():
        values = [
            cell,
            ", ".join(str(item.run.experiment.seed) for item in items),
            " to ".join(map(str, sorted({len(item.run.rows) for item in items}))),
            _percent(item.run.accuracies[-1][1] for item in items),
            _percent(last_mean(item.run) for item in items),
            _percent(max(accuracy for _, accuracy in item.run.accuracies) for item in items),
            str(theirs.get(cell, "")),
        ]
        compared = ["", "", ""]
        base = bases.get(setting_of(runs[cell]), cell)
        if base != cell:
            reached = [first_round_at(ours[base], item.run) for item in items]
            compared[0] = ", ".join("–" if found is None else str(found) for found in reached)
            compared[1] = f"{100 * (ours[cell] - ours[base]):+.2f}"
            if cell in theirs and base in theirs:
                compared[2] = f"{theirs[cell].mean - theirs[base].mean:+.2f}"
        lines.append(f"| {' | '.join([*values[:-1], *compared[:2], values[-1], compared[2]])} |")
    picture = f"![Learning curves: {_title(group)}]({(PICTURES / group.name).as_posix()}.png)"
    lines += [*_by_rounds(cells), *perturbation_table(common), *_went_on(group.runs)]
    return f"### {_title(group)}\n\n{picture}\n\n" + "\n".join(lines) + "\n"


def _by_rounds(cells: Mapping[str, Sequence[Kept]]) -> list[str]:
    """How the runs came there: means of ten rounds each, counted from the end; nothing of a handful of rounds."""
    last = max(row["round"] for items in cells.values() for row in items[0].run.rows)
    if last <= LAST:
        return []
    blocks = [(max(1, end - LAST + 1), end) for end in range(last, 0, -LAST)][::-1]
    lines = ["", f"| mean of rounds | {' | '.join(f'{first}–{end}' for first, end in blocks)} |"]
    lines.append("|---|" + "---:|" * len(blocks))
    for cell, items in cells.items():
        values = [
            [accuracy for item in items for number, accuracy in item.run.accuracies if first <= number <= end]
            for first, end in blocks
        ]
        lines.append(f"| {cell} | {' | '.join(_percent(block) if block else '' for block in values)} |")
    return lines


def _went_on(runs: Sequence[Kept]) -> list[str]:
    """What the runs came to that have more rounds than others of their group."""
    common = min(len(item.run.rows) for item in runs)
    longer = [
        f"{item.cell} (seed {item.run.experiment.seed}) after {len(item.run.rows)} rounds: "
        f"{_percent([item.run.accuracies[-1][1]])}, mean of the last {LAST} {_percent([last_mean(item.run)])}"
        for item in runs
        if len(item.run.rows) > common
    ]
    return ["", f"Longer runs: {'; '.join(longer)}."] if longer else []


def _title(group: Group) -> str:
    """`CIFAR-10, LDA alpha = 0.1, cnn`."""
    experiment = group.runs[0].run.experiment
    names = {name: title for title, name in DATASETS.items()}
    partition = experiment.data.partition
    level = f"sharding s = {partition.shards}" if partition.kind == "sharding" else f"LDA alpha = {partition.alpha:g}"
    part = f", {100 * experiment.data.part:g} % of the data" if experiment.data.part < 1 else ""
    about = f": {group.about}" if group.about else ""
    return f"{names.get(experiment.data.name, experiment.data.name)}, {level}, {experiment.model.name}{part}{about}"


def _every_run(kept: Sequence[Kept]) -> str:
    """Command, seed, commit and machine time of every run."""
    lines = [
        "## Every run\n",
        "Each has experiment.toml, metrics.jsonl, summary.json and environment.json in `results/<run>`. The commands "
        "name neither the folder of the data (`--set data.root=…`) nor that of the run (`--out`).\n",
        "| run | command | seed | commit | rounds | machine time |",
        "|---|---|---:|---|---:|---:|",
    ]
    for item in kept:
        name = f"{item.group}/{item.cell}"
        seconds = round(sum(row["seconds"] for row in item.run.rows))
        lines.append(
            f"| {name} | {_command(item)} | {item.run.experiment.seed} | {_commit(item.environment)} "
            f"| {len(item.run.rows)} | {seconds // 3600}:{seconds // 60 % 60:02d} h |"
        )
    machines = {_machine(item.environment) for item in kept}
    total = sum(row["seconds"] for item in kept for row in item.run.rows) / 3600
    lines.append(f"\nMade on: {'; '.join(sorted(machines))}. Machine time in all: {total:.1f} hours.\n")
    return "\n".join(lines)


def _command(item: Kept) -> str:
    """The command, and what is needed beside it today: rounds that were added, a setting whose default is another."""
    command = item.environment["command"]
    parts = [f"`{command}`"]
    parts += [
        f"then `--set rounds={note['to']}` (at {_commit(note)})" for note in item.environment.get("lengthened", [])
    ]
    parts += [f"after round {note['after']} at {_commit(note)}" for note in item.environment.get("went_on", [])]
    strength = item.run.experiment.algorithm.get("strength")
    used = "algorithm.strength" not in keys_without_effect(item.run.experiment)
    if used and strength not in (None, DEFAULT_STRENGTH) and "strength=" not in command:
        parts.append(f"today with `--set algorithm.strength={strength}`")
    return "; ".join(parts).replace("|", "\\|")  # else a `|` in it would end the cell


def _percent(values: Iterable[float]) -> str:
    return f"{100 * fmean(values):.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.results_page", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, help="folder of the kept runs")
    parser.add_argument("page", type=Path, help="the page to write; its pictures go to images/results beside it")
    options = parser.parse_args(arguments)
    results, page = options.results, options.page
    try:
        text = render(results)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    draw(results, page.parent / PICTURES)
    write_atomically(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
