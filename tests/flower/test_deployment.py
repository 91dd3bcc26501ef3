"""A real deployment on loopback: TLS, node authentication, processes that are killed, nodes that do not belong."""

import fcntl
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

import fedsol
from fedsol.core.files import tensors_from_bytes
from fedsol.federation.federation import build_federation
from fedsol.privacy.accounting import Mechanism
from fedsol.privacy.noise import FROM_SYSTEM
from tests.support.deployment import BIN, Deployment
from tests.support.runs import rows_without_seconds
from tests.support.tensors import same_tensors

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="openssl and ssh-keygen make the certificates and keys of a deployment",
)

THREE = {
    "data.name": "digits",
    "data.partition.clients": 3,
    "data.partition.alpha": 0.5,
    "server.fraction": 1.0,
    "client.epochs": 1,
    "engine.patience": 600,  # a busy machine may take minutes to free its nodes for the next round
}
TWO = {**THREE, "data.partition.clients": 2}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A SuperLink and two nodes."""
    with Deployment(tmp_path_factory.mktemp("pair")) as deployment:
        start(deployment, 2)
        yield deployment


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A SuperLink and three nodes that play the clients of a public dataset."""
    with Deployment(tmp_path_factory.mktemp("federation")) as deployment:
        start(deployment, 3)
        yield deployment


@pytest.fixture
def federation(three):
    """The three nodes, honest and up, whatever became of them in the test before."""
    three.repair({f"node{client}": config(three, client) for client in range(3)})
    return three


def start(deployment, nodes):
    deployment.start_link()
    for client in range(nodes):
        deployment.add_node(f"node{client}", config(deployment, client))


def config(deployment, client):
    return f'partition-id={client} state-dir="{deployment.folder / "states"}"'


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", ["scaffold", pytest.param("fedsol", marks=pytest.mark.full)])
def test_a_deployment_is_bitwise_the_in_process_engine(pair, algorithm):
    settings = {**TWO, "rounds": 2, "algorithm.name": algorithm, "data.partition.held_out": 0.2}
    run = pair.write_app(algorithm, settings)
    pair.run_app(algorithm)
    local = fedsol.train(fedsol.Experiment(engine={"kind": "local"}).override(settings))
    deployed = fedsol.Run.load(run)
    assert same_tensors(deployed.weights, local.weights)
    assert rows_without_seconds(deployed) == rows_without_seconds(local)


@pytest.mark.full
def test_of_a_model_with_adapters_two_nodes_carry_these_and_the_classifier_only(pair):
    method = {"algorithm.name": "fedsol", "algorithm.perturb": "all"}
    settings = {**TWO, "rounds": 2, **method, "model.name": "mlp", "model.lora.rank": 2}
    run = pair.write_app("adapters", settings)
    pair.run_app("adapters")
    local = fedsol.train(fedsol.Experiment(engine={"kind": "local"}).override(settings))
    deployed = fedsol.Run.load(run)
    adapters = {f"body.{layer}.lora_{part}" for layer in (1, 3) for part in "ab"}
    assert deployed.weights.keys() == adapters | {"head.weight", "head.bias"}
    assert same_tensors(deployed.weights, local.weights)
    assert rows_without_seconds(deployed) == rows_without_seconds(local)
    assert deployed.frozen_sha256 == local.frozen_sha256 != ""
    per_client = 4 * (2 * (2 * 64 + 64 * 2) + 10 * 64 + 10)  # A and B of two layers of 64 by 64; the classifier
    assert [row["clients"] for row in deployed.rows] == [2, 2]
    assert all(row["bytes_up"] == row["bytes_down"] == 2 * per_client for row in deployed.rows)


@pytest.mark.full
def test_a_killed_node_costs_its_update_and_a_killed_link_the_round_under_way(federation):
    settings = {**THREE, "rounds": 4, "algorithm.name": "scaffold", "engine.timeout": 300}
    run = federation.write_app("killed", settings)
    before = log_count(federation, "node1")
    federation.start("run", BIN / "fedsol", "flower", "run", "killed", "link")
    federation.wait_for(lambda: log_count(federation, "node1") == before + 2, "node1 to train in round 2")
    federation.kill("node1")
    federation.restart_node("node1", config(federation, 1))
    federation.wait_for(lambda: federation.rows(run) == 3, "the third round")
    link = federation.processes["link"]
    link.kill()  # it alone: its ServerApp notices by itself
    link.wait()
    federation.wait_for(lambda: not running(run), "the ServerApp to end with its SuperLink")
    federation.kill("run")
    federation.start_link()
    federation.run_app("killed", "--resume")
    rows = rows_of(run)
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert [row["dropped"] for row in rows] == [0, 1, 0, 0]
    assert [row["rejected"] for row in rows] == [0] * 4
    assert [row["restarted"] for row in rows] == [0] * 4
    assert json.loads((run / "summary.json").read_text())["rounds"] == 4


@pytest.mark.full
def test_two_nodes_protect_their_samples_over_a_restart_with_noise_that_no_run_shares(tmp_path):
    settings = {
        **{**THREE, "data.partition.clients": 2, "rounds": 2, "algorithm.name": "fedavg"},
        **{"privacy.level": "example", "privacy.noise_multiplier": 2.0, "privacy.epsilon": 50.0},
    }
    with Deployment(tmp_path / "two") as deployment:
        start(deployment, 2)
        one, other = deployment.write_app("one", settings), deployment.write_app("other", settings)
        deployment.run_app("one")
        deployment.kill("node1")
        deployment.restart_node("node1", config(deployment, 1))
        deployment.run_app("one", "--resume", "--set", "rounds=3")
        deployment.run_app("other")
    accounts = sorted(path.parent.name for path in tmp_path.glob("two/states/*/client-*/privacy.json"))
    assert accounts == ["client-000000"] * 2 + ["client-000001"] * 2
    data = build_federation(fedsol.Experiment().override(settings))
    sizes = [len(data.training_samples(client)) for client in range(2)]
    for run, last in ((one, 3), (other, 2)):
        rows = rows_of(run)
        assert [row["round"] for row in rows] == list(range(1, last + 1))
        for row in rows:
            mechanisms = [(Mechanism(min(50, size), size, 2.0), -(-size // 50)) for size in sizes]
            spent = [mechanism.epsilon(row["round"] * steps, 1e-5) for mechanism, steps in mechanisms]
            assert row["client_epsilon"] == spent
            assert (row["clients"], row["epsilon"], row["noise"]) == (2, max(spent), FROM_SYSTEM)
            assert row["train_loss"] is None
    saved = [run / "checkpoints" / "round-000002" / "server.safetensors" for run in (one, other)]
    assert not same_tensors(*(tensors_from_bytes(path.read_bytes()) for path in saved))


def running(run):
    """Whether a process holds the lock of a run."""
    with (run / "run.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.full
def test_a_killed_server_app_is_resumed_to_the_same_end(federation):
    settings = {**THREE, "rounds": 3, "algorithm.name": "scaffold", "seed": 1}
    run = federation.write_app("server-killed", settings)
    federation.start("run", BIN / "fedsol", "flower", "run", "server-killed", "link")
    federation.wait_for(lambda: federation.rows(run) >= 1, "the first round")
    os.kill(int((run / "run.lock").read_text()), signal.SIGKILL)
    failed = federation.processes["run"]
    federation.wait_for(lambda: failed.poll() is not None, "the command to end with its ServerApp")
    assert failed.returncode == 1
    federation.run_app("server-killed", "--resume")
    local = fedsol.train(fedsol.Experiment(engine={"kind": "local"}).override(settings))
    assert same_tensors(fedsol.Run.load(run).weights, local.weights)


@pytest.mark.full
def test_what_the_server_refuses_is_told_and_is_no_success(federation):
    run = federation.write_app("twice", {**THREE, "rounds": 1, "algorithm.name": "fedavg"})
    run.mkdir()
    (run / "metrics.jsonl").write_text("something\n")
    done = federation.call(BIN / "fedsol", "flower", "run", "twice", "link", check=False)
    assert done.returncode == 1
    assert "has parts of a run" in done.stdout
    assert "Traceback" not in done.stderr


def log_count(deployment, node):
    """How many messages a node was given to train on."""
    return (deployment.folder / f"{node}.log").read_text().count("Receiving: train message")


@pytest.mark.full
def test_a_node_that_is_not_registered_or_trusts_another_authority_gets_nowhere(federation):
    federation.make_key("stranger")
    stranger = federation.start_node("stranger", config(federation, 0))
    federation.make_authority("false-")
    federation.make_key("misled")
    federation.register("misled")
    misled = federation.start_node("misled", config(federation, 0), authority="false-ca.crt")
    federation.wait_for(lambda: stranger.poll() is not None, "the unregistered node to be turned away")
    assert stranger.returncode != 0
    federation.wait_for(
        lambda: misled.poll() is not None or "CERTIFICATE_VERIFY_FAILED" in log_of(federation, "misled"),
        "the misled node to refuse the certificate",
    )
    settings = {**THREE, "rounds": 1, "algorithm.name": "fedavg"}
    run = federation.write_app("closed", settings)
    federation.run_app("closed")
    assert rows_of(run)[0]["clients"] == 3
    for name in ("stranger", "misled"):
        assert "Receiving: train message" not in log_of(federation, name)
        federation.kill(name)


def log_of(deployment, name):
    return (deployment.folder / f"{name}.log").read_text()


@pytest.mark.full
@pytest.mark.parametrize("how", ["nan", "shape", "large"])
def test_a_dishonest_node_is_rejected(three, how):
    three.repair({f"node{client}": config(three, client) for client in range(2)})
    if three.runs("node2"):
        three.kill("node2")
    hostile = Path(__file__).parent / "hostile"
    environment = {"HOSTILE": how, "PYTHONPATH": f"{hostile}:{three.environment['PYTHONPATH']}"}
    try:
        three.restart_node("node2", config(three, 2), **environment)
        run = three.write_app(f"hostile-{how}", {**THREE, "rounds": 1, "algorithm.name": "fedsol"})
        three.run_app(f"hostile-{how}")
    finally:
        three.kill("node2")
    (row,) = rows_of(run)
    assert (row["clients"], row["rejected"], row["dropped"]) == (2, 1, 0)
