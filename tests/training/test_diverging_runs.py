"""A learning rate that makes training diverge is warned of, once; a good one is not."""

import pytest

import fedsol
from fedsol import Experiment


def warnings_with(caplog, lr, algorithm="fedavg", **tables):
    small = {"partition": {"clients": 10}}
    client = {"lr": lr, "epochs": 2}
    settings = {"rounds": 3, "data": small, "client": client, "server": {"fraction": 0.3}, "engine": {"kind": "local"}}
    fedsol.train(Experiment(algorithm={"name": algorithm}, **settings, **tables))
    return [message for message in caplog.messages if "diverges" in message]


def test_a_diverging_learning_rate_is_named_once(caplog):
    (message,) = warnings_with(caplog, 10.0)
    assert "training diverges; set a smaller client.lr (it is 10), or client.clip_norm, or scale the inputs" in message


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsol", "moon", "fedntd", "perfedavg"])
def test_a_good_learning_rate_is_not_warned_of(caplog, algorithm):
    assert warnings_with(caplog, 0.05, algorithm) == []


def test_corrupted_updates_are_no_divergence(caplog):
    assert warnings_with(caplog, 0.05, faults={"corrupted": 1.0}) == []
