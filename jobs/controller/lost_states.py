"""Reads from the recorded history which partitions without a state znode had one before."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.context import ControllerContext
from jobs.core.arrow_rows import values_of
from jobs.repositories.snapshots import has_vanished, topics_before
from planner.rules.lost_states import PastState, is_same_topic, lost_state
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Key, Topic

_COLUMNS: Final = ("topic", "partition", "snapshot_id", "topic_version", "leader", "partition_state", "vanished")


def lost_states(warehouse: Warehouse, context: ControllerContext) -> set[Key]:
    """Return the partitions of the context without a state that had one; none if there is no history."""
    stateless = {
        key: row
        for key, row in context.partitions.items()
        if row.understood and not row.had_state and not context.is_queued(row.topic)
    }
    if not stateless or not warehouse.has("partition_history"):
        return set()
    lost: dict[Key, int | None] = {}
    for key, history in _history(warehouse, stateless).items():
        state = lost_state(history, stateless[key].topic_version or 0)
        if state is not None:
            lost[key] = state.gone
    before = {gone: topics_before(warehouse, gone) for gone in {*lost.values()} if gone is not None}
    return {
        key
        for key, gone in lost.items()
        if gone is None or _is_same(stateless[key], context.topics[key[0]], before[gone].get(key[0]))
    }


def _history(warehouse: Warehouse, keys: Iterable[Key]) -> dict[Key, list[PastState]]:
    stateless, history = {*keys}, defaultdict[Key, list[PastState]](list)
    topics = sorted({topic for topic, _ in stateless})
    table = warehouse.read("partition_history", ("topic", "in", topics), columns=_COLUMNS)
    partitions = sorted({partition for _, partition in stateless})
    rows = values_of(table.filter(pc.field("partition").isin(partitions)), *_COLUMNS)
    for topic, partition, snapshot_id, topic_version, leader, state, vanished in rows:
        if (topic, partition) in stateless:
            past = PastState(snapshot_id, topic_version, leader is not None, has_vanished(state, vanished))
            history[topic, partition].append(past)
    return history


def _is_same(row: PartitionInfo, topic: TopicInfo, then: Topic | None) -> bool:
    if then is None:
        return True
    return is_same_topic(topic.topic_id, row.topic_version or 0, then.topic_id, then.topic_version)
