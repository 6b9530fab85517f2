"""Reassignments step by step: an example, and every reason for which one does not continue."""

from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from planner.columns.broker_sets import FAILED_COLUMN
from schemas.enums import Action, DrainMode, RejectionCode, RequestKind
from schemas.rows import Row
from tests.planner.frames import partition_row, topic_row
from tests.planner.reconciliation.cycles import carried_out, cycle_of, decisions, request_row, stopped_row

LIVE: Final = {1, 2, 3, 4, 5, 6}
START, NARROW, END = Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT
CODES = RejectionCode


def ordered(*replicas: int, partition: int = 0, topic: str = "t") -> Row:
    return request_row(RequestKind.REASSIGN, topic, partition, replicas=list(replicas))


def moving(replicas: list[int], adding: list[int], removing: list[int], leader: int, isr: list[int]) -> Row:
    return partition_row(replicas, leader, isr, adding_replicas=adding, removing_replicas=removing)


def after(row: Row) -> tuple[Any, ...]:
    names = ("action", "replicas_after", "adding_after", "removing_after", "leader_after", "isr_after")
    return tuple(row[name] for name in names)


def assert_decided(row: Row, **expected: Any) -> None:  # noqa: ANN401 - columns
    assert {name: row[name] for name in expected} == expected


def test_reassignment_step_by_step(spark: SparkSession) -> None:
    """[1,2,3] -> [3,4,5]: assigned together, in sync, led and in sync by the target alone, stopped, assigned alone."""
    order = [ordered(3, 4, 5)]
    partition = partition_row([1, 2, 3], 1, [1, 2, 3])

    (start,) = decisions(cycle_of(spark, [partition], LIVE, order))
    assert after(start) == (START, [3, 4, 5, 1, 2], [4, 5], [1, 2], 1, [1, 2, 3])
    assert_decided(start | {"requires_live": {*start["requires_live"]}}, leader_epoch_after=6, requires_live={1, 4, 5})
    assert start["leader_and_isr_to"] == [3, 4, 5, 1, 2]

    partition = carried_out(partition, start)
    (waits,) = decisions(cycle_of(spark, [partition], LIVE, order))
    assert_decided(waits, action=None, code=CODES.WAITS_FOR_ISR, withdrawn=False)
    assert waits["why_not"].startswith("4, 5")

    (narrow,) = decisions(cycle_of(spark, [partition | {"isr": [1, 2, 3, 5, 4]}], LIVE, order))
    assert after(narrow) == (NARROW, [3, 4, 5, 1, 2], [4, 5], [1, 2], 3, [3, 5, 4])
    assert_decided(narrow, leader_epoch_after=7, leader_and_isr_to=[3, 4, 5])

    partition = carried_out(partition, narrow)
    (waits,) = decisions(cycle_of(spark, [partition], LIVE, order))
    assert_decided(waits, code=CODES.WAITS_FOR_STOP, stop_replica_to=[1, 2])

    stopped = [stopped_row(0, 1, 7), stopped_row(0, 2, 7)]
    (end,) = decisions(cycle_of(spark, [partition], LIVE, order, stopped=stopped))
    assert after(end) == (END, [3, 4, 5], [], [], 3, [3, 5, 4])
    assert_decided(end, leader_epoch_after=8, leader_and_isr_to=[3, 4, 5])

    partition = carried_out(partition, end)
    (done,) = decisions(cycle_of(spark, [partition], LIVE, order))
    assert_decided(done, action=None, code=CODES.ALREADY_ASSIGNED, withdrawn=True)
    assert decisions(cycle_of(spark, [partition], LIVE)) == []


TOPICS: Final = [topic_row(), topic_row("gone", deletion_requested=True), topic_row("opaque", understood=False)]

# what is found, what is asked for -> replicas, adding, removing; every case is a partition of one cluster
STARTS: Final[dict[str, tuple[Row, list[int], tuple[list[int], list[int], list[int]]]]] = {
    "only the order": (partition_row([1, 2, 3], 1, [1, 2, 3]), [3, 1, 2], ([3, 1, 2], [], [])),
    "fewer": (partition_row([1, 2, 3], 1, [1, 2, 3]), [1, 2], ([1, 2, 3], [], [3])),
    "more": (partition_row([1], 1, [1]), [1, 2], ([1, 2], [2], [])),
    "replacing a reassignment in progress": (
        moving([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3], 1, [1, 2, 3, 4]),
        [5, 2],
        ([5, 2, 4, 6, 1, 3], [5], [4, 6, 1, 3]),
    ),
    "called back": (
        moving([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3], 1, [1, 2, 3, 4]),
        [1, 2, 3],
        ([1, 2, 3, 4, 5, 6], [], [4, 5, 6]),
    ),
    "a dead broker leaves": (partition_row([1, 9], 1, [1]), [1, 2], ([1, 2, 9], [2], [9])),
    "a dead one stays": (partition_row([1, 9], 1, [1]), [1, 9, 2], ([1, 9, 2], [2], [])),
}

# -> the code, and whether the request is withdrawn
NOT_MOVED: Final[dict[str, tuple[Row | None, list[int], RejectionCode, bool]]] = {
    "a dead broker": (partition_row([1, 2], 1, [1, 2]), [9, 1], CODES.TARGET_NOT_ALIVE, False),
    "a dead broker replacing a reassignment in progress, which continues": (
        moving([4, 1, 2], [4], [2], 1, [1, 2]),
        [9, 1],
        CODES.WAITS_FOR_ISR,
        False,
    ),
    "a topic that is not understood": (None, [3, 4], CODES.NOT_UNDERSTOOD, False),
    "a broker twice": (partition_row([1, 2], 1, [1, 2]), [3, 3], CODES.INVALID_TARGET, True),
    "no broker": (moving([9, 2, 1], [9, 2], [1], 1, [1, 2]), [], CODES.INVALID_TARGET, True),
    "a negative broker": (partition_row([1, 2], 1, [1, 2]), [-1, 2], CODES.INVALID_TARGET, True),
    "as it is": (partition_row([1, 2], 1, [1, 2]), [1, 2], CODES.ALREADY_ASSIGNED, True),
    "being deleted": (partition_row([1, 2], 1, [1, 2], topic="gone"), [3, 4], CODES.DELETION_REQUESTED, True),
    "no such partition": (None, [3, 4], CODES.UNKNOWN_PARTITION, True),
    "no state": (partition_row([9], None, None), [2, 3], CODES.NO_STATE, False),
    "no leader": (partition_row([9, 1], -1, [9]), [2, 3], CODES.NO_LIVE_LEADER, False),
    "a target died": (moving([9, 2, 1], [9, 2], [1], 1, [1, 2]), [9, 2], CODES.WAITS_FOR_BROKER, False),
    "not understood": (partition_row([1, 2], 1, [1, 2], understood=False), [2, 3], CODES.NOT_UNDERSTOOD, False),
}


def test_requests_start_wait_or_are_withdrawn(spark: SparkSession) -> None:
    names = [*STARTS, *NOT_MOVED]
    given: list[Row | None] = [*(case[0] for case in STARTS.values()), *(case[0] for case in NOT_MOVED.values())]
    goals = [*(case[1] for case in STARTS.values()), *(case[1] for case in NOT_MOVED.values())]
    rows = [row and row | {"partition": number} for number, row in enumerate(given)]
    topics = ["t" if row is None else row["topic"] for row in rows]
    topics[names.index("a topic that is not understood")] = "opaque"
    orders = [ordered(*goal, partition=number, topic=topics[number]) for number, goal in enumerate(goals)]

    cycle = cycle_of(spark, [row for row in rows if row], LIVE, orders, topics=TOPICS)

    decided = {row["partition"]: row for row in decisions(cycle) if row["wanted"] == Action.REASSIGN}
    for name, (partition, _, expected) in STARTS.items():
        row = decided[names.index(name)]
        assert (name, after(row)[:4]) == (name, (START, *expected))
        kept = (row["leader_after"], row["isr_after"], row["leader_epoch_after"])
        assert (name, kept) == (name, (partition["leader"], partition["isr"], 6))
    for name, (_, _, code, withdrawn) in NOT_MOVED.items():
        row = decided[names.index(name)]
        assert (name, row["action"], row["code"], row["withdrawn"]) == (name, None, code, withdrawn)


def test_moves_continue_as_brokers_and_log_dirs_permit(spark: SparkSession) -> None:
    partitions = {
        "a target that came back": moving([9, 2, 1], [9, 2], [1], 1, [1, 2, 9]),
        "a dead member leaves first": moving([3, 4, 1, 8], [3, 4], [1, 8], 1, [1, 8, 3, 4]),
        "stopped at an older epoch": moving([3, 4, 1, 8], [3, 4], [1, 8], 3, [3, 4]),
        "a dead broker need not be stopped": moving([3, 4, 1, 8], [3, 4], [1, 8], 3, [3, 4]),
        "whose log dir failed leaves first": moving([3, 4, 1], [3, 4], [1], 1, [1, 3, 4]),
        "whose log dir failed need not be stopped": moving([3, 4, 1, 8], [3, 4], [1, 8], 3, [3, 4]),
    }
    rows = [row | {"partition": number, FAILED_COLUMN: []} for number, row in enumerate(partitions.values())]
    rows[4][FAILED_COLUMN] = [3]
    rows[5][FAILED_COLUMN] = [1]
    stopped = [stopped_row(2, 1, 4), stopped_row(3, 1, 5)]

    decided = decisions(cycle_of(spark, rows, LIVE | {9}, stopped=stopped))

    expected: list[dict[str, Any]] = [
        {"partition": 0, "action": NARROW, "leader_after": 9},
        {"partition": 1, "action": Action.SHRINK_ISR, "isr_after": [1, 3, 4]},
        {"partition": 1, "action": None, "code": CODES.WAITS_FOR_CHANGE},
        {"partition": 2, "code": CODES.WAITS_FOR_STOP, "stop_replica_to": [1]},
        {"partition": 3, "action": END, "replicas_after": [3, 4]},
        {"partition": 4, "action": Action.SHRINK_ISR, "isr_after": [1, 4]},
        {"partition": 4, "action": None, "code": CODES.WAITS_FOR_CHANGE},
        {"partition": 5, "action": END, "replicas_after": [3, 4]},
    ]
    assert [{name: row[name] for name in one} for row, one in zip(decided, expected, strict=True)] == expected


def test_move_completes_while_an_overriding_request_waits(spark: SparkSession) -> None:
    steps = {
        NARROW: moving([3, 4, 1], [3, 4], [1], 1, [1, 3, 4]),
        END: moving([3, 4, 1], [3, 4], [1], 3, [3, 4]),
    }
    rows = [row | {"partition": number} for number, row in enumerate(steps.values())]
    orders = [ordered(9, 1, partition=number) for number in range(len(rows))]
    stopped = [stopped_row(1, 1, 5)]

    decided = decisions(cycle_of(spark, rows, LIVE, orders, stopped=stopped))
    begun = decisions(cycle_of(spark, rows, LIVE | {9}, orders, stopped=stopped))

    assert [(row["action"], row["withdrawn"]) for row in decided] == [(step, False) for step in steps]
    assert [(row["action"], row["adding_after"]) for row in begun] == [(START, [9])] * 2


def test_non_resident_controller_repeats_stops_with_each_narrowing(spark: SparkSession) -> None:
    """A confirmation holds for one leader epoch: all are sent the stop again until all confirm at the same one."""
    in_sync = moving([3, 4, 1, 2], [3, 4], [1, 2], 1, [1, 2, 3, 4])
    narrowed = moving([3, 4, 1, 2], [3, 4], [1, 2], 3, [3, 4])
    rows = [row | {"partition": number} for number, row in enumerate((in_sync, narrowed, narrowed))]
    stopped = [stopped_row(1, 1, 5), stopped_row(2, 1, 5), stopped_row(2, 2, 5)]

    first, again, end = decisions(cycle_of(spark, rows, LIVE, stopped=stopped, is_resident=False))

    assert (first["action"], first["stop_replica_to"], first["code"]) == (NARROW, [1, 2], None)
    assert (after(again), again["stop_replica_to"]) == ((NARROW, [3, 4, 1, 2], [3, 4], [1, 2], 3, [3, 4]), [1, 2])
    assert (again["leader_epoch_after"], again["reason"]) == (6, "to be stopped: 2")
    assert (end["action"], end["stop_replica_to"]) == (END, [])


# leader and ISR of [4,5,1] with target [4,5], drained -> the leader of the narrowed partition
DRAINED_TARGETS: Final[list[tuple[list[int], set[int], int]]] = [
    ([1, 4, 5], {4}, 5),
    ([1, 4, 5], {4, 5}, 4),
]


@pytest.mark.parametrize(("isr", "drained", "leader"), DRAINED_TARGETS)
@pytest.mark.parametrize("mode", DrainMode)
def test_target_of_only_drained_brokers_gets_a_leader(
    spark: SparkSession, isr: list[int], drained: set[int], leader: int, mode: DrainMode
) -> None:
    """A reassignment file may name them; the move completes, and the leader is sent its state."""
    partition = moving([4, 5, 1], [4, 5], [1], 1, isr)

    (narrow,) = decisions(cycle_of(spark, [partition], LIVE, drained=dict.fromkeys(drained, mode)))

    assert (narrow["action"], narrow["leader_after"], narrow["leader_and_isr_to"]) == (NARROW, leader, [4, 5])
