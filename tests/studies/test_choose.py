"""Choosing a method: the plan of a race, its ranking by hand, and a race that is stopped, resumed and repeated."""

import json
import math
import tomllib

import pytest

from fedsol.config.experiment import Experiment
from fedsol.config.task import ACCURACY
from fedsol.errors import InputError
from fedsol.runs.selection import Selection
from fedsol.studies.choice import Alone, Place, chance, interval, limits, ranking, recommendation
from fedsol.studies.choose import (
    WELL_KNOWN,
    Race,
    Racer,
    Rung,
    candidates,
    field_for,
    parse_budget,
    plan_race,
    validation_result,
    with_validation,
)
from fedsol.studies.choose import Place as RacePlace
from tests.support.cli import TINY, fedsol


def test_a_budget_is_time_or_work():
    assert (parse_budget("20min").amount, parse_budget("1.5h").amount, parse_budget(" 90 s").amount) == (1200, 5400, 90)
    assert parse_budget("600rounds").is_work
    for wrong in ("20", "min", "0min", "-3min", "3 days"):
        with pytest.raises(InputError, match="--budget: must be a time or an amount of work"):
            parse_budget(wrong)


def test_the_plan_halves_the_methods_and_spends_no_more_than_the_budget():
    rungs = plan_race(8, 267, 100)  # 240 of them are for the race
    assert [rung.methods for rung in rungs] == [8, 4, 2]
    assert rungs == [Rung(8, 2, 5), Rung(4, 3, 10), Rung(2, 4, 17)]  # 80 rounds each: 10, 20 and 40 more per method
    spent, before = 0, Rung(0, 0, 0)
    for rung in rungs:
        spent += rung.methods * (rung.seeds * rung.rounds - before.seeds * before.rounds)
        before = rung
    assert spent <= 0.9 * 267
    assert plan_race(2, 1000, 10) == [Rung(2, 10, 10)]  # all rounds are done: the rest goes to seeds, ten at most
    with pytest.raises(InputError, match="too small for 8 methods: 60 rounds in all, and at least 107"):
        plan_race(8, 60, 100)


def test_all_that_fit_race_the_well_known_first_and_as_many_as_the_budget_allows():
    base = with_validation(Experiment(data="digits"))
    found = candidates(base, [])
    names = [variant.label for variant in found]
    assert tuple(names[: len(WELL_KNOWN)]) == WELL_KNOWN
    assert not {"local-only", "knn-per", "fedsol-ablation", "perturbed"} & {*names}
    assert [one.label for one in field_for(found, 267, 100)] == list(WELL_KNOWN)
    assert [one.label for one in field_for(found, 23, 100)] == ["fedavg", "fedsol"]
    regression = with_validation(Experiment(task="regression"))
    assert "fedntd" not in [one.label for one in candidates(regression, [])]


def test_only_validation_is_looked_at():
    rows = [{"round": number, "validation_accuracy": number / 10, "test_accuracy": 1.0} for number in range(1, 6)]
    assert validation_result(rows, Selection(ACCURACY, "validation")) == pytest.approx(0.4)
    assert base_validation(0.0) == 0.1
    assert base_validation(0.3) == 0.3


def base_validation(share):
    return with_validation(Experiment(data={"name": "digits", "validation": share})).data.validation


def test_an_interval_is_students_and_never_below_chance():
    mean, half = interval([0.8, 0.9])
    assert (mean, half) == (pytest.approx(0.85), pytest.approx(12.7062 * 0.05, rel=1e-4))
    assert interval([0.9, 0.9], 0.02) == (pytest.approx(0.9), 0.02)
    assert interval([0.9]) == (0.9, None)
    assert chance([0.5], 96) == pytest.approx(1.959964 * math.sqrt(0.25 / 100))
    assert chance([1.0], 96) > 0


def test_a_ranking_by_hand():
    base = with_validation(Experiment(data="digits"))
    racer = Racer(candidates(base, ["fedavg", "fedsol", "fedntd", "fedprox"]), RacePlace(None, False, print))
    first = {"fedavg": (0.50, 0.52), "fedsol": (0.80, 0.81), "fedntd": (0.79, 0.80), "fedprox": (None, 0.9)}
    last = {"fedsol": (0.90, 0.88, 0.89), "fedntd": (0.89, 0.89, 0.88)}
    race = Race((Rung(4, 2, 5), Rung(2, 3, 10)), (first, last))
    places = ranking(race, racer, 1000)
    assert [place.name for place in places] == ["fedsol", "fedntd", "fedavg", "fedprox"]
    winner, level, behind, failed = places
    assert (winner.low, level.is_level, failed.mean) == (None, True, None)
    assert (behind.rounds, behind.low > 0.15, behind.high < 0.45) == (5, True, True)
    sentence = recommendation(places, ACCURACY, Alone(12, 40, 5))
    assert sentence == (
        "fedsol and fedntd are level; fedavg is 23 to 36 points behind; fedprox failed; "
        "12 of 40 clients tried would do better alone."
    )
    assert any("10 of 100 rounds" in note for note in limits(places, base.override({"rounds": 100}), None))
    early = [winner, Place("fedavg", 5, 2, 0.7, 0.1, -0.1, 0.4)]
    assert recommendation(early, ACCURACY, None) == "fedsol is best; fedavg left early, without a clear difference."


def test_a_race_is_resumed_and_repeated_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    race = ("choose", *TINY, "--set", "rounds=4", "-a", "fedavg,fedprox")
    done = fedsol(*race, "--budget", "18rounds", "--out", "one")
    assert done.exit_code == 0, done.output
    assert "2 methods, 2 seeds, 4 rounds" in done.output
    again = fedsol(*race, "--budget", "18rounds", "--out", "one")
    assert (again.exit_code, "already has a race" in again.output) == (2, True)
    other = fedsol(*race, "--budget", "20rounds", "--out", "one", "--resume")
    assert (other.exit_code, "a different budget" in other.output) == (2, True)
    resumed = fedsol(*race, "--budget", "18rounds", "--out", "one", "--resume")
    assert resumed.output == done.output
    record = json.loads((tmp_path / "one" / "choice.json").read_text())
    assert (record["work"], record["seconds_per_round"]) == (18, None)
    chosen = tomllib.loads((tmp_path / "one" / "recommended.toml").read_text())
    assert chosen["algorithm"]["name"] in ("fedavg", "fedprox")
    assert chosen["rounds"] == 4
    assert "validation" not in chosen["data"] or chosen["data"]["validation"] == 0


def test_a_time_is_measured_once_and_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Racer, "seconds_per_round", lambda self: 0.5)
    race = ("choose", *TINY, "--set", "rounds=2", "-a", "fedavg,fedprox", "--budget", "5s", "--out", "one")
    done = fedsol(*race)
    assert "The budget is 10 rounds" in done.output, done.output
    monkeypatch.setattr(Racer, "seconds_per_round", lambda self: 99.0)
    assert "The budget is 10 rounds" in fedsol(*race, "--resume").output
