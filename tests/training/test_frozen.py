"""Frozen weights: they never travel and are not saved, and everyone must have the same ones."""

import json

import pytest
import torch

import fedsol
from fedsol.core.files import sha256, tensors_from_bytes, tensors_to_bytes
from fedsol.core.weights import prefixed, size_in_bytes
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.trained import TrainedModel
from fedsol.models.split import frozen_parameters, hash_tensors
from fedsol.studies.estimate import bytes_per_client
from tests.support.cases import experiment
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors

FROZEN_BODY = {"model__name": "tests.support.user_code:frozen_body", "model__options": {}}


def settings(**changes):
    return experiment({"name": "fedsol"}, **{**FROZEN_BODY, **changes})


@pytest.mark.parametrize("name", ["fedsol", "moon", "feddyn"])
def test_what_is_frozen_does_not_travel(name):
    run = trained(experiment({"name": name}, **FROZEN_BODY))
    federation = build_federation(run.experiment)
    initial = federation.initial_weights()
    travels = {"2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked", "5.weight", "5.bias"}
    assert run.weights.keys() == initial.keys() == travels
    assert not any("1." in name[:-7] for name in federation.initial_state())
    size = size_in_bytes(run.weights)
    assert size == 4 * (4 * 16 + 10 * 16 + 10) + 8  # two affine and two running vectors, the head, a counter
    assert all(row["bytes_down"] == row["bytes_up"] == 3 * size for row in run.rows)
    traffic = bytes_per_client(federation)
    assert traffic.up == traffic.down == size


def test_on_every_engine_the_frozen_weights_stay_as_they_are():
    run = trained(settings())
    assert_same_run(fedsol.train(settings(engine__kind="workers", engine__workers=2)), run)
    federation = build_federation(run.experiment)
    before = hash_tensors(frozen_parameters(run.model()))
    federation.evaluate(run.weights)
    assert federation.model.frozen_sha256 == before == run.frozen_sha256 != ""


def test_flower_nodes_get_what_is_trained_and_a_hash_of_the_rest(tmp_path):
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    from tests.support.fake_grid import FakeGrid, clients_of, deployed

    sent = []

    class Watched(FakeGrid):
        def push_messages(self, messages):
            sent.extend(message.content for message in messages if message.metadata.message_type == "train")
            return super().push_messages(messages)

    run, _ = deployed(settings(), tmp_path, Watched(clients_of(settings()), tmp_path / "states"))
    assert_same_run(run, trained(settings()))
    assert len(sent) == 6
    for content in sent:
        assert content.array_records["arrays"].keys() == run.weights.keys()
        assert content.config_records["config"]["frozen-sha256"] == run.frozen_sha256


def test_a_node_with_other_frozen_weights_is_refused_with_both_hashes(tmp_path, caplog):
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    from tests.support.fake_grid import FakeGrid, clients_of, deployed

    class Claims(FakeGrid):
        def push_messages(self, messages):
            for message in messages:
                if message.metadata.message_type == "train":
                    message.content.config_records["config"]["frozen-sha256"] = "of the server"
            return super().push_messages(messages)

    run, _ = deployed(settings(rounds=1), tmp_path, Claims(clients_of(settings()), tmp_path / "states"))
    assert run.rows[0]["dropped"] == 3
    assert f"have the sha256 {run.frozen_sha256}, and those of the server have the sha256 of the server" in caplog.text


def test_a_worker_with_other_frozen_weights_is_refused():
    options = {"elsewhere": 1.0}
    with pytest.raises(InputError, match=r"frozen weights here have the sha256 \w{64}.*of the main process.*\w{64}"):
        fedsol.train(settings(model__options=options, engine__kind="workers", engine__workers=2))


def with_frozen(folder, frozen):
    """Writes frozen weights into a checkpoint, as earlier versions did."""
    path = folder / "server.safetensors"
    content = tensors_to_bytes({**tensors_from_bytes(path.read_bytes()), **prefixed("weights", frozen)})
    path.write_bytes(content)
    text = (folder / "checkpoint.json").read_text().rstrip("\n").rpartition("\n")[0]
    description = json.dumps({**json.loads(text), "server_sha256": sha256(content)})
    (folder / "checkpoint.json").write_text(f"{description}\n{sha256(description.encode())}\n")


@pytest.fixture
def stopped(tmp_path):
    """A run after its first round, with the checkpoint of an earlier version; and a function that changes that."""
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings(), [StopAfter(1)], tmp_path / "run")
    environment = tmp_path / "run" / "environment.json"
    known = json.loads(environment.read_text())
    assert len(known.pop("frozen_sha256")) == 64
    environment.write_text(json.dumps(known))
    frozen = build_federation(settings()).model.frozen
    (folder,) = (tmp_path / "run" / "checkpoints").glob("round-*")
    assert not any("1.weight" in name for name in tensors_from_bytes((folder / "server.safetensors").read_bytes()))
    return tmp_path / "run", frozen, lambda changed: with_frozen(folder, changed)


def test_a_checkpoint_with_all_weights_is_read_and_resumed(stopped):
    out, frozen, change = stopped
    before = fedsol.Run.load(out).model()
    change(frozen)
    old = fedsol.Run.load(out)
    assert frozen.keys() < old.weights.keys()
    assert same_tensors(dict(old.model().state_dict()), dict(before.state_dict()))
    assert_same_run(fedsol.train(settings(), out=out, resume=True), trained(settings()))


def test_a_checkpoint_with_other_frozen_weights_is_refused(stopped):
    out, frozen, change = stopped
    change({name: tensor + 1 for name, tensor in frozen.items()})
    with pytest.raises(InputError, match=r"the frozen weight '1\.(weight|bias)' is not that of the model"):
        fedsol.train(settings(), out=out, resume=True)


def test_a_run_is_not_resumed_with_other_frozen_weights(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings(), [StopAfter(1)], tmp_path)
    path = tmp_path / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "frozen_sha256": "0" * 64}))
    with pytest.raises(InputError, match=f"{'0' * 64}"):
        fedsol.train(settings(), out=tmp_path, resume=True)
    with pytest.raises(InputError, match=f"{'0' * 64}"):
        fedsol.Run.load(tmp_path).model()


def test_an_exported_model_is_complete(tmp_path):
    run = trained(settings())
    run.export(tmp_path / "model.safetensors")
    loaded = TrainedModel.load(tmp_path / "model.safetensors")
    assert loaded.weights.keys() == {*run.weights, "1.weight", "1.bias"}
    assert loaded.frozen_sha256 == run.frozen_sha256
    inputs = torch.rand(4, 1, 8, 8)
    assert torch.equal(loaded.module()(inputs), run.model()(inputs))
