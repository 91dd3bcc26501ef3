"""FedLC and FedRS by hand, and where a client's label counts come from."""

from math import exp, log

import pytest
import torch

import fedsol
from fedsol.federation.federation import Federation, build_federation
from tests.support.cases import experiment
from tests.support.one_weight_per_logit import close, column, step


def labels(*values):
    return lambda: torch.tensor(values)


def test_a_step_of_fedlc():
    # Counts (16, 1, 1): the margins are tau (1/2, 1, 1). w = (tau/2, ln 2 + tau, tau) makes the logits (0, ln 2, 0).
    table = {"name": "fedlc", "tau": 3.0}
    weights = column(1.5, log(2) + 3, 3)
    found = step(table, column(0, 0, 0), weights, labels=labels(*[0] * 16, 1, 2))
    close(found, column(0.25 - 1, 0.5, 0.25))


def test_a_class_that_the_client_lacks_has_no_part_in_fedlcs_loss():
    found = step({"name": "fedlc"}, column(0, 0, 0), column(0, 0, 0), labels=labels(0, 2))
    close(found, column(-0.5, 0, 0.5))


def test_a_step_of_fedrs():
    # The client lacks class 1, whose logit 2 counts 2 alpha = 1/2: so does its gradient, alpha p_1.
    p = [part / (1 + exp(0.5) + exp(1)) for part in (1, exp(0.5), exp(1))]
    found = step({"name": "fedrs", "alpha": 0.25}, column(0, 0, 0), column(0, 2, 1), labels=labels(2, 0, 2))
    close(found, column(p[0] - 1, 0.25 * p[1], p[2]))


def test_the_counts_are_those_of_the_clients_training_samples(monkeypatch):
    settings = experiment({"name": "fedlc"}, rounds=1, data__partition__held_out=0.3)
    federation, seen = build_federation(settings), {}
    train = Federation.train

    def spy(self, job):
        original = type(self.algorithm).calibrated

        def calibrated(algorithm, logits, counts):
            seen[job.client] = counts.tolist()
            return original(algorithm, logits, counts)

        with monkeypatch.context() as patched:
            patched.setattr(type(self.algorithm), "calibrated", calibrated)
            return train(self, job)

    monkeypatch.setattr(Federation, "train", spy)
    fedsol.train(settings)
    assert len(seen) == 3
    for client, counts in seen.items():
        own = federation.dataset.train.labels[federation.training_samples(client)]
        assert counts == [int((own == label).sum()) for label in range(10)]


@pytest.mark.parametrize("name", ["fedlc", "fedrs"])
def test_other_tasks_are_refused_by_name(name):
    with pytest.raises(fedsol.InputError, match=f"algorithm.name: '{name}' does not fit task.kind = 'multilabel'; it"):
        fedsol.Experiment(algorithm={"name": name}, task={"kind": "multilabel"})
