"""The imbalance ratio per broker: the partitions counted, and the strict threshold."""

from collections.abc import Sequence
from typing import Final

import pytest
from pyspark.sql import SparkSession

from planner.leadership.imbalance import imbalance
from schemas.enums import NO_LEADER
from schemas.rows import Row
from schemas.tables import IMBALANCE
from tests.planner.frames import CLUSTER, RuleInput, as_rows, assert_rows, partition_row, topic_row


def _prefer(broker: int, leaders: Sequence[int | None], first: int = 0, topic: str = "t") -> list[Row]:
    """Return partitions of a topic that prefer one broker, led by these leaders."""
    return [
        partition_row([broker, 9], leader, None if leader is None else [9], partition=number, topic=topic)
        for number, leader in enumerate(leaders, first)
    ]


WORLD: Final = RuleInput(
    [
        *_prefer(0, [0] * 9 + [9]),  # a tenth is not led: at the threshold, not above
        *_prefer(1, [1] * 8 + [9, 1, 9], first=100),
        *_prefer(2, [2, None, None], first=200),  # without a state: preferred, but not led by another
        *_prefer(3, [NO_LEADER, 3], first=300),  # without a leader, so not led by the preferred one
        *_prefer(4, [4], first=400),
        *_prefer(4, [9, 9], topic="deleted"),  # queued for deletion, so not counted
        *_prefer(5, [9], first=10, topic="deleted"),
    ],
    [topic_row("t"), topic_row("deleted", deletion_requested=True)],
)

# broker, preferred, not led, ratio, exceeds
EXPECTED: Final = [
    (0, 10, 1, 0.1, False),
    (1, 11, 2, 2 / 11, True),
    (2, 3, 0, 0.0, False),
    (3, 2, 1, 0.5, True),
    (4, 1, 0, 0.0, False),
]


def test_ratio_of_each_preferred_broker(spark: SparkSession) -> None:
    partitions, topics, _ = WORLD.frames(spark)
    columns = ("broker_id", "preferred_partitions", "not_led", "ratio", "exceeds")
    same = {"cluster": CLUSTER, "snapshot_id": 3, "threshold": 0.1}
    expected = [dict(zip(columns, row, strict=True)) | same for row in EXPECTED]
    assert_rows(imbalance(partitions, topics, 3, 0.1), expected, IMBALANCE)


@pytest.mark.parametrize(("threshold", "exceeding"), [(0.0, [0, 1, 3]), (0.5, []), (0.49, [3]), (1.0, [])])
def test_the_threshold_is_strict(spark: SparkSession, threshold: float, exceeding: list[int]) -> None:
    partitions, topics, _ = WORLD.frames(spark)
    rows = as_rows(imbalance(partitions, topics, 1, threshold).where("exceeds").orderBy("broker_id"))
    assert [row["broker_id"] for row in rows] == exceeding
