"""Write docs/results.md from `results/`: `python -m tools.results_page results docs/results.md`.

The same files give the same page, byte for byte. The claims, without numbers and verdicts, are `results/claims.toml`.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedsol.algorithms.gradients import DEFAULT_STRENGTH
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import RENAMED, keys_without_effect
from fedsol.core.files import write_atomically
from fedsol.data.heterogeneity import Heterogeneity
from fedsol.errors import InputError
from fedsol.paper.figures import draw_smoothed
from fedsol.paper.numbers import Number
from fedsol.paper.printing import as_markdown
from fedsol.paper.recipe import Accuracy, Cell, Table, TrainedTable, table_of
from fedsol.paper.registry import RECIPES
from fedsol.paper.settings import DATASETS
from fedsol.paper.store import LAST, first_round_at, last_mean
from tools.claims import claims
from tools.partitions import Key, key_of, read_partitions
from tools.results import (
    ComputedTable,
    Group,
    Index,
    Result,
    at_common_tests,
    is_complete,
    read_computed_tables,
    read_groups,
    read_results,
    setting_of,
)

INTRODUCTION = """# Results

Runs of fedsol beside the paper's numbers, made from the files in [results](../results) by
`make results`. Each run has its experiment, metrics and environment there, and its command and
commit [below](#learning-curves). As sortable tables: [leaderboard](leaderboard.html).

## What was run

All on the complete datasets and, but for the precision, in the paper's setting: 100 clients, 10 a
round, its CNN, 5 local epochs, batches of 50. A run can be [given more rounds](reliability.md#resume).
"""

TABLES = """## Tables of the paper

Complete runs only, the accuracy after the last round.
"""

COMMANDS = """Commands leave out the seed (`--set seed=…`) and the folders of the data (`--set data.root=…`)
  and of the run (`--out`). Other work ran at the same time, so hours say nothing about a method's cost."""

CURVES = f"""## Learning curves

- **mean of the last {LAST}**: test accuracy in %, mean of the last {LAST} tested rounds, as single rounds
  jump; ± is the standard deviation over seeds.
- **as FedAvg in round**: for each seed, the first round in which this mean reaches FedAvg's last one,
  averaged over its seeds ("–": never).
- Runs of a group are compared after the rounds, and at the tests, that all of them have. The
  paper's numbers are after all its rounds.
- {COMMANDS}
"""

PICTURES = Path("images") / "results"
WIDTH = 100
_SPACE = "\0"
"""Stands for a space at which a line is not broken."""
BLOCKS = 6
"""How many means of ten rounds a table shows."""


def render(results: Path) -> str:
    """Return the whole page."""
    groups = groups_of(results)
    names = {group.name for group in groups}
    runs = [result for result in read_results(results) if result.group in names]
    computed = read_computed_tables(results)
    all_tables = [table_of(make()) for make in RECIPES.values()]
    tables = _tables(all_tables, computed, Index([result for result in runs if is_complete(result)]))
    cells = [cell for table in all_tables if _shows_accuracy(table) for cell in table.cells]
    paper = _paper_numbers(cells, Index(runs))
    parts = [INTRODUCTION, _what_was_run(groups), *heterogeneity(runs, read_partitions(results)), machines(runs)]
    parts += claims(results / "claims.toml", runs, computed)
    parts += [TABLES, *tables] if tables else []
    parts += [CURVES, *(_group(group, paper) for group in groups)]
    return wrapped("\n".join(parts))


def wrapped(text: str) -> str:
    """Return Markdown whose paragraphs and items of lists are broken anew; tables, pictures and headings stay."""
    blocks: list[str] = []
    is_open = False
    for line in text.split("\n"):
        is_text = bool(line) and not line.startswith(("|", "!", "#"))
        if is_open and is_text and not line.startswith("- "):
            blocks[-1] += f" {line.strip()}"
        else:
            blocks.append(line)
        is_open = is_text
    return "\n".join(_filled(block) for block in blocks)


def _filled(block: str) -> str:
    """Return a block in lines that are not too long, code unbroken; the later ones of a list's item are indented."""
    if block.startswith(("|", "!", "#")):
        return block
    whole = re.sub("`[^`]*`", lambda code: code[0].replace(" ", _SPACE), block)
    indent = "  " if block.startswith("- ") else ""
    filled = textwrap.fill(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace(_SPACE, " ")


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


def _what_was_run(groups: Sequence[Group]) -> str:
    """Return a table of all runs: data, seeds, rounds and precision."""
    lines = ["| data | runs | seeds | rounds | precision |", "|---|---|---|---:|---|"]
    for group in groups:
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, seeds in by_name(_own(group.results)).items():
            rounds = " to ".join(map(str, sorted({result.rounds for result in seeds})))
            alike.setdefault((_seeds(seeds), rounds, seeds[0].experiment.engine.precision), []).append(name)
        for (seeds_of, rounds_of, precision), names in alike.items():
            lines.append(f"| {title_of(group)} | {', '.join(names)} | {seeds_of} | {rounds_of} | {precision} |")
    return "\n".join(lines) + "\n"


def _seeds(results: Sequence[Result]) -> str:
    return ", ".join(str(result.experiment.seed) for result in results)


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
    """Return every table with a number of ours that no earlier one has, cut to the rows and columns with numbers."""
    parts, shown = [], set[Path]()
    for table in sorted(tables, key=lambda table: table.name != "main"):
        trained = index.ours(table.cells) if _shows_accuracy(table) else {}
        made = computed.get(table.name)
        ours = {**(made.numbers if made else {}), **trained}
        runs = {run.path for found in trained.values() for run in found.runs}
        if any(cell.paper for cell in table.cells if cell.key in ours) and (made or runs - shown):
            shown |= runs
            heading, _, text = as_markdown(table, ours, "###", only_filled=True).partition("\n")
            name, _, title = heading.partition(": ")
            parts.append(f"{name}\n\n{title}\n{text}" + (f"\n{_source(made.environment)}.\n" if made else ""))
    return parts


def _source(environment: Mapping[str, Any]) -> str:
    return f"Made by `{environment['command']}` at commit {commit_of(environment)}, on {machine_of(environment)}"


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


def _group(group: Group, paper: Mapping[Path, Number]) -> str:
    """Return a picture of all runs on the same data, tables of where they were, and how they were made."""
    common = at_common_tests(group.results)
    if not common[0].run.accuracies:
        raise InputError(f"{group.name}: no round up to {common[0].rounds} was tested in all runs")
    named = by_name(common)
    bases = {setting_of(own[0].experiment): name for name, own in named.items() if _is_fedavg(own[0])}
    ours = {name: fmean(last_mean(result.run) for result in seeds) for name, seeds in named.items()}
    theirs = {
        name: paper[result.run.path] for name, seeds in named.items() for result in seeds if result.run.path in paper
    }
    titles = ["run", "seeds", "rounds", f"mean of the last {LAST}", "gain over FedAvg", "as FedAvg in round"]
    titles += ["paper, all rounds", "paper's gain"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    for name, seeds in named.items():
        gain = reached = their_gain = ""
        base = bases.get(setting_of(seeds[0].experiment), name)
        if base != name:
            gain = gain_of(seeds, named[base])
            rounds = [first_round_at(ours[base], result.run) for result in seeds]
            reached = ", ".join("–" if found is None else str(found) for found in rounds)
            if name in theirs and base in theirs:
                their_gain = f"{theirs[name].mean - theirs[base].mean:+.2f}"
        values = [name, _seeds(seeds), str(seeds[0].rounds), spread([last_mean(result.run) for result in seeds])]
        lines.append(f"| {' | '.join([*values, gain, reached, str(theirs.get(name, '')), their_gain])} |")
    picture = f"![Learning curves: {title_of(group)}]({(PICTURES / group.name).as_posix()}.png)"
    lines += [*_by_rounds(named), *_longer_runs(group.results), "", *commands(_own(group.results))]
    return f"### {title_of(group)}\n\n{picture}\n\n" + "\n".join(lines) + "\n"


def _is_fedavg(result: Result) -> bool:
    return bool(result.experiment.algorithm["name"] == "fedavg")


def _own(results: Sequence[Result]) -> list[Result]:
    """Return the runs that no other group has lent."""
    return [result for result in results if not result.lent]


def spread(values: Sequence[float]) -> str:
    """Return the mean in %, with the deviation if there are several."""
    mean = f"{100 * fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * stdev(values):.2f}"


def gain_of(seeds: Sequence[Result], base: Sequence[Result]) -> str:
    """Return what runs have more than those of FedAvg, in points and with the same seeds; nothing without any."""
    theirs = {result.experiment.seed: last_mean(result.run) for result in base}
    gains = [last_mean(one.run) - theirs[one.experiment.seed] for one in seeds if one.experiment.seed in theirs]
    return f"{100 * fmean(gains):+.2f}" if gains else ""


def heterogeneity(results: Sequence[Result], partitions: Mapping[Key, Heterogeneity]) -> list[str]:
    """Return a table of how heterogeneous the clients are, a row by partition; nothing of those that are not known."""
    whole = [result.experiment for result in results if result.experiment.data.part == 1]
    rows = {
        f"| {_data(experiment)} | {experiment.seed} | {found.jensen_shannon:.2f} | {found.effective_classes:.2f} "
        f"| {found.gini:.2f} |"
        for experiment in whole
        if (found := partitions.get(key_of(experiment)))
    }
    titles = "| [clients' data](data.md#how-heterogeneous) | seed | Jensen-Shannon distance | effective classes "
    lines = [f"{titles}| Gini of sizes |", "|---|---:|---:|---:|---:|", *sorted(rows), ""]
    return ["\n".join(lines)] if rows else []


def _by_rounds(named: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return some means of ten rounds each, evenly spaced and counted from the end; nothing of a handful of rounds."""
    last = max(row["round"] for seeds in named.values() for row in seeds[0].run.rows)
    if last <= LAST:
        return []
    step = -(-last // (LAST * BLOCKS)) * LAST
    blocks = [(max(1, end - LAST + 1), end) for end in range(last, 0, -step)][::-1]
    lines = ["", f"| mean of rounds | {' | '.join(f'{first}–{end}' for first, end in blocks)} |"]
    lines.append("|---|" + "---:|" * len(blocks))
    for name, seeds in named.items():
        values = [
            [accuracy for result in seeds for number, accuracy in result.run.accuracies if first <= number <= end]
            for first, end in blocks
        ]
        lines.append(f"| {name} | {' | '.join(percent(block) if block else '' for block in values)} |")
    return lines


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
    """Return `CIFAR-10, Dirichlet 0.1`, and what is not as in the paper or in other groups."""
    experiment = group.results[0].experiment
    model = f", {experiment.model.name}" if experiment.model.name != "cnn" else ""
    part = f", {100 * experiment.data.part:g} % of the data" if experiment.data.part < 1 else ""
    about = f": {group.about}" if group.about else ""
    return f"{_data(experiment)}{model}{part}{about}"


def _data(experiment: Experiment) -> str:
    """Return `CIFAR-10, Dirichlet 0.1`."""
    names = {name: title for title, name in DATASETS.items()}
    partition = experiment.data.partition
    levels = {
        "sharding": f"sharding s = {partition.shards}",
        "dirichlet": f"Dirichlet {partition.alpha:g}",
        "dirichlet-client": f"Dirichlet per client {partition.alpha:g}",
    }
    return f"{names.get(experiment.data.name, experiment.data.name)}, {levels.get(partition.kind, partition.kind)}"


def commands(results: Sequence[Result]) -> list[str]:
    """Return a table of how runs were made: what all commands share once, then seeds, commit and hours of each."""
    made: dict[tuple[str, str, tuple[str, ...]], list[Result]] = {}
    for result in results:
        made.setdefault((_plain(result), commit_of(result.run.environment), _since(result)), []).append(result)
    split = [_options(command) for command, *_ in made]
    alike = len(split) > 1 and len({head for head, _ in split}) == 1
    shared = [option for option in split[0][1] if alike and all(option in options for _, options in split)]
    lines = ["| run | command | seeds | commit | hours |", "|---|---|---|---|---:|"]
    if shared:
        lines.append(f"| all | {_code(' '.join([split[0][0], *shared]))} `…` | | | |")
    for ((_, commit, since), own), (head, options) in zip(made.items(), split, strict=True):
        rest = " ".join(option for option in options if option not in shared)
        command = _code(f"{'…' if shared else head} {rest}".strip())
        hours = sum(row["seconds"] for result in own for row in result.run.rows) / 3600
        names = ", ".join(dict.fromkeys(result.name for result in own))
        seeds = ", ".join(map(str, sorted({result.experiment.seed for result in own})))
        texts = [names, "; ".join((command, *since)), seeds, commit, f"{hours:.1f}"]
        lines.append(f"| {' | '.join(texts)} |")
    return lines


def machines(results: Sequence[Result]) -> str:
    """Return on what runs were made."""
    return f"Machine: {'; '.join(sorted({machine_of(result.run.environment) for result in results}))}.\n"


def _plain(result: Result) -> str:
    """Return the command of a run with today's names, without its seed, which has a column of its own."""
    command = str(result.run.environment["command"]).replace(f" --set seed={result.experiment.seed}", "")
    for old, new in RENAMED.items():
        command = command.replace(f"--set {old}=", f"--set {new}=")
    return command


def _options(command: str) -> tuple[str, list[str]]:
    """Return what stands before the options, and every option with its values."""
    head, *options = command.split(" --")
    return head, [f"--{option}" for option in options]


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""  # else a `|` in it would end the cell


def _since(result: Result) -> tuple[str, ...]:
    """Return what the command takes beside it today: added rounds, a setting whose default has changed."""
    environment = result.run.environment
    parts = [f"then `--set rounds={note['to']}` (at {commit_of(note)})" for note in environment.get("lengthened", [])]
    parts += [f"after round {note['after']} at {commit_of(note)}" for note in environment.get("went_on", [])]
    strength = result.experiment.algorithm.get("strength")
    used = "algorithm.strength" not in keys_without_effect(result.experiment)
    if used and strength not in (None, DEFAULT_STRENGTH) and "strength=" not in environment["command"]:
        parts.append(f"today with `--set algorithm.strength={strength}`")
    return tuple(parts)


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
