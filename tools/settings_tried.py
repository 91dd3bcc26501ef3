"""Try the quick start with other settings, and write docs/settings-tried.md: `python -m tools.settings_tried`.

Every finished run is a line of results/settings-tried.jsonl; started again, it makes the runs that are missing.
`--page` only writes the page.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import fedsol
from fedsol.analysis.preservation import forgetting
from fedsol.config.experiment import find_experiment
from fedsol.core.files import append_text, read_json_lines, write_atomically
from fedsol.core.statistics import sample_mean_std
from fedsol.runs.environment import environment
from tools.reference import wrapped

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "results" / "settings-tried.jsonl"
PAGE = REPOSITORY / "docs" / "settings-tried.md"
COMMAND = "python -m tools.settings_tried"
SEEDS = (0, 1, 2)
METHODS = {"FedAvg": "fedavg", "FedNTD": "fedntd", "FedSOL": "fedsol"}


def dirichlet(alpha: float) -> dict[str, Any]:
    """Return the changes to the quick start for a Dirichlet partition."""
    return {"data.partition": {"kind": "dirichlet", "alpha": alpha}}


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "sharding, s = 2 (the quick start)": ("quickstart", {}),
    "sharding, s = 3": ("quickstart", {"data.partition.shards": 3}),
    "sharding, s = 5": ("quickstart", {"data.partition.shards": 5}),
    "Dirichlet(0.05)": ("quickstart", dirichlet(0.05)),
    "Dirichlet(0.1)": ("quickstart", dirichlet(0.1)),
    "Dirichlet(0.5)": ("quickstart", dirichlet(0.5)),
    "IID": ("quickstart", {"data.partition": {"kind": "iid"}}),
    "1 local epoch, not 5": ("quickstart", {"client.epochs": 1}),
    "batches of 10, not 5": ("quickstart", {"client.batch_size": 10}),
    "batches of 50, not 5": ("quickstart", {"client.batch_size": 50}),
    "20 of 100 clients a round, not 10": ("quickstart", {"server.fraction": 0.2}),
    "model mlp, not small": ("quickstart", {"model.name": "mlp"}),
    "digits: Dirichlet(0.1), 4 of 20 clients, 100 rounds": ("digits", {}),
}
"""What was tried: an experiment by name, and what is changed in it."""


def runs() -> Iterator[dict[str, Any]]:
    """Yield what each run is: first the pair that is compared, one seed after the other."""
    for methods in (["FedAvg", "FedSOL"], ["FedNTD"]):
        for seed in SEEDS:
            for setting in SETTINGS:
                yield from ({"setting": setting, "method": method, "seed": seed} for method in methods)


def result(run: Mapping[str, Any]) -> dict[str, Any]:
    """Train; return the final accuracy, the mean of the last five rounds, and what was forgotten."""
    name, changes = SETTINGS[run["setting"]]
    changes = {**changes, "algorithm.name": METHODS[run["method"]], "seed": run["seed"], "engine.kind": "local"}
    trained = fedsol.train(fedsol.Experiment(**find_experiment(name)).override(changes))
    last = [row["test_accuracy"] for row in trained.rows[-5:]]
    return {
        "final": trained.final_accuracy,
        "last_five": fmean(value for value in last if value is not None),
        "forgetting": forgetting(trained.rows).forgetting[-1],
    }


def measure() -> None:
    """Make the runs that are missing, one line each as it is finished."""
    commit = environment().get("commit")
    done = {key(row) for row in read_json_lines(RESULTS)}
    for run in runs():
        if key(run) not in done:
            append_text(RESULTS, json.dumps({**run, **result(run), "commit": commit}) + "\n")


def key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells runs apart."""
    return tuple(run[name] for name in ("setting", "method", "seed"))


INTRODUCTION = """# Every setting tried

The [first run](tutorials/first-run.md) shows one setting. Here it is with others, wins and losses,
so that nobody has to wonder whether it was picked for the win. Each row changes one thing in the
quick start, `fashion-small` with two shards per client, batches of 5 and model `small`; the last
row is another dataset. FedSOL has fedsol's defaults everywhere: nothing was tuned.

Final test accuracy in %, mean ± standard deviation over seeds; a number without ± is of one seed.
*Forgotten*: how far the final model is below its best, class by class, in points."""


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    found = {key(row): row for row in rows}
    titles = ["setting", "seeds", *METHODS, "FedSOL − FedAvg", "forgotten: FedAvg", "FedSOL"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "---:|" * (len(titles) - 2)]
    pairs: list[tuple[float, float]] = []
    for setting in SETTINGS:
        by_method = {name: {seed: found.get((setting, name, seed)) for seed in SEEDS} for name in METHODS}
        both = [seed for seed in SEEDS if by_method["FedAvg"][seed] and by_method["FedSOL"][seed]]
        base, ours = ([by_method[name][seed] or {} for seed in both] for name in ("FedAvg", "FedSOL"))
        gaps = [one["final"] - other["final"] for one, other in zip(ours, base, strict=True)]
        less = [other["forgetting"] - one["forgetting"] for one, other in zip(ours, base, strict=True)]
        pairs += zip(gaps, less, strict=True)
        finals = [[row["final"] for row in by_method[name].values() if row] for name in METHODS]
        lost = [[row["forgetting"] for row in group] for group in (base, ours)]
        cells = [setting, ", ".join(map(str, both)), *map(_percent, [*finals, gaps, *lost])]
        lines.append(f"| {' | '.join(cells)} |")
    commits = ", ".join(sorted({str(row["commit"])[:7] for row in rows}))
    ahead, behind, less_lost = (
        sum(gap > 0 for gap, _ in pairs),
        sum(gap < 0 for gap, _ in pairs),
        sum(less > 0 for _, less in pairs),
    )
    ends = (
        f"Pairs of runs with the same setting and seed: {len(pairs)}. FedSOL ended ahead of FedAvg in {ahead} of "
        f"them and behind in {behind}, and forgot less in {less_lost}.",
        f"`{COMMAND}`, commit {commits}; {len(rows)} of {len(list(runs()))} runs have been made, each a line of "
        "`results/settings-tried.jsonl`. The command makes those that are missing. The seeds are those of FedAvg and "
        f"FedSOL; of FedNTD's {len(SETTINGS) * len(SEEDS)} runs, {sum(row['method'] == 'FedNTD' for row in rows)} "
        "have been made.",
    )
    return "\n\n".join([INTRODUCTION, "\n".join(lines), *map(wrapped, ends)]) + "\n"


def _percent(values: list[float]) -> str:
    spread = sample_mean_std(values)
    if spread is None:
        return ""
    return f"{100 * spread.mean:.1f}" + (f" ± {100 * spread.std:.1f}" if len(values) > 1 else "")


def main() -> None:
    """Run what is missing, then write the page."""
    if "--page" not in sys.argv:
        measure()
    write_atomically(PAGE, page(read_json_lines(RESULTS)))


if __name__ == "__main__":
    main()
