"""Small datasets to fetch and load, and a local web server that offers them."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsol.data.catalog import SPECS
from tests.support.small_datasets import MAKERS, Published, encoded, md5, with_checksum


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Published]:
    """Make a small dataset below `tmp_path/published`, and let the table of datasets expect it."""

    def make(name: str) -> Published:
        folder = tmp_path / "published" / name
        folder.mkdir(parents=True)
        train, test = MAKERS[name](folder)
        files = tuple(with_checksum(remote, folder) for remote in SPECS[name].files)
        spec = replace(SPECS[name], files=files, train_size=len(train[1]), test_size=len(test[1]))
        monkeypatch.setitem(SPECS, name, spec)
        return Published(spec, folder, train, test)

    return make


@pytest.fixture
def expect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], None]:
    """Let the table expect the files as they now are in `folder`: for files that are wrong inside."""

    def change(name: str, folder: Path) -> None:
        spec = SPECS[name]
        files = tuple(replace(remote, checksum=md5(folder / remote.name)) for remote in spec.files)
        monkeypatch.setitem(SPECS, name, replace(spec, files=files))

    return change


class Server(ThreadingHTTPServer):
    """Offers a folder; a path in `cut_short` is announced in full but ends after half of its bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.requests: list[str] = []
        self.cut_short: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path not in self.server.cut_short:
            super().do_GET()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])

    def log_message(self, *_: Any) -> None:
        """Tests stay quiet."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server on this machine that offers `tmp_path/published`, set as the mirror."""
    folder = tmp_path / "published"
    folder.mkdir(exist_ok=True)
    running = Server(folder)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("FEDSOL_MIRROR", running.url)
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def write_images() -> Callable[[Path, dict[str, np.ndarray]], None]:
    """Write (C, H, W) images as files below a folder; the suffix says the format."""

    def write(folder: Path, images: dict[str, np.ndarray]) -> None:
        for name, image in images.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(image, "JPEG" if path.suffix.lower() in (".jpg", ".jpeg") else "PNG"))

    return write
