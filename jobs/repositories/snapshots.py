"""Selection of the snapshot that a command uses, and its tables."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter, rows_where
from jobs.adapters.delta.warehouse import R, Warehouse, decode_rows
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.arrow_rows import as_rows, values_of
from jobs.core.errors import RefusedError, SurveyorError, UnreadableError, UsageError
from jobs.core.option_sources import WAREHOUSE, option_name
from jobs.core.units import format_age
from jobs.preconditions.unread_metadata import UnreadMetadata, depends_on_unread, unread_among, unread_topics
from schemas.columns import KEY_COLUMNS
from schemas.enums import Outcome, PartitionState
from schemas.rows import Broker, CommitRecord, Partition, PlanRecord, QuarantinedZnode, Row, Snapshot, Topic
from schemas.stored_plan import OPEN

STATE_TABLES: Final = (
    *("partitions", "topics", "brokers", "brokers_last_seen"),
    *("broker_configs", "requests", "security", "quarantine"),
)
"""Tables with the state of a cluster at one snapshot, which are read at the version that the snapshot names.

The other tables keep the rows of earlier snapshots and plans, so their newest version has all of them.
"""

COMPARED: Final = ("brokers", "topics", "broker_configs", "requests", "security", "quarantine")
"""Tables without a history; a snapshot compares them with the last snapshot's tables."""

PARTITION: Final = KEY_COLUMNS["partitions"]
"""The key of a partition."""


class OtherClusterError(RefusedError):
    """Snapshots under the name of this cluster are of another one."""


def last_snapshot(warehouse: Warehouse) -> Snapshot | None:
    """Return the newest complete snapshot, or None if there is none."""
    ids = warehouse.read("snapshots", columns=["snapshot_id"])["snapshot_id"]
    if not len(ids):
        return None
    return warehouse.typed_rows(Snapshot, ("snapshot_id", "=", pc.max(ids).as_py()))[0]


def other_cluster(warehouse: Warehouse, cluster_id: str | None, address: str) -> str | None:
    """Return a message if a snapshot under this name is of a cluster with another id, None if that is not known.

    Plans take the last in-sync replicas of a partition from its history. In a history of two clusters, these replicas
    may belong to the other cluster, and then they hold none of the partition's records.
    """
    if cluster_id is None or not warehouse.exists() or "cluster_id" not in warehouse.columns("snapshots"):
        return None
    rows = warehouse.read("snapshots", columns=["snapshot_id", "cluster_id"])
    others = rows.filter(pc.field("cluster_id") != cluster_id).sort_by([("snapshot_id", "descending")])
    if not len(others):
        return None
    newest, other = others["snapshot_id"][0].as_py(), others["cluster_id"][0].as_py()
    own = len(rows.filter(pc.field("cluster_id") == cluster_id))
    subject = f"snapshot {newest} and others" if own else "the snapshots"
    return (
        f"{subject} of cluster {warehouse.cluster!r} in {warehouse.uri} are of the cluster with id {other}, and "
        f"{address} is that of {cluster_id}; check the address and {option_name(WAREHOUSE)}, or give this cluster a "
        "name of its own with --cluster, also if it was created again"
    )


def refuse_other_cluster_id(warehouse: Warehouse, cluster_id: str | None, address: str) -> None:
    """Raise OtherClusterError if a snapshot under this name is of a cluster with another id."""
    if message := other_cluster(warehouse, cluster_id, address):
        raise OtherClusterError(message)


def names_of_cluster(warehouse: Warehouse, cluster_id: str | None) -> list[str]:
    """Return the other names under which the warehouse has snapshots of the cluster with this id."""
    if cluster_id is None:
        return []
    others = [name for name in warehouse.clusters() if name != warehouse.cluster]
    ids = {
        name: Warehouse(warehouse.uri, name).read("snapshots", columns=["cluster_id"])["cluster_id"] for name in others
    }
    return [name for name, known in ids.items() if cluster_id in known.to_pylist()]


def oldest_snapshot_id(warehouse: Warehouse) -> int:
    """Return the id of the oldest snapshot that is kept; there must be one."""
    return int(pc.min(warehouse.read("snapshots", columns=["snapshot_id"])["snapshot_id"]).as_py())


def find_snapshot(warehouse: Warehouse, snapshot_id: int | None = None) -> Snapshot:
    """Return the given or the newest snapshot; raise UsageError or UnreadableError if it does not exist."""
    if not warehouse.exists():
        raise no_warehouse(warehouse.uri, "take a `surveyor snapshot` first")
    newest = last_snapshot(warehouse)
    if newest is None:
        raise UnreadableError(
            f"no snapshot of cluster {warehouse.cluster!r} in {warehouse.uri}; "
            f"take one with `surveyor snapshot --cluster {warehouse.cluster}`, or check --cluster",
        )
    if snapshot_id is None or snapshot_id == newest.snapshot_id:
        return newest
    rows = warehouse.typed_rows(Snapshot, ("snapshot_id", "=", snapshot_id))
    if not rows:
        raise UsageError(_no_snapshot(warehouse, snapshot_id, newest.snapshot_id))
    return rows[0]


def _no_snapshot(warehouse: Warehouse, snapshot_id: int, newest: int) -> str:
    oldest = oldest_snapshot_id(warehouse)
    dropped = ", dropped by `surveyor vacuum`" if 0 < snapshot_id < oldest else ""
    return (
        f"no snapshot {snapshot_id} of cluster {warehouse.cluster!r}{dropped}; "
        f"the oldest is {oldest}, the newest is {newest}"
    )


def refuse_empty(snapshot: Snapshot, *, topics: bool = False) -> None:
    """Raise RefusedError if a snapshot has no broker or, with `topics`, no topic."""
    names = snapshot.names
    missing = f"broker ({names.no_brokers})" if snapshot.brokers == 0 else f"topic ({names.no_topics})"
    if snapshot.brokers == 0 or (topics and snapshot.topics == 0):
        raise RefusedError(
            f"snapshot {snapshot.snapshot_id} has no {missing}, so there is nothing to plan; if the cluster has any "
            "now, take a new `surveyor snapshot`",
        )


UNCLEAN_INSTEAD: Final = "use `surveyor plan recover` for elections that it does not make"
"""Alternative to a plan of repairs, for messages."""


def refuse_unversioned(snapshot: Snapshot, command: str, instead: str = UNCLEAN_INSTEAD) -> None:
    """Raise RefusedError for a plan of a controller's own work on a snapshot without the version of its epoch.

    Such work is written by a controller under versions of znodes. A KRaft cluster has none and does this work itself.
    `instead` is what to use there.
    """
    if snapshot.is_of_kraft:
        raise RefusedError(
            f"`surveyor {command}` plans what a controller writes to ZooKeeper, and snapshot {snapshot.snapshot_id} is "
            f"of a KRaft cluster, whose own controller does that; {instead}"
        )


def as_of(warehouse: Warehouse, snapshot: Snapshot, table: str, *filters: Filter) -> list[Row]:
    """Return the rows of a table at a snapshot as dictionaries."""
    return as_rows(table_as_of(warehouse, snapshot, table, *filters))


def topics_before(warehouse: Warehouse, snapshot_id: int) -> dict[str, Topic]:
    """Return the topics by name in the last snapshot before this one; empty if it can no longer be read."""
    ids = warehouse.read("snapshots", ("snapshot_id", "<", snapshot_id), columns=["snapshot_id"])["snapshot_id"]
    if not len(ids):
        return {}
    (snapshot,) = warehouse.typed_rows(Snapshot, ("snapshot_id", "=", pc.max(ids).as_py()))
    try:
        return {row.topic: row for row in rows_as_of(warehouse, snapshot, Topic)}
    except UnreadableError:
        return {}


def rows_as_of(warehouse: Warehouse, snapshot: Snapshot, row: type[R], *filters: Filter) -> list[R]:
    """Return the rows of a table at a snapshot as structs."""
    return decode_rows(row, table_as_of(warehouse, snapshot, row.TABLE, *filters))


def with_age(snapshot: Snapshot) -> str:
    """Name a snapshot and its age, as every command does that shows or uses one."""
    return f"snapshot {snapshot.snapshot_id} is {format_age(snapshot.taken_at)} old"


def refresh_hint(snapshot: Snapshot, *, is_new: bool) -> str:
    """Name the age of a snapshot, and how to plan on a newer one unless the plan itself took it."""
    return with_age(snapshot) if is_new else f"{with_age(snapshot)}: --refresh takes a new one"


def later_commit(warehouse: Warehouse, snapshot: Snapshot, plan_id: str = "") -> str | None:
    """Return a message if a plan was committed after a snapshot, other than `plan_id`; None if none was.

    Cycles of `surveyor control` do not count: it writes all the time, and a plan's preconditions show what concerns it.
    """
    if not warehouse.has(CommitRecord.TABLE):
        return None
    written = ("outcome", "in", [Outcome.APPLIED.value, Outcome.UNKNOWN.value])
    rows = warehouse.read(
        CommitRecord.TABLE,
        ("committed_at", ">", snapshot.taken_at),
        ("plan_id", "!=", plan_id),
        written,
        columns=["plan_id", "topic", "committed_at"],
    )
    changes = rows.filter(pc.is_valid(rows["topic"]))
    committed = dict(sorted(values_of(changes, "plan_id", "committed_at"), key=itemgetter(1)))
    if not committed:
        return None
    known = warehouse.typed_rows(PlanRecord, ("plan_id", "in", sorted(committed)))
    cycles = {row.plan_id for row in known if row.is_cycle}
    plans = [plan for plan in committed if plan and plan not in cycles]  # not what `cancel --partitions` recorded
    if not plans:
        return None
    last = max(plans, key=committed.__getitem__)
    return (
        f"snapshot {snapshot.snapshot_id} is older than the commit of plan {last} at "
        f"{committed[last]:%Y-%m-%d %H:%M:%S} UTC"
    )


def outdated_plan(warehouse: Warehouse, plan: PlanRecord) -> Iterator[str]:
    """Warn of an open plan whose snapshot is older than the commit of another plan; it does not know its changes.

    A rollback follows a commit on purpose, and reads the cluster.
    """
    if plan.status not in OPEN or "rollback_of" in plan.options:
        return
    with suppress(SurveyorError):  # the snapshot was dropped
        if message := later_commit(warehouse, find_snapshot(warehouse, plan.snapshot_id), plan.plan_id):
            yield f"{message} and lacks its changes; plan again on a new snapshot"


def live_brokers_as_of(warehouse: Warehouse, snapshot: Snapshot, *filters: Filter) -> list[Broker]:
    """Return the live brokers at a snapshot: those registered, without the fenced ones of a KRaft cluster.

    Plans and health figures use only these.
    """
    return [row for row in rows_as_of(warehouse, snapshot, Broker, *filters) if row.is_live]


def table_as_of(
    warehouse: Warehouse,
    snapshot: Snapshot,
    table: str,
    *filters: Filter,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read a table at the version that a snapshot names, which `surveyor vacuum` keeps as long as the snapshot.

    It keeps versions of `partitions` for some days only; earlier versions are rebuilt from the history. If another
    program removed a version of another table, the newest snapshot is read from the current version, unless a later,
    incomplete snapshot has written that table. Raise UnreadableError otherwise.
    """
    try:
        return warehouse.read(table, *filters, version=snapshot.versions[table], columns=columns)
    except UnreadableError:
        if table != "partitions":
            if not _is_written_by(warehouse, snapshot, table):
                raise
            return warehouse.read(table, *filters, columns=columns)
    rows = _partitions_by_history(warehouse, snapshot, filters)
    return rows if columns is None else rows.select(columns)


def _partitions_by_history(warehouse: Warehouse, snapshot: Snapshot, filters: Sequence[Filter]) -> pa.Table:
    """Rebuild the partitions of a snapshot that pass all filters.

    The history is read with filters on the key only. Another one, such as on the state, would find an earlier row of a
    partition whose newest row does not pass it.
    """
    of_key = [condition for condition in filters if condition[0] in PARTITION]
    up_to_snapshot = ("snapshot_id", "<=", snapshot.snapshot_id)
    rows = newest_rows(warehouse.read("partition_history", up_to_snapshot, *of_key))
    others = [condition for condition in filters if condition not in of_key]
    return rows_where(_with_topic_versions(rows, warehouse, snapshot), others)


def with_readable_versions(warehouse: Warehouse, snapshot: Snapshot) -> Snapshot:
    """Return the newest snapshot with the current version of each table that is compared with, if its own is lost.

    A new snapshot must do this before it writes, as it compares these tables also after it has written them.
    """
    lost = {
        table: warehouse.version(table)
        for table in COMPARED
        if table in snapshot.versions  # one of an older version lacks new tables
        and not is_whole(warehouse, table, snapshot.versions[table])
        and _is_written_by(warehouse, snapshot, table)
    }
    return msgspec.structs.replace(snapshot, versions=snapshot.versions | lost) if lost else snapshot


def is_whole(warehouse: Warehouse, table: str, version: int) -> bool:
    """Return whether a version of a table can be read, or a later one with the same rows."""
    try:
        warehouse.paths(table, version)
    except UnreadableError:
        return False
    return True


def _is_written_by(warehouse: Warehouse, snapshot: Snapshot, table: str) -> bool:
    """Return whether a snapshot is the newest, and no later one has written the rows of a table."""
    newest = last_snapshot(warehouse)
    written = warehouse.read(table, columns=["snapshot_id"])["snapshot_id"]
    latest = pc.max(written).as_py() if len(written) else 0
    return newest is not None and newest.snapshot_id == snapshot.snapshot_id and latest <= snapshot.snapshot_id


def _with_topic_versions(rows: pa.Table, warehouse: Warehouse, snapshot: Snapshot) -> pa.Table:
    """Set the topic versions of a snapshot; the history does not record a new topic version as a change."""
    version = snapshot.versions.get("topics")
    try:
        topics = (
            None if version is None else warehouse.read("topics", version=version, columns=["topic", "topic_version"])
        )
    except UnreadableError:
        topics = None
    if topics is None:
        return rows
    at = pc.index_in(rows["topic"].cast(pa.string()), topics["topic"].cast(pa.string()).combine_chunks())
    versions = pc.coalesce(topics["topic_version"].take(at), rows["topic_version"])
    return rows.set_column(rows.schema.get_field_index("topic_version"), "topic_version", versions)


def newest_rows(history: pa.Table) -> pa.Table:
    """Keep the newest row of each partition that still exists."""
    ordered = history.sort_by("snapshot_id")
    newest = ordered.take(_last_of_each(ordered))
    return newest.filter(_existing(newest))


def rows_to_keep(history: pa.Table) -> pa.Table:
    """Keep the newest row of each partition and, if it has no state, also its last row with a state."""
    ordered = history.sort_by("snapshot_id")
    with_state = _last_of_each(ordered, pc.not_equal(_states(ordered), PartitionState.NEW.value))
    kept = ordered.take(pc.unique(pa.concat_arrays([_last_of_each(ordered), with_state])))
    return kept.filter(_existing(kept))


def _last_of_each(ordered: pa.Table, among: pa.ChunkedArray | None = None) -> pa.Array:
    """Return the index of the last row of each partition, among the marked rows if `among` is given."""
    numbered = ordered.select(PARTITION).append_column("row", pa.array(np.arange(ordered.num_rows)))
    rows = numbered if among is None else numbered.filter(among)
    last = rows.group_by(PARTITION, use_threads=False).aggregate(
        [("row", "last")]
    )  # "last" is ordered only without threads
    return last["row_last"].combine_chunks()


def has_vanished(partition_state: str | None, vanished: bool | None) -> bool:  # noqa: FBT001 - two columns
    """Return whether a row of the history records that the partition vanished; older rows show it by their state."""
    return partition_state == PartitionState.NON_EXISTENT if vanished is None else vanished


def _existing(rows: pa.Table) -> pa.ChunkedArray:
    """Mark rows of existing partitions; rows of older versions show it by state."""
    by_state = pc.equal(_states(rows), PartitionState.NON_EXISTENT.value)
    known = rows["vanished"] if "vanished" in rows.column_names else pa.nulls(rows.num_rows, pa.bool_())
    return pc.invert(pc.coalesce(known, by_state))


def _states(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(rows["partition_state"], "")


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
    if not depends_on_unread(plan):
        return UnreadMetadata()
    try:
        return unread_in(warehouse, find_snapshot(warehouse, plan.snapshot_id))
    except SurveyorError:  # the snapshot was dropped
        return UnreadMetadata()
