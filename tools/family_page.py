"""Write docs/family.md from `results/`: `python -m tools.family_page results docs/family.md`.

The same files give the same page, byte for byte. What it means is `results/family.md`, written by hand. It shows the
groups whose `group.toml` has `page = "family"`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fedsol.analysis.preservation import forgetting
from fedsol.config.overrides import keys_without_effect
from fedsol.core.files import write_atomically
from fedsol.errors import InputError
from fedsol.paper.store import LAST, last_mean
from tools.partitions import read_partitions
from tools.results import Group, Result, at_common_tests, read_groups, read_results
from tools.results_page import (
    COMMANDS,
    PICTURES,
    by_name,
    commands,
    draw,
    gain_of,
    heterogeneity,
    machines,
    spread,
    title_of,
    wrapped,
)

INTRODUCTION = f"""# The perturbation family, compared

Methods that take the local gradient at perturbed weights, beside FedAvg and the methods that some of
them extend. All have the same clients, batches, learning rates and initial weights. Each has its own
defaults, which the tables name; none was tuned here. `make results` makes this page from the files
in [results](../results).

- **accuracy**: of the global model on the test set in %, mean of the last {LAST} tested rounds. ± is
  the standard deviation over seeds.
- **forgetting**: how far classes are below their best accuracy so far, in points; mean over classes
  and the last {LAST} tested rounds ([definition](deviations.md#forgetting)).
- {COMMANDS}
"""


def render(results: Path) -> str:
    """Return the whole page."""
    text = results / "family.md"
    words = [text.read_text(encoding="utf-8")] if text.is_file() else []
    return wrapped("\n".join([INTRODUCTION, *words, *(_section(results, group) for group in groups_of(results))]))


def groups_of(results: Path) -> list[Group]:
    """Return the groups, their runs as far as they can be compared."""
    groups = read_groups(results, read_results(results), "family")
    if not groups:
        raise InputError(f'{results}: has no group whose group.toml says page = "family"')
    return [replace(group, results=at_common_tests(group.results)) for group in groups]


def _section(results: Path, group: Group) -> str:
    named = by_name(group.results)
    rounds = group.results[0].rounds
    titles = ["method", "seeds", f"accuracy, round {rounds}", "gain over FedAvg", "forgetting", "settings"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|---:|---:|---:|---|"]
    for name, seeds in named.items():
        values = [
            name,
            ", ".join(str(result.experiment.seed) for result in seeds),
            spread([last_mean(result.run) for result in seeds]),
            gain_of(seeds, named.get("fedavg", [])) if name != "fedavg" else "",
            spread([fmean(_forgetting(result)[-LAST:]) for result in seeds]),
            _settings(seeds[0]),
        ]
        lines.append(f"| {' | '.join(values)} |")
    picture = f"![{title_of(group)}]({(PICTURES / group.name).as_posix()}.png)"
    parts = [f"## {title_of(group)}", picture, "\n".join(lines)]
    parts.append("\n".join(_blocks("accuracy", named, lambda result: [value for _, value in result.run.accuracies])))
    parts.append("\n".join(_blocks("forgetting", named, _forgetting)))
    parts += [part.strip() for part in heterogeneity(group.results, read_partitions(results))]
    parts += ["\n".join(commands(group.results)), machines(group.results)]
    return "\n\n".join(parts)


def _forgetting(result: Result) -> list[float]:
    """Return the forgetting at every evaluated round."""
    return list(forgetting(result.run.rows).forgetting)


def _settings(result: Result) -> str:
    left_out = keys_without_effect(result.experiment)
    table = result.experiment.algorithm.items()
    return ", ".join(f"{key} {value}" for key, value in table if key != "name" and f"algorithm.{key}" not in left_out)


def _blocks(what: str, named: dict[str, list[Result]], values_of: Callable[[Result], list[float]]) -> list[str]:
    """Return means of as many evaluated rounds as the page compares, counted from the end."""
    rounds = [number for number, _ in next(iter(named.values()))[0].run.accuracies]
    ends = range(len(rounds), 0, -LAST)[::-1]
    spans = [f"{rounds[max(0, end - LAST)]}–{rounds[end - 1]}" for end in ends]
    lines = [f"| {what}, mean of rounds | {' | '.join(spans)} |", "|---|" + "---:|" * len(spans)]
    for name, seeds in named.items():
        found = [values_of(result) for result in seeds]
        means = [100 * fmean(value for one in found for value in one[max(0, end - LAST) : end]) for end in ends]
        lines.append(f"| {name} | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.family_page", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, help="folder of the runs")
    parser.add_argument("page", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    try:
        text = render(options.results)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    draw(groups_of(options.results), options.page.parent / PICTURES)
    write_atomically(options.page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
