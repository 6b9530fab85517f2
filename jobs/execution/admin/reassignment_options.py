"""Options of reassignments: how fast to copy, and how long to wait."""

from dataclasses import dataclass
from typing import Final

from jobs.core.units import parse_seconds
from jobs.execution.admin.throttle_configs import Throttle, parse_throttle


@dataclass(frozen=True, slots=True)
class ReassignmentOptions:
    """The reassignment options of the command line."""

    throttle: Throttle | None = None
    """None leaves the throttle unchanged."""
    wait: bool = False
    """Also wait for the last wave."""
    max_wait: float | None = None
    """Seconds; None waits without a limit."""

    @classmethod
    def parsed(cls, throttle: str | None, max_wait: str | None, *, wait: bool) -> "ReassignmentOptions":
        """Parse --throttle and --max-wait."""
        seconds = None if max_wait is None else parse_seconds("--max-wait", max_wait)
        return cls(None if throttle is None else parse_throttle(throttle), wait, seconds)

    @property
    def watches(self) -> bool:
        """Whether a plan that is already committed still needs work by this command."""
        return self.wait or self.throttle is not None


DEFAULT: Final = ReassignmentOptions()
"""Options if none are given: no throttle, no waiting."""
