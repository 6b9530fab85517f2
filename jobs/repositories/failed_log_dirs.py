"""Replicas with a failed log dir, according to the latest LeaderAndIsr response of live brokers.

Corresponds to `ControllerContext.replicasOnOfflineDirs`. `schemas.response_codes` defines which responses mark a
replica as offline. Responses under an earlier broker epoch are ignored, because the broker has restarted since. The
table `answers` is read at its current version, not at that of the snapshot; a plan records its assumptions in its rows.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse, typed
from jobs.repositories.broker_responses import latest_responses
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of
from schemas.enums import RequestKind
from schemas.notices import LEADER_AND_ISR
from schemas.response_codes import KAFKA_STORAGE_ERROR
from schemas.rows import BrokerResponseRow, Snapshot, ZnodeRequest

_OF_LEADER_AND_ISR: Final = ("api", "=", LEADER_AND_ISR)
_SORT_KEYS: Final = [(name, "ascending") for name in ("broker_id", "topic", "partition")]


def failed_replicas(warehouse: Warehouse, snapshot: Snapshot) -> list[BrokerResponseRow]:
    """Return the latest response of live brokers for each replica, where it reports a failed log dir."""
    topics = warehouse.read("answers", _OF_LEADER_AND_ISR, ("error", "=", KAFKA_STORAGE_ERROR), columns=["topic"])[
        "topic"
    ].unique()
    if not topics:  # the usual case, for which nothing else is read
        return []
    epochs = {row.broker_id: row.broker_epoch for row in live_brokers_as_of(warehouse, snapshot)}
    # a table of an older version also contains earlier responses, until the next commit writes to it
    responses = latest_responses(warehouse.read("answers", _OF_LEADER_AND_ISR, ("topic", "in", topics.to_pylist())))
    failed = typed(BrokerResponseRow, responses.filter(pc.field("error") == KAFKA_STORAGE_ERROR).sort_by(_SORT_KEYS))
    return [row for row in failed if row.broker_epoch == epochs.get(row.broker_id)]


def event_lines(warehouse: Warehouse, snapshot: Snapshot) -> Iterator[str]:
    """Return a line for each broker that reported a failed log dir which no controller has handled yet."""
    events = rows_as_of(warehouse, snapshot, ZnodeRequest, ("kind", "=", RequestKind.LOG_DIR.value))
    for broker in sorted({row.broker_id for row in events if row.broker_id is not None}):
        yield (
            f"broker {broker} reports a failed log dir, and no controller has asked it yet which replicas are "
            "affected; planned leaders may be among them, so take a snapshot and plan again after that"
        )
