"""Replicas whose log dir failed on a live broker: the responses that count, and their effect on rules."""

from typing import Any, Final

from pyspark.sql import SparkSession

from planner.columns.broker_sets import FAILED_COLUMN, with_failed
from planner.leadership.unclean_recovery import offline_partitions, without_in_sync
from schemas.enums import NO_LEADER, Action
from schemas.tables import ANSWERS
from tests.planner.frames import RuleInput, as_rows, assert_changes, assert_rejections, frame, partition_row, topic_row
from tests.planner.verdicts import reconcile_changes, reconcile_rejections

LIVE: Final = frozenset({1, 2, 3})
TOPICS: Final = [topic_row(), topic_row("unclean", config={"unclean.leader.election.enable": "true"})]

ANSWERED: Final = [
    # current leader and epoch, broker that answered 56, epoch it received -> brokers that count as failed
    (NO_LEADER, 7, [(1, 6)], [1]),
    (NO_LEADER, 6, [(1, 6)], [1]),
    (2, 7, [(1, 6), (3, 7)], [1, 3]),
    (1, 6, [(1, 6)], [1]),
    (1, 7, [(1, 6)], []),  # elected later, by a controller with newer information
    (NO_LEADER, 0, [(1, 6)], []),  # the topic was created again
    (None, None, [(1, 6)], []),
    (1, 5, [], []),
]


def test_answers_count_for_the_partition_they_were_about(spark: SparkSession) -> None:
    rows = [
        partition_row([1, 2, 3], leader, None if leader is None else [1, 2], partition=number, leader_epoch=epoch)
        for number, (leader, epoch, _, _) in enumerate(ANSWERED)
    ]
    answers = [
        {"topic": "t", "partition": number, "broker_id": broker, "leader_epoch": epoch}
        for number, (_, _, tellings, _) in enumerate(ANSWERED)
        for broker, epoch in tellings
    ]
    partitions, _, _ = RuleInput(rows).frames(spark)

    marked = with_failed(partitions, frame(spark, answers, ANSWERS))

    assert {row["partition"]: row[FAILED_COLUMN] for row in as_rows(marked)} == dict(
        enumerate(case[3] for case in ANSWERED)
    )


def _rule_input() -> RuleInput:
    cases: list[tuple[str, int, list[int], list[int]]] = [
        ("t", NO_LEADER, [1, 2, 3], [1]),
        ("t", 1, [1, 2], [1]),
        ("t", NO_LEADER, [1], [1]),
        ("t", 1, [1], [1]),
        ("unclean", NO_LEADER, [1], [1]),
        ("t", 2, [1, 2], [1]),
        ("t", 2, [2, 1, 7], [1]),
        ("t", 7, [7, 1], [1]),
        ("t", NO_LEADER, [1, 2], []),
    ]
    rows = [
        partition_row([1, 2, 3], leader, isr, topic=topic, partition=number, **{FAILED_COLUMN: failed})
        for number, (topic, leader, isr, failed) in enumerate(cases)
    ]
    return RuleInput(rows, TOPICS, LIVE)


SAID: Final = "failed log dir on broker 1 (error 56)"


def _elected(partition: int, leader: int, isr: list[int], reason: str, topic: str = "t") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "action": Action.ELECT,
        "leader_after": leader,
        "isr_after": isr,
        "requires_live": [leader, 1],
        "requires_dead": [],
        "reason": f"{reason}; {SAID}",
    }


ELECTED: Final = [
    _elected(0, 2, [2, 3], "no leader; first live in-sync replica is 2"),
    _elected(1, 2, [2], "the log dir of broker 1 failed; first live in-sync replica is 2"),
    _elected(4, 2, [2], "no leader; unclean election of 2 may lose data", topic="unclean"),
    {
        **_elected(8, 1, [1, 2], ""),
        "requires_live": [1],
        "reason": "no leader; first live in-sync replica is 1",
    },
]


def test_reconcile_elects_past_them(spark: SparkSession) -> None:
    """A failed follower leaves the ISR at once; a live broker is never in requires_dead."""
    taken = {"topic": "t", "action": Action.TAKE_OFFLINE, "leader_after": NO_LEADER, "requires_live": [1]}
    others = [
        {**taken, "partition": 3, "isr_after": [1], "requires_dead": []}
        | {"reason": f"no in-sync replica is live: ISR 1; {SAID}"},
        {**taken, "partition": 7, "isr_after": [7, 1], "requires_dead": [7]}
        | {"reason": f"no in-sync replica is live: ISR 7, 1; {SAID}"},
        {"topic": "t", "partition": 5, "action": Action.SHRINK_ISR, "leader_after": 2, "isr_after": [2]}
        | {"requires_live": [2, 1], "requires_dead": [], "reason": f"removed from the ISR: 1; {SAID}"},
        {"topic": "t", "partition": 6, "action": Action.SHRINK_ISR, "leader_after": 2, "isr_after": [2]}
        | {"requires_live": [2, 1], "requires_dead": [7], "reason": f"removed from the ISR: 1, 7; {SAID}"},
    ]
    assert_changes(reconcile_changes(*_rule_input().frames_and_configs(spark)), [*ELECTED, *others])


def test_reconcile_names_failed_log_dirs(spark: SparkSession) -> None:
    expected_reasons = {2: "no in-sync replica can lead: ISR 1", 3: "no in-sync replica can lead: ISR 1"}
    expected_reasons[7] = "no in-sync replica can lead: ISR 7, 1"
    expected = [{"partition": number, "reason": f"{reason}; {SAID}"} for number, reason in expected_reasons.items()]
    assert_rejections(reconcile_rejections(*_rule_input().frames_and_configs(spark)), expected)


def test_recover_offers_an_unclean_election_where_the_isr_failed(spark: SparkSession) -> None:
    offline = offline_partitions(*_rule_input().frames(spark))

    offered = {(row["topic"], row["partition"]): row["live_replicas"] for row in as_rows(without_in_sync(offline))}

    assert offered == {("t", 2): [2, 3], ("t", 3): [2, 3], ("unclean", 4): [2, 3], ("t", 7): [2, 3]}
