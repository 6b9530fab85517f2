"""Requested elections without a live leader: every code, an oracle, invariants of every plan, and transitions."""

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_live_brokers
from planner.columns.requested_partitions import join_requested
from planner.leadership.offline_election import (
    candidates_without_leader,
    changes_of,
    may_transition,
    offline_verdicts,
    rejections_of,
    with_transition,
)
from planner.rules.state_machines import TRANSITIONS
from schemas.enums import NO_LEADER, Action, PartitionState, RejectionCode
from schemas.rows import Row
from schemas.tables import PARTITIONS
from tests.planner import oracle
from tests.planner.frames import (
    RuleInput,
    assert_changes,
    assert_rejections,
    by_partition,
    frame,
    partition_row,
    topic_row,
)
from tests.planner.rule_inputs import BATCHES, all_small_partitions, applied, rule_inputs

TOPICS: Final = [
    topic_row("plain"),
    topic_row("unclean", config={"unclean.leader.election.enable": "true"}),
    topic_row("deleted", deletion_requested=True),
    topic_row("kept"),
]
CODES: Final = RejectionCode

# topic, replicas, leader, ISR -> leader and ISR with --offline, with --unclean; or the code
Verdict = tuple[int, list[int]] | RejectionCode
CASES: Final[list[tuple[str, list[int], int | None, list[int] | None, Verdict, Verdict]]] = [
    ("plain", [7, 2, 1], 7, [1, 7, 2], (2, [1, 2]), (2, [1, 2])),
    ("plain", [7, 2], NO_LEADER, [2], (2, [2]), (2, [2])),
    ("plain", [7, 2], 7, [7], CODES.NO_ELIGIBLE_LEADER, (2, [2])),
    ("unclean", [7, 2], 7, [7], (2, [2]), (2, [2])),
    ("unclean", [7, 2, 1], 7, [7, 1], (1, [1]), (1, [1])),
    ("plain", [7, 4, 1], 7, [7, 4], CODES.NO_ELIGIBLE_LEADER, CODES.NO_ELIGIBLE_LEADER),
    ("plain", [7, 8], 7, [7], CODES.NO_ELIGIBLE_LEADER, CODES.NO_ELIGIBLE_LEADER),
    ("plain", [1, 7], 1, [1, 7], CODES.ELECTION_NOT_NEEDED, CODES.ELECTION_NOT_NEEDED),
    ("plain", [4, 1], 4, [4, 1], CODES.ELECTION_NOT_NEEDED, CODES.ELECTION_NOT_NEEDED),
    ("plain", [1, 2], None, None, CODES.ILLEGAL_TRANSITION, CODES.ILLEGAL_TRANSITION),
    ("deleted", [7, 1], 7, [7, 1], CODES.DELETION_REQUESTED, CODES.DELETION_REQUESTED),
    ("kept", [7, 1], 7, [7, 1], CODES.NOT_UNDERSTOOD, CODES.NOT_UNDERSTOOD),
]
REASONS: Final = {
    2: "no in-sync replica can lead: ISR 7",
    5: "no in-sync replica can lead: ISR 7, 4; live but cannot be elected: 4",
    6: "no replica is live: 7, 8",
    7: "its leader 1 is live",
    8: "its leader 4 is live",
    9: "it is New; elect leads to Online from Online, Offline only",
    10: "its topic is queued for deletion",
    11: "it is in quarantine",
}


def _rule_input() -> RuleInput:
    rows = [
        partition_row(replicas, leader, isr, topic=topic, partition=number, understood=topic != "kept")
        for number, (topic, replicas, leader, isr, *_) in enumerate(CASES)
    ]
    return RuleInput(rows, TOPICS, frozenset({1, 2}), frozenset({4}))


def _verdicts(
    spark: SparkSession, rule_input: RuleInput, candidates: DataFrame | None = None, *, unclean: bool
) -> DataFrame:
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    considered = join_requested(partitions if candidates is None else candidates, partitions, topics, brokers)
    return offline_verdicts(considered, configs, unclean=unclean)


def test_each_case_by_hand(spark: SparkSession) -> None:
    for unclean in (False, True):
        expected = [
            {
                "topic": case[0],
                "partition": number,
                "action": Action.ELECT,
                "leader_after": elected[0],
                "isr_after": elected[1],
                "leader_epoch_after": 6,
                "requires_live": [elected[0]],
            }
            for number, case in enumerate(CASES)
            if isinstance(elected := case[5 if unclean else 4], tuple)
        ]
        assert_changes(changes_of(_verdicts(spark, _rule_input(), unclean=unclean)), expected)


def test_each_reason_without_an_election(spark: SparkSession) -> None:
    unknown: list[Row] = [{"topic": "nowhere", "partition": 0}, {"topic": "plain", "partition": 999}]
    rule_input = _rule_input()
    candidates = frame(spark, [*rule_input.partitions, *unknown, *unknown], PARTITIONS)
    expected = [
        {"topic": case[0], "partition": n, "action": Action.ELECT, "code": case[4], "reason": REASONS[n]}
        for n, case in enumerate(CASES)
        if isinstance(case[4], RejectionCode)
    ]
    nowhere = {"action": Action.ELECT, "code": CODES.UNKNOWN_PARTITION, "reason": "no such partition in the snapshot"}
    expected += [row | nowhere for row in unknown]
    assert_rejections(rejections_of(_verdicts(spark, rule_input, candidates, unclean=False)), expected)


def test_all_without_a_live_leader_are_considered(spark: SparkSession) -> None:
    partitions, _, brokers = _rule_input().frames(spark)
    candidates = sorted(number for _, number in by_partition(candidates_without_leader(partitions, brokers)))
    assert candidates == [0, 1, 2, 3, 4, 5, 6, 10, 11]


def _expected(row: Row, rule_input: RuleInput, *, unclean: bool) -> Row | str:
    conditions = {
        "DELETION_REQUESTED": row["topic"] == oracle.DELETED,
        "NOT_UNDERSTOOD": not row["understood"],
        "ILLEGAL_TRANSITION": row["leader"] is None,
        "ELECTION_NOT_NEEDED": row["leader"] in rule_input.registered,
    }
    for code, holds in conditions.items():
        if holds:
            return code
    allowed = unclean or oracle.unclean_allowed(row, rule_input)
    chosen = oracle.offline_election(row, rule_input, unclean=allowed)
    if chosen is None:
        return "NO_ELIGIBLE_LEADER"
    names = ("action", "leader", "isr", "recovery", "epoch")
    return dict(zip(names, ("elect", *chosen, row["leader_epoch"] + 1), strict=True))


@BATCHES
@given(rule_inputs(), st.booleans())
@example(rule_input=all_small_partitions(), unclean=False)
@example(rule_input=all_small_partitions(), unclean=True)
def test_against_the_oracle_and_once_is_enough(
    spark: SparkSession,
    rule_input: RuleInput,
    unclean: bool,  # noqa: FBT001 - from Hypothesis
) -> None:
    verdicts = _verdicts(spark, rule_input, unclean=unclean).localCheckpoint()
    changes, rejections = by_partition(changes_of(verdicts)), by_partition(rejections_of(verdicts))
    outcomes = {k: oracle.outcome_columns(c) for k, c in changes.items()} | {
        k: r["code"] for k, r in rejections.items()
    }
    expected = {
        (row["topic"], row["partition"]): _expected(row, rule_input, unclean=unclean) for row in rule_input.partitions
    }
    after = changes_of(_verdicts(spark, applied(rule_input, changes), unclean=unclean))
    assert (outcomes, by_partition(after)) == (expected, {})
    assert NO_LEADER not in {change["leader_after"] for change in changes.values()}
    assert all(rule_input.registered.isdisjoint(change["requires_dead"]) for change in changes.values())


NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState

# leader, ISR, replicas -> state; reason why there is no election
STATES: Final = [
    ([1, 2], 1, [1], ONLINE, None),
    ([4, 2], 4, [4], ONLINE, None),
    ([7, 2], 7, [7], OFFLINE, None),
    ([7, 2], NO_LEADER, [7], OFFLINE, None),
    ([1, 2], None, None, NEW, "it is New; elect leads to Online from Online, Offline only"),
]


@pytest.mark.parametrize("action", TRANSITIONS)
def test_legal_for_every_state(spark: SparkSession, action: Action) -> None:
    _, starts = TRANSITIONS[action]
    rows = spark.createDataFrame([(state.value,) for state in PartitionState], "state string")
    states = {row.state for row in rows.where(may_transition(F.col("state"), action)).collect()}
    assert states == {start.value for start in starts}


def test_an_election_starts_from_where_there_was_a_leader(spark: SparkSession) -> None:
    rows = [partition_row(replicas, leader, isr, partition=n) for n, (replicas, leader, isr, *_) in enumerate(STATES)]
    partitions, _, brokers = RuleInput(rows, live=frozenset({1, 2}), opaque=frozenset({4})).frames(spark)
    absent = F.lit(None).cast("array<int>")
    unknown = partitions.limit(1).withColumns({"partition": F.lit(99), "replicas": absent})
    examined = partitions.unionByName(unknown).transform(with_live_brokers, brokers)
    transitions = by_partition(with_transition(examined, Action.ELECT))
    expected = {("t", n): (state.value, reason) for n, (*_, state, reason) in enumerate(STATES)}
    expected["t", 99] = (NON_EXISTENT.value, "it is NonExistent; elect leads to Online from Online, Offline only")
    assert {key: (row["state"], row["illegal"]) for key, row in transitions.items()} == expected
