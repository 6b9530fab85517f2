"""SQL views over the tables, run by DuckDB; users can run them too.

Each view is a file in `sql/` and is listed in docs/tables.md. The views use the table names of the warehouse and see
the rows of one cluster: `partitions`, `brokers` and `topics` at one snapshot, tables with `snapshot_id` in their key up
to that snapshot, and all plans and commits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from typing import ClassVar, Final

from msgspec import Struct

Reads = Mapping[str, Sequence[str]]
"""Tables and the columns that a view reads."""

_SNAPSHOTS: Final = (
    "snapshot_id",
    "taken_at",
    "cluster_id",
    "controller_id",
    "controller_epoch",
    "quarantined",
    "migration",
)
_PARTITIONS: Final = (
    "topic",
    "partition",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader",
    "isr",
    "partition_state",
    "offline_replicas",
    "under_replicated",
    "under_min_isr",
    "understood",
)
_TOPICS: Final = ("topic", "deletion_requested")
_BROKERS: Final = ("broker_id", "broker_epoch", "host", "rack", "understood")
_HISTORY: Final = ("topic", "partition", "snapshot_id", "leader", "partition_state", "vanished")
_IMBALANCE: Final = (
    "snapshot_id",
    "broker_id",
    "preferred_partitions",
    "not_led",
    "ratio",
    "exceeds",
    "threshold",
)
_EVENTS: Final = ("snapshot_id", "kind", "subject")
_PLANS: Final = (
    "plan_id",
    "name",
    "names",
    "kind",
    "status",
    "snapshot_id",
    "created_at",
    "changes",
    "rejected",
    "moves",
    "verified_at",
)
_ANSWERS: Final = ("broker_id", "api", "topic", "partition", "broker_epoch", "leader_epoch", "error")
_COMMITS: Final = (
    "cluster",
    "plan_id",
    "attempt",
    "wave",
    "topic",
    "partition",
    "action",
    "outcome",
    "state_version_after",
    "committed_at",
    "who",
    "message",
    "controller_epoch",
    "run",
)


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


class RecordedImbalance(ViewRow, frozen=True, kw_only=True):
    """A row of the view `imbalance_history`."""

    VIEW = "imbalance_history"
    snapshot_id: int
    taken_at: datetime
    broker_id: int
    preferred_partitions: int
    not_led: int
    ratio: float | None
    exceeds: bool | None
    threshold: float | None


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
    """A view: its name, and the tables and views that it reads."""

    name: str
    reads: Reads
    views: Sequence[str] = field(default=())

    @property
    def sql(self) -> str:
        """The query in the file of the view."""
        return files(__package__).joinpath("sql", f"{self.name}.sql").read_text(encoding="utf-8")


VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View("partition_health", {"partitions": _PARTITIONS, "topics": _TOPICS}),
        View("staying", {}, ["partition_health"]),
        View(
            "health",
            {"snapshots": _SNAPSHOTS, "partitions": _PARTITIONS, "brokers": _BROKERS, "topics": _TOPICS},
            ["partition_health"],
        ),
        View(
            "leadership",
            {"partitions": _PARTITIONS, "brokers": _BROKERS, "brokers_last_seen": ("broker_id", "host", "rack")},
            ["partition_health"],
        ),
        View("imbalance_history", {"imbalance": _IMBALANCE, "snapshots": _SNAPSHOTS}),
        View("leader_history", {"partition_history": _HISTORY, "snapshots": _SNAPSHOTS}),
        View(
            "leaders_over_time",
            {"snapshots": _SNAPSHOTS, "brokers": _BROKERS, "events": _EVENTS},
            ["leader_history"],
        ),
        View(
            "plan_summary",
            {
                "plans": _PLANS,
                "changes": ("plan_id", "topic", "reason"),
                "operations": ("plan_id", "sequence"),
                "commits": _COMMITS,
            },
        ),
        View("commit_rows", {"commits": _COMMITS}),
        View("commit_log", {"commits": _COMMITS, "plans": _PLANS}, ["commit_rows"]),
        View("under_replicated", {}, ["partition_health"]),
        View("replicas", {"brokers": _BROKERS, "answers": _ANSWERS}, ["partition_health"]),
    )
}
"""All views, in the order of the pages."""
