"""A real browser for tests: the system's Chromium without a window, driven by playwright."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Dialog, sync_playwright
from playwright.sync_api import Page as Tab

PATIENCE = 60_000.0
"""Milliseconds after which a test gives up on what must happen; nothing is measured."""


def find_chromium() -> str | None:
    """Return the path of Debian's Chromium, or of another one of that family."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser; every page has a profile of its own."""
    with sync_playwright() as driver:
        # No sandbox: containers run as root, and the pages are our own.
        program = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield program
        program.close()


@contextlib.contextmanager
def new_page(program: Browser, phone: bool = False) -> Iterator["Page"]:
    """Open a page in a fresh profile."""
    size = {"width": 390, "height": 844} if phone else {"width": 1200, "height": 900}
    with program.new_context(viewport=size, device_scale_factor=2 if phone else 1, is_mobile=phone) as context:
        yield Page(context.new_page())


class Page:
    """A page, and what happened on it."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.problems: list[str] = []
        """Errors and warnings on the console, exceptions, dialogs, and anything the page's policy forbade."""
        self.requests: list[str] = []
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("console", self._note)
        tab.on("dialog", self._dismiss)
        tab.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.problems.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, address: str, dark: bool = False) -> None:
        """Go to an address and wait until the page has drawn itself."""
        self.tab.emulate_media(color_scheme="dark" if dark else "light")
        self.tab.goto(address, wait_until="load")
        self.until("document.querySelectorAll('main section').length > 0")
        # Charts draw when the browser tells them their width: two frames later they are there.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; promises are waited for."""
        return self.tab.evaluate(script)

    def until(self, script: str) -> None:
        """Wait until an expression is true; playwright's own wait needs `eval`, which the page's policy forbids."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not self.run(script):
            assert time.monotonic() < deadline, f"never became true: {script}"
            self.tab.wait_for_timeout(20)

    def click(self, selector: str, number: int = 0) -> None:
        """Click in the middle of an element."""
        self.tab.locator(selector).nth(number).click()
