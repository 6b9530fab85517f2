"""The last word of each broker, by API, topic and partition: what `answers` holds, and how it is kept so.

A row takes the place of the one before it, so that the table grows with the cluster, not with what was ever told.
Silence is no word where the broker said before, under the same registration, that the log dir of the replica failed
(`schemas.response_codes`): a replica stays offline until it is heard to be there. In and out: rows of `answers`, in
Arrow, as there may be millions.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from schemas.notices import LEADER_AND_ISR
from schemas.response_codes import KAFKA_STORAGE_ERROR, LOG_DIR_ERRORS

KEY: Final = ("broker_id", "api", "topic", "partition")
"""Topic and partition are null of an UpdateMetadata, which is answered once for all of its partitions."""

_EVERY_ANSWER: Final = ("broker_id", ">=", 0)

_NEVER: Final = -1
"""Turn of what was never heard; as an index it is the last row, which nobody looks at then."""

Bools = npt.NDArray[np.bool_]


def record(lake: Warehouse, answers: pa.Table) -> None:
    """Put answers in the place of those that the same brokers gave before about the same."""
    if answers.num_rows:
        lake.transform_rows("answers", _EVERY_ANSWER, lambda stored: latest_responses(_joined(stored, answers)))


def _joined(stored: pa.Table, answers: pa.Table) -> pa.Table:
    """Stored rows first, as those of equal times are told apart by their order; Delta stores text in other types."""
    return pa.concat_tables([stored.select(answers.schema.names).cast(answers.schema), answers])


def latest_responses(answers: pa.Table) -> pa.Table:
    """Keep one row a key: the newest, but for what says nothing after a failed log dir."""
    by_time = pc.sort_indices(answers, [("at", "ascending")]).to_numpy()  # equal times stay in their order
    turn = np.empty(len(by_time), dtype=np.int64)
    turn[by_time] = np.arange(len(by_time))
    heard = np.where(_about_log_dir(answers), turn, _NEVER)
    turns = answers.select(KEY).append_column("turn", pa.array(turn)).append_column("heard", pa.array(heard))
    last = turns.group_by(KEY).aggregate([("turn", "max"), ("heard", "max")])  # to groups, nulls are equal
    newest, heard = by_time[last["turn_max"].to_numpy()], last["heard_max"].to_numpy()
    word = np.where(heard == _NEVER, newest, by_time[heard])
    failed = answers["error"].to_numpy()[word] == KAFKA_STORAGE_ERROR
    epochs = answers["broker_epoch"].to_numpy()
    kept = np.where(failed & (epochs[word] == epochs[newest]), word, newest)
    return answers.take(pa.array(np.sort(kept)))


def _about_log_dir(answers: pa.Table) -> Bools:
    says = pc.is_in(answers["error"], pa.array(LOG_DIR_ERRORS, answers["error"].type))
    about: Bools = pc.and_(says, pc.equal(answers["api"], LEADER_AND_ISR)).to_numpy()
    return about
