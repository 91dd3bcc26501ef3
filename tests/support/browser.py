"""A real browser for tests: Chromium without a window, spoken to in its DevTools protocol."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE = 60.0
"""Seconds until something that must happen is given up; nothing is measured."""


def find_chromium() -> str | None:
    """Debian's Chromium, or another one of that family."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.problems: list[str] = []
        """What the console complained about: errors, exceptions, and anything the page's policy forbade."""
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return dict(message["result"])
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, details = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(details["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value")) for one in details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(details["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {details['message']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False, phone: bool = False) -> None:
        """Goes to an address and waits until the page has drawn itself."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && document.querySelectorAll('main section').length > 0")
        # Charts draw when the browser tells them their width: two frames later they are there.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < deadline, f"never became true: {script}"
            time.sleep(0.02)

    def click(self, selector: str, number: int = 0) -> None:
        """A real click in the middle of an element."""
        place = self.run(
            f"(() => {{ const node = document.querySelectorAll({json.dumps(selector)})[{number}];"
            "node.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = node.getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, *place)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Moves, presses or releases the mouse."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Writes what is seen as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[str]:
    """Runs a browser with a fresh profile in `folder`; gives the address at which it takes commands."""
    program = find_chromium()
    assert program is not None
    profile = folder / "profile"
    command = [
        program,
        "--headless=new",
        "--no-sandbox",  # containers and root; the pages are our own
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "about:blank",
    ]
    environment = {**os.environ, "HOME": str(folder)}
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        port_file = profile / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE
        while not (port_file.is_file() and len(port_file.read_text().splitlines()) == 2):
            assert process.poll() is None, (folder / "chromium.log").read_text()
            assert time.monotonic() < deadline, "the browser does not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port_file.read_text().splitlines()[0]}"
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def new_page(address: str) -> Iterator[Page]:
    """Opens another tab."""
    request = urllib.request.Request(f"{address}/json/new?about:blank", method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        target = json.load(answer)["webSocketDebuggerUrl"]
    with connect(target, max_size=None, open_timeout=PATIENCE) as socket:
        yield Page(socket)
