"""What keeps a plan from being made, collected so that all of it is said at once."""

from collections.abc import Iterable
from typing import Final

from jobs.basics.errors import RefusedError, SurveyorError, UsageError

Fault = tuple[type[SurveyorError], str]
"""What is raised where there is no other, and with which words."""

SHOWN: Final = 50


def raise_any(found: Iterable[Fault]) -> None:
    """Raise what was found, if anything was: UsageError where some of it cannot be meant, else RefusedError."""
    faults = list(found)
    if not faults:
        return
    kind, said = faults[0]
    if len(faults) > 1:
        kind = UsageError if any(kind is UsageError for kind, _ in faults) else RefusedError
        lines = [f"{len(faults)} faults, nothing was planned:", *(text for _, text in faults[:SHOWN])]
        lines += [f"... and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        said = "\n  ".join(lines)
    raise kind(said)
