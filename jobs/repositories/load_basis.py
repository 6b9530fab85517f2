"""The stored loads that a plan uses: those of a profile, else the mean of hours, else imported loads of every hour.

Profiles are found from the statistics of files. A warehouse without loads costs three looks into Delta logs.
"""

from dataclasses import dataclass, field
from typing import Final

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.loads import HOUR, LoadWindow, find_window
from schemas.rows import PartitionLoad, ProfiledLoad
from schemas.text import pluralise

DEFAULT_PROFILE: Final = "default"

MEAN_OF: Final = "7d"
"""The hours up to the newest that count if there is no profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRows:
    """The rows of a table that are loads of plans.

    `profile` and `version` are those of LOAD_PROFILES. Without a profile the rows are those of PARTITION_LOAD in the
    hours of `window`.
    """

    profile: str | None = None
    version: int = 0
    window: LoadWindow = field(default_factory=LoadWindow)

    @property
    def filters(self) -> list[Filter]:
        """The filters of the rows in their table."""
        if self.profile is None:
            return self.window.filters
        return [("profile", "=", self.profile), ("version", "=", self.version)]

    @property
    def title(self) -> str:
        if self.profile is not None:
            return f"profile {self.profile}, version {self.version}"
        if self.window.newest is None:
            return "imported loads"
        hours = pluralise(len(self.window.hours), "hour")
        return f"the mean of {hours} until {self.window.newest + HOUR:%Y-%m-%d %H:%M} UTC"


def plan_loads(warehouse: Warehouse, profile: str | None = None, window: str | None = None) -> LoadRows | None:
    """Return which loads count: of a window as `find_window` takes it, or of a profile; None if there are none."""
    if window is None and (found := find_profile(warehouse, profile)):
        return found
    if not warehouse.count(PartitionLoad.TABLE):
        return None
    return LoadRows(window=find_window(warehouse, window or MEAN_OF))


def has_sizes(warehouse: Warehouse, rows: LoadRows | None) -> bool:
    """Return whether a plan by these loads knows what it copies: by their sizes, else by those of `surveyor sizes`."""
    if rows is not None:
        table = PartitionLoad.TABLE if rows.profile is None else ProfiledLoad.TABLE
        if warehouse.count_where(table, *rows.filters, ("size_bytes", ">=", 0)):
            return True
    return warehouse.has("sizes") and bool(warehouse.count("sizes"))


def find_profile(warehouse: Warehouse, name: str | None = None) -> LoadRows | None:
    """Return the newest version of a profile, by default the one named `default` or the only one; None if absent."""
    versions = warehouse.distinct(ProfiledLoad.TABLE, "profile", "version")
    profiles = {str(profile) for profile, _ in versions}
    name = name or (DEFAULT_PROFILE if len(profiles) != 1 else next(iter(profiles)))
    if name not in profiles:
        return None
    return LoadRows(profile=name, version=max(int(version) for profile, version in versions if profile == name))
