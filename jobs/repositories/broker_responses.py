"""The latest response of each broker by API, topic and partition, stored in the table `answers`.

A new row replaces the previous one of the same key, so the table grows with the cluster and not with the number of
requests. There is one exception. If the broker reported a failed log dir for the replica under the same broker epoch,
a later response without information about the log dir (`schemas.response_codes`) does not replace that report. The
replica stays offline until a response confirms that it is available. Rows are Arrow tables, as there may be millions.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of
from schemas.enums import RequestKind
from schemas.notices import LEADER_AND_ISR
from schemas.response_codes import KAFKA_STORAGE_ERROR, LOG_DIR_ERRORS
from schemas.rows import BrokerResponseRow, Snapshot, ZnodeRequest

RESPONSE_KEY: Final = ("broker_id", "api", "topic", "partition")
"""Topic and partition are null for UpdateMetadata, which has one response for all its partitions."""

_ALL_RESPONSES: Final = ("broker_id", ">=", 0)

_NO_TURN: Final = -1
"""Turn of a key without any response about its log dir; used as an index it selects an ignored row."""

Bools = npt.NDArray[np.bool_]


_OF_LEADER_AND_ISR: Final = ("api", "=", LEADER_AND_ISR)

_SORT_KEYS: Final = [(name, "ascending") for name in ("broker_id", "topic", "partition")]


def record(warehouse: Warehouse, responses: pa.Table) -> None:
    """Store responses; they replace earlier responses with the same key."""
    if responses.num_rows:
        warehouse.transform_rows("answers", _ALL_RESPONSES, lambda stored: latest_responses(_joined(stored, responses)))


def _joined(stored: pa.Table, responses: pa.Table) -> pa.Table:
    """Append responses to the stored rows, because rows with equal times are ordered by position; align text types."""
    return pa.concat_tables([stored.select(responses.schema.names).cast(responses.schema), responses])


def latest_responses(responses: pa.Table) -> pa.Table:
    """Keep one row per key: the newest, unless it has no information about a log dir reported as failed before."""
    by_time = pc.sort_indices(responses, [("at", "ascending")]).to_numpy()  # stable for equal times
    turn = np.empty(len(by_time), dtype=np.int64)
    turn[by_time] = np.arange(len(by_time))
    log_dir_turn = np.where(_about_log_dir(responses), turn, _NO_TURN)
    turns = responses.select(RESPONSE_KEY).append_column("turn", pa.array(turn))
    turns = turns.append_column("log_dir_turn", pa.array(log_dir_turn))
    # group_by treats nulls as equal
    last = turns.group_by(RESPONSE_KEY).aggregate([("turn", "max"), ("log_dir_turn", "max")])
    newest, log_dir_turn = by_time[last["turn_max"].to_numpy()], last["log_dir_turn_max"].to_numpy()
    log_dir_row = np.where(log_dir_turn == _NO_TURN, newest, by_time[log_dir_turn])
    failed = responses["error"].to_numpy()[log_dir_row] == KAFKA_STORAGE_ERROR
    epochs = responses["broker_epoch"].to_numpy()
    kept = np.where(failed & (epochs[log_dir_row] == epochs[newest]), log_dir_row, newest)
    return responses.take(pa.array(np.sort(kept)))


def _about_log_dir(responses: pa.Table) -> Bools:
    says = pc.is_in(responses["error"], pa.array(LOG_DIR_ERRORS, responses["error"].type))
    about: Bools = pc.and_(says, pc.equal(responses["api"], LEADER_AND_ISR)).to_numpy()
    return about


def failed_replicas(warehouse: Warehouse, snapshot: Snapshot) -> list[BrokerResponseRow]:
    """Return the latest response of live brokers for each replica, if it reports a failed log dir.

    Corresponds to `ControllerContext.replicasOnOfflineDirs`. Responses under an earlier broker epoch are ignored,
    because the broker has restarted since. The table is read at its current version, not at the snapshot's version; a
    plan records its assumptions in its rows.
    """
    topics = warehouse.read("answers", _OF_LEADER_AND_ISR, ("error", "=", KAFKA_STORAGE_ERROR), columns=["topic"])[
        "topic"
    ].unique()
    if not topics:  # the usual case, for which nothing else is read
        return []
    epochs = {row.broker_id: row.broker_epoch for row in live_brokers_as_of(warehouse, snapshot)}
    # a table of an older version also contains earlier responses, until the next commit writes to it
    responses = latest_responses(warehouse.read("answers", _OF_LEADER_AND_ISR, ("topic", "in", topics.to_pylist())))
    failed = decode_rows(
        BrokerResponseRow, responses.filter(pc.field("error") == KAFKA_STORAGE_ERROR).sort_by(_SORT_KEYS)
    )
    return [row for row in failed if row.broker_epoch == epochs.get(row.broker_id)]


def event_lines(warehouse: Warehouse, snapshot: Snapshot) -> Iterator[str]:
    """Return a line for each broker that reported a failed log dir which no controller has handled yet."""
    events = rows_as_of(warehouse, snapshot, ZnodeRequest, ("kind", "=", RequestKind.LOG_DIR.value))
    for broker in sorted({row.broker_id for row in events if row.broker_id is not None}):
        yield (
            f"broker {broker} reports a failed log dir, and no controller has asked it yet which replicas are "
            "affected; planned leaders may be among them, so take a snapshot and plan again after that"
        )
