"""The leaderboard: what is compared with what, and with which interval."""

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from fedsol.runs.find import find_runs
from fedsol.studies.leaderboard import Rules, leaderboards, paired_gain
from tests.support.made_runs import make_run

OURS, BASELINE = [0.66, 0.64, 0.70, 0.61], [0.55, 0.50, 0.53, 0.56]


def set_results(folder, values, classes=None):
    """Replace the accuracies of a run."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row, value in zip(rows, values, strict=True):
        row.update(test_accuracy=value, class_accuracy=classes)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def made(folder, name, seed, values, classes=None, **changes):
    settings = {"algorithm.name": name, "seed": seed, "task.metrics": ["accuracy"], **changes}
    set_results(make_run(folder, settings, rounds=len(values)), values, classes)


def boards_of(folder, rules=Rules()):  # noqa: B008
    return leaderboards(find_runs([folder]), rules)


def by_method(board):
    return {standing.method: standing for standing in board.standings if standing.precision == "float32"}


def test_the_interval_is_scipys_of_the_differences():
    found = paired_gain(OURS, BASELINE)
    differences = np.array(OURS) - np.array(BASELINE)
    scipys = stats.bootstrap(
        (differences,), np.mean, n_resamples=9999, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert found.mean == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx((scipys.low, scipys.high), abs=1e-12)


def test_the_interval_is_that_of_all_resamples():
    differences = np.array(OURS[:3]) - np.array(BASELINE[:3])
    means = sorted(np.mean(resample) for resample in itertools.product(differences, repeat=3))
    found = paired_gain(OURS[:3], BASELINE[:3])
    # 1 of 27 resamples, 3.7 %, repeats the smallest difference thrice: more than the 2.5 % that are cut off.
    assert (found.low, found.high) == pytest.approx((means[0], means[-1]))


def test_pairs_matter():
    shuffled = paired_gain(OURS, BASELINE[::-1])
    found = paired_gain(OURS, BASELINE)
    assert shuffled.mean == pytest.approx(found.mean)
    assert (shuffled.low, shuffled.high) != pytest.approx((found.low, found.high))


def test_one_seed_has_no_interval():
    assert paired_gain([0.7], [0.5]) == (pytest.approx(0.2), None, None)


@pytest.fixture
def board(tmp_path):
    for seed, (ours, theirs) in enumerate([(0.6, 0.5), (0.8, 0.6)]):
        made(tmp_path / f"fedsol-{seed}", "fedsol", seed, [0.2, 0.55, ours], [0.1, ours])
        made(tmp_path / f"fedavg-{seed}", "fedavg", seed, [0.1, 0.2, theirs])
    made(tmp_path / "half", "fedsol", 0, [0.2, 0.55, 0.4], **{"engine.precision": "bfloat16"})
    made(tmp_path / "other", "fedavg", 0, [0.1, 0.2, 0.9], **{"data.partition.alpha": 0.7})
    made(tmp_path / "short", "fedavg", 0, [0.1, 0.2])
    return tmp_path


def test_methods_are_compared_within_a_setting(board):
    boards = boards_of(board)
    assert [one.setting for one in boards] == [
        "digits, dirichlet 0.1, 3 rounds", "digits, dirichlet 0.7, 3 rounds", "digits, dirichlet 0.1, 2 rounds"
    ]  # fmt: skip
    main = boards[0]
    assert [(one.method, one.precision, one.seeds) for one in main.standings] == [
        ("fedavg", "float32", [0, 1]), ("fedsol", "float32", [0, 1]), ("fedsol", "bfloat16", [0])
    ]  # fmt: skip
    fedavg, fedsol, half = main.standings
    assert fedsol.result == pytest.approx((0.7, np.std([0.6, 0.8], ddof=1)))
    assert fedsol.gain == pytest.approx((0.15, 0.1, 0.2))
    assert (fedavg.gain, half.gain) == (None, None)  # there is no FedAvg in this precision
    assert fedsol.worst_class == pytest.approx(0.1)


def test_a_setting_is_named_by_what_differs(board):
    made(board / "mlp", "fedavg", 0, [0.1, 0.2, 0.9], **{"model.name": "mlp", "client.lr": 0.5})
    titles = [one.setting for one in boards_of(board)]
    assert "digits, dirichlet 0.1, 3 rounds, lr=0.5, model=mlp" in titles


def test_rounds_and_traffic_to_the_target(board):
    main = boards_of(board)[0]
    assert main.target == pytest.approx(0.55)  # FedAvg's
    per_round = 600_000
    found = by_method(main)
    fedsol = found["fedsol"].reached
    assert (fedsol.runs, fedsol.rounds, fedsol.bytes) == (2, 2, 2 * per_round)
    fedavg = found["fedavg"].reached
    assert (fedavg.runs, fedavg.rounds, fedavg.bytes) == (1, 3, 3 * per_round)  # one seed of two
    high = by_method(boards_of(board, Rules(target=0.95))[0])["fedavg"].reached
    assert (high.runs, high.rounds, high.bytes) == (0, None, None)


def test_a_result_may_be_the_mean_of_the_last_rounds(board):
    fedavg = by_method(boards_of(board, Rules(last=2))[0])["fedavg"]
    assert fedavg.result.mean == pytest.approx((0.35 + 0.4) / 2)


def test_a_repeated_seed_is_no_evidence(tmp_path):
    for place in ("a", "b"):
        made(tmp_path / place, "fedavg", 0, [0.1, 0.5])
    assert [(one.method, one.seeds) for one in boards_of(tmp_path)[0].standings] == [
        ("fedavg", [0]), ("fedavg (2)", [0])
    ]  # fmt: skip


def test_where_less_is_better_a_gain_is_a_fall(tmp_path):
    for name, error in (("fedavg", 5.0), ("fedsol", 3.0)):
        changes = {"task.kind": "regression", "task.metrics": ["rmse"], "data.partition.kind": "iid"}
        folder = make_run(tmp_path / name, {"algorithm.name": name, **changes}, rounds=2)
        rows = [
            {**json.loads(line), "test_rmse": error} for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = by_method(boards_of(tmp_path)[0])
    assert found["fedsol"].gain.mean == pytest.approx(2.0)
    assert found["fedsol"].reached.runs == 1


def test_runs_of_earlier_versions_lack_keys_and_are_in_the_same_setting(board):
    file = board / "fedsol-0" / "experiment.toml"
    text = file.read_text()
    assert "validation = 0.0\n" in text
    file.write_text(text.replace("validation = 0.0\n", "").replace("tau = 3.0\n", ""))
    assert by_method(boards_of(board)[0])["fedsol"].seeds == [0, 1]


def test_privacy_that_is_off_is_no_other_setting(board):
    """Earlier versions wrote the defaults of `[privacy]` where it was off."""
    file = board / "fedsol-0" / "experiment.toml"
    text = file.read_text()
    assert "[privacy]\n" in text
    file.write_text(text.replace("[privacy]\n", '[privacy]\nclipping = "off"\nnoise_multiplier = 1.0\n'))
    assert by_method(boards_of(board)[0])["fedsol"].seeds == [0, 1]
    file.write_text(text.replace("[privacy]\n", "[privacy]\nnoise_multiplier = 1.0\n"))
    assert by_method(boards_of(board)[0])["fedsol"].seeds == [1]
