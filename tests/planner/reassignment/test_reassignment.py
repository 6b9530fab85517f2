"""Requested reassignments: added and removed replicas, rejections, and targets without a change."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from planner.columns.broker_sets import with_drained
from planner.reassignment.pending_requests import with_requests
from planner.reassignment.targets import elections_after_moves, reassignment_changes, reassignment_rejections
from schemas.enums import NO_LEADER, Action, DrainMode, RejectionCode
from schemas.tables import DRAINED, PARTITIONS, REQUESTS
from tests.planner.frames import TOPIC_ID, RuleInput, assert_changes, assert_rejections, frame, partition_row, topic_row

LIVE: Final = frozenset(range(1, 10))
TOPICS: Final = [topic_row("plain"), topic_row("deleted", deletion_requested=True)]

Frames = tuple[DataFrame, DataFrame, DataFrame, DataFrame]


def _targets_and_rule_input(
    spark: SparkSession, rule_input: RuleInput, targets: Sequence[tuple[str, int, list[int] | None]]
) -> Frames:
    rows = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in targets]
    return (frame(spark, rows, PARTITIONS).select("topic", "partition", "replicas"), *rule_input.frames(spark))


# replicas, leader, target -> adding, removing, leader, reason
Case = tuple[list[int], int, list[int], list[int], list[int], int, str]
CASES: Final[list[Case]] = [
    ([1, 2, 3], 1, [3, 4, 5], [4, 5], [1, 2], 3, "adds [4, 5], removes [1, 2]"),
    ([1, 2, 3], 3, [3, 4, 5], [4, 5], [1, 2], 3, "adds [4, 5], removes [1, 2]"),
    ([1, 2, 3], 1, [4, 5, 6], [4, 5, 6], [1, 2, 3], 4, "adds [4, 5, 6], removes [1, 2, 3]"),
    ([1, 2, 3, 4], 2, [4, 2, 5, 3], [5], [1], 2, "adds [5], removes [1]"),
    ([1, 2, 3], 1, [3, 1, 2], [], [], 1, "order of replicas changes, no data moves"),
    ([1, 2], 2, [2, 1, 3], [3], [], 2, "adds [3], removes []"),
    ([1, 2, 3], 3, [2], [], [1, 3], 2, "adds [], removes [1, 3]"),
]


def test_what_a_reassignment_adds_and_removes(spark: SparkSession) -> None:
    partitions = [
        partition_row(replicas, leader, replicas, partition=number)
        for number, (replicas, leader, *_) in enumerate(CASES)
    ]
    targets = [("t", number, case[2]) for number, case in enumerate(CASES)]
    expected: list[dict[str, Any]] = [
        {
            "partition": number,
            "action": Action.REASSIGN,
            "replicas_before": replicas,
            "replicas_after": target,
            "adding_before": [],
            "adding_after": adding,
            "removing_before": [],
            "removing_after": removing,
            "leader_before": leader,
            "leader_after": leader_after,
            "isr_before": replicas,
            "isr_after": target,
            "leader_epoch_after": None,
            "topic_version": 2,
            "topic_id": TOPIC_ID,
            "leader_and_isr_to": [],
            "requires_live": target,
            "requires_dead": [],
            "reason": reason,
        }
        for number, (replicas, leader, target, adding, removing, leader_after, reason) in enumerate(CASES)
    ]
    changes = reassignment_changes(*_targets_and_rule_input(spark, RuleInput(partitions, live=LIVE), targets))
    assert_changes(changes, expected)


FIRST: Final = (
    "): no follower could copy from it, and an empty replica could be elected; elect a leader first, `surveyor "
    "status` shows how"
)
LEADERLESS: Final = RejectionCode.NO_LIVE_LEADER
STATELESS: Final = {"leader": None, "isr": None}

NOT_DUE: Final[list[tuple[dict[str, Any], list[int], RejectionCode, str]]] = [
    ({"topic": "deleted"}, [3, 4], RejectionCode.DELETION_REQUESTED, "its topic is queued for deletion"),
    ({"understood": False}, [3, 4], RejectionCode.NOT_UNDERSTOOD, "it is in quarantine"),
    ({"adding_replicas": [2]}, [3, 4], RejectionCode.REASSIGNMENT_IN_PROGRESS, "it is being reassigned already"),
    ({"removing_replicas": [1]}, [1, 2], RejectionCode.REASSIGNMENT_IN_PROGRESS, "it is being reassigned already"),
    ({}, [1, 2], RejectionCode.ALREADY_ASSIGNED, "it has these replicas already"),
    ({"leader": NO_LEADER}, [3, 4], LEADERLESS, f"no live leader in its ISR (leader -1, ISR [1, 2]{FIRST}"),
    ({"leader": 77, "isr": [77]}, [3, 4], LEADERLESS, f"no live leader in its ISR (leader 77, ISR [77]{FIRST}"),
    ({"leader": 77}, [2, 1], LEADERLESS, f"no live leader in its ISR (leader 77, ISR [1, 2]{FIRST}"),
    ({"isr": [2]}, [3, 4], LEADERLESS, f"no live leader in its ISR (leader 1, ISR [2]{FIRST}"),
    (STATELESS, [3, 4], LEADERLESS, f"no live leader in its ISR (leader none, ISR []{FIRST}"),
    (STATELESS, [1, 2], LEADERLESS, f"no live leader in its ISR (leader none, ISR []{FIRST}"),
]


def _not_due(spark: SparkSession) -> Frames:
    topics = [{"topic": "plain"} | columns for columns, *_ in NOT_DUE]
    rows = [partition_row([1, 2], 1, [1, 2], partition=number) | columns for number, columns in enumerate(topics)]
    targets = [(topics[number]["topic"], number, case[1]) for number, case in enumerate(NOT_DUE)]
    return _targets_and_rule_input(spark, RuleInput(rows, TOPICS, LIVE), [*targets, ("plain", 99, [1])])


def test_each_rejection(spark: SparkSession) -> None:
    expected = [
        {
            "topic": columns.get("topic", "plain"),
            "partition": p,
            "action": Action.REASSIGN,
            "code": code,
            "reason": reason,
        }
        for p, (columns, _, code, reason) in enumerate(NOT_DUE)
    ]
    assert_rejections(reassignment_rejections(*_not_due(spark)), expected)


def test_a_broker_not_understood_is_alive(spark: SparkSession) -> None:
    rule_input = RuleInput([partition_row([8, 1], 8, [8])], live=LIVE - {8}, opaque=frozenset({8}))
    assert_changes(
        reassignment_changes(*_targets_and_rule_input(spark, rule_input, [("t", 0, [8, 2])])),
        [{"replicas_after": [8, 2]}],
    )


def test_what_an_order_waits_for_is_left_alone(spark: SparkSession) -> None:
    rule_input = RuleInput([partition_row([1, 2], 1, [1, 2], partition=number) for number in range(2)], live=LIVE)
    targets, partitions, *known = _targets_and_rule_input(spark, rule_input, [("t", 0, [3, 4]), ("t", 1, [3, 4])])
    orders = [{"kind": "reassign", "topic": "t", "partition": 1, "replicas": replicas} for replicas in ([1, 5], None)]
    ordered = partitions.transform(with_requests, frame(spark, orders, REQUESTS))
    reason = (
        "a request to move it to [1, 5] waits: let it run, or `surveyor cancel "
        "--partitions t-1`, and take a new snapshot"
    )
    rejected = {"partition": 1, "code": RejectionCode.REASSIGNMENT_IN_PROGRESS, "reason": reason}
    assert_rejections(reassignment_rejections(targets, ordered, *known), [rejected])
    assert_changes(reassignment_changes(targets, ordered, *known), [{"partition": 0}])


def test_unneeded_or_unknown_targets_are_no_change(spark: SparkSession) -> None:
    assert_changes(reassignment_changes(*_not_due(spark)), [])


WAYS: Final = (
    "topic string, partition int, replicas array<int>, reason string, wave int, steps int, earlier array<array<int>>"
)

# replicas, leader, lists, their waves -> leaders after
Way = tuple[list[int], int, list[list[int]], list[int], list[int]]
WAYS_OF: Final[list[Way]] = [
    ([1, 2, 3], 1, [[1, 2, 4], [1, 5, 4], [6, 5, 4]], [0, 1, 4], [1, 1, 6]),
    ([1, 2, 3], 3, [[1, 2, 4], [5, 2, 4], [5, 2, 1]], [0, 1, 2], [1, 5, 5]),
    ([1, 2], 2, [[1, 2, 3], [1, 2, 3, 4]], [1, 2], [2, 2]),
    ([1, 2], 1, [[2, 1]], [4], [1]),
]


def test_each_wave_starts_where_the_one_before_ends(spark: SparkSession) -> None:
    partitions = [
        partition_row(replicas, leader, replicas, partition=number)
        for number, (replicas, leader, *_) in enumerate(WAYS_OF)
    ]
    targets: list[tuple[Any, ...]] = []
    expected: list[dict[str, Any]] = []
    for number, (replicas, leader, lists, waves, leaders) in enumerate(WAYS_OF):
        for nth, (becomes, wave, led) in enumerate(zip(lists, waves, leaders, strict=True)):
            targets.append(("t", number, becomes, "because", wave, len(lists), lists[:nth]))
            before = lists[nth - 1] if nth else replicas
            adds, removes = (
                [b for b in some if b not in others] for some, others in ((becomes, before), (before, becomes))
            )
            moves = f"adds {adds}, removes {removes}"
            expected.append(
                {
                    "partition": number,
                    "wave": wave,
                    "replicas_before": before,
                    "replicas_after": becomes,
                    "adding_before": [],
                    "adding_after": adds,
                    "removing_before": [],
                    "removing_after": removes,
                    "leader_before": leaders[nth - 1] if nth else leader,
                    "leader_after": led,
                    "isr_before": before,
                    "isr_after": becomes,
                    "leader_epoch_before": None if nth else 5,
                    "is_new": False,
                    "reason": f"step {nth + 1} of {len(lists)}: {moves}; because" if len(lists) > 1 else "because",
                },
            )
    rule_input = RuleInput(partitions, live=LIVE).frames(spark)
    assert_changes(reassignment_changes(spark.createDataFrame(targets[::-1], WAYS), *rule_input), expected)
    assert_rejections(reassignment_rejections(spark.createDataFrame(targets, WAYS), *rule_input), [])


# replicas, leader, target -> the leader after the moves and before the election; None for no election
ELECTIONS: Final[list[tuple[list[int], int, list[int], int | None]]] = [
    ([1, 2], 1, [2, 1], 1),
    ([1, 2], 2, [2, 1], None),  # it leads already
    ([1, 2, 3], 1, [4, 1, 2], 1),
    ([1, 2, 3], 3, [4, 1, 2], None),  # the leader leaves, and Kafka elects the first replica
    ([1, 2], 2, [1, 3], None),
    ([1, 2], 1, [9, 1], None),  # not live
    ([1, 2], 1, [8, 1], None),  # alive, and not understood
    ([1, 2], 1, [7, 1], None),  # drained
]


def _election(number: int, leader: int, target: list[int]) -> dict[str, Any]:
    return {
        "partition": number,
        "wave": 3,
        "action": Action.ELECT_PREFERRED,
        "replicas_before": target,
        "replicas_after": target,
        "adding_after": [],
        "removing_after": [],
        "leader_before": leader,
        "leader_after": target[0],
        "isr_before": target,
        "isr_after": target,
        "leader_epoch_before": None,
        "leader_epoch_after": None,
        "requires_live": [target[0]],
        "reason": "the first replica becomes leader when all replicas are in sync",
    }


def test_preferred_replicas_are_elected_after_moves(spark: SparkSession) -> None:
    rows = [partition_row(case[0], case[1], case[0], partition=number) for number, case in enumerate(ELECTIONS)]
    live = LIVE - {8, 9}
    rule_input = RuleInput(rows, live=live, opaque=frozenset({8}))
    targets = [("t", number, case[2]) for number, case in enumerate(ELECTIONS)]
    asked, partitions, topics, brokers = _targets_and_rule_input(spark, rule_input, targets)
    drained = frame(spark, [{"broker_id": 7, "mode": DrainMode.ADMIN.value}], DRAINED)
    expected = [_election(n, leader, target) for n, (_, _, target, leader) in enumerate(ELECTIONS) if leader]
    assert_changes(elections_after_moves(asked, partitions, topics, with_drained(brokers, drained), wave=3), expected)


def test_an_election_follows_the_last_wave(spark: SparkSession) -> None:
    """Broker 1 leads; the second step removes it, and Kafka elects 5, the first; 6 is preferred in the end."""
    lists = [[1, 2, 4], [5, 2, 4], [6, 5, 4]]
    targets = [("t", 0, becomes, "because", nth, len(lists), lists[:nth]) for nth, becomes in enumerate(lists)]
    rule_input = RuleInput([partition_row([1, 2, 4], 1, [1, 2, 4])], live=LIVE).frames(spark)
    elected = elections_after_moves(spark.createDataFrame(targets, WAYS), *rule_input, wave=3)
    assert_changes(elected, [_election(0, 5, [6, 5, 4])])
