"""Measures the time from the start of the dashboard to its text and its first chart in a real browser.

Against a Streamlit page of one word, started and opened in the same way by turns: what that takes is Python's,
Streamlit's and chromium's own. `python -m bench.dashboard 5` says the median of five rounds.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Final

from playwright.sync_api import Browser

from bench.figures import Figure, median_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.ports import free_port
from jobs.runtime.console import log
from jobs.web.dashboard.__main__ import OPTIONS
from tests.jobs.support.outside.browser import await_listening, rendered, started
from tests.jobs.support.rows.page_rows import lived_in

TEXT: Final = "[data-testid=stText]"
CHARTS: Final = "[data-testid=stIFrame]"

PLAIN: Final = 'import streamlit as st\nst.text("snapshot")\n'


def bench_dashboard(rounds: int) -> Iterator[Figure]:
    """Measure it from the command on, and from the opening of the page; of each the round with the median ratio."""
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder, started() as browser:
        warehouse = Warehouse(f"{folder}/warehouse", "default")
        lived_in(warehouse)
        ours = ["-m", "jobs.dashboard", "--warehouse", warehouse.uri, "--port"]
        app = Path(folder) / "plain.py"
        app.write_text(PLAIN)
        flags = [part for name, value in OPTIONS.items() for part in (f"--{name}", value)]
        plain = ["-m", "streamlit", "run", str(app), *flags, "--server.address", "127.0.0.1", "--server.port"]
        turns = [
            (_opened(browser, plain, has_charts=False), _opened(browser, ours, has_charts=True)) for _ in range(rounds)
        ]
    for begin, since in (("started and opened", 0), ("opened", 1)):
        for content, number in (("its text", 2), ("its first chart", 3)):
            figures = [
                Figure(
                    f"dashboard {begin}: until {content} is there",
                    full[number] - full[since],
                    f"a Streamlit page of one word {begin}",
                    bare[2] - bare[since],
                )
                for bare, full in turns
            ]
            yield median_of(figures, attrgetter("ratio"))


def _opened(browser: Browser, command: Sequence[str], *, has_charts: bool) -> list[float]:
    """Start a server and open its page; return the moments: started, listening, its text and first chart are there."""
    port = free_port()
    moments = [perf_counter()]
    with _serving([sys.executable, *command, str(port)], port):
        moments.append(perf_counter())
        with rendered(browser, f"http://127.0.0.1:{port}") as sight:
            sight.page.locator(TEXT).first.wait_for()
            moments.append(perf_counter())
            if has_charts:
                sight.page.frame_locator(CHARTS).first.get_by_role("img").first.wait_for(state="attached")
                moments.append(perf_counter())
    return moments


def opened_dashboard(arguments: Sequence[str]) -> float:
    """Start the dashboard with these options; return the seconds until the first chart is drawn."""
    with started() as browser:
        moments = _opened(browser, ["-m", "jobs.dashboard", *arguments, "--port"], has_charts=True)
    return moments[-1] - moments[0]


@contextmanager
def _serving(command: Sequence[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await_listening(port)
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    for figure in bench_dashboard(int(sys.argv[1])):
        log(f"{figure.measured}: {figure.seconds:.2f} / {figure.baseline_seconds:.2f} = {figure.ratio:.2f}")
