"""The leader selectors: worked examples, and an oracle over every small partition."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_live_brokers
from planner.leadership import selectors
from schemas.enums import NO_LEADER
from schemas.rows import Row
from tests.planner.frames import RuleInput, as_rows, by_partition, partition_row
from tests.planner.rule_inputs import BATCHES, all_small_partitions, rule_inputs

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


def _chosen(
    spark: SparkSession, rule_input: RuleInput, some: Mapping[str, Selector] = SELECTORS
) -> dict[str, dict[int, tuple[Any, ...]]]:
    """Apply every selector to each partition in one job, as none reads what another adds."""
    partitions, _, brokers = rule_input.frames(spark)
    rows = partitions.transform(with_live_brokers, brokers)
    for name, selector in some.items():
        rows = rows.transform(selector).withColumns({f"by_{name}": F.struct(*selectors.RESULT)})
    chosen = {row["partition"]: row for row in as_rows(rows)}
    assert len(chosen) == len(rule_input.partitions)
    return {name: {number: tuple(row[f"by_{name}"].values()) for number, row in chosen.items()} for name in some}


def test_each_case_by_hand(spark: SparkSession) -> None:
    rows = [partition_row(replicas, leader, isr, partition=n) for n, (_, replicas, leader, isr, _) in enumerate(CASES)]
    chosen = _chosen(spark, RuleInput(rows, live=LIVE, opaque=OPAQUE))
    expected = [(None, None, None) if choice is None else (*choice, 6) for *_, choice in CASES]
    assert [chosen[name][number] for number, (name, *_) in enumerate(CASES)] == expected


def _by_hand(row: Row, rule_input: RuleInput) -> Mapping[str, Choice]:
    """`Election.scala`, one partition at a time."""
    replicas, isr = row["replicas"], row["isr"]
    if isr is None:
        return dict.fromkeys(SELECTORS)
    candidates = {
        "clean": [r for r in replicas if r in isr],
        "unclean": [] if set(isr) & set(replicas) & rule_input.registered else replicas,
        "preferred": [r for r in replicas[:1] if r in isr],
    }
    leaders = {name: next((r for r in some if r in rule_input.live), None) for name, some in candidates.items()}
    isrs = {
        "clean": [r for r in isr if r in rule_input.registered],
        "unclean": [leaders["unclean"]],
        "preferred": isr,
    }
    return {name: None if leader is None else (leader, isrs[name]) for name, leader in leaders.items()}


def _compare(spark: SparkSession, rule_input: RuleInput) -> None:
    """Each selector agrees with the oracle; its leader is live and in a non-empty ISR, at the next epoch."""
    rows = {row["partition"]: row for row in rule_input.partitions}
    for name, choices in _chosen(spark, rule_input).items():
        expected = {number: _by_hand(row, rule_input)[name] for number, row in rows.items()}
        results = {number: None if leader is None else (leader, isr) for number, (leader, isr, _) in choices.items()}
        assert results == expected, name
        elected = {number: choice for number, choice in choices.items() if choice[0] is not None}
        assert all(leader in rule_input.live and leader in isr for leader, isr, _ in elected.values())
        assert all(epoch == rows[number]["leader_epoch"] + 1 for number, (*_, epoch) in elected.items())


@BATCHES
@given(rule_inputs())
def test_against_the_oracle(spark: SparkSession, rule_input: RuleInput) -> None:
    _compare(spark, rule_input)


def test_against_the_oracle_with_every_small_partition(spark: SparkSession) -> None:
    _compare(spark, all_small_partitions())


@BATCHES
@given(rule_inputs(), st.booleans())
def test_unclean_never_passes_over_a_clean_candidate(
    spark: SparkSession,
    rule_input: RuleInput,
    allowed: bool,  # noqa: FBT001 - from Hypothesis
) -> None:
    partitions, _, brokers = rule_input.frames(spark)
    offline = partitions.transform(with_live_brokers, brokers).transform(selectors.offline, F.lit(allowed))
    by_number = {number: row for (_, number), row in by_partition(offline).items()}
    expected = {}
    for row in rule_input.partitions:
        choices = _by_hand(row, rule_input)
        chosen = choices["clean"] or (choices["unclean"] if allowed else None)
        expected[row["partition"]] = (chosen, choices["clean"] is None and chosen is not None)
    assert {
        number: (None if row["leader_after"] is None else (row["leader_after"], row["isr_after"]), row["unclean"])
        for number, row in by_number.items()
    } == expected
