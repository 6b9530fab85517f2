"""The results of the checks of `surveyor doctor`.

A check is an iterator of findings. It is independent of others, and names the remedy for a problem.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from jobs.core.errors import SurveyorError


class CheckStatus(StrEnum):
    """The result of a check."""

    FINE = "fine"
    WARNING = "warning"
    """Something does not work, or not well, for some commands."""
    FAULT = "fault"
    """Nothing works until it is repaired."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The finding of a check, with advice unless it is fine."""

    check: str
    status: CheckStatus
    found: str
    advice: str | None = None

    @classmethod
    def fine(cls, check: str, found: str) -> "CheckResult":
        return cls(check, CheckStatus.FINE, found)

    @classmethod
    def warning(cls, check: str, found: str, advice: str) -> "CheckResult":
        return cls(check, CheckStatus.WARNING, found, advice)

    @classmethod
    def fault(cls, check: str, found: str, advice: str | None = None) -> "CheckResult":
        return cls(check, CheckStatus.FAULT, found, advice)

    def to_json(self) -> dict[str, str | None]:
        """Return the finding as `--json` prints it, where the key of the status is `state`."""
        return {"check": self.check, "state": self.status, "found": self.found, "advice": self.advice}


Checks = Iterator[CheckResult]


def run_guarded(check: str, run_check: Callable[[], Checks]) -> Checks:
    """Turn an error of Surveyor's into the result of the check; its message has the remedy."""
    try:
        yield from run_check()
    except SurveyorError as error:
        yield CheckResult.fault(check, str(error))
