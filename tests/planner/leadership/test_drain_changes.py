"""Drains: new leaders, ISR shrinks, partitions that would go offline, and undrains that restore the order."""

from collections import defaultdict
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_drained
from planner.leadership.drain_changes import drain_changes, drain_rejections
from planner.leadership.undrain_changes import (
    not_drained,
    restart_changes,
    restart_rejections,
    undrain_changes,
    undrain_rejections,
    undrain_targets,
)
from schemas.enums import NO_LEADER, DrainMode
from schemas.rows import Key, Row
from schemas.tables import CHANGES, DRAINED
from schemas.text import DRAINED_LEADS
from tests.planner.frames import RuleInput, as_rows, assert_changes, by_partition, frame, partition_row, topic_row
from tests.planner.leadership import drains
from tests.planner.rule_inputs import BATCHES, BROKERS, is_sane, rule_inputs
from tests.planner.verdicts import preferred_changes, preferred_rejections, reconcile_changes

LIVE: Final = frozenset({1, 2, 3, 5, 7})

# replicas, leader, ISR, drained -> leader, ISR, action, or the code of the rejection
SHUTDOWNS: Final[list[tuple[list[int], int, list[int], int | None, list[int] | None, str]]] = [
    ([2, 5, 7], 2, [2, 5, 7], 5, [5, 7], "controlled_shutdown"),
    ([2, 5, 7], 2, [7, 2, 5], 5, [7, 5], "controlled_shutdown"),  # by the assignment, not by the ISR
    ([2, 5, 7], 2, [2, 7], 7, [7], "controlled_shutdown"),
    ([2, 3, 5], 2, [2, 3, 5], 5, [5], "controlled_shutdown"),  # both at once, so neither takes over from the other
    ([5, 2, 7], 5, [5, 2, 7], 5, [5, 7], "shrink_isr"),
    ([5, 2], 5, [5], 5, [5], "stop_replica"),
    ([9, 2, 5], 2, [9, 2, 5], 5, [9, 5], "controlled_shutdown"),  # reconcile removes dead members
    ([2], 2, [2], None, None, "WOULD_GO_OFFLINE"),
    ([2, 3], 2, [2, 3], None, None, "WOULD_GO_OFFLINE"),
    ([2, 5], 2, [2], None, None, "WOULD_GO_OFFLINE"),
    ([2, 9], 2, [2, 9], None, None, "WOULD_GO_OFFLINE"),
    ([9, 2], NO_LEADER, [9, 2], None, None, "WOULD_GO_OFFLINE"),
    ([9, 5, 2], 9, [9, 5], None, None, "LEADER_NOT_ALIVE"),
]


def _shutdowns() -> RuleInput:
    rows = [
        partition_row(replicas, leader, isr, partition=number)
        for number, (replicas, leader, isr, *_) in enumerate(SHUTDOWNS)
    ]
    return RuleInput(rows, live=LIVE)


def test_controlled_shutdown(spark: SparkSession) -> None:
    expected = [
        {"partition": number, "leader_after": leader, "isr_after": isr, "action": outcome, "leader_epoch_after": 6}
        for number, (_, _, _, leader, isr, outcome) in enumerate(SHUTDOWNS)
        if isr is not None
    ]
    assert_changes(drain_changes(*_shutdowns().frames(spark), [2, 3], DrainMode.RESIDENT), expected)


def test_unchanged_partitions_have_a_code(spark: SparkSession) -> None:
    rejections = by_partition(drain_rejections(*_shutdowns().frames(spark), [2, 3], DrainMode.RESIDENT))
    expected = {("t", number): outcome for number, (_, _, _, _, isr, outcome) in enumerate(SHUTDOWNS) if isr is None}
    assert {key: row["code"] for key, row in rejections.items()} == expected


# replicas, leader, ISR -> the new order, None for no change, and the new leader, None for no election
DEMOTIONS: Final[list[tuple[list[int], int, list[int], list[int] | None, int | None]]] = [
    ([2, 5, 7], 2, [2, 5, 7], [5, 7, 2], 5),
    ([2, 3, 5, 7], 3, [2, 3, 5, 7], [5, 7, 2, 3], 5),
    ([5, 2, 7], 5, [5, 2, 7], [5, 7, 2], None),
    ([5, 7, 2], 2, [5, 7, 2], None, 5),
    ([5, 7, 2], 5, [5, 7, 2], None, None),
    ([2, 5, 7], 2, [2, 7], [7, 5, 2], 7),  # 5 cannot lead now, and 2 must not
    ([2, 9, 7], 2, [2, 9, 7], [7, 9, 2], 7),
]


def test_demotion(spark: SparkSession) -> None:
    rows = [partition_row(case[0], case[1], case[2], partition=number) for number, case in enumerate(DEMOTIONS)]
    changes = drain_changes(*RuleInput(rows, live=LIVE).frames(spark), [2, 3], DrainMode.ADMIN)
    expected = [
        {"wave": 0, "partition": number, "action": "reassign", "replicas_after": order, "leader_after": leader}
        for number, (_, leader, _, order, _) in enumerate(DEMOTIONS)
        if order is not None
    ] + [
        {
            "wave": 1,
            "partition": number,
            "action": "elect_preferred",
            "replicas_after": order or replicas,
            "leader_after": elected,
        }
        for number, (replicas, _, _, order, elected) in enumerate(DEMOTIONS)
        if elected is not None
    ]
    assert_changes(changes, expected)


def test_a_follower_is_not_also_stopped(spark: SparkSession) -> None:
    """The former leader gets LeaderAndIsr, other drained brokers StopReplica.

    Broker 2 is drained. Broker 3 was drained before, and leads or is in sync again.
    """
    rows = [
        partition_row([2, 3, 5], 2, [2, 3, 5], partition=0),
        partition_row([2, 3, 5], 3, [2, 3, 5], partition=1),
        partition_row([2, 3, 5], 5, [5], partition=2),
    ]
    partitions, topics, brokers = RuleInput(rows, live=LIVE).frames(spark)
    marked = with_drained(brokers, _drained(spark, [3], "resident"))
    expected = [
        {"partition": 0, "leader_after": 5, "leader_and_isr_to": [2, 5], "stop_replica_to": [3]},
        {"partition": 1, "leader_after": 5, "leader_and_isr_to": [3, 5], "stop_replica_to": [2]},
        {"partition": 2, "leader_after": 5, "leader_and_isr_to": [5], "stop_replica_to": [2, 3]},
    ]
    assert_changes(drain_changes(partitions, topics, marked, [2], DrainMode.RESIDENT), expected)


# leader, ISR of [2, 5, 7], deletion requested -> recipients at the next epoch, None for no change, or the rejection
RESTARTS: Final[list[tuple[int | None, list[int] | None, bool, list[int] | str | None]]] = [
    (5, [5, 7], False, [2, 5, 7]),
    (5, [5, 7, 2], False, None),
    (None, None, False, None),
    (9, [9, 5], False, "LEADER_NOT_ALIVE"),
    (NO_LEADER, [9], False, "LEADER_NOT_ALIVE"),
    (5, [5, 7], True, "DELETION_REQUESTED"),
]


def test_what_was_stopped_is_started_at_the_next_epoch(spark: SparkSession) -> None:
    rows = [
        partition_row([2, 5, 7], leader, isr, partition=number, topic=f"{deleting}")
        for number, (leader, isr, deleting, _) in enumerate(RESTARTS)
    ]
    topics = [topic_row(f"{deleting}", deletion_requested=deleting) for deleting in (False, True)]
    frames = *RuleInput(rows, topics, live=LIVE).frames(spark), [2]
    changes, rejections = as_rows(restart_changes(*frames)), as_rows(restart_rejections(*frames))
    outcomes = {row["partition"]: row["leader_and_isr_to"] for row in changes}
    outcomes |= {row["partition"]: row["code"] for row in rejections}
    assert outcomes == {number: notified for number, (*_, notified) in enumerate(RESTARTS) if notified is not None}
    after = {(row["leader_after"], *row["isr_after"], row["leader_epoch_after"]) for row in changes}
    assert after == {(5, 5, 7, 6)}


def _by_partition(rows: DataFrame) -> dict[Key, list[Row]]:
    grouped: dict[Key, list[Row]] = defaultdict(list)
    for row in sorted(as_rows(rows), key=lambda row: row["wave"]):
        grouped[row["topic"], row["partition"]].append(row)
    return grouped


_down = st.sets(st.sampled_from(BROKERS), min_size=1, max_size=3).map(sorted)


@BATCHES
@given(rule_inputs(), _down)
def test_a_controlled_shutdown_is_sound(spark: SparkSession, rule_input: RuleInput, down: list[int]) -> None:
    drained = [broker for broker in down if broker in rule_input.live] or [99]
    changes = by_partition(drain_changes(*rule_input.frames(spark), drained, DrainMode.RESIDENT))
    assert [row for row in changes.values() if _broken(row, drained, rule_input)] == []


def _broken(change: Row, down: list[int], rule_input: RuleInput) -> bool:
    was_sane = is_sane({"leader": change["leader_before"], "isr": change["isr_before"], **_replicas(change)})
    leader, isr = change["leader_after"], change["isr_after"]
    moved = leader != change["leader_before"]
    return (
        not isr
        or bool(set(isr) & set(down))
        or leader in down
        or (was_sane and leader not in isr)
        or (moved and leader not in rule_input.live)
        or change["leader_epoch_after"] <= change["leader_epoch_before"]
    )


def _replicas(change: Row) -> Row:
    return {"replicas": change["replicas_before"]}


@BATCHES
@given(rule_inputs(), _down)
def test_demotion_by_hand(spark: SparkSession, rule_input: RuleInput, down: list[int]) -> None:
    drained = [broker for broker in down if broker in rule_input.live] or [99]
    frames = rule_input.frames(spark)
    rejections = by_partition(drain_rejections(*frames, drained, DrainMode.ADMIN))
    changes = _by_partition(drain_changes(*frames, drained, DrainMode.ADMIN))
    outcomes: dict[Key, list[Row] | str] = {k: [*map(drains.told_demotion, rows)] for k, rows in changes.items()}
    outcomes |= {key: row["code"] for key, row in rejections.items()}
    by_hand = {
        (row["topic"], row["partition"]): drains.demotion(row, rule_input, drained) for row in rule_input.partitions
    }
    assert outcomes == {key: outcome for key, outcome in by_hand.items() if outcome}


def _links(spark: SparkSession, drained: list[DataFrame]) -> DataFrame:
    """Return the reorders of plans applied one after another."""
    rows = [
        row | {"wave": number}
        for number, changes in enumerate(drained)
        for row in as_rows(changes)
        if row["action"] == "reassign"
    ]
    return frame(spark, rows, CHANGES).withColumns({"at": F.col("wave")})


def _applied(rule_input: RuleInput, changes: DataFrame) -> RuleInput:
    after = {key: rows[-1] for key, rows in _by_partition(changes).items()}
    rows = []
    for row in rule_input.partitions:
        change = after.get((row["topic"], row["partition"]))
        epoch = change and (change["leader_epoch_after"] or change["leader_epoch_before"] + 1)
        moved = change and {"replicas": change["replicas_after"], "leader": change["leader_after"]}
        rows.append(row | ({**moved, "leader_epoch": epoch} if moved else {}))
    return RuleInput(rows, rule_input.topics, rule_input.live, rule_input.opaque, rule_input.configs)


@settings(BATCHES, max_examples=3)
@given(rule_inputs())
def test_undrain_of_a_drain_is_what_was(spark: SparkSession, rule_input: RuleInput) -> None:
    """Undo one drain, or two in the order in which they were made; brokers that are still drained stay last."""
    if len(rule_input.live) < len({0, 1}):
        return
    one, other = sorted(rule_input.live)[:2]
    first = drain_changes(*rule_input.frames(spark), [one], DrainMode.ADMIN).localCheckpoint()
    once = _applied(rule_input, first)
    partitions, topics, brokers = once.frames(spark)
    marked = with_drained(brokers, _drained(spark, [one]))
    second = drain_changes(partitions, topics, marked, [other], DrainMode.ADMIN).localCheckpoint()
    twice = _applied(once, second)
    half = _undrain(spark, twice, [first, second], [one], [other])
    made = [row for rows in _by_partition(half).values() for row in rows if row["leader_after"] != row["leader_before"]]
    assert [row for row in made if row["leader_after"] == other] == []
    back = _applied(twice, half)
    whole = _undrain(spark, back, [first, second, half], [other], [])
    undrained = _applied(back, whole)
    assert [row["replicas"] for row in undrained.partitions] == [row["replicas"] for row in rule_input.partitions]
    led_first = [
        (before["leader"], row["leader"])
        for before, row in zip(rule_input.partitions, undrained.partitions, strict=True)
        if before["leader"] == before["replicas"][0] and before["leader"] in before["isr"]
    ]
    assert [pair for pair in led_first if pair[0] != pair[1]] == []


def _undrain(
    spark: SparkSession, rule_input: RuleInput, plans: list[DataFrame], ids: list[int], still: list[int]
) -> DataFrame:
    partitions, topics, brokers = rule_input.frames(spark)
    marked = not_drained(with_drained(brokers, _drained(spark, [*ids, *still])), ids)
    targets = undrain_targets(_links(spark, plans), ids, still)
    assert undrain_rejections(targets, partitions, topics, marked).isEmpty()
    return undrain_changes(targets, partitions, topics, marked).localCheckpoint()


def _drained(spark: SparkSession, ids: list[int], mode: str = "admin") -> DataFrame:
    return frame(spark, [{"cluster": "test", "broker_id": broker, "mode": mode} for broker in ids], DRAINED)


@pytest.mark.parametrize(
    ("now", "code"),
    [
        ([5, 7, 9], "REASSIGNED_SINCE"),
        ([7, 5, 2], "REORDERED_SINCE"),
        ([2, 5, 7], "ALREADY_ASSIGNED"),
    ],
)
def test_only_the_order_that_the_drain_made_is_undone(spark: SparkSession, now: list[int], code: str) -> None:
    rule_input = RuleInput([partition_row([2, 5, 7], 2, [2, 5, 7])], live=LIVE)
    changes = drain_changes(*rule_input.frames(spark), [2], DrainMode.ADMIN)
    targets = undrain_targets(_links(spark, [changes]), [2], [])
    later = RuleInput([partition_row(now, 5, [5, 7])], live=LIVE).frames(spark)
    assert undrain_changes(targets, *later).isEmpty()
    assert [row["code"] for row in as_rows(undrain_rejections(targets, *later))] == [code]


# replicas, leader, ISR -> leader, ISR; 2 is drained, 5 and 7 live, 9 dead; unclean elections are allowed
LAST_CHOICE: Final[list[tuple[list[int], int | None, list[int] | None, int, list[int]]]] = [
    ([2, 5, 7], 9, [9, 2, 5], 5, [2, 5]),
    ([2, 5], 9, [2, 5], 5, [2, 5]),
    ([2, 9], 9, [9, 2], 2, [2]),  # alone in sync
    ([2, 5], 9, [9, 2], 2, [2]),  # a clean election before the unclean one of 5
    ([2, 5], 9, [9], 5, [5]),  # unclean, too, the drained one comes last
    ([2, 9], 9, [9], 2, [2]),
    ([2, 9], None, None, 2, [2]),  # a new partition
    ([9, 2], NO_LEADER, [2], 2, [2]),
]


@pytest.mark.parametrize("mode", ["admin", "resident"])
def test_a_drained_broker_is_the_last_choice(spark: SparkSession, mode: str) -> None:
    """It leads only if no other can, gets LeaderAndIsr even if its replica was stopped, and the reason names it."""
    rows = [partition_row(*case[:3], partition=number) for number, case in enumerate(LAST_CHOICE)]
    rule_input = RuleInput(rows, live=LIVE, drained={2: DrainMode(mode)})

    changes = by_partition(reconcile_changes(*rule_input.frames_and_configs(spark), allow_unclean=True))

    elected = {number: (row["leader_after"], row["isr_after"]) for (_, number), row in changes.items()}
    assert elected == {number: (leader, isr) for number, (*_, leader, isr) in enumerate(LAST_CHOICE)}
    assert all(row["leader_after"] in row["leader_and_isr_to"] for row in changes.values())
    assert {number for (_, number), row in changes.items() if f"{DRAINED_LEADS}2 leads" in row["reason"]} == {
        number for number, (leader, _) in elected.items() if leader == 2
    }


@pytest.mark.parametrize("mode", DrainMode)
def test_what_a_new_partition_begins_with(spark: SparkSession, mode: DrainMode) -> None:
    """A drained replica leads only if no other is live; if a drain stops it, it is not in the ISR either."""
    rule_input = RuleInput([partition_row([2, 5, 9], None, None)], live=LIVE, drained={2: mode})

    [change] = as_rows(reconcile_changes(*rule_input.frames_and_configs(spark)))

    isr = [2, 5] if mode is DrainMode.ADMIN else [5]
    assert (change["leader_after"], change["isr_after"], change["leader_and_isr_to"]) == (5, isr, isr)


@pytest.mark.parametrize("mode", DrainMode)
def test_leaders_are_not_brought_back_to_a_drained_broker(spark: SparkSession, mode: DrainMode) -> None:
    rule_input = RuleInput([partition_row([2, 5], 5, [5, 2])], live=LIVE, drained={2: mode})
    partitions, topics, brokers = rule_input.frames(spark)
    candidates = partitions.select("topic", "partition")

    assert preferred_changes(partitions, topics, brokers, candidates).isEmpty()
    [rejection] = as_rows(preferred_rejections(partitions, topics, brokers, candidates))
    assert rejection["code"] == "DRAINED"
