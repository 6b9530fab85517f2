"""States and warnings of partitions."""

from typing import Any, Final

from pyspark.sql import SparkSession

from planner.columns.derived_columns import absent_brokers, derive_partitions
from schemas.enums import NO_LEADER, PartitionState
from schemas.tables import BROKER_CONFIGS, PARTITIONS
from tests.planner.frames import RuleInput, assert_rows, config_row, frame, partition_row, topic_row

TOPICS: Final = [
    topic_row("plain"),
    topic_row("two", config={"min.insync.replicas": "2"}),
    topic_row("odd", config={"min.insync.replicas": "many"}),
    topic_row("deleted", deletion_requested=True),
]
LIVE: Final = frozenset({1, 2, 3})
OPAQUE: Final = frozenset({4})

NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState

# topic, replicas, leader, ISR -> state, offline replicas, under-replicated, under min ISR (3 unless the topic sets it)
CASES: Final[list[tuple[str, list[int], int | None, list[int] | None, PartitionState, list[int], bool, bool]]] = [
    ("plain", [1, 2, 3], 1, [3, 2, 1], ONLINE, [], False, False),
    ("plain", [1, 2, 3], 1, [1, 2], ONLINE, [], True, True),
    ("two", [1, 2, 3], 1, [1, 2], ONLINE, [], True, False),
    ("two", [1, 2], 1, [1], ONLINE, [], True, True),
    ("odd", [1, 2], 1, [1, 2], ONLINE, [], False, True),
    ("none", [1, 2, 3], 1, [1, 2, 3], ONLINE, [], False, False),
    ("plain", [9, 1, 8], 9, [9, 1, 8], OFFLINE, [9, 8], False, False),
    ("plain", [1, 2, 3], NO_LEADER, [1], OFFLINE, [], True, True),
    ("plain", [4, 1, 2], 4, [4, 1, 2], ONLINE, [], False, False),
    ("two", [9, 1], None, None, NEW, [9], True, True),
    # a deletion removes the leaders first, then the znodes
    ("deleted", [1, 2, 3], 1, [1, 2, 3], ONLINE, [], False, False),
    ("deleted", [1, 2, 3], NO_LEADER, [1], NON_EXISTENT, [], True, True),
    ("deleted", [9, 1], 9, [9, 1], NON_EXISTENT, [9], False, True),
    ("deleted", [1, 2], None, None, NON_EXISTENT, [], True, True),
]


def test_what_follows_from_the_znodes(spark: SparkSession) -> None:
    rows = [
        partition_row(replicas, leader, isr, topic=topic, partition=number)
        for number, (topic, replicas, leader, isr, *_) in enumerate(CASES)
    ]
    minima = [config_row(broker, "min.insync.replicas", value) for broker, value in ((1, "2"), (2, "3"), (3, None))]
    others = [config_row(1, "num.partitions", "9"), config_row(4, "min.insync.replicas", "4", assumed=True)]
    configs = frame(spark, [*minima, *others], BROKER_CONFIGS)
    names = ("partition_state", "offline_replicas", "under_replicated", "under_min_isr")
    derived: list[dict[str, Any]] = [
        row | dict(zip(names, case[4:], strict=True)) for row, case in zip(rows, CASES, strict=True)
    ]
    partitions, topics, brokers = RuleInput(rows, TOPICS, LIVE, OPAQUE).frames(spark)
    actual = derive_partitions(partitions, topics, absent_brokers(partitions, brokers), configs)
    assert_rows(actual, derived, PARTITIONS)


def test_without_brokers_and_their_configs(spark: SparkSession) -> None:
    row = partition_row([1, 2], 1, [1])
    expected = {
        "partition_state": OFFLINE,
        "offline_replicas": [1, 2],
        "under_replicated": True,
        "under_min_isr": False,
    }
    partitions, topics, brokers = RuleInput([row]).frames(spark)
    absent = absent_brokers(partitions, brokers)
    actual = derive_partitions(partitions, topics, absent, frame(spark, [], BROKER_CONFIGS))
    assert_rows(actual, [row | expected], PARTITIONS)
