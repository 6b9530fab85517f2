"""Progress of long work on stderr (a bar on a terminal, else a line at intervals) and the duration of each phase."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from jobs.core import status_line
from jobs.core.logs import current_fleet_cluster
from jobs.core.units import Part
from jobs.runtime.console import LINE_COLUMNS, log

SHOW_AFTER_SECONDS: Final = 2.0
"""Seconds after which the progress of a step is shown."""

LINE_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two lines of a step."""

REDRAW_INTERVAL_SECONDS: Final = 0.5
"""Seconds between two updates of a bar."""

_BAR_COLUMNS: Final = 20
"""Columns of a bar."""

Detail = Callable[[], Part | str]
"""Returns the progress of a step: a fraction, or its current activity."""

_steps: list[object] = []
"""Running steps, nested; the innermost is shown."""


@contextmanager
def progress(step: str, detail: Detail | None = None) -> Iterator[None]:
    """Show on stderr that a long step is running, with its progress from `detail`, and finally its duration.

    Steps of one cluster of a fleet are not shown; the progress of the fleet is.
    """
    if current_fleet_cluster() is not None:
        yield
        return
    started = time.monotonic()
    done = Event()
    ticker = Thread(
        target=_draw_progress if status_line.is_live() else _log_progress, args=(step, detail, done), daemon=True
    )
    _steps.append(done)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
        _steps.remove(done)
        status_line.clear()
    seconds = time.monotonic() - started
    if seconds >= SHOW_AFTER_SECONDS:
        log(f"  ... {step}: {seconds:.1f} s")


def _log_progress(step: str, detail: Detail | None, done: Event) -> None:
    if done.wait(SHOW_AFTER_SECONDS):
        return
    started = time.monotonic() - SHOW_AFTER_SECONDS
    so_far = ""
    while True:
        far = str(detail()) if detail else ""
        log(f"  ... {step}{': ' * bool(far)}{far}{so_far}")
        if done.wait(LINE_INTERVAL_SECONDS):
            return
        so_far = f", {time.monotonic() - started:.0f} s so far"


def _draw_progress(step: str, detail: Detail | None, done: Event) -> None:
    started = time.monotonic()
    wait = SHOW_AFTER_SECONDS
    while not done.wait(wait):
        wait = REDRAW_INTERVAL_SECONDS
        if _steps[-1] is done:
            status_line.draw(bar(step, detail() if detail else "", time.monotonic() - started, _columns()))


def bar(step: str, far: Part | str, seconds: float, columns: int) -> str:
    """Format a step with its progress and elapsed seconds, in at most `columns` columns.

    >>> bar("writing", Part(3, 4, "tasks"), 12.3, 80)
    '  ... writing ━━━━━━━━━━━━━━━───── 3 of 4 tasks, 12 s'
    >>> bar("planning", "starting Spark", 2, 80), bar("planning", "", 2, 10)
    ('  ... planning: starting Spark, 2 s', '  ... plan')
    """
    if isinstance(far, Part):
        full = _BAR_COLUMNS * far.done // far.total
        text = f" {'━' * full}{'─' * (_BAR_COLUMNS - full)} {far}"
    else:
        text = f": {far}" if far else ""
    return f"  ... {step}{text}, {seconds:.0f} s"[:columns]


def _columns() -> int:
    """Return one less than the terminal's columns, so that the cursor stays in the line."""
    try:
        columns = os.get_terminal_size(2).columns
    except OSError:
        columns = 0
    return (columns or LINE_COLUMNS) - 1


class Phases:
    """Seconds by phase, in the order in which the phases started."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, phase: str, step: str, detail: Detail | None = None) -> Iterator[None]:
        """Time a part of a phase, and show `step` on stderr if it takes long."""
        started = time.perf_counter()
        with progress(step, detail):
            yield
        self.add(phase, time.perf_counter() - started)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @property
    def rounded(self) -> dict[str, float]:
        return {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
