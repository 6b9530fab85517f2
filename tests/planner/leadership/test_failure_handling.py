"""Elections after failures, ISR shrinks and first leaders: worked examples in one input."""

from dataclasses import replace
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from schemas.enums import NO_LEADER, RECOVERED, RECOVERING, Action, RejectionCode
from schemas.rows import Row
from tests.planner.frames import (
    TOPIC_ID,
    RuleInput,
    assert_changes,
    assert_rejections,
    config_row,
    partition_row,
    topic_row,
)
from tests.planner.verdicts import reconcile_changes, reconcile_rejections

LIVE: Final = frozenset({1, 2, 3})
OPAQUE: Final = frozenset({4})
"""A broker that is registered, so alive, but its znode could not be decoded. Brokers 7, 8 and 9 are dead."""

TOPICS: Final = [
    topic_row("plain"),
    topic_row("unclean", config={"unclean.leader.election.enable": "True"}),
    topic_row("clean", config={"unclean.leader.election.enable": "false"}),
    topic_row("deleted", deletion_requested=True, config={"unclean.leader.election.enable": "true"}),
    topic_row("kept", understood=False),
]

CREATE, ELECT, OFFLINE, SHRINK = Action.CREATE, Action.ELECT, Action.TAKE_OFFLINE, Action.SHRINK_ISR
DOWN, OPAQUE_ZNODE = RejectionCode.NO_ELIGIBLE_LEADER, RejectionCode.NOT_UNDERSTOOD

# topic, replicas, leader, ISR -> action, leader, ISR, leader epoch; rejection
Case = tuple[
    str,
    list[int],
    int | None,
    list[int] | None,
    tuple[Action, int, list[int], int] | None,
    RejectionCode | None,
]
CASES: Final[list[Case]] = [
    # no change needed
    ("plain", [1, 2, 3], 1, [1, 2, 3], None, None),
    ("plain", [1, 2, 3], 2, [2], None, None),
    ("plain", [1, 7], 1, [1], None, None),
    # a clean election: the first in the assignment, not in the ISR, whose order is kept
    ("plain", [7, 2, 1], 7, [7, 1, 2], (ELECT, 2, [1, 2], 6), None),
    ("plain", [3, 7, 1, 2], 7, [2, 7, 1], (ELECT, 1, [2, 1], 6), None),
    ("plain", [2, 3, 1], NO_LEADER, [3, 1], (ELECT, 3, [3, 1], 6), None),
    ("plain", [8, 7, 1], NO_LEADER, [8, 1, 7], (ELECT, 1, [1], 6), None),
    ("clean", [7, 8, 3], 7, [7, 8, 3], (ELECT, 3, [3], 6), None),
    # while a clean candidate is live, there is no unclean election
    ("unclean", [1, 7, 2], 7, [7, 2], (ELECT, 2, [2], 6), None),
    # no replica in sync is live: recorded once, with the whole ISR kept
    ("plain", [7, 1, 2], 7, [7], (OFFLINE, NO_LEADER, [7], 6), DOWN),
    ("plain", [7, 8, 1], 7, [8, 7], (OFFLINE, NO_LEADER, [8, 7], 6), DOWN),
    ("clean", [7, 1], 7, [7], (OFFLINE, NO_LEADER, [7], 6), DOWN),
    ("plain", [7, 1, 2], NO_LEADER, [7], None, DOWN),
    # an unclean election, only if the topic allows it; the ISR is the leader alone
    ("unclean", [7, 2, 1], 7, [7], (ELECT, 2, [2], 6), None),
    ("unclean", [7, 8, 1], NO_LEADER, [7, 8], (ELECT, 1, [1], 6), None),
    ("unclean", [7, 8], 7, [7], (OFFLINE, NO_LEADER, [7], 6), DOWN),
    ("unclean", [7, 8], NO_LEADER, [7], None, DOWN),
    # dead followers leave the ISR all at once; the leader stays
    ("plain", [2, 7, 1], 2, [7, 2, 1], (SHRINK, 2, [2, 1], 6), None),
    ("plain", [7, 8, 1], 1, [8, 1, 7], (SHRINK, 1, [1], 6), None),
    # first leaders
    ("plain", [7, 3, 1], None, None, (CREATE, 3, [3, 1], 0), None),
    ("plain", [2, 1], None, None, (CREATE, 2, [2, 1], 0), None),
    ("plain", [7, 8], None, None, None, DOWN),
    # an empty ISR: no replica is in sync, and it is unknown which ones were
    ("plain", [1, 2], NO_LEADER, [], None, DOWN),
    ("unclean", [7, 2, 1], NO_LEADER, [], (ELECT, 2, [2], 6), None),
    ("plain", [1, 2], 1, [], None, None),
    ("plain", [7, 1], 7, [], None, DOWN),
    # a live leader outside the ISR or the replicas: no change, as in Kafka
    ("plain", [1, 2], 1, [2], None, None),
    ("unclean", [2, 3], 1, [2, 3], None, None),
    # registered but not understood: never elected, and never treated as dead
    ("plain", [4, 1], 4, [4, 1], None, None),
    ("plain", [4, 1], 4, [4, 1, 7], (SHRINK, 4, [4, 1], 6), None),
    ("plain", [4, 7, 1], 7, [7, 4, 1], (ELECT, 1, [4, 1], 6), None),
    ("plain", [7, 4, 1], 7, [7, 4], None, DOWN),
    ("unclean", [7, 4, 1], 7, [7, 4], None, DOWN),
    ("unclean", [4, 7, 1], 7, [7], (ELECT, 1, [1], 6), None),
    ("unclean", [4, 7], 7, [7], (OFFLINE, NO_LEADER, [7], 6), DOWN),
    ("plain", [4, 1], None, None, (CREATE, 1, [1], 0), None),
    ("plain", [4], None, None, None, DOWN),
    # queued for deletion: no change and no rejection
    ("deleted", [7, 1], 7, [7, 1], None, None),
    ("deleted", [7, 1], 7, [7], None, None),
    ("deleted", [1, 7], 1, [1, 7], None, None),
    ("deleted", [1, 7], None, None, None, None),
    # a znode in quarantine: no change
    ("kept", [7, 1], 7, [7, 1], None, OPAQUE_ZNODE),
    ("kept", [1, 7], 1, [1, 7], None, OPAQUE_ZNODE),
    ("kept", [1, 7], None, None, None, OPAQUE_ZNODE),
]


def _rule_input(cases: list[Case]) -> RuleInput:
    partitions = [
        partition_row(replicas, leader, isr, topic=topic, partition=number, understood=topic != "kept")
        for number, (topic, replicas, leader, isr, _, _) in enumerate(cases)
    ]
    return RuleInput(partitions, TOPICS, LIVE, OPAQUE)


def _expected(cases: list[Case]) -> list[dict[str, Any]]:
    return [
        {
            "topic": case[0],
            "partition": number,
            "action": case[4][0],
            "leader_after": case[4][1],
            "isr_after": case[4][2],
            "leader_epoch_after": case[4][3],
        }
        for number, case in enumerate(cases)
        if case[4] is not None
    ]


def test_each_partition_gets_the_change_that_is_due(spark: SparkSession) -> None:
    assert_changes(reconcile_changes(*_rule_input(CASES).frames_and_configs(spark)), _expected(CASES))


def test_each_partition_that_stays_down_or_unread_is_rejected(spark: SparkSession) -> None:
    expected = [
        {"topic": case[0], "partition": number, "action": Action.ELECT, "code": case[5]}
        for number, case in enumerate(CASES)
        if case[5] is not None
    ]
    assert_rejections(reconcile_rejections(*_rule_input(CASES).frames_and_configs(spark)), expected)


def test_unclean_elections_can_be_allowed_for_all_topics(spark: SparkSession) -> None:
    cases: list[Case] = [
        ("plain", [7, 2, 1], 7, [7], (ELECT, 2, [2], 6), None),
        ("clean", [8, 7, 3], NO_LEADER, [7], (ELECT, 3, [3], 6), None),
        ("plain", [7, 2, 1], 7, [7, 1], (ELECT, 1, [1], 6), None),
        ("plain", [7, 4, 1], 7, [7, 4], None, DOWN),
        ("plain", [7, 8], 7, [7], (OFFLINE, NO_LEADER, [7], 6), DOWN),
        ("plain", [1, 2], 1, [1], None, None),
        ("deleted", [7, 1], 7, [7], None, None),
    ]
    changes = reconcile_changes(*_rule_input(cases).frames_and_configs(spark), allow_unclean=True)
    assert_changes(changes, _expected(cases))


def _unclean_config(value: str | None, *, assumed: bool = False, broker_id: int = 1) -> Row:
    return config_row(broker_id, "unclean.leader.election.enable", value, assumed=assumed)


YES: Final = _unclean_config("true")


@pytest.mark.parametrize(
    ("configs", "allowed"),
    [
        ([YES, _unclean_config("True", broker_id=2)], True),
        ([YES, config_row(1, "delete.topic.enable", "false")], True),
        ([YES, _unclean_config("false", broker_id=2)], False),
        ([YES, _unclean_config("true", broker_id=2, assumed=True)], False),
        ([YES, _unclean_config(None, broker_id=2)], False),
        ([config_row(1, "delete.topic.enable", "true")], False),
        ([], False),
    ],
)
def test_brokers_allow_unclean_elections_where_all_are_known_to(
    spark: SparkSession,
    configs: list[Row],
    allowed: bool,  # noqa: FBT001 - from the table
) -> None:
    """For topics without the config; a topic that forbids it, is queued for deletion or was not read is not elected."""
    by_brokers = (ELECT, 2, [2], 6) if allowed else (OFFLINE, NO_LEADER, [7], 6)
    cases: list[Case] = [
        ("plain", [7, 2, 1], 7, [7], by_brokers, None),
        ("plain", [7, 2, 1], 7, [7, 1], (ELECT, 1, [1], 6), None),
        ("clean", [7, 2, 1], 7, [7], (OFFLINE, NO_LEADER, [7], 6), None),
        ("unclean", [7, 2, 1], 7, [7], (ELECT, 2, [2], 6), None),
        ("deleted", [7, 2, 1], 7, [7], None, None),
        ("unlisted", [7, 2, 1], 7, [7], (OFFLINE, NO_LEADER, [7], 6), None),
    ]
    rule_input = replace(_rule_input(cases), configs=configs)
    assert_changes(reconcile_changes(*rule_input.frames_and_configs(spark)), _expected(cases))


def test_without_brokers_nothing_is_elected(spark: SparkSession) -> None:
    partitions = [partition_row([1, 2], 1, [1, 2]), partition_row([1, 2], None, None, partition=1)]
    changes = reconcile_changes(*RuleInput(partitions).frames_and_configs(spark), allow_unclean=True)
    assert_changes(changes, [{"partition": 0, "action": OFFLINE, "leader_after": NO_LEADER, "isr_after": [1, 2]}])


def test_a_change_says_everything(spark: SparkSession) -> None:
    moving = {"adding_replicas": [3], "removing_replicas": [8]}
    partitions = [
        partition_row([3, 2, 8, 7], 7, [7, 3, 2], topic="plain", leader_recovery_state=RECOVERING, **moving),
        partition_row([7, 2], 7, [7], topic="unclean"),
        partition_row([1, 7], None, None, topic="clean"),
        partition_row([2, 7, 8], 2, [7, 2, 8], topic="plain", partition=1),
        partition_row([7, 1], 7, [7, 8], topic="plain", partition=2),
    ]
    before = {
        "cluster": "test",
        "wave": 0,
        "leader_epoch_before": 5,
        "controller_epoch_before": 7,
        "leader_recovery_state_before": RECOVERED,
        "leader_recovery_state_after": RECOVERED,
        "leader_epoch_after": 6,
        "adding_before": [],
        "adding_after": [],
        "removing_before": [],
        "removing_after": [],
        "state_version": 4,
        "topic_version": 2,
        "topic_id": TOPIC_ID,
        "is_new": False,
    }
    expected = [
        before
        | {
            "topic": "plain",
            "partition": 0,
            "action": ELECT,
            "replicas_before": [3, 2, 8, 7],
            "replicas_after": [3, 2, 8, 7],
            "adding_before": [3],
            "adding_after": [3],
            "removing_before": [8],
            "removing_after": [8],
            "leader_before": 7,
            "leader_after": 3,
            "isr_before": [7, 3, 2],
            "isr_after": [3, 2],
            "leader_recovery_state_before": RECOVERING,
            "leader_recovery_state_after": RECOVERING,
            "leader_and_isr_to": [3, 2],
            "requires_live": [3],
            "requires_dead": [7],
            "reason": "broker 7 is not live; first live in-sync replica is 3",
        },
        before
        | {
            "topic": "unclean",
            "partition": 0,
            "action": ELECT,
            "replicas_before": [7, 2],
            "replicas_after": [7, 2],
            "leader_before": 7,
            "leader_after": 2,
            "isr_before": [7],
            "isr_after": [2],
            "leader_recovery_state_after": RECOVERING,
            "leader_and_isr_to": [2],
            "requires_live": [2],
            "requires_dead": [7],
            "reason": "broker 7 is not live; unclean election of 2 may lose data",
        },
        before
        | {
            "topic": "clean",
            "partition": 0,
            "action": CREATE,
            "replicas_before": [1, 7],
            "replicas_after": [1, 7],
            "leader_before": None,
            "leader_after": 1,
            "isr_before": None,
            "isr_after": [1],
            "leader_epoch_before": None,
            "leader_epoch_after": 0,
            "controller_epoch_before": None,
            "leader_recovery_state_before": None,
            "state_version": -1,
            "is_new": True,
            "leader_and_isr_to": [1],
            "requires_live": [1],
            "requires_dead": [],
            "reason": "no state yet: first live replica leads, live replicas are in sync",
        },
        before
        | {
            "topic": "plain",
            "partition": 1,
            "action": SHRINK,
            "replicas_before": [2, 7, 8],
            "replicas_after": [2, 7, 8],
            "leader_before": 2,
            "leader_after": 2,
            "isr_before": [7, 2, 8],
            "isr_after": [2],
            "leader_and_isr_to": [2],
            "requires_live": [2],
            "requires_dead": [7, 8],
            "reason": "removed from the ISR: 7, 8",
        },
        before
        | {
            "topic": "plain",
            "partition": 2,
            "action": OFFLINE,
            "replicas_before": [7, 1],
            "replicas_after": [7, 1],
            "leader_before": 7,
            "leader_after": NO_LEADER,
            "isr_before": [7, 8],
            "isr_after": [7, 8],
            "leader_and_isr_to": [1],
            "requires_live": [],
            "requires_dead": [7, 8],
            "reason": "no in-sync replica is live: ISR 7, 8",
        },
    ]
    assert_changes(reconcile_changes(*RuleInput(partitions, TOPICS, LIVE, OPAQUE).frames_and_configs(spark)), expected)


def test_a_rejection_names_live_replicas(spark: SparkSession) -> None:
    partitions = [
        partition_row([7, 4, 1], 7, [7, 4], topic="plain"),
        partition_row([7, 8], NO_LEADER, [8, 7], topic="plain", partition=1),
        partition_row([8, 4], None, None, topic="plain", partition=2),
    ]
    expected = [
        {"partition": 0, "reason": "no in-sync replica can lead: ISR 7, 4; live but cannot be elected: 4"},
        {"partition": 1, "reason": "no replica is live: 7, 8"},
        {"partition": 2, "reason": "no replica is live: 8, 4"},
    ]
    rule_input = RuleInput(partitions, TOPICS, LIVE, OPAQUE)
    assert_rejections(reconcile_rejections(*rule_input.frames_and_configs(spark)), expected)
