"""Tensors on disk and in pipes come back as they were, order included; files are replaced as a whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.core.files import read_tensors, sha256, tensors_from_bytes, tensors_to_bytes, write_atomically
from fedsol.errors import RunError
from tests.support.tensors import same_tensors

NAMES = st.lists(st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"), unique=True, max_size=6)


@given(NAMES, st.integers(0, 2**31))
def test_tensors_come_back_bit_for_bit_and_in_order(names, seed):
    generator = torch.Generator().manual_seed(seed)
    kinds = [torch.float32, torch.float64, torch.int64]
    shapes = [(), (3,), (2, 0), (2, 3)]
    tensors = {
        name: torch.randint(-9, 9, shapes[i % 4], generator=generator).to(kinds[i % 3]) for i, name in enumerate(names)
    }
    found = tensors_from_bytes(tensors_to_bytes(tensors))
    assert list(found) == list(tensors)
    assert same_tensors(found, tensors)


def test_views_and_shared_memory_are_written_by_value():
    base = torch.arange(6.0)
    found = tensors_from_bytes(tensors_to_bytes({"a": base[::2], "b": base.view(2, 3).T}))
    assert torch.equal(found["a"], base[::2])
    assert torch.equal(found["b"], base.view(2, 3).T)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 40, tensors_to_bytes({"a": torch.ones(4)})[:-3]])
def test_a_file_that_is_no_tensors_is_an_error(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(RunError):
        read_tensors(tmp_path / "t", sha256(content))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_atomically(target, "old")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedsol.core.files.os.fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
