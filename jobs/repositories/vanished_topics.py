"""Topics that an earlier snapshot has and the cluster has no longer, if they are most of its topics.

Topics are deleted one by one, or few at once. If most of them are gone, the address or its chroot may be wrong, or
ZooKeeper may have lost its data; every figure of what is left then looks healthy. Topics that were queued for deletion
or that a plan has deleted are left out.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import UnreadableError
from jobs.repositories.snapshots import rows_as_of, table_as_of
from schemas.enums import OperationKind, PlanStatus
from schemas.rows import HIDDEN_TOPICS, PlanRecord, QuarantinedZnode, Row, Snapshot
from schemas.text import abbreviate

_COMMITTED: Final = (PlanStatus.COMMITTING, PlanStatus.COMMITTED, PlanStatus.PARTIAL)


@dataclass(frozen=True, slots=True)
class VanishedTopics:
    """Most topics of a snapshot, which are gone."""

    snapshot_id: int
    of: int
    """The number of topics in the snapshot, without those that were to be deleted."""
    topics: list[str]

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
    """Compare the topics that exist with the last snapshot, or the last one before another; None unless most are gone.

    If no topic exists, the last snapshot with topics counts, so that the fault does not end with the next snapshot.
    """
    until = [] if before is None else [("snapshot_id", "<", before)]
    taken = values_of(warehouse.read("snapshots", *until, columns=["snapshot_id", "topics"]), "snapshot_id", "topics")
    ids = [snapshot_id for snapshot_id, topics in taken if present or topics != 0]
    if not ids:
        return None
    (last,) = warehouse.typed_rows(Snapshot, ("snapshot_id", "=", max(ids)))
    try:
        rows = table_as_of(warehouse, last, "topics", columns=["topic", "deletion_requested"])
    except UnreadableError:
        return None
    known = {topic for topic, is_deleted in values_of(rows, "topic", "deletion_requested") if not is_deleted}
    gone = known.difference(present)
    if gone:
        deleted = _deleted_by_plans(warehouse)
        known, gone = known - deleted, gone - deleted
    return VanishedTopics(last.snapshot_id, len(known), sorted(gone)) if 2 * len(gone) > len(known) else None


def vanished_by(warehouse: Warehouse, snapshot: Snapshot) -> VanishedTopics | None:
    """Compare a snapshot with the one before it; None if a KRaft cluster may have further topics."""
    if snapshot.quarantined and rows_as_of(warehouse, snapshot, QuarantinedZnode, ("path", "=", HIDDEN_TOPICS)):
        return None
    present = table_as_of(warehouse, snapshot, "topics", columns=["topic"])["topic"].to_pylist()
    return vanished_topics(warehouse, {*present}, before=snapshot.snapshot_id)


def _deleted_by_plans(warehouse: Warehouse) -> set[str]:
    if not warehouse.has("operations"):
        return set()
    deletions = warehouse.read(
        "operations", ("kind", "=", OperationKind.DELETE_TOPIC.value), columns=["plan_id", "topic"]
    )
    statuses = ("status", "in", [status.value for status in _COMMITTED])
    committed = {plan.plan_id for plan in warehouse.typed_rows(PlanRecord, statuses)} if deletions.num_rows else set()
    return {topic for plan_id, topic in values_of(deletions, "plan_id", "topic") if plan_id in committed}
