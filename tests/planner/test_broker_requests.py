"""Notices for changes: one example of each kind, and the transform compared with the rule on typed rows."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.broker_requests.notices import notices_for as due_without_spark
from planner.broker_requests.spark import notices, notices_due
from schemas.enums import Action
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Change
from schemas.tables import BROKERS, CHANGES
from tests.planner.frames import as_rows, broker_row, frame
from tests.planner.worlds import BATCHES
from tests.typed_rows import typed

IDS = st.lists(st.integers(0, 5), max_size=4, unique=True)
EPOCHS = st.none() | st.integers(0, 50)
changes = st.lists(
    st.builds(
        typed,
        action=st.sampled_from(["elect", Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT]),
        topic=st.sampled_from(["t", "u"]),
        partition=st.integers(0, 20),
        topic_id=st.none() | st.just("AAAAAAAAAAAAAAAAAAAAAg"),
        leader_after=st.integers(-1, 5),
        leader_epoch_after=EPOCHS,
        leader_recovery_state_after=st.none() | st.integers(0, 1),
        isr_after=IDS,
        replicas_after=IDS,
        adding_after=IDS,
        removing_after=IDS,
        is_new=st.booleans(),
        state_version=st.integers(-1, 50),
        leader_and_isr_to=IDS,
        stop_replica_to=st.none() | IDS,
    ),
    max_size=30,
    unique_by=lambda change: change.key,
)


def as_notices(rows: Any) -> list[Notice]:  # noqa: ANN401 - a DataFrame, which types its methods as unknown
    return msgspec.convert(as_rows(rows), list[Notice])


def in_order(rows: list[Notice]) -> list[Notice]:
    return sorted(rows, key=lambda row: (row.api, row.topic, row.partition, row.is_new))


def by_spark(spark: SparkSession, decided: list[Change], understood: dict[int, bool]) -> list[Notice]:
    rows = frame(spark, [msgspec.structs.asdict(change) for change in decided], CHANGES)
    brokers = [broker_row(broker, understood=known) for broker, known in understood.items()]
    return as_notices(notices_due(rows, frame(spark, brokers, BROKERS)))


@BATCHES
@given(changes, st.dictionaries(st.integers(0, 5), st.booleans()))
def test_spark_and_typed_rows_agree(spark: SparkSession, decided: list[Change], understood: dict[int, bool]) -> None:
    live = {broker for broker, known in understood.items() if known}

    assert in_order(by_spark(spark, decided, understood)) == in_order(due_without_spark(decided, live))


def test_recipients_of_state_and_metadata() -> None:
    state = {"leader_after": 1, "leader_epoch_after": 7, "leader_recovery_state_after": 0, "state_version": 2}
    change = typed(leader_and_isr_to=[3, 1, 9], stop_replica_to=[2], **state)

    rows = due_without_spark([change], [3, 2, 1, 0])

    assert [(row.api, row.brokers) for row in rows] == [
        (LEADER_AND_ISR, (3, 1)),
        (UPDATE_METADATA, (0, 1, 2, 3)),
        (STOP_REPLICA, (2,)),
    ]
    assert {(row.leader, row.leader_epoch, row.state_version, row.delete_partition) for row in rows} == {
        (1, 7, 3, False)
    }


def test_added_replicas_are_new_and_leaving_ones_unassigned() -> None:
    moving = {"replicas_after": [3, 1], "adding_after": [3], "removing_after": [1], "leader_and_isr_to": [1, 3]}
    state = {"leader_after": 1, "leader_epoch_after": 7, "leader_recovery_state_after": 0, **moving}

    start = due_without_spark([typed(action=Action.START_REASSIGNMENT, **state)], [1, 2, 3])
    narrow = due_without_spark([typed(action=Action.NARROW_TO_TARGET, stop_replica_to=[1], **state)], [1, 2, 3])

    assert [(row.api, row.brokers, row.is_new) for row in start] == [
        (LEADER_AND_ISR, (3,), True),
        (LEADER_AND_ISR, (1,), False),
        (UPDATE_METADATA, (1, 2, 3), False),
    ]
    assert {tuple(row.replicas) for row in start} == {(3, 1)}
    assert {(*row.replicas, *row.adding_replicas, *row.removing_replicas) for row in narrow} == {(3,)}
    assert [(row.api, row.brokers) for row in narrow if row.delete_partition] == [(STOP_REPLICA, (1,))]


def test_changes_decided_by_kafka_have_no_notices() -> None:
    assert due_without_spark([typed(leader_and_isr_to=[1])], [1]) == []


def test_partitions_from_other_sources_have_their_recipients(spark: SparkSession) -> None:
    """As for a broker that has just started: all metadata, and the state of its replicas; and a log that is deleted."""
    partitions = spark.range(1).selectExpr(
        "'t' AS topic",
        "0 AS partition",
        "array(2) AS leader_and_isr_to",
        "array(2) AS update_metadata_to",
        "array(1) AS stop_replica_to",
        "true AS delete_partition",
    )

    rows = as_rows(notices(partitions))

    assert [(row["api"], row["brokers"], row["delete_partition"]) for row in rows] == [
        (LEADER_AND_ISR, [2], False),
        (UPDATE_METADATA, [2], False),
        (STOP_REPLICA, [1], True),
    ]
