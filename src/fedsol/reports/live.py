"""The live report: the page of runs in progress, served to this machine only and updated as they train."""

import contextlib
import json
import logging
import socketserver
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from fedsol.errors import FedsolError, InputError
from fedsol.federation.federation import Federation
from fedsol.reports.page import render, report_data
from fedsol.runs.find import runs_below
from fedsol.runs.rows import Row
from fedsol.runs.run import Run
from fedsol.training.callbacks import Callback, RoundResult

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PATIENCE = 20.0
"""Seconds that a page's request waits for new data."""
GRACE = 2.0
"""Seconds that a finished run waits for an open page to fetch the last update."""
PAUSE = 1.0
"""Seconds between two looks at a folder."""
WATCHED = ("*.jsonl", "summary.json", "personal.json", "analysis/*.png")


class Site:
    """A page at `address` on this machine alone, which asks for newer data until it is done."""

    def __init__(self, port: int = 0) -> None:
        self._news = threading.Condition()
        self._data: dict[str, Any] = {**report_data([], live=True, done=False), "version": 0}
        self._asked = False
        self._delivered = -1
        self._thread: threading.Thread | None = None
        try:
            self._server = _Server(self, port)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "must be between 0 and 65535"
            raise InputError(f"--port: {port} cannot be used on {HOST}: {reason}") from error
        self.address = f"http://{HOST}:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let an open page fetch the last update, then close the port."""
        self._publish({**self._data, "done": True})
        with self._news:
            if self._asked and self._thread:
                self._news.wait_for(lambda: self._delivered >= self._data["version"], GRACE)
        if self._thread:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def newer_than(self, version: int) -> dict[str, Any]:
        """Return the data of the page as soon as it is newer than this version, or unchanged after a while."""
        with self._news:
            self._asked = True
            self._news.wait_for(lambda: self._data["version"] > version, PATIENCE)
            return self._data

    def delivered(self, version: int) -> None:
        """Note that a page has the data of this version."""
        with self._news:
            self._delivered = max(self._delivered, version)
            self._news.notify_all()

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _show(self, read: Callable[[], list[Run]], places: Sequence[Path] = ()) -> None:
        try:
            data = report_data(read(), live=True, done=False, places=places)
        except (FedsolError, OSError) as error:  # a report must never stop a run
            log.warning("the live report was not updated: %s", error)
            return
        self._publish(data)

    def _publish(self, data: dict[str, Any]) -> None:
        with self._news:
            self._data = {**data, "version": self._data["version"] + 1}
            self._news.notify_all()


class LiveView(Site, Callback):
    """Serve the report of the run in `directory` while it is trained.

    Use it as a context and as the last callback: `with LiveView(out) as live: train(…, [live], out)`. The address is
    `live.address`; port 0 means any free port.
    """

    needs_updates = False

    def __init__(self, directory: str | Path, port: int = 0) -> None:
        super().__init__(port)
        self._directory = Path(directory)

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        self._serve()  # not earlier: worker processes are forked first, while this process has a single thread
        self._read()

    def round_finished(self, result: RoundResult) -> None:
        self._read()

    def finished(self, run: Run) -> None:
        self._read()

    def _read(self) -> None:
        self._show(lambda: [Run.load(self._directory)])


class FolderView(Site):
    """Serve one report of all runs in and below some directories, and update it when any of them changes.

    Use it as a context. Runs may be trained by this process or by others, begin and end.
    """

    def __init__(self, places: Sequence[Path], port: int = 0) -> None:
        super().__init__(port)
        self._places = list(places)
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._serve()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()
        self._show(self._runs, self._places)
        super().__exit__()

    def wait(self) -> None:
        """Wait for Ctrl-C."""
        self._ended.wait()

    def _watch(self) -> None:
        seen: object = None
        while not self._ended.is_set():
            if (state := self._state()) != seen:
                seen = state
                self._show(self._runs, self._places)
            self._ended.wait(PAUSE)

    def _runs(self) -> list[Run]:
        return [run for place in self._places for run in runs_below(place)]

    def _state(self) -> list[tuple[str, int, int]]:
        """Return size and time of the files that a report is made of."""
        paths = [path for place in self._places for name in WATCHED for path in place.rglob(name)]
        found = []
        for path in sorted(paths):
            with contextlib.suppress(OSError):  # it was just replaced
                status = path.stat()
                found.append((str(path), status.st_size, status.st_mtime_ns))
        return found


class _Server(ThreadingHTTPServer):
    """A server on the loopback interface only."""

    daemon_threads = True

    def __init__(self, view: Site, port: int) -> None:
        self.view = view
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Bind as the base class does, but without a name lookup."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a page that was closed before its answer arrived."""


class _Handler(BaseHTTPRequestHandler):
    """Answer GET requests for the page and its data, from pages of this address only."""

    server: _Server
    timeout = PATIENCE

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            # Against DNS rebinding: another site's name may point here, and its pages must not read this one.
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        parts = urlsplit(self.path)
        view = self.server.view
        if parts.path == "/":
            self._answer(render(view.newer_than(-1)), "text/html")
        elif parts.path == "/data.json":
            after = parse_qs(parts.query).get("after", ["-1"])[0]
            data = view.newer_than(int(after) if after.isdecimal() else -1)
            self._answer(json.dumps(data, allow_nan=False), "application/json")
            view.delivered(data["version"])
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base class)
        """Print nothing: the terminal shows the progress of the run."""
