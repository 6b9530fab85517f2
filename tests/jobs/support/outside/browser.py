"""A real browser: Debian's chromium without a screen, which says what a page asked for and what it complained of."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

WIDE: Final = (1280, 900)
NARROW: Final = (390, 844)
PROGRAMS: Final = ("chromium", "chromium-browser")
MISSING: Final = "no chromium on this machine: `apt-get install chromium` on Debian; as root `make setup-dev` does it"

_AS_ROOT: Final = ["--no-sandbox"]
"""Root cannot have chromium's sandbox; the pages are our own."""


def await_listening(port: int, seconds: float = 60.0) -> None:
    """Wait until a server takes connections; it says nothing of that itself."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def started() -> Iterator[Browser]:
    """Start chromium; skip the test, with the reason, where there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        args = _AS_ROOT if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=args)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page as it is looked at."""

    page: Page
    faults: list[str] = field(default_factory=list)
    """What the console and scripts complained of, and dialogs that popped up."""
    addresses: list[str] = field(default_factory=list)
    """Addresses that were asked for."""

    def refuse(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def elsewhere(self, origin: str) -> list[str]:
        """Addresses asked for that are not the page's own."""
        own = (origin, "data:", "blob:")
        return [address for address in self.addresses if not address.startswith(own)]

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def value(self, script: str) -> Any:  # noqa: ANN401 - whatever JavaScript gives
        return self.page.evaluate(script)


@contextmanager
def rendered(browser: Browser, address: str) -> Iterator[RenderedPage]:
    """Open a page in a window of its own."""
    width, height = WIDE
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    rendered_page = RenderedPage(context.new_page())
    page = rendered_page.page
    page.on("console", lambda message: rendered_page.faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: rendered_page.faults.append(str(error)))
    page.on("dialog", lambda dialog: rendered_page.refuse(dialog))  # noqa: PLW0108 - playwright marks what it is given
    page.on("request", lambda request: rendered_page.addresses.append(request.url))
    try:
        page.goto(address)
        yield rendered_page
    finally:
        context.close()
