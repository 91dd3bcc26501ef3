"""Archives are extracted completely and safely, or not at all."""

import io
import tarfile
from pathlib import Path

import pytest

from fedsol.data.files import extract
from fedsol.errors import InputError
from tests.support.small_datasets import write_tar


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, 0
    return member


def write_members(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        good = entry("data/good.bin")
        good.size = 4
        archive.addfile(good, io.BytesIO(b"good"))
        for member in members:
            archive.addfile(member)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (entry("../evil"), r"'../evil' would be written outside"),
        (entry("data/../../evil"), "would be written outside"),
        (entry("/tmp/evil"), "would be written outside"),
        (entry("C:\\evil"), "would be written outside"),
        (entry("data/link", tarfile.SYMTYPE, "/etc/passwd"), "neither a plain file nor a folder"),
        (entry("data/link", tarfile.LNKTYPE, "../../evil"), "neither a plain file nor a folder"),
        (entry("data/device", tarfile.CHRTYPE), "neither a plain file nor a folder"),
        (entry("data/pipe", tarfile.FIFOTYPE), "neither a plain file nor a folder"),
        (entry("data/good.bin"), "occurs twice"),
    ],
)
def test_malicious_archives_are_refused_as_a_whole(member, message, tmp_path) -> None:
    folder = tmp_path / "inner" / "folder"
    folder.mkdir(parents=True)
    archive = folder / "archive.tar.gz"
    write_members(archive, member)
    with pytest.raises(InputError, match=message):
        extract(archive, folder / "data")
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "folder", "archive.tar.gz"]


def test_the_archives_own_folder_is_not_doubled(tmp_path) -> None:
    write_tar(tmp_path / "a.tar.gz", {"data/x/1": b"1", "data/unused/2": b"2"})
    extract(tmp_path / "a.tar.gz", tmp_path / "data", unused=("unused",))
    assert (tmp_path / "data" / "x" / "1").read_bytes() == b"1"
    assert not (tmp_path / "data" / "unused").exists()


def test_an_archive_without_a_folder_of_its_own(tmp_path) -> None:
    write_tar(tmp_path / "a.tar.gz", {"./x/1": b"1", "./unused/2": b"2", "3": b"3"})
    extract(tmp_path / "a.tar.gz", tmp_path / "data", unused=("unused",))
    assert sorted(p.name for p in (tmp_path / "data").rglob("*")) == ["1", "3", "x"]


@pytest.mark.parametrize("keep", [0, 10, 100])
def test_a_truncated_archive_leaves_nothing(keep, tmp_path) -> None:
    archive = tmp_path / "a.tar.gz"
    write_tar(archive, {"data/1": bytes(range(256)) * 40})
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"a\.tar\.gz: cannot be extracted"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


def test_a_folder_that_another_process_has_extracted_meanwhile_is_kept(tmp_path) -> None:
    write_tar(tmp_path / "a.tar.gz", {"data/1": b"1"})
    for _ in range(2):
        extract(tmp_path / "a.tar.gz", tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]
