"""One client's own models: what they are tested on, what they are trained on, and that they are what they should be."""

import copy
import json
import math
import re
from dataclasses import asdict, replace

import pytest
import torch

import fedsol
from fedsol import InputError
from fedsol.config.overrides import parse_numbers
from fedsol.core.randomness import generator_for
from fedsol.data.batches import batches, evaluation_batches
from fedsol.data.types import UNSCALED
from fedsol.federation import personal
from fedsol.federation.federation import build_federation
from fedsol.federation.neighbors import Memory
from fedsol.federation.personal import (
    PersonalResult,
    PersonalSettings,
    fine_tuned,
    matched_indices,
    own_sets,
    personalize_client,
    resolve_settings,
)
from fedsol.models import ModelShape
from fedsol.models.build import build_model
from tests.reference import naive
from tests.support.cases import experiment
from tests.support.tensors import same_tensors

HELD_OUT = {"data__partition__held_out": 0.3}


def federation_of(name="fedavg", **changes):
    return build_federation(experiment({"name": name}, **changes))


def test_a_matched_test_set_by_hand():
    federation = federation_of()
    for client in range(federation.clients):
        labels = federation.dataset.train.labels[federation.training_samples(client)].tolist()
        for size in (7, 100, 1000):
            chosen = matched_indices(federation, client, size)
            assert len(set(chosen.tolist())) == len(chosen)
            found = federation.dataset.test.labels[chosen].tolist()
            for label in range(10):
                there = int((federation.dataset.test.labels == label).sum())
                wanted = int(size * labels.count(label) / len(labels) + 1e-9)
                assert found.count(label) == min(wanted, there)
    assert not torch.equal(matched_indices(federation, 0, 50), matched_indices(federation_of(seed=1), 0, 50))


@pytest.mark.parametrize("method", ["finetune", "knn-per", "local-only"])
@pytest.mark.parametrize("test", ["matched", "held-out"])
def test_no_sample_that_anyone_trains_on_is_ever_tested_on(monkeypatch, method, test):
    """Every sample carries its own number in its first pixel: what models see is recorded, in training and in tests."""
    federation = federation_of(**HELD_OUT)
    dataset, start = federation.dataset, 0
    object.__setattr__(dataset, "mean", UNSCALED[0])
    object.__setattr__(dataset, "std", UNSCALED[1])
    for split in (dataset.train, dataset.test):
        inputs = torch.zeros(len(split), *dataset.input_shape)
        inputs[:, 0, 0, 0] = torch.arange(start, start + len(split))
        object.__setattr__(split, "inputs", inputs)
        start += len(split)
    everyone = {int(i) for client in range(federation.clients) for i in federation.training_samples(client)}
    trained, tested, remembered = set(), set(), set()

    def recorded(stream, where):
        for batch in stream:
            where.update(batch.inputs[:, 0, 0, 0].int().tolist())
            yield batch

    evaluation = personal.evaluation_batches

    def tests(split, dataset, size, device, indices):
        is_memory = split is federation.dataset.train and set(indices.tolist()) <= everyone
        return recorded(evaluation(split, dataset, size, device, indices), remembered if is_memory else tested)

    monkeypatch.setattr(
        "fedsol.federation.local_training.batches", lambda *arguments: recorded(batches(*arguments), trained)
    )
    monkeypatch.setattr(personal, "evaluation_batches", tests)
    monkeypatch.setattr("fedsol.federation.federation.evaluation_batches", tests)
    changes = {"epochs": (1,), "test": test, "mixing": "chosen" if method == "knn-per" else 0.5}
    settings = resolve_settings(federation, 2, method, changes)
    for client in range(federation.clients):
        result = personalize_client(federation, federation.initial_weights(), client, settings)
        assert result.test_size > 0
    assert trained == everyone
    assert tested
    assert not tested & trained
    assert remembered <= everyone
    assert bool(remembered) == (method == "knn-per")
    assert (max(tested) >= len(dataset.train)) == (test == "matched")


def test_what_is_held_out_serves_for_the_choice_or_for_tests_never_for_both():
    federation = federation_of(**HELD_OUT)
    chosen = resolve_settings(federation, 1, "knn-per", {"test": "held-out", "mixing": "chosen"})
    fixed = resolve_settings(federation, 1, "knn-per", {"test": "held-out"})
    halved = resolve_settings(federation, 1, "local-only", {"test": "held-out", "validation": 0.5})
    assert chosen.tests == halved.tests != fixed.tests
    for client in range(federation.clients):
        held_out = set(federation.held_out_samples(client).tolist())
        both = own_sets(federation, client, chosen)
        test, validation = set(both.test.indices.tolist()), set(both.validation.indices.tolist())
        assert test | validation == held_out
        assert not test & validation
        assert test
        assert set(own_sets(federation, client, fixed).test.indices.tolist()) == held_out
        assert set(own_sets(federation, client, halved).test.indices.tolist()) == test


@pytest.mark.parametrize(
    ("name", "changes", "steps"),
    [
        ("fedavg", {}, "own"),
        ("fedsol", {}, "own"),
        ("scaffold", {}, "own"),
        ("fedbabu", {}, "own"),
        ("perfedavg", {"outer_lr": 0.05}, "own"),
        ("perfedavg", {"outer_lr": 0.05}, "plain"),
    ],
)
def test_fine_tuning_is_the_naive_one(name, changes, steps):
    """Plain steps of all weights, whatever the method and its settings; PerFedAvg has steps of its own."""
    tables = {"name": name, **changes}
    federation = build_federation(experiment(tables, model__name="tests.reference.naive:smooth", model__options={}))
    settings = resolve_settings(federation, 3, changes={"epochs": (1, 3), "steps": steps})
    assert settings.lr == pytest.approx(0.05 * 0.99**2)
    weights, client = federation.initial_weights(), 1
    found = fine_tuned(federation, weights, client, settings)
    dataset = federation.dataset
    model = build_model("tests.reference.naive:smooth", {}, ModelShape(dataset.input_shape, dataset.classes), 0)
    model.load_state_dict(weights)
    rule = naive.PerFedAvg if name == "perfedavg" and steps == "own" else naive.FedAvg
    method = rule(changes, copy.deepcopy(model), 4, 0.9)
    generator = generator_for(0, "client", 4, client)
    stream = [list(batches(dataset, federation.partition[client], 50, 1, generator)) for _ in range(3)]
    for epochs in (1, 3):
        own = copy.deepcopy(model)
        naive.train_client(own, model, method, client, stream[:epochs], settings.lr, federation.experiment.client)
        for key, tensor in own.state_dict().items():
            assert float((found[epochs][key] - tensor).abs().max()) <= 1e-5
            assert float((found[epochs][key] - weights[key]).abs().max()) > 1e-4  # the head too


def test_local_only_begins_anew_and_decays_its_learning_rate_by_epoch():
    federation = federation_of("local-only", model__name="tests.reference.naive:smooth", model__options={})
    settings = resolve_settings(federation, 2, changes={"epochs": (3,), "lr_decay": 0.5})
    assert (settings.lr, settings.after_round) == (0.05, 0)
    dataset, weights = federation.dataset, federation.initial_weights()
    model = build_model("tests.reference.naive:smooth", {}, ModelShape(dataset.input_shape, dataset.classes), 0)
    model.load_state_dict(weights)
    generator, velocity = generator_for(0, "client", 1, 2), None
    for epoch in range(3):
        for batch in batches(dataset, federation.partition[2], 50, 1, generator):
            gradient = naive.local_gradient(model, batch)
            with torch.no_grad():
                gradient = [g + 1e-5 * w for g, w in zip(gradient, model.parameters(), strict=True)]
                velocity = gradient if velocity is None else naive.plus(gradient, 0.9, velocity)
                for w, v in zip(model.parameters(), velocity, strict=True):
                    w -= 0.05 * 0.5**epoch * v
    found = fine_tuned(federation, weights, 2, settings)[3]
    assert all(float((found[key] - tensor).abs().max()) <= 1e-5 for key, tensor in model.state_dict().items())
    other = {name: tensor + 1 for name, tensor in weights.items()}
    assert personalize_client(federation, other, 2, settings) == personalize_client(federation, weights, 2, settings)


def test_local_only_is_the_same_from_a_run_of_any_method():
    """Also from PerFedAvg's, whose fine-tuning takes other steps."""
    options = {"model__name": "tests.reference.naive:smooth", "model__options": {}}
    changes = {"epochs": (2,), "test_size": 50}
    found = []
    for name in ("local-only", "fedavg", "perfedavg", "fedbabu", "fedsol"):
        federation = federation_of(name, **options)
        settings = resolve_settings(federation, 2, "local-only", changes)
        found.append(fine_tuned(federation, federation.initial_weights(), 1, settings)[2])
    assert all(same_tensors(one, found[0]) for one in found)


@pytest.mark.parametrize("method", ["finetune", "knn-per", "local-only"])
def test_weights_that_are_not_finite_are_no_model(method):
    federation = federation_of()
    settings = resolve_settings(federation, 2, method, {"epochs": (1,), "lr": 1e30})
    with pytest.raises(
        InputError, match=r"lr: 1e\+30 is too large: the weights of client 2 are not finite after 1 epoch;"
    ):
        personalize_client(federation, federation.initial_weights(), 2, settings)


def test_each_number_of_epochs_is_what_it_would_be_alone():
    federation = federation_of()
    weights = federation.initial_weights()
    together = fine_tuned(federation, weights, 0, resolve_settings(federation, 1, changes={"epochs": (0, 2, 5)}))
    assert sorted(together) == [0, 2, 5]
    assert same_tensors(together[0], weights)
    for epochs in (2, 5):
        alone = fine_tuned(federation, weights, 0, resolve_settings(federation, 1, changes={"epochs": (epochs,)}))
        assert same_tensors(alone[epochs], together[epochs])


def test_epochs_are_counted_by_whatever_steps_a_round_has():
    found = []
    for steps in (None, 1):
        federation = federation_of(client__steps=steps)
        settings = resolve_settings(federation, 1, changes={"epochs": (2,)})
        found.append(fine_tuned(federation, federation.initial_weights(), 0, settings)[2])
    assert same_tensors(*found)


def test_nothing_that_it_was_given_is_changed():
    federation = federation_of()
    weights = federation.initial_weights()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    for method in ("finetune", "knn-per"):
        personalize_client(federation, weights, 0, resolve_settings(federation, 1, method, {"epochs": (0, 1)}))
    assert same_tensors(weights, before)


def test_results_and_settings_survive_json():
    federation = federation_of(**HELD_OUT)
    settings = resolve_settings(federation, 2, "knn-per", {"mixing": "chosen", "epochs": (0, 1)})
    assert PersonalSettings(**json.loads(json.dumps(settings.model_dump(mode="json")))) == settings
    result = personalize_client(federation, federation.initial_weights(), 3, settings)
    assert PersonalResult.from_values(json.loads(json.dumps(asdict(result)))) == result
    assert all(outcome.mixing is not None for outcome in result.after)


GOOD = {"client": 1, "size": 3, "classes": 2, "test_size": 4, "before": None, "after": []}
OUTCOME = {"epochs": 1, "correct": 2, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"size": -1}, "size: must be greater than or equal to 0 (got -1)"),
        ({"size": "3"}, "size: must be a valid integer (got '3')"),
        ({"client": 1.5}, "client: must be a valid integer (got 1.5)"),
        ({"before": 1.01}, "before: must be less than or equal to 1 (got 1.01)"),
        ({"before": float("nan")}, "before: must be less than or equal to 1 (got nan)"),
        ({"after": [{**OUTCOME, "accuracy": "high"}]}, "after.0.accuracy: must be a valid number (got 'high')"),
        ({"after": [{"epochs": 1}]}, "after.0.correct: is missing; after.0.accuracy: is missing"),
        ({"after": None}, "after: must be a valid array (got None)"),
        ({"weights": [1.0]}, "weights: unknown key"),
    ],
)
def test_what_is_no_result_is_refused(change, part):
    """Nodes send results, and people edit files."""
    assert PersonalResult.from_values({**GOOD, "after": [OUTCOME]}).after == (personal.EpochResult(1, 2, 0.5),)
    with pytest.raises(ValueError, match=re.escape(part)):
        PersonalResult.from_values({**GOOD, **change})


def test_a_memory_holds_no_more_than_its_capacity(monkeypatch):
    federation = federation_of()
    sizes = []

    def memory(features, labels, classes):
        sizes.append(len(labels))
        return Memory(features, labels, classes)

    monkeypatch.setattr(personal, "Memory", memory)
    for capacity in (20, 10_000):
        settings = resolve_settings(federation, 1, "knn-per", {"epochs": (0,), "capacity": capacity})
        personalize_client(federation, federation.initial_weights(), 0, settings)
    assert sizes == [20, len(federation.partition[0])]


def test_with_no_weight_on_neighbors_it_is_fine_tuning():
    federation = federation_of()
    weights = federation.initial_weights()
    plain = personalize_client(federation, weights, 0, resolve_settings(federation, 1))
    mixed = personalize_client(federation, weights, 0, resolve_settings(federation, 1, "knn-per", {"mixing": 0.0}))
    assert [outcome.correct for outcome in mixed.after] == [outcome.correct for outcome in plain.after]


def test_neighbors_are_sought_among_features_of_the_fine_tuned_model():
    """A brute-force kNN-Per around a model of torch's own, from the images to the count of right answers."""
    federation = federation_of(model__name="tests.reference.naive:smooth", model__options={})
    dataset, weights, client = federation.dataset, federation.initial_weights(), 1
    settings = resolve_settings(federation, 1, "knn-per", {"epochs": (2,), "test_size": 60})
    (outcome,) = personalize_client(federation, weights, client, settings).after
    model = build_model("tests.reference.naive:smooth", {}, ModelShape(dataset.input_shape, dataset.classes), 0)
    model.load_state_dict(fine_tuned(federation, weights, client, settings)[2])
    seen = []
    model.head.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))

    def outputs(split, indices):
        (batch,) = evaluation_batches(split, dataset, 10_000, torch.device("cpu"), indices)
        with torch.no_grad():
            logits = model.eval()(batch.inputs)
        return seen.pop().double(), logits.double()

    samples, tests = federation.training_samples(client), matched_indices(federation, client, 60)
    stored, labels = outputs(dataset.train, samples)[0], dataset.train.labels[samples].tolist()
    right = 0
    for query, logits, truth in zip(*outputs(dataset.test, tests), dataset.test.labels[tests].tolist(), strict=True):
        nearest = sorted((float(((query - one) ** 2).sum()), at) for at, one in enumerate(stored))[:5]
        votes = [math.exp(-square / len(query)) for square, _ in nearest]
        model_says = torch.softmax(logits, 0).tolist()
        mixed = [
            sum(vote for vote, (_, at) in zip(votes, nearest, strict=True) if labels[at] == label) / sum(votes) / 2
            + model_says[label] / 2
            for label in range(10)
        ]
        right += mixed.index(max(mixed)) == truth
    assert outcome.correct == right
    assert 0 < right < len(tests)


def test_the_method_and_its_settings_come_from_the_algorithm():
    table = {"name": "knn-per", "k": 3, "capacity": 7, "mixing": 0.25, "scale": 2.0}
    federation = build_federation(experiment(table))
    own = resolve_settings(federation, 2)
    assert (own.method, own.k, own.capacity, own.mixing, own.scale) == ("knn-per", 3, 7, 0.25, 2.0)
    assert resolve_settings(federation, 2, "finetune").method == "finetune"
    assert resolve_settings(federation_of(), 2, "knn-per").k == 5
    alone = resolve_settings(build_federation(experiment({"name": "local-only", "epochs": 9, "lr_decay": 0.5})), 2)
    assert (alone.method, alone.epochs, alone.lr_decay) == ("local-only", (9,), 0.5)
    papers = resolve_settings(federation_of(), 2, "local-only")
    assert (papers.epochs, papers.lr_decay) == ((200,), 0.99)


@pytest.mark.parametrize(
    ("method", "changes", "part"),
    [
        (None, {"test": "held-out"}, "test: 'held-out' is not allowed: clients of this run have no hold-out set"),
        ("knn-per", {"mixing": "chosen"}, "mixing: 'chosen' is not allowed"),
        ("knn-per", {"mixing": 1.5}, "mixing"),
        (None, {"validation": 1.0}, "validation: must be less than 1 (got 1.0)"),
        ("knn-per", {"mixing": "chosen", "validation": 0.0, "test": "held-out"}, "test: 'held-out' is not allowed"),
        ("knn-per", {"k": 0}, "k: must be greater than or equal to 1 (got 0)"),
        ("nothing", {}, "(got 'nothing')"),
        (None, {"epochs": (-1,)}, "epochs.0: must be greater than or equal to 0 (got -1)"),
        (None, {"epochs": ()}, "epochs: "),
        (None, {"capasity": 3}, "did you mean 'capacity'"),
    ],
)
def test_bad_settings_are_named(method, changes, part):
    with pytest.raises(InputError) as error:
        resolve_settings(federation_of(), 1, method, changes)
    assert part in str(error.value)


def test_something_must_be_left_to_choose_on():
    changes = {"mixing": "chosen", "validation": 0.0, "test": "held-out"}
    with pytest.raises(InputError, match="validation: 0 is not allowed with mixing = 'chosen'"):
        resolve_settings(federation_of(**HELD_OUT), 1, "knn-per", changes)


@pytest.mark.parametrize("text", ["", "1,x", "-1", "1.5", "1,,2"])
def test_bad_lists_of_epochs(text):
    with pytest.raises(InputError, match="--epochs"):
        parse_numbers("--epochs", text, int)


def test_a_client_with_nothing_to_test_on_says_so():
    federation = build_federation(
        fedsol.Experiment(
            data={"name": "tests.support.user_code:uneven_clients", "partition": {"kind": "own", "held_out": 0.5}},
            algorithm={"name": "fedavg"},
        )
    )
    settings = resolve_settings(federation, 1, changes={"test": "held-out", "epochs": (1,)})
    result = personalize_client(federation, federation.initial_weights(), 0, settings)
    assert (result.size, result.test_size, result.before, result.after[0].accuracy) == (1, 0, None, None)
    chosen = resolve_settings(federation, 1, "knn-per", {"test": "held-out", "epochs": (1,), "mixing": "chosen"})
    result = personalize_client(federation, federation.initial_weights(), 0, chosen)
    assert (result.after[0].accuracy, result.after[0].mixing) == (None, 0.5)


def test_a_matched_test_takes_a_test_set():
    federation = federation_of()
    without = replace(
        federation,
        dataset=replace(federation.dataset, test=federation.dataset.test.select(torch.zeros(0, dtype=torch.int64))),
    )
    with pytest.raises(InputError, match=r"^test: must be 'held-out' for data without a test set \(got 'matched'\)$"):
        resolve_settings(without, 1, changes={"test": "matched"})
    shifted = replace(federation, experiment=federation.experiment.override({"data.shift": "invert"}))
    with pytest.raises(InputError, match=r"^test: must be 'held-out' with data\.shift, .*\(got 'matched'\)"):
        resolve_settings(shifted, 1, changes={"test": "matched"})


def test_clients_that_set_other_samples_aside_are_not_the_same():
    """Results of earlier versions say nothing of validation: they had none."""
    from fedsol.personalization.comparison import federation_of as identity
    from fedsol.personalization.results import describe

    settings = PersonalSettings()
    plain, split, central = (
        describe(federation_of(data__validation=share, data__validation_by=by), {}, settings)
        for share, by in ((0.0, "central"), (0.2, "client"), (0.2, "central"))
    )
    assert "validation" not in plain
    assert len({identity(one, settings) for one in (plain, split, central)}) == 3
