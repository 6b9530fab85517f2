"""What a snapshot could not read, from the table `quarantine`."""

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.preconditions.unread_metadata import UnreadMetadata, concerns_unread, unread_among, unread_topics
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from schemas.rows import Partition, PlanRecord, QuarantinedZnode, Snapshot


def unread_in(warehouse: Warehouse, snapshot: Snapshot) -> UnreadMetadata:
    """Name the topics and partitions of a snapshot that are in quarantine."""
    if not snapshot.quarantined:
        return UnreadMetadata()
    rows = rows_as_of(warehouse, snapshot, QuarantinedZnode)
    topics = unread_topics(rows)
    read = rows_as_of(warehouse, snapshot, Partition, ("topic", "in", topics)) if topics else []
    return unread_among(rows, {row.topic for row in read if row.understood})


def unread_by(warehouse: Warehouse, plan: PlanRecord) -> UnreadMetadata:
    """Name what the snapshot of a plan could not read, if the plan answers for it and the snapshot still exists."""
    if not concerns_unread(plan):
        return UnreadMetadata()
    try:
        return unread_in(warehouse, find_snapshot(warehouse, plan.snapshot_id))
    except SurveyorError:  # the snapshot was dropped
        return UnreadMetadata()
