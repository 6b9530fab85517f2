"""How long the phases of a long command take, and progress while they last."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobs.runtime.console import progress


class Phases:
    """Seconds by phase, in the order the phases began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, phase: str, step: str, detail: Callable[[], str] | None = None) -> Iterator[None]:
        """Time a part of a phase; say on stderr what `step` it is when it takes long."""
        started = time.perf_counter()
        with progress(step, detail):
            yield
        self.add(phase, time.perf_counter() - started)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @property
    def rounded(self) -> dict[str, float]:
        return {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
