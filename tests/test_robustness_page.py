"""docs/robustness.md is made from results/robustness.jsonl."""

from fedsol.core.files import read_json_lines
from tools import robustness


def test_the_page_is_current():
    page = robustness.PAGE.read_text(encoding="utf-8")
    assert page == robustness.page(read_json_lines(robustness.RESULTS)), "run `python -m tools.robustness --page`"


def test_every_run_is_an_experiment_of_its_own():
    runs = list(robustness.runs())
    assert len({robustness.key(run) for run in runs}) == len(runs) == 6 * 3 * (1 + 5 * 3)


def test_the_page_by_hand():
    """90 % and 80 %, and a seed that was lost and counts as 10 %: 60 ± 43.6."""
    row = {"rule": "median", "attack": "noise", "attackers": 0.2, "commit": "0123456789"}
    rows = [{**row, "seed": seed, "accuracy": value} for seed, value in enumerate((0.9, 0.8, None))]
    page = robustness.page(rows)
    assert "| median | not run | not run | 60.0 ± 43.6 (1 lost) | not run | not run |" in page
    assert "commit 0123456; 3 runs" in page
