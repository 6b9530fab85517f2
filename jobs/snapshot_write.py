"""The writing half of a snapshot: what was read against the last complete snapshot, and only the difference written.

The history comes before the table that it explains, so a crash in between is seen by the next snapshot: rows of an
id that was never completed.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta import Tables
from jobs.adapters.lake import Row
from jobs.phases import Phases
from jobs.settings import Settings
from jobs.snapshot_read import Reading
from jobs.snapshots import SnapshotTables
from planner.derived import derive_partitions
from planner.events import (
    as_events,
    broker_events,
    controller_events,
    partition_events,
    request_events,
    resized_topics,
    topic_events,
)
from planner.imbalance import imbalance
from planner.shape import shaped
from planner.survey import KEY, changed_keys, difference, keep_last_understood, stamped
from schemas.names import PartitionState, RequestKind
from schemas.tables import PARTITIONS, TOPICS

VANISHED = f"partition_state = '{PartitionState.NON_EXISTENT}'"

BROADCAST = 500_000
"""Changed partitions up to which their keys are sent to every executor rather than all rows sorted."""


@dataclass(frozen=True, slots=True)
class Change:
    """What changed since a snapshot: the rows to write, and the same partitions then and now."""

    rows: DataFrame
    before: DataFrame
    now: DataFrame


@dataclass(frozen=True, slots=True)
class Writer:
    """One snapshot being written."""

    settings: Settings
    tables: Tables
    reading: Reading
    last: Row | None
    snapshot_id: int
    phases: Phases

    @property
    def mine(self) -> str:
        return f"snapshot_id = {self.snapshot_id}"

    def write(self) -> dict[str, int]:
        """Write every table but `snapshots`; return the counts."""
        with self.phases.of("difference", "comparing with the last snapshot"):
            topics = self.topics().localCheckpoint()
            partitions = self.partitions(topics).localCheckpoint()
            change = self.change(partitions)
        with self.phases.of("write", "writing"):
            self.write_small()
            self.write_topics(topics)
            self.write_partitions(partitions, change)
            self.write_imbalance(partitions, topics)
            self.write_events(partitions, change)
        return {
            "brokers": len(self.reading.state.brokers),
            "topics": topics.count(),
            "partitions": partitions.count(),
            "quarantined": len(self.reading.state.quarantine) + len(self.reading.quarantine),
        }

    def topics(self) -> DataFrame:
        queued = [row for row in self.reading.state.requests if row["kind"] == RequestKind.DELETE_TOPIC]
        deleting = self.tables.frame("requests", queued).select("topic", F.lit(True).alias("queued"))  # noqa: FBT003
        return (
            self.reading.of("topic")
            .join(F.broadcast(deleting), "topic", "left")
            .withColumns(
                {
                    "cluster": F.lit(self.tables.lake.cluster),
                    "snapshot_id": F.lit(self.snapshot_id).cast("bigint"),
                    "deletion_requested": F.coalesce("queued", F.lit(False)),  # noqa: FBT003
                },
            )
            .transform(shaped, TOPICS)
        )

    def partitions(self, topics: DataFrame) -> DataFrame:
        """All partitions as they are now, those not understood as they last were."""
        tables, reading = self.tables, self.reading
        found = reading.of("partition").withColumns({"cluster": F.lit(tables.lake.cluster)})
        if reading.quarantine:
            found = found.transform(shaped, PARTITIONS).transform(keep_last_understood, topics, self.before())
        brokers = tables.frame("brokers", reading.state.brokers)
        configs = tables.frame("broker_configs", reading.broker_configs)
        return found.transform(shaped, PARTITIONS).transform(derive_partitions, topics, brokers, configs)

    def before(self) -> DataFrame:
        """The partitions of the last complete snapshot."""
        if self.last is None:
            return self.tables.frame("partitions", [])
        return SnapshotTables(self.tables, self.last)["partitions"]

    def change(self, partitions: DataFrame) -> Change | None:
        """What differs from the last complete snapshot, None for nothing or before there was one."""
        return None if self.last is None else self.changed_since(self.before(), partitions)

    def changed_since(self, before: DataFrame, partitions: DataFrame) -> Change | None:
        keys = changed_keys(partitions, before).localCheckpoint()
        count = keys.count()
        if not count:
            return None
        few = F.broadcast(keys) if count <= BROADCAST else keys
        was, is_now = (rows.join(few, KEY, "left_semi").localCheckpoint() for rows in (before, partitions))
        return Change(difference(is_now, was, self.snapshot_id).localCheckpoint(), was, is_now)

    def write_small(self) -> None:
        state = self.reading.state
        quarantine = [*state.quarantine, *self.reading.quarantine]
        for name, rows in (
            ("brokers", state.brokers),
            ("broker_configs", self.reading.broker_configs),
            ("requests", state.requests),
            ("quarantine", quarantine),
        ):
            self.tables.lake.replace(name, [{**row, "snapshot_id": self.snapshot_id} for row in rows])

    def write_topics(self, topics: DataFrame) -> None:
        if self.last is None or topics_differ(SnapshotTables(self.tables, self.last)["topics"], topics):
            self.tables.replace("topics", topics)

    def write_partitions(self, partitions: DataFrame, change: Change | None) -> None:
        """Write the difference to the history, then to the table."""
        tables = self.tables
        crashed = self.has_leftovers()
        if self.last is None:
            every = partitions.transform(stamped, self.snapshot_id)
            tables.replace("partition_history", every, self.mine)
            tables.replace("partitions", every)
            return
        if change or crashed:
            rows = change.rows if change else tables.frame("partitions", [])
            tables.replace("partition_history", rows, f"snapshot_id >= {self.snapshot_id}")
        if crashed:  # the table may be ahead of the last complete snapshot
            change = self.changed_since(tables.read("partitions"), partitions)
        if change:
            tables.merge("partitions", change.rows, KEY, VANISHED)

    def has_leftovers(self) -> bool:
        """Tell whether a snapshot that was never completed wrote anything."""
        unfinished = ("snapshot_id", ">=", self.snapshot_id)
        return bool(self.tables.lake.read("partition_history", unfinished, columns=["snapshot_id"]).num_rows)

    def write_imbalance(self, partitions: DataFrame, topics: DataFrame) -> None:
        skew = imbalance(partitions, topics, self.snapshot_id, self.settings.conf.imbalance_threshold)
        self.tables.lake.replace("imbalance", [row.asDict() for row in skew.collect()], self.mine)

    def write_events(self, partitions: DataFrame, change: Change | None) -> None:
        """Write what happened since the last complete snapshot."""
        if self.last is None:
            return
        tables, state, was = self.tables, self.reading.state, SnapshotTables(self.tables, self.last)
        control = {"controller_id": state.controller.broker_id, "controller_epoch": state.epoch}
        found = [
            broker_events(was["brokers"], tables.frame("brokers", state.brokers)),
            request_events(was["requests"], tables.frame("requests", state.requests)),
            controller_events(tables.frame("snapshots", [self.last]), tables.frame("snapshots", [control])),
        ]
        if change:
            resized = F.broadcast(resized_topics(change.before, change.now))
            sides = (rows.join(resized, "topic", "left_semi") for rows in (self.before(), partitions))
            found += [topic_events(*sides), partition_events(change.before, change.now)]
        self.tables.replace("events", as_events(found, self.snapshot_id), self.mine)


def topics_differ(before: DataFrame, now: DataFrame) -> bool:
    """Tell whether any topic's row is not what it was, but for the snapshot that wrote it."""
    compared = [
        F.to_json(F.sort_array(F.map_entries("config"))) if name == "config" else F.col(name)
        for name in TOPICS.names
        if name != "snapshot_id"
    ]
    was, is_now = (rows.select(*compared) for rows in (before, now))
    return not (is_now.exceptAll(was).isEmpty() and was.exceptAll(is_now).isEmpty())
