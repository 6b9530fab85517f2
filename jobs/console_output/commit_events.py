"""Lines that cancellations and rollbacks log; other services of a commit call `log` themselves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.runtime.console import log
from jobs.runtime.review import warning_lines


@dataclass(frozen=True, slots=True)
class WarningsGiven:
    """A command that asks no question begins; these are the warnings that the question would show."""

    warnings: Sequence[str]

    @property
    def lines(self) -> Sequence[str]:
        """All lines of the event."""
        return warning_lines(self.warnings)


@dataclass(frozen=True, slots=True)
class PlanReused:
    """The rollback has been planned before, under this name."""

    name: str

    @property
    def lines(self) -> Sequence[str]:
        """All lines of the event."""
        return [f"surveyor: {self.name} is this plan already; no new plan was made"]


Report = Callable[[WarningsGiven | PlanReused], None]
"""Receives each event when it happens."""


def log_event(event: WarningsGiven | PlanReused) -> None:
    """Log the lines of an event."""
    for line in event.lines:
        log(line)
