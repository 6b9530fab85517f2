"""The latest response of each broker by API, topic and partition, stored in the table `answers`.

A new row replaces the previous one of the same key, so the table grows with the cluster and not with the number of
requests. There is one exception. If the broker reported a failed log dir for the replica under the same broker epoch,
a later response that says nothing about the log dir (`schemas.response_codes`) does not replace that report. The
replica stays offline until a response confirms that it is available. Rows are Arrow tables, as there may be millions.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from schemas.notices import LEADER_AND_ISR
from schemas.response_codes import KAFKA_STORAGE_ERROR, LOG_DIR_ERRORS

RESPONSE_KEY: Final = ("broker_id", "api", "topic", "partition")
"""Topic and partition are null for UpdateMetadata, which has one response for all its partitions."""

_ALL_RESPONSES: Final = ("broker_id", ">=", 0)

_NO_TURN: Final = -1
"""Turn of a key without any response about its log dir; used as an index it selects an ignored row."""

Bools = npt.NDArray[np.bool_]


def record(warehouse: Warehouse, responses: pa.Table) -> None:
    """Store responses; they replace earlier responses with the same key."""
    if responses.num_rows:
        warehouse.transform_rows("answers", _ALL_RESPONSES, lambda stored: latest_responses(_joined(stored, responses)))


def _joined(stored: pa.Table, responses: pa.Table) -> pa.Table:
    """Append responses to the stored rows, because rows with equal times are ordered by position; align text types."""
    return pa.concat_tables([stored.select(responses.schema.names).cast(responses.schema), responses])


def latest_responses(responses: pa.Table) -> pa.Table:
    """Keep one row per key: the newest, unless it says nothing about a log dir reported as failed before."""
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
