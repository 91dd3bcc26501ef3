"""In which round FedSOL passes FedAvg's last accuracy."""

import json
import statistics

from fedsol.paper.numbers import Heading
from fedsol.paper.printing import as_markdown
from fedsol.paper.recipe import Ours, TrainedTable, run_cell
from fedsol.paper.settings import METHODS, experiment
from fedsol.runs.run import Run
from tests.support.made_runs import make_run

COLUMN = "CIFAR-10, alpha = 0.1"


def run_of(folder, accuracies):
    make_run(folder, rounds=len(accuracies))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row, accuracy in zip(rows, accuracies, strict=True):
        row["test_accuracy"] = accuracy
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run.load(folder)


def test_the_table_says_in_which_round(tmp_path):
    names = {"FedAvg": "FedAvg", "FedSOL": "FedSOL", "FedSOL, rho 2.0": "FedSOL", "FedProx": "FedProx"}
    cells = [
        run_cell(("", row, COLUMN), experiment("cifar10", "alpha = 0.1", METHODS[name]), {"method": row})
        for row, name in names.items()
    ]
    rising = [0.02 * number for number in range(1, 21)]
    runs = {
        "FedAvg": [[0.2] * 20],
        "FedSOL": [rising, [0.3] * 20],
        "FedSOL, rho 2.0": [[0.1] * 20],
        "FedProx": [[0.5] * 20],
    }
    ours = {
        ("", row, COLUMN): Ours(0.0, runs=tuple(run_of(tmp_path / f"{row}-{n}", one) for n, one in enumerate(found)))
        for row, found in runs.items()
    }
    table = TrainedTable(Heading("main", "Methods", "tab:main", "%", 2, ()), cells, passing="FedSOL")
    lines = [line for line in as_markdown(table, ours).splitlines() if "passes FedAvg's" in line]
    first = next(n for n in range(10, 21) if statistics.fmean(rising[n - 10 : n]) >= 0.2)
    level = "passes FedAvg's mean of the last 10 rounds, 20.00%, in round"
    assert lines == [f"- {COLUMN}: FedSOL {level} {first}, 10", f"- {COLUMN}: FedSOL, rho 2.0 {level} never"]
    assert "passes" not in as_markdown(TrainedTable(table.heading, cells), ours)
