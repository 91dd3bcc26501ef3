"""Tensors between processes: the same values, no copy on arrival, no name, and no memory that is left behind."""

import gc
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

import fedsol
from fedsol.engines.shared import ALIGNMENT, Channel


@pytest.fixture
def ends():
    ours, theirs = Pipe()
    yield Channel(ours), Channel(theirs)
    ours.close()
    theirs.close()


def passed(sender, receiver, tensors, **message):
    sender.send(message, sender.put(tensors))
    found, received = receiver.receive()
    assert found == message
    return received


TENSORS = {
    "weight": torch.randn(4, 3, 5),
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "counter": torch.tensor(7),
    "half": torch.randn(3).bfloat16(),
    "double": torch.randn(3, dtype=torch.float64),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "trained": torch.randn(2, requires_grad=True),
}


def test_tensors_arrive_as_they_were(ends):
    received = passed(*ends, TENSORS, kind="update", loss=0.25)
    assert list(received) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert received[name].dtype == tensor.dtype
        assert received[name].shape == tensor.shape
        assert torch.equal(received[name], tensor)
        assert received[name].data_ptr() % ALIGNMENT == 0
        assert not received[name].requires_grad


def test_a_message_may_have_no_tensors(ends):
    assert passed(*ends, {}, kind="nothing") == {}


def test_what_was_received_is_the_senders_memory(ends):
    sender, receiver = ends
    placed = sender.put({"w": torch.zeros(3)})
    sender.send({}, placed)
    received = receiver.receive()[1]["w"]
    placed.place.segment.memory[placed.place.start : placed.place.start + 4] = torch.ones(1).numpy().tobytes()
    assert received.tolist() == [1.0, 0.0, 0.0]


def test_a_place_is_written_again_when_the_receiver_has_no_tensor_of_it(ends):
    sender, receiver = ends
    first = passed(sender, receiver, {"w": torch.full((3,), 1.0)})
    second = passed(sender, receiver, {"w": torch.full((3,), 2.0)})
    assert first["w"].tolist() == [1.0] * 3
    address, part = first["w"].data_ptr(), first["w"][1:]
    del first
    gc.collect()
    passed(receiver, sender, {})  # a view of the first is left
    third = passed(sender, receiver, {"w": torch.full((3,), 3.0)})
    assert third["w"].data_ptr() != address
    assert part.tolist() == [1.0] * 2
    del part
    gc.collect()
    passed(receiver, sender, {})
    assert passed(sender, receiver, {"w": torch.full((3,), 4.0)})["w"].data_ptr() == address
    assert (second["w"].tolist(), third["w"].tolist()) == ([2.0] * 3, [3.0] * 3)


def test_a_round_of_many_updates_takes_few_segments(ends):
    held = [passed(*ends, {"w": torch.full((50,), float(number))}) for number in range(100)]
    assert [float(one["w"][7]) for one in held] == [float(number) for number in range(100)]
    assert len(ends[1]._received) <= 8


RUN = """
import fedsol, sys
experiment = fedsol.Experiment.load(sys.argv[1])
class Shout(fedsol.Callback):
    def round_finished(self, result):
        print(result.round, flush=True)
fedsol.train(experiment, [Shout()])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_killed_run_leaves_no_memory(tiny, tmp_path):
    """What has no name is gone with the processes that have it: no segment of a run is in /dev/shm."""
    experiment = tiny.override({"rounds": 100_000, "engine.kind": "workers", "engine.workers": 2})
    (tmp_path / "e.toml").write_text(experiment.to_toml())
    command = [sys.executable, "-c", RUN, str(tmp_path / "e.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "1\n"
        processes = [run.pid, *map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())]
        maps = [Path(f"/proc/{process}/maps").read_text() for process in processes]
        run.send_signal(signal.SIGKILL)
    assert len(maps) == 3
    for found in maps:
        assert "/memfd:fedsol" in found
        assert "/dev/shm" not in found
    for process in processes[1:]:
        while Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]:
            time.sleep(0.01)
    assert not list(Path("/dev/shm").glob("fedsol*"))


def test_updates_may_outlive_their_round(tiny):
    """A callback may keep them: their memory is then not written again."""
    kept = []

    class Keep(fedsol.Callback):
        def round_finished(self, result):
            kept.extend((update, {name: t.clone() for name, t in update.weights.items()}) for update in result.updates)

    fedsol.train(tiny.override({"rounds": 3, "engine.kind": "workers", "engine.workers": 2}), [Keep()])
    assert len(kept) > 3
    for update, copies in kept:
        assert all(torch.equal(update.weights[name], tensor) for name, tensor in copies.items())
