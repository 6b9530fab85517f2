"""Rollbacks: each step undone from the current assignment, rejections, and the same rows as Spark's rule."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_fields
from pyspark.sql import SparkSession

from planner.reassignment.partition_rollback import (
    ClusterFacts,
    RollbackRejection,
    RollbackTarget,
    roll_back_partition,
    with_waves_numbered,
)
from planner.reassignment.targets import reassignment_changes
from schemas.enums import Action, LintCode, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Change, Row
from schemas.tables import BROKERS, PARTITIONS, TOPICS
from tests.planner.frames import as_rows, broker_row, frame, partition_info, partition_row, topic_row
from tests.typed_rows import typed

RACKS: Final = {1: "a", 2: "b", 3: "a", 4: "b", 5: None}
BROKERS_OF: Final = frozenset(range(1, 6))
AROUND: Final = ClusterFacts(
    eligible=BROKERS_OF, live=BROKERS_OF, drained={5}, racks=RACKS, deleting={"deleted"}, min_isr=1
)
START: Final = RollbackTarget(None, "snapshot 3")
TOPIC_ID: Final = topic_row()["topic_id"]


def way(*stops: list[int], first_wave: int = 0) -> list[Change]:
    """Return the changes that move a partition from list to list, one wave each."""
    return [
        typed(wave=first_wave + number, replicas_before=before, replicas_after=after, topic_id=TOPIC_ID)
        for number, (before, after) in enumerate(pairwise(stops))
    ]


def back(steps: list[Change], replicas: list[int], to: RollbackTarget = START, **columns: Any) -> Any:  # noqa: ANN401
    partition = partition_info(replicas, columns.pop("leader", replicas[0]), replicas, **columns)
    return roll_back_partition(steps, partition, _topic(), AROUND, to)


def _topic(**columns: Any) -> TopicInfo:  # noqa: ANN401
    return msgspec.convert(topic_row(**columns), TopicInfo)


def led(changes: Any) -> list[tuple[int, list[int], list[int]]]:  # noqa: ANN401
    return [(row.wave, row.replicas_before or [], row.replicas_after) for row in with_waves_numbered(changes)]


THREE: Final = way([1, 2], [3, 2], [3, 4], [3, 4, 1], first_wave=2)

# current replicas, goal -> waves of the rollback
STEPS: Final[list[tuple[list[int], list[int] | None, list[tuple[int, list[int], list[int]]]]]] = [
    ([3, 4, 1], None, [(0, [3, 4, 1], [3, 4]), (1, [3, 4], [3, 2]), (2, [3, 2], [1, 2])]),
    ([3, 4], None, [(0, [3, 4], [3, 2]), (1, [3, 2], [1, 2])]),
    ([3, 2], None, [(0, [3, 2], [1, 2])]),
    ([2, 1], None, [(0, [2, 1], [1, 2])]),  # cancelled, and its order not restored
    ([3, 4, 1], [3, 4], [(0, [3, 4, 1], [3, 4])]),  # a snapshot on the way
    ([3, 4, 1], [4, 2], [(0, [3, 4, 1], [4, 2])]),  # one from before
]


@pytest.mark.parametrize(("now", "replicas", "expected"), STEPS)
def test_steps_are_undone_the_last_first(
    now: list[int], replicas: list[int] | None, expected: list[tuple[int, list[int], list[int]]]
) -> None:
    assert led(back(THREE, now, RollbackTarget(replicas, "snapshot 3"))) == expected


MOVE: Final = way([1, 2], [3, 2])
OTHER_ID: Final = {"topic_id": "BBBBBBBBBBBBBBBBBBBBBB"}

# columns of the partition, of its topic, goal -> code, text
REFUSED: Final[list[tuple[Row | None, Row, list[int] | None, str, str]]] = [
    (None, {}, None, RejectionCode.UNKNOWN_PARTITION, "the partition is gone"),
    ({}, OTHER_ID, None, RejectionCode.UNKNOWN_TOPIC, "created again"),
    ({}, {"topic_id": None}, None, RejectionCode.UNKNOWN_TOPIC, f"its topic has lost its topic id {TOPIC_ID}: restore"),
    ({"topic": "deleted"}, {}, None, RejectionCode.DELETION_REQUESTED, "queued for deletion"),
    ({"understood": False}, {}, None, RejectionCode.NOT_UNDERSTOOD, "not understood"),
    ({"leader": None}, {}, None, RejectionCode.NO_STATE, "no leader and ISR"),
    ({"replicas": [4, 2]}, {}, None, RejectionCode.REASSIGNED_SINCE, "its replicas are now [4, 2]: another client"),
    ({"replicas": [1, 2]}, {}, None, RejectionCode.ALREADY_ASSIGNED, "already"),
    (
        {"replicas": [1, 2, 3], "adding_replicas": [1], "removing_replicas": [3]},
        {},
        None,
        RejectionCode.REASSIGNMENT_IN_PROGRESS,
        "it is already moving back: to [1, 2]",
    ),
    (
        {"replicas": [4, 2, 3], "adding_replicas": [4], "removing_replicas": [3]},
        {},
        None,
        RejectionCode.REASSIGNMENT_IN_PROGRESS,
        "being moved, and not by this plan: to [4, 2]",
    ),
    ({"leader": 9}, {}, None, RejectionCode.NO_LIVE_LEADER, "(leader 9, ISR [3, 2]); elect a leader first, `surveyor"),
    ({"leader": -1}, {}, None, RejectionCode.NO_LIVE_LEADER, "(leader -1, ISR [3, 2])"),
    ({}, {}, [9, 2], LintCode.BROKER_NOT_ALIVE, "[9, 2] adds brokers that are not live: 9"),
    ({}, {}, [5, 2], RejectionCode.DRAINED, "[5, 2] adds brokers that are drained: 5"),
    ({}, {}, [2, 2], LintCode.DUPLICATE_BROKER, "twice: 2, 2"),
    (
        {},
        {"config": {"min.insync.replicas": "2"}},
        [1],
        LintCode.MIN_ISR_UNREACHABLE,
        "1 replica can never reach min.insync.replicas=2",
    ),
    (
        {},
        {"config": {"min.insync.replicas": " 4 "}},  # as Kafka reads it
        [1],
        LintCode.MIN_ISR_UNREACHABLE,
        "1 replica can never reach min.insync.replicas=4",
    ),
]


@pytest.mark.parametrize(("columns", "of_topic", "replicas", "code", "words"), REFUSED)
def test_what_is_left_alone_and_why(
    columns: Row | None, of_topic: Row, replicas: list[int] | None, code: str, words: str
) -> None:
    partition = None if columns is None else replace_fields(partition_info([3, 2], 3, [3, 2]), **columns)

    rejection = roll_back_partition(MOVE, partition, _topic(**of_topic), AROUND, RollbackTarget(replicas, "snapshot 3"))

    assert isinstance(rejection, RollbackRejection)
    assert (rejection.code, words in rejection.reason) == (code, True), rejection


def test_an_equally_short_list_is_allowed() -> None:
    strict = _topic(config={"min.insync.replicas": "3"})
    (row,) = roll_back_partition(MOVE, partition_info([3, 2], 3, [3, 2]), strict, AROUND, START)  # type: ignore[misc]

    assert row.replicas_after == [1, 2]


def test_dead_replica_that_stays_is_no_fault() -> None:
    (row,) = back(way([9, 1], [9, 2]), [9, 2], leader=2)

    assert (row.adding_after, row.requires_live) == ([1], [1])


def test_reason_tells_the_step_and_the_racks() -> None:
    (row,) = back(way([1, 3], [1, 2]), [1, 2])

    assert row.reason == "back to snapshot 3: adds [3], removes [2]; racks 2 → 1"
    assert back(THREE, [3, 4])[0].reason.startswith("back to snapshot 3, undoes wave 3: adds [2], removes [4]")


# replicas and leader before, and now; whether the plan elected -> leader before and after the election, None for none
ELECTED: Final[list[tuple[list[int], int, list[int], int, bool, tuple[int, int] | None]]] = [
    ([1, 2], 1, [2, 1], 2, False, (2, 1)),
    ([1, 2], 2, [2, 1], 2, False, None),  # 1 did not lead before
    ([1, 2], 2, [2, 1], 2, True, (2, 1)),
    ([1, 2], 1, [3, 1], 3, True, None),  # 3 leaves, and Kafka elects 1, the first
    ([1, 2], 1, [2, 1], 1, True, None),
    ([9, 2], 9, [2, 9], 2, True, None),  # not live
    ([5, 2], 5, [2, 5], 2, True, None),  # drained
    ([1, 2], 1, [1, 2], 2, False, (2, 1)),  # the moves are complete, the election is not
    ([1, 2], 2, [1, 2], 2, False, None),
]


@pytest.mark.parametrize(("then", "led_by", "now", "leader", "was_elected", "expected"), ELECTED)
def test_the_former_leader_is_elected_again(  # noqa: PLR0913 - a table
    *, then: list[int], led_by: int, now: list[int], leader: int, was_elected: bool, expected: tuple[int, int] | None
) -> None:
    moves = [replace_fields(row, leader_before=led_by) for row in way(then, [2, 1] if now == then else now)]

    steps = roll_back_partition(
        moves, partition_info(now, leader, now), _topic(), AROUND, START, was_elected=was_elected
    )

    changes = [] if isinstance(steps, RollbackRejection) else with_waves_numbered(steps)
    elections = [row for row in changes if row.action == Action.ELECT_PREFERRED]
    found = [(row.wave, row.leader_before, row.leader_after, row.replicas_before) for row in elections]
    assert found == ([(0 if now == then else 1, *expected, then)] if expected else [])


def test_only_a_replica_in_sync_is_elected_again() -> None:
    moves = [replace_fields(row, leader_before=1) for row in way([1, 2], [2, 1])]

    steps = roll_back_partition(moves, partition_info([1, 2], 2, [2]), _topic(), AROUND, START)

    assert isinstance(steps, RollbackRejection)


def test_more_in_one_rack_is_said() -> None:
    """Two and two of four replicas become three and one."""
    crowded = replace(AROUND, racks={**RACKS, 5: "a"}, drained=())
    now, then = [1, 3, 4, 2], [1, 3, 5, 2]
    steps: Any = roll_back_partition(way(then, now), partition_info(now, 1, now), _topic(), crowded, START)
    assert [row.reason for row in steps] == [
        "back to snapshot 3: adds [5], removes [4]; most in one rack 2 → 3",
    ]


brokers = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)


@given(st.lists(brokers, min_size=2, max_size=5, unique_by=tuple), st.data())
def test_any_way_leads_back_step_by_step(stops: list[list[int]], data: st.DataObject) -> None:
    now = data.draw(st.integers(1, len(stops) - 1))

    changes = back(way(*stops), stops[now])

    assert [row.replicas_before for row in changes] == stops[now:0:-1]
    assert [row.replicas_after for row in changes] == stops[now - 1 :: -1]
    for row in changes:
        before, after = set(row.replicas_before), set(row.replicas_after)
        assert (set(row.adding_after), set(row.removing_after)) == (after - before, before - after)
        assert row.leader_after in after


PAIRS: Final = [([1, 2], [3, 2]), ([1, 2], [2, 1]), ([1, 2], [1, 2, 3]), ([1, 2, 3], [3]), ([1, 2], [4, 3])]


def test_a_row_is_the_one_that_reassignment_makes(spark: SparkSession) -> None:
    """The rule on Spark gets the same target; only the reason differs."""
    partitions = [partition_row(after, after[-1], after, partition=n) for n, (_, after) in enumerate(PAIRS)]
    targets = [row | {"replicas": before} for row, (before, _) in zip(partitions, PAIRS, strict=True)]
    known = (
        frame(spark, targets, PARTITIONS).select("topic", "partition", "replicas"),
        frame(spark, partitions, PARTITIONS),
        frame(spark, [topic_row()], TOPICS),
        frame(spark, [broker_row(broker) for broker in range(1, 6)], BROKERS),
    )
    theirs = as_rows(reassignment_changes(*known).orderBy("partition"))

    ours: list[Change] = []
    for partition, (before, after) in zip(partitions, PAIRS, strict=True):
        now = msgspec.convert(partition, PartitionInfo)
        steps = roll_back_partition(way(before, after), now, _topic(), AROUND, START)
        assert not isinstance(steps, RollbackRejection)
        ours += steps

    but = {"reason", "cluster", "plan_id"}
    assert [{k: v for k, v in row.columns().items() if k not in but} for row in with_waves_numbered(ours)] == [
        {k: v for k, v in row.items() if k not in but} for row in theirs
    ]
