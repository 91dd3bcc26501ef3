"""Ditto's own models, and clients that the federation never saw."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F

import fedsol
from fedsol.core.randomness import generator_for
from fedsol.data.batches import batches
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.personal import fine_tuned, resolve_settings
from fedsol.federation.sampling import sample_clients, sample_testers, unseen_clients
from fedsol.models.split import load_weights
from tests.support.cases import experiment
from tests.support.runs import trained
from tests.support.tensors import same_tensors

UNSEEN = {"data__partition__unseen": 0.25, "server__fraction": 1.0, "data__partition__clients": 8}


def test_ditto_takes_naive_steps_toward_the_data_and_the_global_model():
    run = trained(experiment({"name": "ditto", "lam": 0.5}))
    federation = build_federation(run.experiment)
    settings = resolve_settings(federation, 2, changes={"epochs": (2,)})
    assert (settings.method, settings.lam) == ("ditto", 0.5)
    client, client_settings = 1, run.experiment.client
    anchor = list(run.model().parameters())
    model = copy.deepcopy(run.model()).train()
    velocity = [torch.zeros_like(weight) for weight in anchor]
    generator = generator_for(0, "client", 3, client)
    own = federation.training_samples(client)
    for batch in batches(federation.dataset, own, client_settings.batch_size, 2, generator):
        pull = sum(((v - w.detach()) ** 2).sum() for v, w in zip(model.parameters(), anchor, strict=True))
        loss = F.cross_entropy(model(batch.inputs), batch.labels) + 0.5 / 2 * pull
        found = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for v, gradient, speed in zip(model.parameters(), found, velocity, strict=True):
                speed.mul_(0.9).add_(gradient + client_settings.weight_decay * v)
                v -= settings.lr * speed
    (weights,) = fine_tuned(federation, run.weights, client, settings).values()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(weights[name], parameter.detach(), atol=1e-5, rtol=0)


def test_without_a_pull_ditto_is_fine_tuning_and_with_one_it_stays_nearer():
    federation = build_federation(experiment({"name": "fedavg"}))
    weights = federation.initial_weights()
    found = {}
    for method, changes in (("finetune", {}), ("ditto", {"lam": 0.0}), ("ditto", {"lam": 5.0})):
        settings = resolve_settings(federation, 1, method, {"epochs": (3,), **changes})
        (found[method, *changes.values()],) = fine_tuned(federation, weights, 0, settings).values()
    assert same_tensors(found["ditto", 0.0], found["finetune",])
    distance = {key: sum(float((own[n] - weights[n]).norm()) for n in weights) for key, own in found.items()}
    assert distance["ditto", 5.0] < 0.8 * distance["ditto", 0.0]


def test_clients_never_seen_take_part_in_nothing():
    settings = experiment({"name": "fedavg"}, rounds=3, data__partition__held_out=0.25, **UNSEEN)
    unseen = unseen_clients(settings, 8)
    assert len(unseen) == 2
    assert unseen_clients(settings.override({"seed": 1}), 8) != unseen
    run = trained(settings)
    everyone = set(range(8))
    assert all(set(row["client_ids"]) == everyone - unseen for row in run.rows)
    assert all(row["held_out_clients"] == 6 for row in run.rows)
    for number in range(1, 30):
        assert not unseen & {*sample_clients(settings, 8, number), *sample_testers(settings, 8, number)}
    central = settings.override({"data.validation": 0.2, "data.validation_by": "central"})
    federation = build_federation(central)
    theirs = torch.cat([federation.partition[client] for client in unseen])
    assert not torch.isin(federation.central_validation, theirs).any()


def test_no_share_changes_nothing():
    plain = experiment({"name": "fedavg"}, data__partition__clients=8)
    assert unseen_clients(plain, 8) == frozenset()
    assert unseen_clients(plain.override({"data.partition.unseen": 0.99}), 8) < set(range(8))  # somebody takes part


def test_personalize_reports_them_apart(tmp_path):
    run = fedsol.train(experiment({"name": "fedavg"}, **UNSEEN), out=tmp_path / "run")
    found = fedsol.personalize(tmp_path / "run", changes={"epochs": (0, 1)}, out=tmp_path / "personal")
    unseen = unseen_clients(run.experiment, 8)
    before = {result.client: result.before for result in found.results}
    assert found.summary["unseen"]["before"]["clients"] == 2
    assert found.summary["before"]["clients"] == 6
    apart = [before[client] for client in unseen]
    assert found.summary["unseen"]["before"]["mean"] == pytest.approx(sum(apart) / 2)
    from fedsol.personalization.comparison import as_rows
    from fedsol.personalization.runs import read_entries

    (entry,) = read_entries([tmp_path / "personal"])
    labels = [row["label"] for row in as_rows([entry])]
    assert labels == [entry.label] * 2 + [f"{entry.label}, clients never seen"] * 2
    entry.directory.finish(entry.results, None)
    assert "unseen" in json.loads((tmp_path / "personal" / "summary.json").read_text())


def test_a_personal_model_of_a_client_never_seen_starts_with_the_initial_parts():
    run = trained(experiment({"name": "fedper"}, **UNSEEN))
    federation = build_federation(run.experiment)
    (client, *_) = unseen_clients(run.experiment, 8)
    whole = federation.exchange.complete(run.weights, run.own_state(client))
    assert same_tensors(whole, run.weights)  # the body of all, and the initial head
    assert load_weights(run.model(), whole)


@pytest.mark.parametrize("share", [1.0, -0.1])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(InputError, match=r"data\.partition\.unseen: must be"):
        experiment({"name": "fedavg"}, data__partition__unseen=share)
