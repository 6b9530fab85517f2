"""Lost states: the last known state from history, and when none is known."""

import random
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from planner.history.evidence import ranked_evidence
from planner.history.lost_states import filter_same_topic, last_known_states, vanished_rejections, without_state
from planner.leadership.unclean_recovery import (
    recover_changes,
    recover_rejections,
    stateless_partitions,
    without_in_sync,
)
from planner.rules.lost_states import PastState, is_same_topic, lost_state
from schemas.rows import Row
from schemas.tables import BROKER_CONFIGS, PARTITION_HISTORY, SNAPSHOTS
from tests.planner.frames import TOPIC_ID, RuleInput, as_rows, by_partition, frame, partition_row, topic_row
from tests.planner.rule_inputs import BATCHES

NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
NEW: Final = partition_row([3, 1, 2], None, None, partition_state="New")


def _past_row(snapshot: int, leader: int | None = 1, epoch: int = 4, **columns: object) -> Row:
    isr = None if leader is None else [leader, 2]
    state = {} if leader is None else {"leader_epoch": epoch}
    return partition_row([3, 1, 2], leader, isr, snapshot_id=snapshot, **state, **columns)


TOMBSTONE: Final[dict[str, Any]] = {"partition_state": "NonExistent"}

# rows of history -> snapshots of the last state and of the first row after it, None for a new partition
HISTORIES: Final[list[tuple[list[Row], tuple[int, int] | None]]] = [
    ([_past_row(1), _past_row(3, epoch=4), _past_row(5, None)], (3, 5)),
    ([_past_row(1), _past_row(5, None), _past_row(7, None, topic_version=3)], (1, 5)),
    ([_past_row(5, None)], None),
    ([], None),
    ([_past_row(1), _past_row(3, **TOMBSTONE), _past_row(5, None)], None),  # deleted and created again
    ([_past_row(1), _past_row(2, **TOMBSTONE), _past_row(3), _past_row(5, None)], (3, 5)),
    ([_past_row(1, topic_version=4), _past_row(5, None)], None),  # the versions of the topic's znode start again
]


def test_last_state_known(spark: SparkSession) -> None:
    history = [row | {"partition": number} for number, (rows, _) in enumerate(HISTORIES) for row in rows]
    new = RuleInput([NEW | {"partition": number} for number in range(len(HISTORIES))]).frames(spark)
    last_states = as_rows(last_known_states(without_state(*new[:2]), frame(spark, history, PARTITION_HISTORY)))
    assert {row["partition"]: (row["seen"], row["gone"]) for row in last_states} == {
        number: known for number, (_, known) in enumerate(HISTORIES) if known is not None
    }
    assert {(row["leader"], tuple(row["isr"]), row["leader_epoch"]) for row in last_states} == {(1, (1, 2), 4)}


# the topic's current and former id, its former version (it is 0 now) -> whether it is the same topic
TOPICS_THEN: Final[list[tuple[str | None, str | None, int | None, bool]]] = [
    (TOPIC_ID, TOPIC_ID, 0, True),
    (TOPIC_ID, "B", 0, False),
    (TOPIC_ID, None, None, True),
    (None, "B", 0, True),
    (None, None, 0, True),
    (None, None, 4, False),  # history has version 0, as later versions alone are not changes of the partition
]


def test_another_id_or_restarted_version_is_another_topic(spark: SparkSession) -> None:
    names = [{"topic": f"t{number}"} for number in range(len(TOPICS_THEN))]
    topics = [topic_row(topic_id=now) | name for name, (now, *_) in zip(names, TOPICS_THEN, strict=True)]
    rule_input = RuleInput([NEW | {"topic_version": 0} | name for name in names], topics)
    past = [_past_row(1, topic_version=0), _past_row(5, None, topic_version=0)]
    history = frame(spark, [row | name for name in names for row in past], PARTITION_HISTORY)
    known = last_known_states(without_state(*rule_input.frames(spark)[:2]), history)
    schema = "topic string, gone bigint, id_then string, version_then int"
    then = [(f"t{number}", 5, *case[1:3]) for number, case in enumerate(TOPICS_THEN)]
    kept = filter_same_topic(known, spark.createDataFrame(then, schema))
    assert {row["topic"] for row in as_rows(kept)} == {f"t{n}" for n, case in enumerate(TOPICS_THEN) if case[3]}


def test_topics_queued_for_deletion_are_left_alone(spark: SparkSession) -> None:
    partitions, topics, _ = RuleInput([NEW], [topic_row(deletion_requested=True)]).frames(spark)
    assert without_state(partitions, topics).isEmpty()


def _recovered(spark: SparkSession, rule_input: RuleInput) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Recover a partition whose state existed in snapshots 1 to 4, with its evidence."""
    partitions, topics, brokers = rule_input.frames(spark)
    history = frame(spark, [_past_row(1), _past_row(5, None)], PARTITION_HISTORY)
    snapshots = frame(spark, [{"cluster": "test", "snapshot_id": i, "taken_at": NOW} for i in range(1, 7)], SNAPSHOTS)
    known = last_known_states(without_state(partitions, topics), history).localCheckpoint()
    offline = stateless_partitions(known, partitions, topics, brokers).localCheckpoint()
    return known, offline, ranked_evidence(without_in_sync(offline), history, snapshots).localCheckpoint()


# live brokers -> leader and required dead brokers, or the code of the rejection; unclean allowed for all
OFFERS: Final[list[tuple[set[int], tuple[int, list[int]] | str]]] = [
    ({1, 2, 3}, (1, [])),  # the former leader before the other ISR members
    ({2, 3}, (2, [])),
    ({3}, (3, [1, 2])),  # never in sync, so only while the ISR members are dead
    (set(), "NO_ELIGIBLE_LEADER"),
]


@pytest.mark.parametrize(("live", "offered"), OFFERS)
def test_recover_goes_on_from_the_last_epoch(
    spark: SparkSession, live: set[int], offered: tuple[int, list[int]] | str
) -> None:
    _, offline, evidence = _recovered(spark, RuleInput([NEW], live=frozenset(live)))
    configs = frame(spark, [], BROKER_CONFIGS)
    changes = as_rows(recover_changes(offline, configs, evidence, None))
    codes = [row["code"] for row in as_rows(recover_rejections(offline, configs, evidence, None))]
    assert [(row["leader_after"], row["requires_dead"]) for row in changes] + codes == [offered]
    for row in changes:
        assert (row["action"], row["isr_after"], row["is_new"]) == ("elect", [row["leader_after"]], False)
        assert (row["leader_epoch_after"], row["state_version"]) == (5, -1)


def test_unless_allowed_it_is_a_rejection_with_its_candidates(spark: SparkSession) -> None:
    known, offline, evidence = _recovered(spark, RuleInput([NEW], live=frozenset({1, 2, 3})))
    no_partitions = known.select("topic", "partition").limit(0)
    rejected = by_partition(recover_rejections(offline, frame(spark, [], BROKER_CONFIGS), evidence, no_partitions))[
        "t", 0
    ]
    assert rejected["code"] == "STATE_VANISHED"
    assert "snapshot 1 showed leader 1, ISR 1, 2, leader epoch 4" in rejected["reason"]
    assert "ranked: 1 (in sync until snapshot 4" in rejected["reason"]
    assert [row["code"] for row in as_rows(vanished_rejections(known))] == ["STATE_VANISHED"]


PARTITIONS = 60


def _row(chance: random.Random, partition: int, snapshot: int) -> Row:
    leader = chance.choice((1, 2, -1, None))
    return partition_row(
        [1, 2],
        leader,
        None if leader is None else [1],
        partition=partition,
        snapshot_id=snapshot,
        topic_version=chance.randint(0, 4),
        partition_state=chance.choice(("Online", "New", "NonExistent")),
        vanished=chance.choice((None, False, False, True)),
    )


def _past(row: Row) -> PastState:
    is_missing = row["partition_state"] == "NonExistent"
    vanished = is_missing if row["vanished"] is None else row["vanished"]
    return PastState(row["snapshot_id"], row["topic_version"], row["leader"] is not None, vanished)


@BATCHES
@given(st.integers(0, 2**64 - 1).map(random.Random))
def test_last_state(spark: SparkSession, chance: random.Random) -> None:
    new = [
        partition_row([1, 2], None, None, partition=n, topic_version=chance.randint(0, 4)) for n in range(PARTITIONS)
    ]
    snapshots = {n: sorted(chance.sample(range(1, 9), chance.randint(0, 5))) for n in range(PARTITIONS)}
    history = [_row(chance, n, snapshot) for n, taken in snapshots.items() for snapshot in taken]

    stateless = without_state(*RuleInput(new).frames(spark)[:2])
    of_spark = as_rows(last_known_states(stateless, frame(spark, history, PARTITION_HISTORY)))

    of_python = {}
    for row in new:
        past = [_past(past_row) for past_row in history if past_row["partition"] == row["partition"]]
        if (lost := lost_state(past, row["topic_version"])) is not None:
            of_python[row["partition"]] = tuple(lost)
    assert of_python == {row["partition"]: (row["seen"], row["gone"]) for row in of_spark}


@pytest.mark.parametrize(("now", "then", "version", "same"), TOPICS_THEN)
def test_another_topic(now: str | None, then: str | None, version: int | None, same: bool) -> None:  # noqa: FBT001
    assert is_same_topic(now, 0, then, version) is same
