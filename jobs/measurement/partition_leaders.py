"""The leader of each partition, as arrays: from the newest snapshot, which takes a second for a million partitions.

To read a million partitions from the cluster takes as long as a snapshot, so only those that a sample finds elsewhere
are looked up there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict

from jobs.adapters.brokers.partition_offsets import NO_OFFSET, Partitions, partition_keys, positions_in
from jobs.adapters.brokers.topic_entries import Array
from jobs.adapters.clusters.interface import Cluster, TopicReading
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.measurement.due_hours import SAMPLES
from jobs.repositories.snapshots import last_snapshot, table_as_of
from schemas.enums import NO_LEADER
from schemas.rows import Snapshot
from schemas.topic_configs import TIERED

_PARTITION_COLUMNS: Final = ("topic", "partition", "leader", "leader_epoch")
_TOPIC_COLUMNS: Final = ("topic", "topic_id", "config")

_ANY_EPOCH: Final = -1

OTHER_TOPIC: Final = np.iinfo(np.int64).max
"""An offset that no log reaches."""


@dataclass(frozen=True)  # no slots, as cached_property needs a __dict__
class Leaders:
    """Partitions with their leaders, NO_LEADER if there is none, sorted by topic and partition."""

    names: pa.Array
    """Topics by code, as bytes, sorted."""
    topic_ids: pa.Array
    """Topic ids by code, null if unknown."""
    is_tiered: Array
    """Whether topics have tiered storage, by code."""
    partitions: Partitions
    leader: Array
    leader_epoch: Array
    snapshot: Snapshot | None = None
    """The snapshot that has them."""

    @classmethod
    def of(cls, topics: pa.Table, partitions: pa.Table, snapshot: Snapshot | None = None) -> "Leaders":
        """Make arrays of some columns of TOPICS and PARTITIONS."""
        encoded = partitions["topic"].cast(pa.string()).combine_chunks().dictionary_encode()
        names = encoded.dictionary
        order = pc.sort_indices(names).to_numpy()
        code_of = np.empty(len(names), np.int64)
        code_of[order] = np.arange(len(names))
        topic = code_of[encoded.indices.to_numpy()]
        number = partitions["partition"].to_numpy()
        by_key = np.argsort(partition_keys(topic, number), kind="stable")  # quick where rows are in order
        sorted_names = names.take(pa.array(order))
        described = topics.take(pc.index_in(sorted_names, topics["topic"].cast(pa.string()).combine_chunks()))
        tiered = pc.equal(pc.map_lookup(described["config"].combine_chunks(), TIERED, "first"), "true")
        return cls(
            names=sorted_names.cast(pa.binary()),
            topic_ids=described["topic_id"].combine_chunks(),
            is_tiered=pc.fill_null(tiered, False).to_numpy(zero_copy_only=False),  # noqa: FBT003 - Arrow's
            partitions=Partitions(topic[by_key], number[by_key]),
            leader=_filled(partitions["leader"], NO_LEADER)[by_key],
            leader_epoch=_filled(partitions["leader_epoch"], _ANY_EPOCH)[by_key],
            snapshot=snapshot,
        )

    @cached_property
    def partition_counts(self) -> Array:
        """Partitions of each topic by code, up to its last one; 0 for the code -1 of an unknown topic."""
        counts = np.zeros(len(self.names) + 1, np.int64)
        np.maximum.at(counts, self.partitions.topic, self.partitions.partition.astype(np.int64) + 1)
        return counts

    @cached_property
    def _first_slots(self) -> Array:
        """The slot of partition 0 of each topic by code, if each topic has as many as partitions."""
        return np.cumsum(self.partition_counts) - self.partition_counts

    @cached_property
    def _row_of_slot(self) -> Array:
        """The position of the partition of each slot, -1 if there is none; one slot more without a partition."""
        rows = np.full(self.partition_counts.sum() + 1, -1)
        rows[self._first_slots[self.partitions.topic] + self.partitions.partition] = np.arange(len(self.leader))
        return rows

    def codes_of(self, names: pa.Array) -> Array:
        """Return the codes of topics, -1 for unknown ones."""
        return positions_in(self.names, names)

    def ids_of(self, names: pa.Array) -> pa.Array:
        """Return the ids of topics, null for unknown ones."""
        return self.topic_ids.take(pc.index_in(names, self.names))

    def rows_of(self, topic: Array, partition: Array) -> Array:
        """Return the positions of partitions, given by codes and numbers, -1 for unknown ones."""
        is_known = partition < self.partition_counts[topic]
        return self._row_of_slot[np.where(is_known, self._first_slots[topic] + partition, -1)]

    def led_by(self, broker_id: int) -> Array:
        """Return the positions of a broker's partitions."""
        return np.flatnonzero(self.leader == broker_id)

    def among(self, marked: Array) -> "Leaders":
        """Return only the marked partitions, with the same codes."""
        partitions = Partitions(self.partitions.topic[marked], self.partitions.partition[marked])
        leader, leader_epoch = self.leader[marked], self.leader_epoch[marked]
        return replace(self, partitions=partitions, leader=leader, leader_epoch=leader_epoch)


def _filled(column: pa.ChunkedArray, value: int) -> Array:
    numbers: Array = pc.fill_null(column, value).to_numpy()
    return numbers


def read_leaders(warehouse: Warehouse, cluster: Cluster) -> Leaders:
    """Return the leaders in the newest snapshot; those of the cluster itself if there is none."""
    snapshot = last_snapshot(warehouse) if warehouse.exists() else None
    if snapshot is not None:
        partitions, topics = (
            table_as_of(warehouse, snapshot, table, columns=columns)
            for table, columns in (("partitions", _PARTITION_COLUMNS), ("topics", _TOPIC_COLUMNS))
        )
        return Leaders.of(topics, partitions, snapshot)
    rows = list(cluster.read_rows())
    return Leaders.of(
        pa.concat_tables(part.topics.select(_TOPIC_COLUMNS) for part in rows),
        pa.concat_tables(part.partitions.select(_PARTITION_COLUMNS) for part in rows),
    )


def least_ends(warehouse: Warehouse, leaders: Leaders) -> Array:
    """Return where the log of each partition ends at least, as the newest sample has it; NO_OFFSET if it has none.

    A log that ends before is that of another topic. So is each log, at OTHER_TOPIC, if the sample has another topic id.
    """
    ends = np.full(len(leaders.leader), NO_OFFSET, np.int64)
    newest = warehouse.latest(SAMPLES, "stored_at") if warehouse.has(SAMPLES) else None
    if newest is None:
        return ends
    columns = ["topic", "topic_id", "partition", "log_end"]
    rows = warehouse.read(SAMPLES, ("stored_at", ">=", newest), columns=columns)
    topics = rows["topic"].cast(pa.binary()).combine_chunks().dictionary_encode()
    codes = leaders.codes_of(topics.dictionary)
    row = leaders.rows_of(codes[topics.indices.to_numpy()], rows["partition"].to_numpy())
    known = np.flatnonzero(row >= 0)
    at = row[known]
    ids = rows["topic_id"].cast(pa.string()).combine_chunks().take(pa.array(known))
    is_other = pc.not_equal(ids, leaders.topic_ids.cast(pa.string()).take(pa.array(leaders.partitions.topic[at])))
    ends[at] = np.where(
        pc.fill_null(is_other, False).to_numpy(zero_copy_only=False),  # noqa: FBT003 - Arrow's
        OTHER_TOPIC,
        _filled(rows["log_end"], NO_OFFSET)[known],
    )
    return ends


def current_leaders(cluster: Cluster, topics: Iterable[bytes]) -> Leaders:
    """Read the leaders of all partitions of some topics from the cluster; a topic that does not exist is left out."""
    names = sorted(name.decode() for name in topics)
    reading = cluster.read_topics(names) if names else TopicReading((), ())
    topics, partitions = (
        pa.Table.from_pylist([asdict(row) for row in rows], schema=schema_of(table, *columns))
        for table, columns, rows in (
            ("topics", _TOPIC_COLUMNS, reading.topics),
            ("partitions", _PARTITION_COLUMNS, reading.partitions),
        )
    )
    return Leaders.of(topics, partitions)
