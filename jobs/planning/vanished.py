"""Which partitions have lost their state znode: looked up in history, for those without one alone."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.lake import Row
from jobs.basics.errors import UnreadableError
from jobs.records.snapshots import SnapshotTables, as_of
from planner.leadership.vanished import last_known, of_the_same_topic


def vanished_states(at: SnapshotTables, stateless: DataFrame) -> DataFrame:
    """What was last known of those of these partitions that had a state before, under the same topic."""
    until = F.col("snapshot_id") <= at.snapshot["snapshot_id"]
    known = last_known(stateless, at.tables.read("partition_history").where(until)).localCheckpoint()
    turns = sorted(row["gone"] for row in known.select("gone").distinct().collect() if row["gone"] is not None)
    rows = [row for turn in turns for row in _ids_before(at, turn)]
    ids = at.tables.spark.createDataFrame(
        [(row["topic"], row["gone"], row["topic_id"]) for row in rows], "topic string, gone bigint, id_then string"
    )
    return of_the_same_topic(known, ids).localCheckpoint()


def _ids_before(at: SnapshotTables, turn: int) -> list[Row]:
    """The ids of topics in the last snapshot before that one, as far as it is still there."""
    lake = at.tables.lake
    before = lake.read("snapshots", ("snapshot_id", "<", turn), columns=["snapshot_id"])["snapshot_id"].to_pylist()
    if not before:
        return []
    (snapshot,) = lake.rows("snapshots", ("snapshot_id", "=", max(before)))
    try:
        topics = as_of(lake, snapshot, "topics")
    except UnreadableError:
        return []
    return [{"topic": row["topic"], "topic_id": row["topic_id"], "gone": turn} for row in topics]
