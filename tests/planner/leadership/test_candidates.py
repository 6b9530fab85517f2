"""Candidates of leadership rules: each partition that may need a change once, and no other."""

from typing import Final

from pyspark.sql import SparkSession

from planner.leadership.failure_handling import SOURCE_COLUMNS, needing_attention
from schemas.enums import NO_LEADER
from schemas.tables import PARTITIONS
from tests.planner.frames import RuleInput, as_rows, frame, partition_row

# replicas, leader, ISR, understood -> whether it is a candidate
CASES: Final = [
    ([1, 2], 1, [1, 2], True, False),
    ([1, 9], 1, [1], True, False),  # a dead replica that is not in the ISR needs nothing
    ([4, 1], 4, [1, 4], True, False),  # registered is live, understood or not
    ([1, 2], 2, [1], True, False),
    ([1, 9], 1, [1, 9], True, True),
    ([9, 8, 1], 9, [9, 8, 1], True, True),
    ([9, 1], 9, [1], True, True),
    ([1, 2], 1, [1, 2, 9], True, True),  # in the ISR and not assigned
    ([1, 2], NO_LEADER, [1, 2], True, True),
    ([1, 2], None, None, True, True),
    ([1, 2], 1, [1, 2], False, True),
    ([1, 2, 4, 1, 2], 1, [1, 2, 4, 2, 1, 8], True, True),
]


def test_each_in_need_once_and_as_it_was(spark: SparkSession) -> None:
    rows = [
        partition_row(replicas, leader, isr, partition=number, understood=understood)
        for number, (replicas, leader, isr, understood, _) in enumerate(CASES)
    ]
    partitions, _, brokers = RuleInput(rows, live=frozenset({1, 2}), opaque=frozenset({4})).frames(spark)
    needed = [row for row, (*_, needs) in zip(rows, CASES, strict=True) if needs]
    actual = sorted(as_rows(needing_attention(partitions, brokers)), key=lambda row: row["partition"])
    assert actual == as_rows(frame(spark, needed, PARTITIONS).select(*SOURCE_COLUMNS))
