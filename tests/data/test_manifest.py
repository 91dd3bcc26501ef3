"""Manifests: a stable hash, a faithful round trip, and no tampered file gets through."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsol.data.manifest import FORMAT, Manifest, label_counts, load_manifest, partition_hash, save_manifest
from fedsol.errors import InputError

PARTITION = [np.array([0, 2, 5]), np.array([1]), np.array([3, 4])]
KNOWN_HASH = "dc6d2ef1804ad90780122808937f5929b384ecb34767beb1ca9aee69b6abddbb"


def saved(folder: Path) -> Path:
    path = folder / "partition.json"
    details = {"kind": "dirichlet", "alpha": 0.1, "name": 'a "quoted" α'}
    save_manifest(path, Manifest("digits", 6, details, 7, PARTITION))
    return path


def test_the_hash_never_changes() -> None:
    assert partition_hash(PARTITION) == KNOWN_HASH
    by_hand = struct.pack("<10q", 3, 3, 1, 2, 0, 2, 5, 1, 3, 4)
    assert hashlib.sha256(by_hand).hexdigest() == KNOWN_HASH


@pytest.mark.parametrize("kind", ["<i4", ">i8", "<i8", "<u2"])
def test_the_hash_does_not_depend_on_how_numbers_are_stored(kind: str) -> None:
    assert partition_hash([indices.astype(kind) for indices in PARTITION]) == KNOWN_HASH
    spread = [np.repeat(indices, 2)[::2] for indices in PARTITION]
    assert partition_hash(spread) == KNOWN_HASH


parts = st.lists(st.lists(st.integers(0, 50), max_size=4), min_size=1, max_size=4)


@given(parts, parts)
def test_partitions_have_the_same_hash_only_if_they_are_the_same(left: list[list[int]], right: list[list[int]]) -> None:
    hashes = [partition_hash([np.array(own, dtype=np.int64) for own in side]) for side in (left, right)]
    assert (hashes[0] == hashes[1]) == (left == right)


def test_round_trip(tmp_path: Path) -> None:
    path = saved(tmp_path)
    manifest = load_manifest(path)
    assert (manifest.dataset, manifest.samples, manifest.seed, manifest.sha256) == (
        "digits",
        6,
        7,
        KNOWN_HASH,
    )
    assert manifest.settings == {"kind": "dirichlet", "alpha": 0.1, "name": 'a "quoted" α'}
    assert [own.tolist() for own in manifest.partition] == [own.tolist() for own in PARTITION]
    assert all(own.dtype == np.int64 for own in manifest.partition)


def test_the_file_is_json_with_these_keys_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    content = json.loads(saved(tmp_path).read_text())
    assert list(content) == ["format", "dataset", "samples", "settings", "seed", "sha256", "clients"]
    assert content["format"] == FORMAT == "fedsol-partition/1"
    assert content["clients"] == [[0, 2, 5], [1], [3, 4]]
    assert [file.name for file in tmp_path.iterdir()] == ["partition.json"]


def test_saving_again_gives_the_same_bytes(tmp_path: Path) -> None:
    first = saved(tmp_path).read_bytes()
    assert saved(tmp_path).read_bytes() == first


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved(tmp_path).read_bytes()

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_manifest(tmp_path / "partition.json", Manifest("x", 6, {}, 0, PARTITION[:1]))
    assert (tmp_path / "partition.json").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["partition.json"]


def change(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": [[0, 2], [1, 5], [3, 4]]}, "the file was changed after it was saved"),
        ({"clients": [[1], [0, 2, 5], [3, 4]]}, "the file was changed after it was saved"),
        ({"clients": [[5, 2, 0], [1], [3, 4]]}, "the file was changed after it was saved"),
        ({"sha256": "0" * 64}, f"sha256 must be {KNOWN_HASH}, .*got {'0' * 64}"),
        ({"clients": None}, "clients must be lists of indices, .*got None"),
        ({"sha256": None}, "sha256 must be of type str .*got None"),
        ({"samples": 5}, "client 0: indices must be integers from 0 to 4 .*got 5"),
        ({"samples": "six"}, "samples must be of type int .*got 'six'"),
        ({"samples": True}, "samples must be .*got True"),
        ({"settings": []}, r"settings must be of type dict \(got \[\]\)"),
        ({"format": "fedsol-partition/2"}, "format must be 'fedsol-partition/1' .*got 'fedsol-partition/2'"),
        ({"format": None}, "format must be .*got None"),
    ],
)
def test_tampered_manifests_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = saved(tmp_path)
    change(path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_manifest(path)
    assert str(path) in str(caught.value)


def test_an_absurd_number_of_samples_needs_no_memory(tmp_path: Path) -> None:
    path = saved(tmp_path)
    change(path, samples=10**30)
    assert load_manifest(path).samples == 10**30


def test_a_list_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[[0]]")
    with pytest.raises(InputError, match=r"format must be 'fedsol-partition/1' .*got 'list'"):
        load_manifest(path)


def test_class_counts_stand_beside_the_partition_and_change_nothing_of_it(tmp_path: Path) -> None:
    counts = label_counts([0, 1, 1, 0, 2, 1], PARTITION, 3)
    assert counts.tolist() == [[1, 2, 0], [0, 1, 0], [1, 0, 1]]
    path = tmp_path / "p.json"
    save_manifest(path, Manifest("digits", 6, {}, 7, PARTITION), counts)
    content = json.loads(path.read_text())
    assert content["class_counts"] == counts.tolist()
    assert list(content)[-1] == "clients"
    assert load_manifest(path).sha256 == KNOWN_HASH
