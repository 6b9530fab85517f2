"""A reassignment as a controller carries it out: one step a cycle, each read off the znodes and nothing remembered.

Corresponds to `KafkaController.onPartitionReassignment`, phases A and B of KIP-455, and seed 000
"onPartitionReassignment", [1,2,3] -> [3,4,5]. A request makes the assignment target and former replicas together, at
the next leader epoch (START); once the target is in sync, it alone leads and is in the ISR (NARROW); once those that
leave have stopped, the target alone is assigned (END), and the request is done with. Each step bumps the leader epoch,
as leaders take an assignment only with a later one.

Replicas that a former target added and the new one does not want leave like all others: they are stopped before they
are forgotten, where Kafka forgets them first and a crash in between leaves their logs behind. In: PARTITIONS with
their surroundings, REQUESTS, and who has stopped. Out: DECISIONS.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import EMPTY, FAILED, drained_leads, format_ids_sql, in_order_of_choice
from planner.columns.changes import leader_and_isr_recipients
from planner.columns.requested_partitions import KEY, join_requested
from planner.reassignment.pending import ORDERED
from planner.reconciliation.decisions import Precedence, decided
from schemas.enums import Action, RejectionCode

_START, _NARROW, _END = Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT
_CODES: Final = RejectionCode

_SURROUNDED: Final = {
    "under_way": "array_except(replicas, removing_replicas)",
    "origin": "array_except(replicas, adding_replicas)",
    "is_led": "coalesce(array_contains(live, leader) AND array_contains(isr, leader), false)",
}
"""`under_way`: the target of what moves, or all replicas where nothing does; `origin`: who was there before."""

_ASKED: Final = {
    "moves": "size(adding_replicas) + size(removing_replicas) > 0",
    # also a request for another order of the same replicas, and one that takes the place of what runs
    "is_asked": f"{ORDERED} IS NOT NULL AND NOT {ORDERED} <=> under_way",
    "added": f"array_except({ORDERED}, origin)",
    "not_alive": f"array_except(array_except({ORDERED}, origin), eligible)",
    "lagging": "array_except(under_way, isr)",
    "outside": "array_except(isr, under_way)",
    "heir": f"get({in_order_of_choice('array_intersect(under_way, isr)')}, 0)",
    # whose log dir failed cannot stop, and would be waited for until somebody mends its disk
    "unstopped": f"""array_except(
        array_intersect(removing_replicas, eligible), concat(coalesce(stopped, {EMPTY}), {FAILED})
    )""",
}

_STARTS: Final = "is_asked AND size(not_alive) = 0"
"""A request whose target is down waits, and what runs goes on until the target is there."""

_ARRIVED: Final = f"moves AND NOT ({_STARTS}) AND size(lagging) = 0"
_NARROWED: Final = f"{_ARRIVED} AND size(outside) = 0 AND array_contains(under_way, leader)"

_INVALID: Final = f"""coalesce(
    size({ORDERED}) = 0 OR size(array_distinct({ORDERED})) < size({ORDERED}) OR array_min({ORDERED}) < 0, false
)"""

_UNSTOPPED: Final = f"{_NARROWED} AND size(unstopped) > 0"

_CODE: Final = f"""CASE
    WHEN replicas IS NULL AND NOT coalesce(topic_understood, true) THEN '{_CODES.NOT_UNDERSTOOD}'
    WHEN replicas IS NULL THEN '{_CODES.UNKNOWN_PARTITION}'
    WHEN {_INVALID} THEN '{_CODES.INVALID_TARGET}'
    WHEN deletion_requested AND NOT moves THEN '{_CODES.DELETION_REQUESTED}'
    WHEN NOT understood THEN '{_CODES.NOT_UNDERSTOOD}'
    WHEN {ORDERED} IS NOT NULL AND NOT moves AND NOT is_asked THEN '{_CODES.ALREADY_ASSIGNED}'
    WHEN is_asked AND deletion_requested THEN '{_CODES.DELETION_REQUESTED}'
    WHEN is_asked AND NOT moves AND size(not_alive) > 0 THEN '{_CODES.TARGET_NOT_ALIVE}'
    WHEN leader IS NULL THEN '{_CODES.NO_STATE}'
    WHEN NOT is_led THEN '{_CODES.NO_LIVE_LEADER}'
    WHEN {_STARTS} THEN NULL
    WHEN size(array_except(lagging, live)) > 0 THEN '{_CODES.WAITS_FOR_BROKER}'
    WHEN size(lagging) > 0 THEN '{_CODES.WAITS_FOR_ISR}'
    WHEN NOT ({_NARROWED}) THEN IF(heir IS NULL, '{_CODES.NO_ELIGIBLE_LEADER}', NULL)
    WHEN stays AND size(unstopped) > 0 THEN '{_CODES.WAITS_FOR_STOP}'
END"""
"""Why a partition is not moved on, null where it is."""

_ACTION: Final = f"""CASE
    WHEN code IS NOT NULL THEN NULL
    WHEN {_STARTS} THEN '{_START}'
    WHEN {_NARROWED} AND size(unstopped) = 0 THEN '{_END}'
    ELSE '{_NARROW}'
END"""

_WITHDRAWN: Final = (
    _CODES.UNKNOWN_PARTITION,
    _CODES.INVALID_TARGET,
    _CODES.DELETION_REQUESTED,
    _CODES.ALREADY_ASSIGNED,
)
"""Codes after which a request is taken away: it is carried out, or no later event can make it possible.

All others say what a request waits for, as for a broker that is down (`onBrokerStartup` resumes reassignments).
"""

_WHY_NOT: Final = f"""CASE code
    WHEN '{_CODES.UNKNOWN_PARTITION}' THEN 'no such partition'
    WHEN '{_CODES.INVALID_TARGET}' THEN concat(
        'asked to be on [', array_join(transform({ORDERED}, b -> string(b)), ', '),
        ']: expected are brokers, each once'
    )
    WHEN '{_CODES.DELETION_REQUESTED}' THEN 'its topic is queued for deletion'
    WHEN '{_CODES.NOT_UNDERSTOOD}' THEN 'its znode is in quarantine'
    WHEN '{_CODES.ALREADY_ASSIGNED}' THEN 'it is assigned as was asked for'
    WHEN '{_CODES.TARGET_NOT_ALIVE}' THEN concat(
        'not alive: ', {format_ids_sql("not_alive")}, '; the request waits for them'
    )
    WHEN '{_CODES.NO_STATE}' THEN 'it has no leader yet'
    WHEN '{_CODES.NO_LIVE_LEADER}' THEN 'nobody alive in its ISR leads it'
    WHEN '{_CODES.WAITS_FOR_BROKER}' THEN concat(
        {format_ids_sql("lagging")}, ' of the target not in the ISR yet; not alive: ',
        {format_ids_sql("array_except(lagging, live)")}
    )
    WHEN '{_CODES.WAITS_FOR_ISR}' THEN concat({format_ids_sql("lagging")}, ' of the target not in the ISR yet')
    WHEN '{_CODES.NO_ELIGIBLE_LEADER}' THEN 'nobody of the target may lead'
    WHEN '{_CODES.WAITS_FOR_STOP}' THEN concat('to be stopped: ', {format_ids_sql("unstopped")})
END"""

_MERGED: Final = f"array_distinct(concat({ORDERED}, replicas))"
_LEADER: Final = "IF(array_contains(under_way, leader), leader, heir)"


def _by_action(otherwise: str, **cases: str) -> str:
    actions = {"start": _START, "narrow": _NARROW, "end": _END}
    whens = (f"WHEN '{actions[name]}' THEN {chosen}" for name, chosen in cases.items())
    return f"CASE action {' '.join(whens)} ELSE {otherwise} END"


_CHANGED: Final = {
    "replicas_after": _by_action("replicas", start=_MERGED, end="under_way"),
    "adding_after": _by_action("adding_replicas", start="added", end=EMPTY),
    "removing_after": _by_action("removing_replicas", start=f"array_except(replicas, {ORDERED})", end=EMPTY),
    "leader_after": _by_action("leader", narrow=_LEADER),
    "isr_after": _by_action("isr", narrow="array_intersect(isr, under_way)"),
    "leader_epoch_after": "leader_epoch + 1",
    "leader_and_isr_to": _by_action(
        leader_and_isr_recipients("isr", "under_way"), start=leader_and_isr_recipients("isr", _MERGED)
    ),
    # told by what the znodes say, again and again until it answers; who does not stay tells it with the change, and
    # all of them once more with a later one, as what was answered holds for one leader epoch
    "stop_replica_to": f"""CASE
        WHEN code = '{_CODES.WAITS_FOR_STOP}' THEN unstopped
        WHEN NOT stays AND action = '{_NARROW}' THEN array_except(
            array_intersect(removing_replicas, eligible), {FAILED}
        )
        ELSE {EMPTY}
    END""",
    "requires_live": _by_action("array(leader)", start="array_union(array(leader), added)", narrow=f"array({_LEADER})"),
    "reason": _by_action(
        "NULL",
        start=f"""concat('asked to be on ', {format_ids_sql(ORDERED)}, IF(moves, ', in place of what runs', ''))""",
        narrow=f"""IF({_UNSTOPPED},
            concat('to be stopped: ', {format_ids_sql("unstopped")}),
            concat('the target is in sync: ', {format_ids_sql("under_way")}, {drained_leads(_LEADER)})
        )""",
        end=f"concat('no longer there: ', {format_ids_sql('removing_replicas')})",
    ),
}


def reassignment_decisions(  # noqa: PLR0913 - a table each
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    orders: DataFrame,
    stopped: DataFrame,
    *,
    stays: bool = True,
) -> DataFrame:
    """Decide on what moves, and on what is asked to.

    `stays`: the controller waits for those that leave to stop, and asks them again; one that does not stay narrows
    once more, by which they are told to.
    `orders`: REQUESTS of that kind; `stopped`: topic, partition, broker_id and the leader_epoch at which a broker
    said that it stopped the replica.
    """
    targets = orders.groupBy(*KEY).agg(F.first("replicas").alias(ORDERED))
    legible = topics.select("topic", F.col("understood").alias("topic_understood"))
    moving = partitions.where("size(adding_replicas) + size(removing_replicas) > 0").select(*KEY)
    return (
        join_requested(moving.unionByName(targets.select(*KEY)), partitions, topics, brokers)
        .join(targets, KEY, "left")
        .join(F.broadcast(legible), "topic", "left")
        .join(_stopped_now(partitions, stopped), KEY, "left")
        .selectExpr("*", *_named(_SURROUNDED))
        .selectExpr("*", *_named(_ASKED), f"{str(stays).lower()} AS stays")
        .selectExpr("*", f"{_CODE} AS code")
        .selectExpr("*", f"{_ACTION} AS action", f"{_WHY_NOT} AS why_not", f"{_is_withdrawn()} AS withdrawn")
        .transform(decided, _CHANGED, Precedence.REASSIGNMENT, f"'{Action.REASSIGN}'")
    )


def _stopped_now(partitions: DataFrame, stopped: DataFrame) -> DataFrame:
    """Who stopped a replica at the leader epoch it has now: an earlier one may have been started since."""
    return (
        stopped.join(partitions.select(*KEY, "leader_epoch"), [*KEY, "leader_epoch"])
        .groupBy(*KEY)
        .agg(F.collect_set("broker_id").alias("stopped"))
    )


def _named(columns: dict[str, str]) -> list[str]:
    return [f"{text} AS {name}" for name, text in columns.items()]


def _is_withdrawn() -> str:
    codes = ", ".join(f"'{code}'" for code in _WITHDRAWN)
    return f"{ORDERED} IS NOT NULL AND coalesce(code IN ({codes}), false)"
