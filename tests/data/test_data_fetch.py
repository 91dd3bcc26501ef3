"""Downloads from a real web server on this machine, and files put by hand."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from fedsol.data import files
from fedsol.data.catalog import SPECS, fetch, load, verify
from fedsol.errors import InputError
from tests.support.small_datasets import MAKERS


def everything_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("name", MAKERS)
def test_fetch_then_load(name, publish, server, tmp_path) -> None:
    published = publish(name)
    results = fetch(name, tmp_path / "root")
    assert {result.status for result in results} == {"ok"}
    assert server.requests == [f"/{name}/{remote.name}" for remote in published.spec.files]
    assert verify(name, tmp_path / "root") == results
    assert len(load(name, tmp_path / "root").train) == len(published.train[1])
    fetch(name, tmp_path / "root")
    assert len(server.requests) == len(published.spec.files), "nothing is downloaded twice"


def test_load_downloads_only_when_asked(publish, server, tmp_path) -> None:
    publish("mnist")
    with pytest.raises(InputError, match="is missing"):
        load("mnist", tmp_path / "root")
    assert not server.requests
    assert len(load("mnist", tmp_path / "root", download=True).train) == 20


def test_only_what_is_missing_is_downloaded(publish, server, tmp_path) -> None:
    published = publish("mnist")
    folder = tmp_path / "root" / "mnist"
    folder.mkdir(parents=True)
    (folder / published.files[0].name).write_bytes(published.files[0].read_bytes())
    fetch("mnist", tmp_path / "root")
    assert server.requests == [f"/mnist/{path.name}" for path in published.files[1:]]


def test_without_a_mirror_the_publishers_addresses_are_tried_in_order(publish, server, tmp_path, monkeypatch) -> None:
    published = publish("pathmnist")
    monkeypatch.delenv("FEDSOL_MIRROR")
    urls = (f"{server.url}/gone/pathmnist.npz", f"{server.url}/pathmnist/pathmnist.npz?download=1")
    remote = replace(published.spec.files[0], urls=urls)
    monkeypatch.setitem(SPECS, "pathmnist", replace(published.spec, files=(remote,)))
    assert fetch("pathmnist", tmp_path / "root")[0].status == "ok"
    assert server.requests == ["/gone/pathmnist.npz", "/pathmnist/pathmnist.npz?download=1"]


def test_a_mirror_must_be_a_web_address(publish, tmp_path, monkeypatch) -> None:
    publish("mnist")
    monkeypatch.setenv("FEDSOL_MIRROR", "/some/folder")
    with pytest.raises(InputError, match=r"FEDSOL_MIRROR: must start with http.*got '/some/folder'"):
        fetch("mnist", tmp_path / "root")


def test_a_download_with_another_checksum_is_refused_and_deleted(publish, server, tmp_path) -> None:
    path = publish("pathmnist").files[0]
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match=r"does not have the checksum md5:\w+ and was deleted"):
        fetch("pathmnist", tmp_path / "root")
    assert everything_in(tmp_path / "root") == ["pathmnist"]


def test_a_file_the_server_does_not_have(publish, server, tmp_path) -> None:
    path = publish("pathmnist").files[0]
    path.unlink()
    with pytest.raises(InputError) as raised:
        fetch("pathmnist", tmp_path / "root")
    message = str(raised.value)
    assert "404" in message
    assert f"{server.url}/pathmnist/pathmnist.npz" in message
    assert f"put it at {tmp_path / 'root' / 'pathmnist' / 'pathmnist.npz'}" in message
    assert everything_in(tmp_path / "root") == ["pathmnist"]


def test_an_interrupted_transfer_leaves_nothing_and_can_be_repeated(publish, server, tmp_path) -> None:
    publish("cifar10")
    server.cut_short.add("/cifar10/cifar-10-binary.tar.gz")
    with pytest.raises(InputError, match=r"could not be downloaded .*(more expected|IncompleteRead)"):
        fetch("cifar10", tmp_path / "root")
    assert everything_in(tmp_path / "root") == ["cifar10"]
    server.cut_short.clear()
    assert {result.status for result in fetch("cifar10", tmp_path / "root")} == {"ok"}


def test_nobody_listens(publish, tmp_path, monkeypatch) -> None:
    publish("pathmnist")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("FEDSOL_MIRROR", f"http://127.0.0.1:{port}")
        with pytest.raises(InputError, match=r"could not be downloaded .*[Rr]efused.*put it at"):
            fetch("pathmnist", tmp_path / "root")


def test_a_root_that_cannot_be_made(publish, server, tmp_path) -> None:
    publish("mnist")
    (tmp_path / "root").write_text("a file")
    with pytest.raises(InputError, match="cannot be used as a directory"):
        fetch("mnist", tmp_path / "root")


def test_datasets_without_downloads(tmp_path) -> None:
    assert fetch("digits", tmp_path) == verify("digits", tmp_path) == []
    with pytest.raises(InputError, match="ImageNet may not be redistributed"):
        fetch("imagenet100", tmp_path)
    assert [result.status for result in verify("imagenet100", tmp_path)] == ["missing", "missing"]


def test_verify_says_what_is_missing_and_what_is_wrong(publish, server, tmp_path) -> None:
    publish("mnist")
    folder = tmp_path / "root" / "mnist"
    assert {result.status for result in verify("mnist", tmp_path / "root")} == {"missing"}
    fetch("mnist", tmp_path / "root")
    (folder / "train-images-idx3-ubyte.gz").unlink()
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    results = verify("mnist", tmp_path / "root")
    assert [result.status for result in results] == ["missing", "ok", "ok", "wrong"]
    assert "instead of md5:" in results[3].detail


def test_verify_looks_inside_extracted_folders(publish, server, tmp_path) -> None:
    publish("cifar10")
    fetch("cifar10", tmp_path / "root")
    folder = tmp_path / "root" / "cifar10" / "cifar-10-batches-bin"
    (folder / "data_batch_2.bin").unlink()
    wrong = folder / "data_batch_3.bin"
    wrong.write_bytes(wrong.read_bytes()[::-1])
    found = {result.path.name: result.status for result in verify("cifar10", tmp_path / "root")}
    assert found["cifar-10-binary.tar.gz"] == found["test_batch.bin"] == "ok"
    assert (found["data_batch_2.bin"], found["data_batch_3.bin"]) == ("missing", "wrong")


def test_a_verified_file_is_hashed_again_only_when_it_changed(publish, server, tmp_path, monkeypatch) -> None:
    publish("pathmnist")
    hashed: list[str] = []
    original = files.checksum_of

    def counting(path: Path, algorithm: str) -> str:
        hashed.append(path.name)
        return original(path, algorithm)

    monkeypatch.setattr(files, "checksum_of", counting)
    fetch("pathmnist", tmp_path / "root")
    load("pathmnist", tmp_path / "root")
    assert hashed == ["pathmnist.npz"]
    path = tmp_path / "root" / "pathmnist" / "pathmnist.npz"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    with pytest.raises(InputError, match="has checksum"):
        load("pathmnist", tmp_path / "root")
    path.write_bytes(content)
    (path.parent / files.MARKER).write_text("not json")
    load("pathmnist", tmp_path / "root")
    assert len(hashed) == 3
    assert verify("pathmnist", tmp_path / "root")[0].status == "ok"
    assert len(hashed) == 4, "verify does not trust the marker"


def test_progress_is_shown_on_a_terminal_only(publish, server, tmp_path, monkeypatch, capfd) -> None:
    publish("pathmnist")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    fetch("pathmnist", tmp_path / "plain")
    assert "%" not in capfd.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    fetch("pathmnist", tmp_path / "terminal")
    assert "pathmnist.npz" in capfd.readouterr().err
