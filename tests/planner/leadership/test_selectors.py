"""The leader selectors: worked examples."""

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_live_brokers
from planner.leadership import selectors
from schemas.enums import NO_LEADER
from tests.planner.frames import RuleInput, as_rows, partition_row

LIVE: Final = frozenset({1, 2, 3, 5})
OPAQUE: Final = frozenset({4})
"""A registered broker that is not understood. Brokers 7 to 9 are dead."""

Choice = tuple[int, list[int]] | None
Selector = Callable[[DataFrame], DataFrame]


def _unclean(rows: DataFrame) -> DataFrame:
    """The elections that are unclean, where those are allowed."""
    elected = selectors.offline(rows, F.lit(True))
    return elected.withColumns({name: F.when(F.col("unclean"), F.col(name)) for name in selectors.RESULT})


SELECTORS: Final[dict[str, Selector]] = {
    "clean": lambda rows: selectors.offline(rows, F.lit(False)),
    "unclean": _unclean,
    "preferred": selectors.preferred,
}


# selector, replicas, leader, ISR -> leader and ISR, None for no leader
CASES: Final[list[tuple[str, list[int], int | None, list[int] | None, Choice]]] = [
    # clean: in the order of the assignment; the ISR keeps its order and its live members
    ("clean", [7, 2, 1], 7, [1, 7, 2], (2, [1, 2])),
    ("clean", [2, 1], NO_LEADER, [1], (1, [1])),
    ("clean", [7, 1], 7, [7], None),
    ("clean", [7, 4], 7, [7, 4], None),
    ("clean", [4, 2], 7, [4, 2], (2, [4, 2])),
    ("clean", [1, 2], None, None, None),
    # unclean: the first live replica, alone; none while an assigned ISR member is online
    ("unclean", [7, 2, 1], 7, [7, 8], (2, [2])),
    ("unclean", [7, 2, 1], 7, [7, 1], None),
    ("unclean", [7, 2, 4], 7, [7, 4], None),
    ("unclean", [7, 2], 7, [7, 4], (2, [2])),  # 4 is in the ISR and not assigned: it can never lead
    ("unclean", [4, 7], 7, [7], None),
    ("unclean", [8, 7], 7, [7], None),
    ("unclean", [1, 2], None, None, None),
    # preferred: the first replica or none; the ISR stays, including dead members
    ("preferred", [1, 2], 2, [2, 9, 1], (1, [2, 9, 1])),
    ("preferred", [1, 2], 2, [2], None),
    ("preferred", [7, 2], 2, [2, 7], None),
    ("preferred", [4, 2], 2, [2, 4], None),
]


def _chosen(spark: SparkSession, rule_input: RuleInput) -> dict[str, dict[int, tuple[Any, ...]]]:
    """Apply every selector to each partition in one job, as none reads what another adds."""
    partitions, _, brokers = rule_input.frames(spark)
    rows = partitions.transform(with_live_brokers, brokers)
    for name, selector in SELECTORS.items():
        rows = rows.transform(selector).withColumns({f"by_{name}": F.struct(*selectors.RESULT)})
    chosen = {row["partition"]: row for row in as_rows(rows)}
    assert len(chosen) == len(rule_input.partitions)
    return {name: {number: tuple(row[f"by_{name}"].values()) for number, row in chosen.items()} for name in SELECTORS}


def test_each_case_by_hand(spark: SparkSession) -> None:
    rows = [partition_row(replicas, leader, isr, partition=n) for n, (_, replicas, leader, isr, _) in enumerate(CASES)]
    chosen = _chosen(spark, RuleInput(rows, live=LIVE, opaque=OPAQUE))
    expected = [(None, None, None) if choice is None else (*choice, 6) for *_, choice in CASES]
    assert [chosen[name][number] for number, (name, *_) in enumerate(CASES)] == expected
