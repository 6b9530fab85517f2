"""SQL views over the tables, run by DuckDB; users can run them too.

Each view is a file in `sql/` and is listed in docs/tables.md. The views use the table names of the warehouse and see
the rows of one cluster: `partitions`, `brokers` and `topics` at one snapshot, tables with `snapshot_id` in their key up
to that snapshot, and all plans and commits.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import ClassVar, Final

from msgspec import Struct

from schemas.columns import TABLE_COLUMNS


class ViewRow(Struct, frozen=True, kw_only=True):
    """A row of the view that `VIEW` names."""

    VIEW: ClassVar[str]


class ClusterSummary(ViewRow, frozen=True, kw_only=True):
    """The row of the view `health`."""

    VIEW = "health"
    snapshot_id: int
    taken_at: datetime
    cluster_id: str | None
    controller_id: int | None
    """-1 for none, None if it cannot be decoded."""
    controller_epoch: int | None
    brokers: int
    brokers_gone: int
    racks: int
    topics: int
    deleting_topics: int
    partitions: int
    offline: int
    under_replicated: int
    under_min_isr: int
    reassigning: int
    not_led_by_preferred: int
    not_understood: int
    quarantined: int | None
    migration: str | None


class CommitSummary(ViewRow, frozen=True, kw_only=True):
    """A row of the view `commit_log`."""

    VIEW = "commit_log"
    plan_id: str
    attempt: int
    kind: str
    names: list[str] | None
    plan_kind: str | None
    changes: int | None
    outcome: str
    who: str | None
    began_at: datetime | None
    ended_at: datetime | None
    applied: int
    stale: int
    fenced: int
    failed: int
    unknown: int
    skipped: int
    pending: int
    message: str | None


class BrokerLeadership(ViewRow, frozen=True, kw_only=True):
    """A row of the view `leadership`."""

    VIEW = "leadership"
    broker_id: int
    host: str | None
    rack: str | None
    registered: bool
    leaders: int
    preferred: int
    replicas: int
    out_of_sync: int


class RecordedLeadership(ViewRow, frozen=True, kw_only=True):
    """A row of the view `leaders_over_time`."""

    VIEW = "leaders_over_time"
    snapshot_id: int
    taken_at: datetime
    broker_id: int
    leaders: int
    presence: str


@dataclass(frozen=True, slots=True)
class View:
    """A view: its name, which is that of the file of its query, and the tables and views that it reads."""

    name: str

    @property
    def sql(self) -> str:
        """The query in the file of the view."""
        return files(__package__).joinpath("sql", f"{self.name}.sql").read_text(encoding="utf-8")

    @property
    def reads(self) -> dict[str, set[str]]:
        """The columns that it may read of each table."""
        words = {*re.findall(r"\w+", self._code)}
        return {name: words.intersection(TABLE_COLUMNS[name].names) for name in self._sources if name in TABLE_COLUMNS}

    @property
    def views(self) -> list[str]:
        """The other views that it reads."""
        return [name for name in self._sources if name in VIEWS]

    @property
    def _code(self) -> str:
        return re.sub(r"--.*", "", self.sql)

    @property
    def _sources(self) -> list[str]:
        return [*dict.fromkeys(re.findall(r"\b(?:FROM|JOIN) (\w+)", self._code))]


_NAMES: Final = (
    *("partition_health", "staying", "health", "leadership", "imbalance_history", "leader_history"),
    *("leaders_over_time", "plan_summary", "commit_rows", "commit_log", "under_replicated", "replicas"),
)

VIEWS: Final[Mapping[str, View]] = {name: View(name) for name in _NAMES}
"""All views, in the order of the pages."""
