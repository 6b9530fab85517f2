"""Topics that an earlier snapshot has and the cluster has no longer.

Topics are deleted one by one, or few at once. If most of them are gone, the address or its chroot may be wrong, or
ZooKeeper may have lost its data; the figures of the remaining topics look healthy. Topics that were queued for deletion
or that a plan has deleted are left out.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import UnreadableError
from jobs.repositories.snapshots import rows_as_of, table_as_of
from schemas.enums import OperationKind, PlanStatus
from schemas.rows import HIDDEN_TOPICS, PlanRecord, QuarantinedZnode, Row, Snapshot
from schemas.text import abbreviate

VANISHED_WITHIN: Final = timedelta(days=1)
"""Time before the newest snapshot with topics in which the snapshot with most topics is compared: neither a further
snapshot nor a new topic ends the fault."""

_COMMITTED: Final = (PlanStatus.COMMITTING, PlanStatus.COMMITTED, PlanStatus.PARTIAL)


@dataclass(frozen=True, slots=True)
class VanishedTopics:
    """Topics of a snapshot that are gone."""

    snapshot_id: int
    of: int
    """The number of topics in the snapshot, without those that were to be deleted."""
    topics: list[str]

    @property
    def are_most(self) -> bool:
        """Whether they are more than half, which is a fault; single topics are deleted every day."""
        return 2 * len(self.topics) > self.of

    @property
    def sentence(self) -> str:
        """The fault, and what to do about it.

        >>> VanishedTopics(5, 3, ["a", "b", "c"]).sentence.partition(". ")[0]
        '3 of 3 topics of snapshot 5 are gone: a, b, c'
        """
        return (
            f"{len(self.topics)} of {self.of} topics of snapshot {self.snapshot_id} are gone: "
            f"{abbreviate(self.topics)}. Check that the address and its chroot are of this cluster, and find in the "
            "brokers' logs which client deleted the topics; plan and commit nothing before that"
        )

    @property
    def json(self) -> Row:
        """The fields of the JSON output."""
        return asdict(self)


def vanished_topics(
    warehouse: Warehouse, present: Collection[str], *, before: int | None = None
) -> VanishedTopics | None:
    """Compare the topics that exist with the snapshots of a day, or those before another one; None if none is gone."""
    until = [] if before is None else [("snapshot_id", "<", before)]
    taken = warehouse.read("snapshots", *until, columns=["snapshot_id", "topics", "taken_at"])
    rows = [row for row in values_of(taken, "taken_at", "topics", "snapshot_id") if row[1] != 0]
    if not rows:
        return None
    since = max(taken_at for taken_at, *_ in rows) - VANISHED_WITHIN
    _, _, snapshot_id = max((row for row in rows if row[0] >= since), key=lambda row: (row[1] or 0, row[2]))
    (compared,) = warehouse.typed_rows(Snapshot, ("snapshot_id", "=", snapshot_id))
    try:
        stored = table_as_of(warehouse, compared, "topics", columns=["topic", "deletion_requested"])
    except UnreadableError:
        return None
    known = {topic for topic, is_deleted in values_of(stored, "topic", "deletion_requested") if not is_deleted}
    gone = known.difference(present)
    if gone:
        deleted = _deleted_by_plans(warehouse)
        known, gone = known - deleted, gone - deleted
    return VanishedTopics(snapshot_id, len(known), sorted(gone)) if gone else None


def vanished_by(warehouse: Warehouse, snapshot: Snapshot) -> VanishedTopics | None:
    """Compare a snapshot with the earlier ones; None unless most topics are gone.

    None as well if a KRaft cluster may have further topics.
    """
    if snapshot.quarantined and rows_as_of(warehouse, snapshot, QuarantinedZnode, ("path", "=", HIDDEN_TOPICS)):
        return None
    present = table_as_of(warehouse, snapshot, "topics", columns=["topic"])["topic"].to_pylist()
    vanished = vanished_topics(warehouse, {*present}, before=snapshot.snapshot_id)
    return vanished if vanished and vanished.are_most else None


def _deleted_by_plans(warehouse: Warehouse) -> set[str]:
    if not warehouse.has("operations"):
        return set()
    deletions = warehouse.read(
        "operations", ("kind", "=", OperationKind.DELETE_TOPIC.value), columns=["plan_id", "topic"]
    )
    statuses = ("status", "in", [status.value for status in _COMMITTED])
    committed = {plan.plan_id for plan in warehouse.typed_rows(PlanRecord, statuses)} if deletions.num_rows else set()
    return {topic for plan_id, topic in values_of(deletions, "plan_id", "topic") if plan_id in committed}
