"""Training, validation and hold-out: every sample of a client is in one part, and none but the first is trained on."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol import Experiment, InputError
from fedsol.core.messages import Job
from fedsol.federation.evaluation import Tally, pooled_loss
from fedsol.federation.federation import assemble, build_federation, node_federation
from fedsol.federation.sampling import central_validation, own_parts, split_samples, training_size
from tests.support.cases import experiment
from tests.support.private import save
from tests.support.private import settings as private_settings


def shares(held_out, validation, by, seed=0):
    data = {"validation": validation, "validation_by": by, "partition": {"held_out": held_out}}
    return Experiment(data=data, seed=seed)


SHARES = st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9])


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), SHARES, SHARES, st.integers(0, 3))
def test_the_parts_of_a_client_are_disjoint_and_complete(sizes, held_out, validation, seed):
    settings = shares(held_out, validation, "client", seed)
    for client, size in enumerate(sizes):
        indices = torch.arange(100, 100 + size)
        parts = split_samples(settings, indices, client)
        assert sorted(sample for part in parts for sample in part.tolist()) == indices.tolist()
        assert len(parts.training) == training_size(settings, size) >= 1
        without = split_samples(shares(held_out, 0.0, "client", seed), indices, client)
        assert torch.equal(parts.held_out, without.held_out)
        rest = size - len(parts.held_out)
        assert abs(len(parts.validation) - validation * rest) <= 1
        if validation and rest > 1:
            assert len(parts.validation) >= 1


@given(st.lists(st.integers(2, 60), min_size=1, max_size=6), SHARES, SHARES, st.integers(0, 3))
def test_a_central_set_is_a_share_of_what_nobody_holds_out(sizes, held_out, validation, seed):
    settings = shares(held_out, validation, "central", seed)
    partition = list(torch.arange(sum(sizes)).flip(0).split(sizes))
    central = central_validation(settings, partition)
    rest = [split_samples(settings, indices, client) for client, indices in enumerate(partition)]
    available = torch.cat([parts.training for parts in rest])
    assert all(not len(parts.validation) for parts in rest)
    assert set(central.tolist()) <= set(available.tolist())
    assert len(set(central.tolist())) == len(central)
    assert abs(len(central) - validation * len(available)) <= 1


@pytest.mark.parametrize("by", ["client", "central"])
def test_no_validation_sample_is_ever_trained_on(by, monkeypatch):
    changes = {"data__validation": 0.25, "data__validation_by": by, "data__partition__held_out": 0.25}
    federation = build_federation(experiment({"name": "fedavg"}, **changes))
    seen: set[int] = set()
    monkeypatch.setattr(
        "fedsol.federation.federation.train_client",
        lambda job, algorithm, model, data, training: seen.update(data.indices.tolist()),
    )
    for client in range(federation.clients):
        federation.train(Job(client, 1, {}))
    aside = set(federation.central_validation.tolist())
    for client in range(federation.clients):
        parts = federation.samples(client)
        aside |= {*parts.validation.tolist(), *parts.held_out.tolist()}
    assert len(federation.central_validation) > 0 if by == "central" else len(federation.central_validation) == 0
    assert not seen & aside
    assert seen | aside == {sample for indices in federation.partition for sample in indices.tolist()}


def test_without_a_share_everything_is_as_it_was():
    federation = build_federation(experiment({"name": "fedavg"}))
    assert own_parts(federation.experiment) == []
    for client in range(federation.clients):
        assert federation.training_samples(client) is federation.partition[client]


def test_the_partition_is_the_same_with_and_without_validation():
    plain, split = (
        build_federation(
            experiment({"name": "fedavg"}, data__validation=share, data__validation_by="central")
        ).partition
        for share in (0.0, 0.3)
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, split, strict=True))


def test_a_node_splits_its_own_samples(tmp_path):
    settings = private_settings(data__validation=0.5)
    federation = node_federation(settings, save(tmp_path / "own.npz", [2, 0, 2, 2, 1, 1, 0, 0]), 1)
    assert [len(part) for part in federation.samples(1)] == [3, 3, 2]
    weights = federation.initial_weights()
    assert sum(federation.evaluate_client(weights, 1, "validation").examples) == 3
    assert sum(federation.evaluate_client(weights, 1, "held_out").examples) == 2


def test_the_server_has_no_share_of_private_data():
    with pytest.raises(InputError) as error:
        private_settings(data__validation=0.1, data__validation_by="central")
    assert str(error.value) == (
        "data.validation_by: 'central' is not allowed with private data, which only the nodes have; allowed: 'client'"
    )


def test_patience_without_validation_is_refused():
    with pytest.raises(InputError) as error:
        Experiment(server={"patience": 3})
    assert str(error.value) == (
        "server.patience: 3 is not allowed without a validation set; set data.validation to a share of the training "
        "samples, such as 0.1"
    )


@pytest.mark.parametrize("share", [1.0, -0.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match=r"data\.validation: must be "):
        Experiment(data={"validation": share})


def test_a_central_share_that_leaves_a_client_nothing_is_refused():
    federation = build_federation(experiment({"name": "fedavg"}))
    settings = federation.experiment.override({"data.validation": 0.5, "data.validation_by": "central"})
    alone = int(central_validation(settings, [torch.arange(100)])[0])
    others = torch.tensor([sample for sample in range(100) if sample != alone])
    with pytest.raises(InputError) as error:
        assemble(settings, federation.dataset, [others, torch.tensor([alone])])
    assert str(error.value) == (
        "data.validation: 0.5 of the training set leaves client 1, which has 1 samples, none to train on; use a "
        "smaller share, or data.validation_by = 'client'"
    )


def test_the_loss_over_clients_by_hand():
    tallies = [Tally((1.0, 2.0), (3, 0), (4, 0)), Tally((5.0,), (0, 0), (0, 1)), Tally((), (0, 0), (0, 0))]
    assert pooled_loss(tallies) == 8 / 5
    assert pooled_loss(tallies, max_share=0.5) == 0.5 * 0.75 + 0.5 * 5.0
    assert pooled_loss([]) is None
    assert pooled_loss([Tally((), (0,), (0,))]) is None
