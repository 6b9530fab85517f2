"""The options and settings that limit a commit, as `jobs.preconditions.limits` takes them."""

from jobs.core.units import parse_seconds
from jobs.preconditions.limits import CommitLimits
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.settings import Settings


def commit_limits(
    settings: Settings,
    max_plan_age: str | None,
    max_changes: int | None,
    *,
    allow_majority_dead: bool,
    allow_silent: str | None,
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
