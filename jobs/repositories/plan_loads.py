"""The loads that plans are compared by: the windows of a profile, else the mean of recent hours, else imported loads.

Only the tables' files are read here, not their rows: which rows count is found from the statistics of the files. A
warehouse without loads costs three looks into Delta logs.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.loads import HOUR
from schemas.rows import PartitionLoad, ProfiledLoad

DEFAULT_PROFILE: Final = "default"

MEAN_OF: Final = timedelta(days=7)
"""The hours up to the newest that count if there is no profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRows:
    """The rows of a table that are loads of plans.

    `profile` and `version` are those of LOAD_PROFILES. Without a profile the rows are the hours of PARTITION_LOAD after
    `since`; None for the imported loads of every hour.
    """

    profile: str | None = None
    version: int = 0
    since: datetime | None = None
    until: datetime | None = None

    @property
    def title(self) -> str:
        if self.profile is not None:
            return f"profile {self.profile}, version {self.version}"
        if self.since is None:
            return "imported loads"
        return f"the mean of the hours from {self.since + HOUR:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"


def plan_loads(warehouse: Warehouse) -> LoadRows | None:
    """Return which loads count; None if the warehouse has none."""
    if profile := find_profile(warehouse):
        return profile
    if not warehouse.count(PartitionLoad.TABLE):
        return None
    until = warehouse.latest(PartitionLoad.TABLE, "hour")
    return LoadRows(since=None if until is None else until - MEAN_OF, until=until)


def find_profile(warehouse: Warehouse, name: str | None = None) -> LoadRows | None:
    """Return the newest version of a profile, by default the one named `default` or the only one; None if absent."""
    versions = warehouse.distinct(ProfiledLoad.TABLE, "profile", "version")
    profiles = {str(profile) for profile, _ in versions}
    name = name or (DEFAULT_PROFILE if len(profiles) != 1 else next(iter(profiles)))
    if name not in profiles:
        return None
    return LoadRows(profile=name, version=max(int(version) for profile, version in versions if profile == name))
