"""Preferred replica elections: each rejection, the unchanged ISR, and a worked example."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from planner.leadership.imbalance import imbalance
from planner.leadership.preferred_election import candidates_by_imbalance
from schemas.enums import NO_LEADER, RECOVERING, Action, RejectionCode
from schemas.rows import Row
from schemas.tables import IMBALANCE, PARTITIONS
from tests.planner.frames import (
    CLUSTER,
    TOPIC_ID,
    RuleInput,
    as_rows,
    assert_changes,
    assert_rejections,
    assert_rows,
    by_partition,
    frame,
    partition_row,
    topic_row,
)
from tests.planner.rule_inputs import BATCHES, applied, rule_inputs
from tests.planner.verdicts import preferred_changes, preferred_rejections

LIVE: Final = frozenset({0, 1, 2})
OPAQUE: Final = frozenset({4})
TOPICS: Final = [topic_row("plain"), topic_row("deleted", deletion_requested=True), topic_row("kept")]

# topic, replicas, leader, ISR -> new leader, or the code and reason
Case = tuple[str, list[int], int | None, list[int] | None, int | None, RejectionCode | None, str | None]
LED_BY_DEAD: Final = "already led by its preferred replica 9, which is not live"

CASES: Final[list[Case]] = [
    ("plain", [1, 2, 0], 2, [2, 1, 0], 1, None, None),
    ("plain", [0, 2], 2, [2, 0], 0, None, None),
    # a missing or dead leader may be replaced; this election does not change the ISR
    ("plain", [1, 2], NO_LEADER, [9, 1], 1, None, None),
    ("plain", [1, 9], 9, [9, 1], 1, None, None),
    ("plain", [1, 2], 1, [1, 2], None, RejectionCode.ALREADY_PREFERRED, "already led by its preferred replica 1"),
    ("plain", [9, 2], 9, [9, 2], None, RejectionCode.ALREADY_PREFERRED, LED_BY_DEAD),
    ("plain", [9, 2], 2, [2, 9], None, RejectionCode.PREFERRED_NOT_ALIVE, "preferred replica 9 is not live"),
    ("plain", [1, 2], 2, [2], None, RejectionCode.PREFERRED_NOT_IN_ISR, "preferred replica 1 is not in the ISR"),
    ("plain", [1, 2], None, None, None, RejectionCode.NO_STATE, "it has no state znode yet"),
    ("deleted", [1, 2], 2, [2, 1], None, RejectionCode.DELETION_REQUESTED, "its topic is queued for deletion"),
    ("kept", [1, 2], 2, [2, 1], None, RejectionCode.NOT_UNDERSTOOD, "it is in quarantine"),
    # registered but not understood: never elected, and never replaced
    ("plain", [4, 2], 2, [2, 4], None, RejectionCode.PREFERRED_NOT_ALIVE, "preferred replica 4 is not live"),
    (
        "plain",
        [1, 4],
        4,
        [4, 1],
        None,
        RejectionCode.NOT_UNDERSTOOD,
        "its leader 4 is live, but its registration is in quarantine",
    ),
]
WORLD: Final = RuleInput(
    [
        partition_row(replicas, leader, isr, topic=topic, partition=number, understood=topic != "kept")
        for number, (topic, replicas, leader, isr, *_) in enumerate(CASES)
    ],
    TOPICS,
    LIVE,
    OPAQUE,
)


def test_the_preferred_replica_leads_where_it_can(spark: SparkSession) -> None:
    partitions, topics, brokers = WORLD.frames(spark)
    candidates = partitions.select("topic", "partition")
    expected = [
        {
            "topic": topic,
            "partition": number,
            "action": Action.ELECT_PREFERRED,
            "leader_after": elected,
            "leader_epoch_after": 6,
            "isr_after": isr,
            "reason": f"preferred replica {elected} is live and in the ISR",
        }
        for number, (topic, _, _, isr, elected, _, _) in enumerate(CASES)
        if elected is not None
    ]
    assert_changes(preferred_changes(partitions, topics, brokers, candidates), expected)


def test_each_reason_why_it_cannot_is_a_rejection(spark: SparkSession) -> None:
    partitions, topics, brokers = WORLD.frames(spark)
    unknown = [{"topic": "nowhere", "partition": 0}, {"topic": "plain", "partition": 999}]
    candidates = partitions.select("topic", "partition").union(
        frame(spark, unknown, PARTITIONS).select("topic", "partition"),
    )
    expected = [
        {"topic": case[0], "partition": number, "action": Action.ELECT_PREFERRED, "code": case[5], "reason": case[6]}
        for number, case in enumerate(CASES)
        if case[5] is not None
    ] + [
        {
            **partition,
            "action": Action.ELECT_PREFERRED,
            "code": RejectionCode.UNKNOWN_PARTITION,
            "reason": "no such partition in the snapshot",
        }
        for partition in unknown
    ]
    assert_rejections(preferred_rejections(partitions, topics, brokers, candidates), expected)


def test_a_partition_asked_for_twice_changes_once(spark: SparkSession) -> None:
    """Everything but the leader stays: ISR, replicas, recovery state, a running reassignment."""
    row = partition_row([1, 2, 9], 2, [9, 2, 1], leader_recovery_state=RECOVERING, adding_replicas=[1])
    partitions, topics, brokers = RuleInput([row], live=LIVE).frames(spark)
    once = partitions.select("topic", "partition")
    expected = {
        "replicas_before": [1, 2, 9],
        "replicas_after": [1, 2, 9],
        "adding_before": [1],
        "adding_after": [1],
        "leader_before": 2,
        "leader_after": 1,
        "isr_before": [9, 2, 1],
        "isr_after": [9, 2, 1],
        "leader_epoch_before": 5,
        "leader_epoch_after": 6,
        "leader_recovery_state_before": RECOVERING,
        "leader_recovery_state_after": RECOVERING,
        "state_version": 4,
        "topic_version": 2,
        "topic_id": TOPIC_ID,
        "is_new": False,
        "leader_and_isr_to": [1, 2],
        "requires_live": [1],
        "requires_dead": [],
    }
    assert_changes(preferred_changes(partitions, topics, brokers, once.union(once)), [expected])


def test_partition_rebalance(spark: SparkSession) -> None:
    """15 partitions prefer brokers 0 to 2 in turn; broker 2 leads only P2 of its five, so P5, P8, P11, P14 return."""
    led_by_others = {5: 0, 8: 1, 11: 0, 14: 1}
    rows = [
        partition_row([p % 3, (p + 1) % 3, (p + 2) % 3], led_by_others.get(p, p % 3), [0, 1, 2], partition=p)
        for p in range(15)
    ]
    partitions, topics, brokers = RuleInput(rows, live=LIVE).frames(spark)
    skew = imbalance(partitions, topics, snapshot_id=1, threshold=0.1)
    changes = preferred_changes(partitions, topics, brokers, candidates_by_imbalance(partitions, skew))
    expected = [
        {"partition": p, "leader_before": leader, "leader_after": 2, "isr_after": [0, 1, 2]}
        for p, leader in led_by_others.items()
    ]
    assert_changes(changes, expected)


def test_only_brokers_above_the_threshold_are_considered(spark: SparkSession) -> None:
    """Broker 1 leads 9 of 10, at the threshold; broker 2 leads 8 of 10, above it. New partitions do not count."""
    rows = [
        *(partition_row([1, 0], 0 if p == 0 else 1, [1, 0], partition=p) for p in range(10)),
        *(partition_row([2, 0], 0 if p < 12 else 2, [2, 0], partition=p) for p in range(10, 20)),
        partition_row([2, 0], None, None, partition=20),
    ]
    partitions, topics, _ = RuleInput(rows, live=LIVE).frames(spark)
    skew = imbalance(partitions, topics, snapshot_id=1, threshold=0.1)
    candidates = by_partition(candidates_by_imbalance(partitions, skew))
    assert sorted(candidates) == [("t", 10), ("t", 11)]


@BATCHES
@given(rule_inputs())
def test_elections_are_sound_and_idempotent(spark: SparkSession, rule_input: RuleInput) -> None:
    partitions, topics, brokers = rule_input.frames(spark)
    candidates = partitions.select("topic", "partition")
    changes = by_partition(preferred_changes(partitions, topics, brokers, candidates))
    after, _, _ = applied(rule_input, changes).frames(spark)
    assert by_partition(preferred_changes(after, topics, brokers, candidates)) == {}
    assert all(
        change["leader_after"] in rule_input.live & set(change["isr_after"])
        and change["isr_after"] == change["isr_before"]
        and change["leader_epoch_after"] == change["leader_epoch_before"] + 1
        for change in changes.values()
    )


def _prefer(broker: int, leaders: Sequence[int | None], first: int = 0, topic: str = "t") -> list[Row]:
    """Return partitions of a topic that prefer one broker, led by these leaders."""
    return [
        partition_row([broker, 9], leader, None if leader is None else [9], partition=number, topic=topic)
        for number, leader in enumerate(leaders, first)
    ]


IMBALANCED: Final = RuleInput(
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
    partitions, topics, _ = IMBALANCED.frames(spark)
    columns = ("broker_id", "preferred_partitions", "not_led", "ratio", "exceeds")
    same = {"cluster": CLUSTER, "snapshot_id": 3, "threshold": 0.1}
    expected = [dict(zip(columns, row, strict=True)) | same for row in EXPECTED]
    assert_rows(imbalance(partitions, topics, 3, 0.1), expected, IMBALANCE)


@pytest.mark.parametrize(("threshold", "exceeding"), [(0.0, [0, 1, 3]), (0.5, []), (0.49, [3]), (1.0, [])])
def test_the_threshold_is_strict(spark: SparkSession, threshold: float, exceeding: list[int]) -> None:
    partitions, topics, _ = IMBALANCED.frames(spark)
    rows = as_rows(imbalance(partitions, topics, 1, threshold).where("exceeds").orderBy("broker_id"))
    assert [row["broker_id"] for row in rows] == exceeding
