"""The store of client states: memory stays within its budget, files are exact, checkpoints can be gone back to."""

import pytest
import torch

from fedsol.errors import RunError
from fedsol.runs.client_states import ClientStates
from tests.support.tensors import same_tensors


def state(value: float) -> dict[str, torch.Tensor]:
    return {"control/w": torch.full((100,), value), "count": torch.tensor(int(value))}


def initial() -> dict[str, torch.Tensor]:
    return state(-1.0)


@pytest.mark.parametrize("budget", [0, 1_000, 10**9])
@pytest.mark.parametrize("with_folder", [True, False])
def test_what_is_put_comes_back_whatever_the_budget(tmp_path, budget, with_folder):
    states = ClientStates(initial, tmp_path / "clients" if with_folder else None, budget)
    for client in range(20):
        states.stage(client, 1, state(client))
    states.commit(1)
    assert all(same_tensors(states.get(client), state(client)) for client in range(20))
    assert same_tensors(states.get(99), initial())
    states.close()


def test_memory_stays_within_the_budget(tmp_path):
    states = ClientStates(initial, tmp_path, budget=2_000)  # room for four
    for client in range(50):
        states.stage(client, client + 1, state(client))
        states.commit(client + 1)
        states.get(client // 2)
    assert len(states._in_memory) <= 5
    assert states._bytes <= 2_000 + 408


def put(states, round_number, values):
    for client, value in values.items():
        states.stage(client, round_number, state(value))
    states.commit(round_number)


def test_going_back_to_a_checkpoint(tmp_path):
    states = ClientStates(initial, tmp_path)
    put(states, 1, {1: 10})
    saved = states.save()
    put(states, 2, {1: 20, 2: 30})
    states.save()
    again = ClientStates(initial, tmp_path)
    again.restore(saved)
    assert same_tensors(again.get(1), state(10))
    assert same_tensors(again.get(2), initial())


@pytest.mark.parametrize("budget", [0, 10**9])
def test_a_staged_state_does_not_count_before_its_round_is_over(tmp_path, budget):
    states = ClientStates(initial, tmp_path, budget)
    put(states, 1, {1: 10})
    states.stage(1, 2, state(20))
    states.stage(2, 2, state(30))
    assert same_tensors(states.get(1), state(10))
    assert same_tensors(states.get(2), initial())
    assert states.save().keys() == {(1, 1)}
    states.commit(2)
    assert same_tensors(states.get(1), state(20))


def test_only_changed_states_are_written(tmp_path):
    states = ClientStates(initial, tmp_path)
    put(states, 1, {1: 1, 2: 2})
    states.save()
    put(states, 2, {2: 3})
    states.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "client-000001-round-000001.safetensors",
        "client-000002-round-000001.safetensors",
        "client-000002-round-000002.safetensors",
    ]
    states.remove_files_except([])
    assert len(list(tmp_path.iterdir())) == 2
    assert same_tensors(states.get(2), state(3))


def test_a_changed_file_is_noticed(tmp_path):
    states = ClientStates(initial, tmp_path)
    put(states, 1, {1: 1})
    saved = states.save()
    path = tmp_path / "client-000001-round-000001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    states.restore(saved)
    with pytest.raises(RunError, match="checksum differs"):
        states.get(1)


def test_empty_states_take_no_place(tmp_path):
    states = ClientStates(dict, tmp_path / "clients")
    states.stage(1, 1, {})
    states.commit(1)
    assert states.save() == {}
    assert not (tmp_path / "clients").exists()


@pytest.mark.parametrize("budget", [0, 10**9])
def test_files_of_superseded_states_do_not_pile_up(tmp_path, budget):
    states = ClientStates(initial, tmp_path, budget)
    for round_number in range(1, 21):
        put(states, round_number, dict.fromkeys(range(round_number % 3, 9, 3), round_number))
    assert len(list(tmp_path.glob("*"))) <= 9
    saved = states.save()
    put(states, 21, dict.fromkeys(range(9), 50))
    again = ClientStates(initial, tmp_path, budget)
    again.restore(saved)  # the checkpoint's files are still there
    assert all(same_tensors(again.get(key.client), state(key.round)) for key in saved)
    assert len(saved) == 9
