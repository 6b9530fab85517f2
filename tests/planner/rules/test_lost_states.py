"""Lost states by recorded history: the rule in plain Python decides as the transforms on Spark."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.history.lost_states import last_known_states, without_state
from planner.rules.lost_states import PastState, is_same_topic, lost_state
from schemas.rows import Row
from schemas.tables import PARTITION_HISTORY
from tests.planner.frames import RuleInput, as_rows, frame, partition_row
from tests.planner.history.test_lost_states import TOPICS_THEN
from tests.planner.rule_inputs import BATCHES

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
