"""What is due to be told of changes: a row an API and partition, with the brokers concerned.

Corresponds to `ControllerBrokerRequestBatch.addLeaderAndIsrRequestForBrokers`, which tells those named, and all live
brokers the metadata, and to `addStopReplicaRequestForBrokers`. In: CHANGES, BROKERS. Out: NOTICES. `notices` takes
partitions from elsewhere as well: those that a broker which has just joined is to hear of, or did not answer to.
`planner.broker_requests.notices` is the same rule for who commits.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import EMPTY
from planner.columns.shape import shaped
from schemas.enums import Action
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from schemas.tables import NOTICES

_RECIPIENTS: Final = {
    LEADER_AND_ISR: "leader_and_isr_to",
    UPDATE_METADATA: "update_metadata_to",
    STOP_REPLICA: "stop_replica_to",
}
"""The column that names who is told, by API."""

_NARROWS: Final = f"action <=> '{Action.NARROW_TO_TARGET}'"

_VALUES: Final = {
    "leader": "leader_after",
    "leader_epoch": "leader_epoch_after",
    "isr": "isr_after",
    # who leaves is assigned until it has stopped, and must not be taken back into the ISR meanwhile
    "replicas": f"IF({_NARROWS}, array_except(replicas_after, removing_after), replicas_after)",
    "adding_replicas": f"IF({_NARROWS}, {EMPTY}, adding_after)",
    "removing_replicas": f"IF({_NARROWS}, {EMPTY}, removing_after)",
    "leader_recovery_state": "leader_recovery_state_after",
    "state_version": "state_version + 1",  # which a write at `state_version` makes
}

_NEWCOMERS: Final = f"IF(action <=> '{Action.START_REASSIGNMENT}', adding_after, {EMPTY})"

_DECIDED: Final = "leader_epoch_after IS NOT NULL AND leader_recovery_state_after IS NOT NULL"
"""Whether a change says all of the state it makes: of others Kafka's controller decides, and tells."""


def notices_due(changes: DataFrame, brokers: DataFrame) -> DataFrame:
    """What is to be told once these changes are written: the metadata to every broker that is understood."""
    live = brokers.where("understood").agg(F.sort_array(F.collect_set("broker_id")).alias("update_metadata_to"))
    values = [f"{text} AS {name}" for name, text in _VALUES.items()]
    named = [f"array_intersect(coalesce({to}, {EMPTY}), update_metadata_to) AS {to}" for to in _named()]
    same = ("topic", "topic_id", "partition", "is_new", "update_metadata_to", f"{_NARROWS} AS delete_partition")
    rows = changes.where(_DECIDED).crossJoin(F.broadcast(live))
    return rows.selectExpr(*same, *named, *values, f"{_NEWCOMERS} AS newcomers").transform(notices)


def _named() -> list[str]:
    return [to for api, to in _RECIPIENTS.items() if api != UPDATE_METADATA]


def notices(partitions: DataFrame) -> DataFrame:
    """A row for each API that somebody is told by; in: the values of NOTICES and, for each API, who is told.

    `newcomers`, where there is that column, are told that their replicas are new, whatever `is_new` says of the others.
    """
    given = set(partitions.columns)
    new = "is_new" if "is_new" in given else "CAST(NULL AS boolean)"
    told = [f"struct('{api}' AS api, {to} AS brokers, {new} AS is_new)" for api, to in _RECIPIENTS.items()]
    if "newcomers" in given:
        to = _RECIPIENTS[LEADER_AND_ISR]
        told[0] = f"struct('{LEADER_AND_ISR}' AS api, array_except({to}, newcomers) AS brokers, {new} AS is_new)"
        told.insert(
            0, f"struct('{LEADER_AND_ISR}' AS api, array_intersect({to}, newcomers) AS brokers, true AS is_new)"
        )
    others = [name for name in partitions.columns if name != "is_new"]
    rows = partitions.selectExpr(*others, f"inline(array({', '.join(told)}))").where("size(brokers) > 0")
    stopped = f"delete_partition AND api = '{STOP_REPLICA}'"
    return rows.withColumns({"delete_partition": F.expr(stopped)}).transform(shaped, NOTICES)
