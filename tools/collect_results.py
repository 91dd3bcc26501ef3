"""Copy the small files of finished runs: `python -m tools.collect_results runs/paper -o results`.

A run directory becomes `results/<group>/<cell>/` with experiment.toml, metrics.jsonl, summary.json and
environment.json. Where the data lay and the folder of the run are left out, as no result depends on them. How
heterogeneous the partitions below the folder are (of runs or of `fedsol partition`) goes to results/partitions.json.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.core.files import write_atomically
from fedsol.errors import InputError
from fedsol.federation.sampling import trains_alone
from fedsol.paper.store import LAST
from fedsol.runs.find import runs_below
from tools.partitions import partitions_of, read_partitions, write_partitions

COPIED = ("metrics.jsonl", "summary.json")


def collect(source: Path, results: Path, commit: str | None, say: Callable[[str], None], tries: bool = False) -> int:
    """Copy every finished run and computed table below `source`; `commit` is for runs that do not say theirs.

    Tries (fewer than ten rounds, or part of the data) are copied on request only.
    """
    if not source.is_dir():
        raise InputError(f"{source}: there is no such folder")
    copied_runs: list[Path] = []
    tables = 0
    for run in sorted(runs_below(source), key=lambda run: run.path):
        name = run.path.relative_to(source)
        if len(run.rows) != run.experiment.rounds or not (run.path / "summary.json").is_file():
            say(f"{name}: {len(run.rows)} of {run.experiment.rounds} rounds, left out")
            continue
        if trains_alone(run.experiment):
            say(f"{name}: has no rounds to show ({run.experiment.algorithm['name']}), left out")
            continue
        if not tries and (len(run.rows) < LAST or run.experiment.data.part < 1):
            say(f"{name}: a try ({len(run.rows)} rounds, {100 * run.experiment.data.part:g} % of the data), left out")
            continue
        _copy(run.path, results / name, run.experiment, commit)
        copied_runs.append(run.path)
    for file in sorted(source.glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        if is_computed(content) and "environment" not in content:
            say(f"{file.name}: does not say by what it was made, left out; make it again")
        elif is_computed(content):
            (results / "tables").mkdir(parents=True, exist_ok=True)
            content["environment"] = _plain(content["environment"], commit)
            table = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            write_atomically(results / "tables" / file.name, table)
            tables += 1
    partitions = [path.parent for path in source.rglob("partition.json")]
    shown = [folder for folder in partitions if folder in copied_runs or not (folder / "experiment.toml").is_file()]
    write_partitions(results, {**read_partitions(results), **partitions_of(shown)})
    return len(copied_runs) + tables


def is_computed(content: Any) -> bool:
    """Return whether this is a table of `fedsol reproduce` whose numbers come from no training run."""
    if not isinstance(content, dict) or "recipe" not in content:
        return False
    return any(cell["ours"] and not cell["runs"] for cell in content["cells"])


def _copy(source: Path, target: Path, experiment: Experiment, commit: str | None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        write_atomically(target / name, (source / name).read_bytes())
    write_atomically(target / "experiment.toml", experiment.override({"data.root": "data"}).to_toml())
    environment = _plain(json.loads((source / "environment.json").read_text(encoding="utf-8")), commit)
    write_atomically(target / "environment.json", json.dumps(environment, indent=2) + "\n")


def _plain(environment: Mapping[str, Any], commit: str | None) -> dict[str, Any]:
    """Return what a result was made with, without places."""
    given = {"commit": commit} if commit else {}
    plain = {**given, **environment, "command": plain_command(environment["command"])}
    for kind in environment.keys() & {"lengthened", "went_on"}:  # their commands name the run's folder and little else
        plain[kind] = [{key: note[key] for key in note if key != "command"} for note in environment[kind]]
    return plain


def plain_command(command: str) -> str:
    """Return the command as anybody would give it: `fedsol run …` without where the data lay and the results went."""
    words = shlex.split(command)
    plain: list[str] = ["fedsol"]
    index = 1
    while index < len(words):
        option, value = words[index], words[index + 1] if index + 1 < len(words) else ""
        if option in ("--out", "-o", "--data-root") or (option == "--set" and re.match(r"data\.root\s*=", value)):
            index += 2
            continue
        if option != "--resume":
            plain.append(option)
        index += 1
    return shlex.join(plain)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.collect_results", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path, help="folders with runs")
    parser.add_argument("-o", "--out", type=Path, default=Path("results"))
    parser.add_argument(
        "--tries", action="store_true", help=f"also runs of fewer than {LAST} rounds, or on part of the data"
    )
    parser.add_argument("--commit", help="of fedsol, for runs whose environment.json does not say it")
    options = parser.parse_args(arguments)
    try:
        copied = sum(collect(source, options.out, options.commit, print, options.tries) for source in options.sources)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{copied} runs and tables are in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
