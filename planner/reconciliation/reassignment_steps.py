"""The steps of a reassignment: one step in each cycle, derived only from the znodes.

Corresponds to `KafkaController.onPartitionReassignment`, phases A and B of KIP-455. In an example from [1,2,3] to
[3,4,5], a request first assigns the target and the former replicas together, at the next leader epoch (START). Once the
target is in sync, a replica of the target leads, and the ISR is only the target (NARROW). Once the leaving replicas
have stopped, only the target is assigned (END), and the request is withdrawn. Each step raises the leader epoch,
because leaders accept an assignment only with a later one.

Replicas that a former target added and the new one does not contain are removed like all others: they are stopped
before they are taken out of the assignment. Kafka takes them out first, and a crash in between leaves their logs
behind. A move whose target is not in sync waits here, also after a take-over; `planner.rules.reassignment` sends the
leader all replicas again. In: PARTITIONS with topic and brokers, REQUESTS, and which replicas have stopped. Out:
DECISIONS.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, IS_LED_SQL, NO_BROKERS_SQL, in_order_of_choice, with_live_brokers
from planner.columns.change_rows import leader_and_isr_recipients
from planner.columns.requested_partitions import requested_with_topics
from planner.columns.sentences import drained_leads, sentence_sql, sentences_sql
from planner.reassignment.pending_requests import REQUESTED_REPLICAS
from planner.reconciliation.decision_rows import Precedence, to_decisions
from schemas import reasons
from schemas.enums import Action, RejectionCode
from schemas.replica_assignment import IS_BEING_REASSIGNED
from schemas.tables import PARTITION_KEY

_START, _NARROW, _END = Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT

_REPLICA_COLUMNS: Final = {
    "under_way": "array_except(replicas, removing_replicas)",
    "origin": "array_except(replicas, adding_replicas)",
    "is_led": IS_LED_SQL,
}
"""`under_way`: the target of a moving partition, or all replicas of others. `origin`: the replicas before the move."""

_PROGRESS_COLUMNS: Final = {
    "is_being_reassigned": IS_BEING_REASSIGNED,
    # also a request for another order of the same replicas, and one that takes the place of what runs
    "is_asked": f"{REQUESTED_REPLICAS} IS NOT NULL AND NOT {REQUESTED_REPLICAS} <=> under_way",
    "added": f"array_except({REQUESTED_REPLICAS}, origin)",
    "not_live": f"array_except(array_except({REQUESTED_REPLICAS}, origin), eligible)",
    "lagging": "array_except(under_way, isr)",
    "outside": "array_except(isr, under_way)",
    "next_leader": f"get({in_order_of_choice('array_intersect(under_way, isr)')}, 0)",
    # a replica whose log dir failed cannot stop, and waiting for it would last until its disk is repaired
    "unstopped": f"""array_except(
        array_intersect(removing_replicas, eligible), concat(coalesce(stopped, {NO_BROKERS_SQL}), {FAILED_COLUMN})
    )""",
}

_STARTS: Final = "is_asked AND size(not_live) = 0"
"""A request with a target broker that is down waits; a move in progress continues until that broker is live."""

_ARRIVED: Final = f"is_being_reassigned AND NOT ({_STARTS}) AND size(lagging) = 0"
_NARROWED: Final = f"{_ARRIVED} AND size(outside) = 0 AND array_contains(under_way, leader)"

_INVALID: Final = f"""coalesce(
    size({REQUESTED_REPLICAS}) = 0
    OR size(array_distinct({REQUESTED_REPLICAS})) < size({REQUESTED_REPLICAS})
    OR array_min({REQUESTED_REPLICAS}) < 0, false
)"""

_UNSTOPPED: Final = f"{_NARROWED} AND size(unstopped) > 0"

_CODE_SQL: Final = f"""CASE
    WHEN replicas IS NULL AND NOT coalesce(topic_understood, true) THEN '{RejectionCode.NOT_UNDERSTOOD}'
    WHEN replicas IS NULL THEN '{RejectionCode.UNKNOWN_PARTITION}'
    WHEN {_INVALID} THEN '{RejectionCode.INVALID_TARGET}'
    WHEN deletion_requested AND NOT is_being_reassigned THEN '{RejectionCode.DELETION_REQUESTED}'
    WHEN NOT understood THEN '{RejectionCode.NOT_UNDERSTOOD}'
    WHEN {REQUESTED_REPLICAS} IS NOT NULL AND NOT is_being_reassigned AND NOT is_asked
        THEN '{RejectionCode.ALREADY_ASSIGNED}'
    WHEN is_asked AND deletion_requested THEN '{RejectionCode.DELETION_REQUESTED}'
    WHEN is_asked AND NOT is_being_reassigned AND size(not_live) > 0 THEN '{RejectionCode.TARGET_NOT_ALIVE}'
    WHEN leader IS NULL THEN '{RejectionCode.NO_STATE}'
    WHEN NOT is_led THEN '{RejectionCode.NO_LIVE_LEADER}'
    WHEN {_STARTS} THEN NULL
    WHEN size(array_except(lagging, live)) > 0 THEN '{RejectionCode.WAITS_FOR_BROKER}'
    WHEN size(lagging) > 0 THEN '{RejectionCode.WAITS_FOR_ISR}'
    WHEN NOT ({_NARROWED}) THEN IF(next_leader IS NULL, '{RejectionCode.NO_ELIGIBLE_LEADER}', NULL)
    WHEN stays AND size(unstopped) > 0 THEN '{RejectionCode.WAITS_FOR_STOP}'
END"""
"""Reason why a partition does not take its next step; null if it does."""

_ACTION: Final = f"""CASE
    WHEN code IS NOT NULL THEN NULL
    WHEN {_STARTS} THEN '{_START}'
    WHEN {_NARROWED} AND size(unstopped) = 0 THEN '{_END}'
    ELSE '{_NARROW}'
END"""

_WITHDRAWN: Final = (
    RejectionCode.UNKNOWN_PARTITION,
    RejectionCode.INVALID_TARGET,
    RejectionCode.DELETION_REQUESTED,
    RejectionCode.ALREADY_ASSIGNED,
)
"""Codes after which a request is withdrawn: it is fulfilled, or no later event can make it possible.

All other codes name what a request waits for, such as a broker that is down (`onBrokerStartup` resumes reassignments).
"""

_WHY_NOT: Final = f"""CASE code
    WHEN '{RejectionCode.UNKNOWN_PARTITION}' THEN {sentence_sql(reasons.UNKNOWN_PARTITION)}
    WHEN '{RejectionCode.INVALID_TARGET}' THEN {sentence_sql(reasons.INVALID_TARGET, requested=REQUESTED_REPLICAS)}
    WHEN '{RejectionCode.DELETION_REQUESTED}' THEN {sentence_sql(reasons.DELETION_REQUESTED)}
    WHEN '{RejectionCode.NOT_UNDERSTOOD}' THEN {sentence_sql(reasons.QUARANTINED)}
    WHEN '{RejectionCode.ALREADY_ASSIGNED}' THEN {sentence_sql(reasons.ALREADY_ASSIGNED)}
    WHEN '{RejectionCode.TARGET_NOT_ALIVE}' THEN {sentence_sql(reasons.TARGET_NOT_ALIVE, not_live="not_live")}
    WHEN '{RejectionCode.NO_STATE}' THEN {sentence_sql(reasons.NO_LEADER_YET)}
    WHEN '{RejectionCode.NO_LIVE_LEADER}' THEN {sentence_sql(reasons.NO_LIVE_LEADER)}
    WHEN '{RejectionCode.WAITS_FOR_BROKER}' THEN {
    sentence_sql(reasons.WAITS_FOR_BROKER, lagging="lagging", dead="array_except(lagging, live)")
}
    WHEN '{RejectionCode.WAITS_FOR_ISR}' THEN {sentence_sql(reasons.WAITS_FOR_ISR, lagging="lagging")}
    WHEN '{RejectionCode.NO_ELIGIBLE_LEADER}' THEN {sentence_sql(reasons.TARGET_CANNOT_LEAD)}
    WHEN '{RejectionCode.WAITS_FOR_STOP}' THEN {sentence_sql(reasons.TO_BE_STOPPED, unstopped="unstopped")}
END"""

_MERGED: Final = f"array_distinct(concat({REQUESTED_REPLICAS}, replicas))"
_LEADER: Final = "IF(array_contains(under_way, leader), leader, next_leader)"


def _by_action(otherwise: str, **cases: str) -> str:
    actions = {"start": _START, "narrow": _NARROW, "end": _END}
    whens = (f"WHEN '{actions[name]}' THEN {chosen}" for name, chosen in cases.items())
    return f"CASE action {' '.join(whens)} ELSE {otherwise} END"


_CHANGE_COLUMNS: Final = {
    "replicas_after": _by_action("replicas", start=_MERGED, end="under_way"),
    "adding_after": _by_action("adding_replicas", start="added", end=NO_BROKERS_SQL),
    "removing_after": _by_action(
        "removing_replicas", start=f"array_except(replicas, {REQUESTED_REPLICAS})", end=NO_BROKERS_SQL
    ),
    "leader_after": _by_action("leader", narrow=_LEADER),
    "isr_after": _by_action("isr", narrow="array_intersect(isr, under_way)"),
    "leader_epoch_after": "leader_epoch + 1",
    "leader_and_isr_to": _by_action(
        leader_and_isr_recipients("isr", "under_way"), start=leader_and_isr_recipients("isr", _MERGED)
    ),
    # a resident controller sends StopReplica by the znodes, until each broker has confirmed; any other controller sends
    # it with the change, and to all of them again with a later change, as a confirmation holds for one leader epoch
    "stop_replica_to": f"""CASE
        WHEN code = '{RejectionCode.WAITS_FOR_STOP}' THEN unstopped
        WHEN NOT stays AND action = '{_NARROW}' THEN array_except(
            array_intersect(removing_replicas, eligible), {FAILED_COLUMN}
        )
        ELSE {NO_BROKERS_SQL}
    END""",
    "requires_live": _by_action("array(leader)", start="array_union(array(leader), added)", narrow=f"array({_LEADER})"),
    "reason": _by_action(
        "NULL",
        start=sentences_sql(
            sentence_sql(reasons.MOVE_REQUESTED, requested=REQUESTED_REPLICAS),
            f"IF(is_being_reassigned, {sentence_sql(reasons.MOVE_REPLACED)}, NULL)",
        ),
        narrow=f"""IF({_UNSTOPPED},
            {sentence_sql(reasons.TO_BE_STOPPED, unstopped="unstopped")},
            {sentences_sql(sentence_sql(reasons.TARGET_IN_SYNC, target="under_way"), drained_leads(_LEADER))}
        )""",
        end=sentence_sql(reasons.REPLICAS_REMOVED, removing="removing_replicas"),
    ),
}


def reassignment_decisions(  # noqa: PLR0913 - a table each
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    requests: DataFrame,
    stopped: DataFrame,
    *,
    is_resident: bool = True,
) -> DataFrame:
    """Decide on partitions that are moving, and on those that a request names.

    `is_resident`: the controller waits for leaving replicas to stop, and asks them again. A controller that does not
    stay repeats the narrowing step instead, which sends StopReplica to them. `requests`: REQUESTS of that kind.
    `stopped`: topic, partition, broker_id and the leader_epoch at which a broker confirmed that it stopped the replica.
    """
    targets = requests.groupBy(*PARTITION_KEY).agg(F.first("replicas").alias(REQUESTED_REPLICAS))
    legible = topics.select("topic", F.col("understood").alias("topic_understood"))
    moving = partitions.where(IS_BEING_REASSIGNED).select(*PARTITION_KEY)
    return (
        requested_with_topics(moving.unionByName(targets.select(*PARTITION_KEY)), partitions, topics)
        .transform(with_live_brokers, brokers)
        .join(targets, PARTITION_KEY, "left")
        .join(F.broadcast(legible), "topic", "left")
        .join(_stopped_now(partitions, stopped), PARTITION_KEY, "left")
        .selectExpr("*", *_aliased(_REPLICA_COLUMNS))
        .selectExpr("*", *_aliased(_PROGRESS_COLUMNS), f"{str(is_resident).lower()} AS stays")
        .selectExpr("*", f"{_CODE_SQL} AS code")
        .selectExpr("*", f"{_ACTION} AS action", f"{_WHY_NOT} AS why_not", f"{_is_withdrawn()} AS withdrawn")
        .transform(to_decisions, _CHANGE_COLUMNS, Precedence.REASSIGNMENT, f"'{Action.REASSIGN}'")
    )


def _stopped_now(partitions: DataFrame, stopped: DataFrame) -> DataFrame:
    """Return the brokers that stopped a replica at its present leader epoch.

    A replica that stopped at an earlier leader epoch may have been started since.
    """
    return (
        stopped.join(partitions.select(*PARTITION_KEY, "leader_epoch"), [*PARTITION_KEY, "leader_epoch"])
        .groupBy(*PARTITION_KEY)
        .agg(F.collect_set("broker_id").alias("stopped"))
    )


def _aliased(columns: dict[str, str]) -> list[str]:
    return [f"{text} AS {name}" for name, text in columns.items()]


def _is_withdrawn() -> str:
    codes = ", ".join(f"'{code}'" for code in _WITHDRAWN)
    return f"{REQUESTED_REPLICAS} IS NOT NULL AND coalesce(code IN ({codes}), false)"
