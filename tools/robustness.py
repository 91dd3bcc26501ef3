"""Measure what each way to combine updates survives, and write docs/robustness.md: `python -m tools.robustness`.

Every finished run is a line of results/robustness.jsonl; started again, it makes the runs that are missing. `--page`
only writes the page.
"""

import itertools
import json
import logging
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fedsol
from fedsol.core.files import append_text, read_json_lines, write_atomically
from fedsol.core.statistics import sample_mean_std
from fedsol.runs.environment import environment

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS, PAGE = REPOSITORY / "results" / "robustness.jsonl", REPOSITORY / "docs" / "robustness.md"
COMMAND = "python -m tools.robustness"

RULES: dict[str, dict[str, Any]] = {
    "mean": {},
    "mean, `max_change = 10`": {"server.max_change": 10.0},
    "median": {"server.aggregation": "median"},
    "trimmed mean": {"server.aggregation": "trimmed-mean", "server.trim": 0.3},
    "multi-Krum": {"server.aggregation": "krum", "server.trim": 0.3},
    "geometric median": {"server.aggregation": "geometric-median"},
}
ATTACKS: dict[str, dict[str, Any]] = {
    "sign flip": {"faults.corruption": "flip"},
    "sign flip, ten times as long": {"faults.corruption": "flip", "faults.corruption_scale": 10.0},
    "noise": {"faults.corruption": "noise"},
    "label flip": {"faults.corruption": "label-flip"},
    "a little is enough": {"faults.corruption": "little-is-enough", "faults.corruption_scale": 1.5},
}
NONE = "no attack"
SHARES, SEEDS = (0.1, 0.2, 0.3), (0, 1, 2)
SETTING: dict[str, Any] = {
    "algorithm.name": "fedavg",
    "rounds": 25,
    "data.partition.clients": 20,
    "data.partition.alpha": 1.0,
    "model.name": "mlp",
    "model.options": {"hidden": 32},
    "client.epochs": 2,
    "client.batch_size": 20,
    "client.lr": 0.1,
    "server.fraction": 1.0,
    "server.evaluate_every": 25,
    "engine.kind": "local",
}

INTRODUCTION = """# What each rule survives

Some clients of a federation may send harmful updates. These tables show how much each way to
combine updates (`[server] aggregation`, `max_change`) suffers from them.

Test accuracy in % on the embedded digits after 25 rounds, mean ± standard deviation over seeds 0,
1 and 2. FedAvg, a small mlp, 20 clients, all in every round, Dirichlet(1.0); guessing gets 10 %.
Some of the clients attack in every round. A seed counts as *lost*, and as 10 %, if its model was
no longer finite or its run was stopped.

What the attackers do (`[faults]`):

- **sign flip**: an honest client's change with its sign reversed (`corruption = "flip"`); also made
  **ten times as long** (`corruption_scale = 10`).
- **noise**: Gaussian noise of standard deviation 1 added to every weight (`"noise"`).
- **label flip**: honest training on labels `9 - y` (`"label-flip"`).
- **a little is enough**: all attackers send the mean of the honest updates minus 1.5 standard
  deviations of each weight (`"little-is-enough"`, Baruch et al., 2019; here they know the honest
  updates).

The rules:

- Only the mean weights clients by their sizes. The others ignore sizes.
- The trimmed mean (Yin et al., 2018) and multi-Krum (Blanchard et al., 2017) have `trim = 0.3`.
  That is right for 30 % attackers, and more than needed for fewer.
- The geometric median (Pillutla et al., 2019) needs no such number.

What the tables say, for this small setting and three seeds. Standard deviations are up to 15
points, and 32 where only some seeds were lost, so smaller differences prove nothing:

- Without attackers `max_change` costs nothing, and the robust rules cost one to four points.
- Two of 20 attackers that send changes ten times as long ruin the mean. `max_change` rejects these
  two, and all noise.
- Of four or six such attackers, those whose own changes are small stay below ten medians, and the
  model suffers or is ruined. `max_change` guards against accidents and single nodes. It does not
  replace a robust rule.
- No rule is best everywhere. Multi-Krum loses almost nothing to long changes, noise and flipped
  labels, but with 30 % attackers "a little is enough" hurts it more than the mean. The geometric
  median is never the worst.
"""


def runs() -> Iterator[dict[str, Any]]:
    """Yield what each run is: a rule, an attack, the share of attackers and a seed."""
    for rule, seed in itertools.product(RULES, SEEDS):
        yield {"rule": rule, "attack": NONE, "attackers": 0.0, "seed": seed}
    for share, attack, rule, seed in itertools.product(SHARES, ATTACKS, RULES, SEEDS):
        yield {"rule": rule, "attack": attack, "attackers": share, "seed": seed}


def accuracy(run: Mapping[str, Any]) -> float | None:
    """Train; return the final accuracy, or None if the model was lost."""
    changes = {**SETTING, **RULES[run["rule"]], **ATTACKS.get(run["attack"], {})}
    experiment = fedsol.Experiment().override({**changes, "faults.attackers": run["attackers"], "seed": run["seed"]})
    try:
        return fedsol.train(experiment).final_accuracy
    except fedsol.RunError:
        return None


def measure() -> None:
    """Make the runs that are missing, one line each as it is finished."""
    logging.disable(logging.WARNING)  # thousands of rejected updates
    commit = environment().get("commit")
    for run in runs():
        if key(run) not in map(key, read_json_lines(RESULTS)):
            row = {**run, "accuracy": accuracy(run), "commit": commit}
            append_text(RESULTS, json.dumps(row) + "\n")


def key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells runs apart."""
    return tuple(run[name] for name in ("rule", "attack", "attackers", "seed"))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    parts.append("## No attackers\n\n" + _table(rows, [NONE], 0.0))
    for share in SHARES:
        parts.append(f"## {share:.0%} attackers ({round(20 * share)} of 20)\n\n" + _table(rows, list(ATTACKS), share))
    commits = ", ".join(sorted({str(row["commit"])[:7] for row in rows}))
    changes = {name: value for name, value in SETTING.items() if name != "model.options"}
    changes |= {"model.options.hidden": 32, "faults.attackers": 0.2, "faults.corruption": "flip"}
    changes |= {"server.aggregation": "krum", "server.trim": 0.3}
    command = textwrap.fill(
        " ".join(["fedsol run", *(f"--set\0{name}={value}" for name, value in changes.items())]),
        width=88,
        break_on_hyphens=False,
        break_long_words=False,
    ).replace("\n", " \\\n        ")
    parts.append(
        "## How these numbers were made\n\n"
        f"`{COMMAND}`, commit {commits}; {len(rows)} runs, each a line of `results/robustness.jsonl`.\n"
        f"One of them by hand:\n\n    {command}\n".replace("\0", " ")
    )
    return "\n".join(parts)


def _table(rows: list[dict[str, Any]], attacks: list[str], share: float) -> str:
    lines = ["| | " + " | ".join(attacks) + " |", "|---" * (len(attacks) + 1) + "|"]
    for rule in RULES:
        lines.append(f"| {rule} | " + " | ".join(_entry(rows, rule, attack, share) for attack in attacks) + " |")
    return "\n".join(lines) + "\n"


def _entry(rows: list[dict[str, Any]], rule: str, attack: str, share: float) -> str:
    found = [row["accuracy"] for row in rows if key(row)[:3] == (rule, attack, share)]
    if len(found) < len(SEEDS):
        return "not run"
    spread = sample_mean_std([0.1 if value is None else value for value in found])
    assert spread is not None
    lost = f" ({found.count(None)} lost)" if None in found else ""
    return f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f}{lost}"


def main() -> None:
    """Run what is missing, then write the page."""
    if "--page" not in sys.argv:
        measure()
    write_atomically(PAGE, page(read_json_lines(RESULTS)))


if __name__ == "__main__":
    main()
