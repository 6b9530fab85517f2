"""Control requests for changes: one row for each API and partition, with the brokers to send it to.

Corresponds to `ControllerBrokerRequestBatch.addLeaderAndIsrRequestForBrokers`, which sends the state to the named
brokers and the metadata to all live brokers, and to `addStopReplicaRequestForBrokers`. In: CHANGES, BROKERS. Out:
NOTICES. `notices` also takes partitions from other sources, such as those for a broker that has just started.
`planner.broker_requests.notices` is the same rule without Spark.
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
"""By API, the column with the brokers to send it to."""

_NARROWS: Final = f"action <=> '{Action.NARROW_TO_TARGET}'"

_VALUES: Final = {
    "leader": "leader_after",
    "leader_epoch": "leader_epoch_after",
    "isr": "isr_after",
    # a leaving replica stays assigned until it has stopped, and must not rejoin the ISR in the meantime
    "replicas": f"IF({_NARROWS}, array_except(replicas_after, removing_after), replicas_after)",
    "adding_replicas": f"IF({_NARROWS}, {EMPTY}, adding_after)",
    "removing_replicas": f"IF({_NARROWS}, {EMPTY}, removing_after)",
    "leader_recovery_state": "leader_recovery_state_after",
    "state_version": "state_version + 1",  # the version after the write
}

_NEWCOMERS: Final = f"IF(action <=> '{Action.START_REASSIGNMENT}', adding_after, {EMPTY})"

_DECIDED: Final = "leader_epoch_after IS NOT NULL AND leader_recovery_state_after IS NOT NULL"
"""Whether a change contains the whole state.

Other changes are decided by Kafka's controller, which sends the requests itself.
"""


def notices_due(changes: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return the notices to send once these changes are written; metadata goes to every broker that is understood."""
    live = brokers.where("understood").agg(F.sort_array(F.collect_set("broker_id")).alias("update_metadata_to"))
    values = [f"{text} AS {name}" for name, text in _VALUES.items()]
    named = [f"array_intersect(coalesce({to}, {EMPTY}), update_metadata_to) AS {to}" for to in _recipient_columns()]
    same = ("topic", "topic_id", "partition", "is_new", "update_metadata_to", f"{_NARROWS} AS delete_partition")
    rows = changes.where(_DECIDED).crossJoin(F.broadcast(live))
    return rows.selectExpr(*same, *named, *values, f"{_NEWCOMERS} AS newcomers").transform(notices)


def _recipient_columns() -> list[str]:
    return [to for api, to in _RECIPIENTS.items() if api != UPDATE_METADATA]


def notices(partitions: DataFrame) -> DataFrame:
    """Return a row for each API and partition that has recipients.

    In: the values of NOTICES and, for each API, a column with its recipients. Brokers in the column `newcomers`, if it
    exists, are sent `is_new` as true, whatever `is_new` is for the others.
    """
    given = set(partitions.columns)
    is_new_column = "is_new" if "is_new" in given else "CAST(NULL AS boolean)"
    recipients = [
        f"struct('{api}' AS api, {to} AS brokers, {is_new_column} AS is_new)" for api, to in _RECIPIENTS.items()
    ]
    if "newcomers" in given:
        to = _RECIPIENTS[LEADER_AND_ISR]
        recipients[0] = (
            f"struct('{LEADER_AND_ISR}' AS api, array_except({to}, newcomers) AS brokers, {is_new_column} AS is_new)"
        )
        recipients.insert(
            0, f"struct('{LEADER_AND_ISR}' AS api, array_intersect({to}, newcomers) AS brokers, true AS is_new)"
        )
    others = [name for name in partitions.columns if name != "is_new"]
    rows = partitions.selectExpr(*others, f"inline(array({', '.join(recipients)}))").where("size(brokers) > 0")
    stopped = f"delete_partition AND api = '{STOP_REPLICA}'"
    return rows.withColumns({"delete_partition": F.expr(stopped)}).transform(shaped, NOTICES)
