"""Options of the commands that commit a plan, as the command line has them."""

from dataclasses import dataclass

from jobs.core.units import parse_seconds
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.preconditions.limits import CommitLimits
from jobs.runtime.approval import Approve
from jobs.runtime.cli_enums import Mode
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """The options of a commit; a dry run unless `apply`."""

    mode: Mode
    limits: CommitLimits
    hold: float
    """Seconds for which the controllership may be held."""
    approve: Approve | None
    apply: bool
    running: ReassignmentOptions = DEFAULT
    everything: bool = False
    """List all rows, not only the first."""
    reviewed: bool = False
    """The plan's review is on the screen, with its changes and warnings, and only lines that it lacks are added."""
    detailed: bool = False
    """Return the detailed exit code."""


def commit_limits(
    settings: Settings,
    max_changes: int | None,
    max_plan_age: str | None = None,
    allow_silent: str | None = None,
    *,
    allow_majority_dead: bool = False,
) -> CommitLimits:
    """Read the options of a command; missing options are taken from the settings."""
    defaults = settings.conf.limits
    silent = [] if allow_silent is None else parse_broker_ids(allow_silent, "--allow-silent")
    return CommitLimits(
        max_plan_age=defaults.max_plan_age_hours * 3600
        if max_plan_age is None
        else parse_seconds("--max-plan-age", max_plan_age),
        max_changes=defaults.max_changes if max_changes is None else max_changes,
        allow_majority_dead=allow_majority_dead,
        allow_silent=frozenset(silent),
    )


def hold_seconds(settings: Settings, max_hold: str | None) -> float:
    """Parse --max-hold; without it the settings limit how long the controllership may be held."""
    return settings.conf.limits.max_hold_seconds if max_hold is None else parse_seconds("--max-hold", max_hold)
