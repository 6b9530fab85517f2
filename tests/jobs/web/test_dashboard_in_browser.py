"""The dashboard as a browser shows it: it starts, loads nothing external, draws, filters, and stops at Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from jobs.adapters.embedded.ports import free_port
from tests.jobs.support.outside.browser import NARROW, WIDE, RenderedPage, await_listening, rendered
from tests.jobs.support.rows.page_rows import HOSTILE, SECRET

CHARTS: Final = "[data-testid=stIFrame]"
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK: Final = "getComputedStyle(document.querySelector('[data-testid=stText]')).color"
GROUND: Final = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
MARK: Final = "(card) => getComputedStyle(card).borderLeftColor"
TIMEOUT_MS: Final = 30_000
"""Milliseconds that a busy machine may take to show something."""


@dataclass(frozen=True, slots=True)
class Server:
    """`surveyor dashboard`, and where it is."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def _served(warehouse: str) -> Iterator[Server]:
    port = str(free_port())
    command = [sys.executable, "-m", "jobs.dashboard", "--warehouse", warehouse, "--port", port, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            await_listening(int(port))
            yield Server(process, json.loads(process.stdout.readline())["url"])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def window(browser: Browser, looked_at: str) -> Iterator[RenderedPage]:
    """A browser window on a server of both clusters; Ctrl-C stops the server even with open pages."""
    with _served(looked_at) as server, rendered(browser, server.address) as rendered_page:
        yield rendered_page
        _come_about(rendered_page.page, "snapshot")
        server.process.send_signal(signal.SIGINT)
        out, error = server.process.communicate(timeout=30)
    assert (server.process.returncode, out) == (130, "")
    assert error.splitlines() == [
        f"dashboard of {looked_at}: {server.address} (press Ctrl-C to stop)",
        "surveyor: interrupted; nothing was written to the cluster",
    ]


def _opened(window: RenderedPage, size: tuple[int, int] = WIDE, *, dark: bool = False) -> RenderedPage:
    """Open the dashboard again, on its first page."""
    width, height = size
    window.page.set_viewport_size({"width": width, "height": height})
    window.page.emulate_media(color_scheme="dark" if dark else "light")
    window.page.reload()
    return window


def _origin(rendered_page: RenderedPage) -> str:
    return str(rendered_page.value("location.origin"))


def _come_about(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible(timeout=TIMEOUT_MS)


def _chosen(page: Page, name: str) -> None:
    page.get_by_test_id("stRadio").get_by_text(name, exact=True).click()


def test_no_file_waits_for_an_acknowledgement(window: RenderedPage) -> None:
    """Which would be 40 ms each, of the 150 that a page consists of; half of them may be unlucky on a busy machine."""
    address = urlsplit(window.page.url)
    connection = HTTPConnection(str(address.hostname), address.port)
    took = []
    for _ in range(30):
        started = time.monotonic()
        connection.request("GET", "/favicon.png")
        assert connection.getresponse().read()
        took.append(time.monotonic() - started)
    connection.close()

    assert median(took) < 0.035


def test_it_is_opened_and_looked_around_in(window: RenderedPage) -> None:
    rendered_page = _opened(window)
    page = rendered_page.page
    _come_about(page, "snapshot 3 (id id) taken 2026-11-21 12:00:00 UTC")
    expect(page.frame_locator(CHARTS).first.get_by_role("img")).to_have_count(2, timeout=TIMEOUT_MS)
    assert [text.split("\n") for text in rendered_page.texts(".cards .bad")] == [
        ["1", "partitions offline"],
        ["1", "brokers gone with replicas"],
    ]
    assert len({page.locator(f".cards .{mood}").first.evaluate(MARK) for mood in ("good", "warn", "bad")}) == 3
    _chosen(page, "Brokers")
    _come_about(page, "host h, rack a")
    expect(page).to_have_title("Brokers, default - Surveyor")
    _come_about(page, "Brokers - cluster default")
    _chosen(page, "Leader history")
    meaning = page.frame_locator(CHARTS).get_by_text("gone: was registered before")
    expect(meaning).to_be_visible(timeout=TIMEOUT_MS)
    _chosen(page, "Plans")
    _come_about(page, "reassign, planned")
    expect(page.frame_locator(CHARTS).get_by_role("img")).to_have_count(4, timeout=TIMEOUT_MS)
    assert SECRET not in page.content()
    assert HOSTILE not in page.content()
    assert (rendered_page.faults, rendered_page.elsewhere(_origin(rendered_page))) == ([], [])


def test_it_can_be_read_dark_and_narrow(window: RenderedPage) -> None:
    rendered_page = _opened(window, NARROW, dark=True)
    _come_about(rendered_page.page, "snapshot 3 (id id)")
    assert rendered_page.value(OVERFLOW) == 0
    assert (_lightness(rendered_page.value(INK)) > 600, _lightness(rendered_page.value(GROUND)) < 150) == (True, True)


def _lightness(colour: str) -> int:
    """The sum of red, green and blue, as a browser writes them."""
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_very_many_partitions_stay_usable(window: RenderedPage) -> None:
    rendered_page = _opened(window)
    page = rendered_page.page
    _come_about(page, "snapshot 3")
    page.get_by_test_id("stSelectbox").get_by_role("combobox").first.click()
    page.get_by_role("option", name="large").click()
    _come_about(page, "66,666 of 66,666 unhealthy partitions; the first 1,000 are shown")
    box = page.get_by_label("Search unhealthy partitions")
    box.fill("topic-007-19")
    box.press("Enter")
    _come_about(page, "6 of 66,666 unhealthy partitions")
    assert rendered_page.value("document.getElementsByTagName('*').length") < 5_000
    assert (rendered_page.faults, rendered_page.elsewhere(_origin(rendered_page))) == ([], [])
