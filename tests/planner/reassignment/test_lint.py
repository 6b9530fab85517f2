"""The lint of reassignments: each fault alone, several at once, and targets without faults."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from planner.reassignment.lint import RackRules, intermediate_faults, placement_faults
from schemas.enums import LintCode
from schemas.rows import Row
from schemas.tables import BROKER_CONFIGS, BROKERS, BROKERS_LAST_SEEN, PARTITIONS, TOPICS
from schemas.znode_codecs import Assignment, encode_assignment
from schemas.znode_size import ZNODE_LIMIT
from tests.planner.frames import as_rows, broker_row, config_row, frame, partition_row, topic_row

RACKS: Final = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: None}
LISTS: Final = [
    topic_row("t"),
    topic_row("strict", config={"min.insync.replicas": "3"}),
    topic_row("deleted", deletion_requested=True),
    topic_row("__consumer_offsets"),
    topic_row("docker-connect-offsets"),
]
MOVING: Final = {"adding_replicas": [2]}
IN_QUARANTINE: Final = {"understood": False}
LEADERLESS: Final = (
    "no live leader in its ISR (leader -1, ISR [3]): no follower could copy from it, and an empty replica "
    "could be elected; elect a leader first, `surveyor status` shows how"
)

# topic, columns of the partition, current replicas, target, code, fault
CASES: Final[list[tuple[str, dict[str, Any], list[int] | None, list[int] | None, str | None, str | None]]] = [
    ("t", {}, [1, 3], [1, 4], None, None),
    ("t", {}, [1, 3], [3, 1], None, None),
    ("t", {}, [1, 3], [5, 4], None, None),
    ("t", {}, [1, 2], [2, 1], None, None),
    ("t", {}, [1, 9], [1, 9], None, None),  # no change requested
    (
        "t",
        {},
        None,
        [1, 3],
        LintCode.UNKNOWN_PARTITION,
        "no such partition in the snapshot: take a new one if it is newer",
    ),
    ("t", IN_QUARANTINE, [1, 3], [1, 4], LintCode.NOT_UNDERSTOOD, "it is in quarantine"),
    ("deleted", {}, [1, 3], [1, 4], LintCode.DELETION_REQUESTED, "its topic is queued for deletion"),
    ("t", MOVING, [1, 3], [1, 4], LintCode.REASSIGNMENT_IN_PROGRESS, "it is being reassigned already"),
    ("t", {}, [1, 3], [], LintCode.NO_REPLICAS, "no replicas"),
    ("t", {}, [1, 3], None, LintCode.NO_REPLICAS, "no replicas"),
    ("t", {}, [1, 2, 3], [1, 3, 1], LintCode.DUPLICATE_BROKER, "names a broker twice: 1, 3, 1"),
    ("t", {}, [1, 2], [1, 9], LintCode.BROKER_NOT_ALIVE, "adds brokers not live in the snapshot: 9"),
    ("t", {}, [9, 1], [9, 2], None, None),  # kept, not added
    ("t", {}, [1, 2], [1, 7], LintCode.BROKER_NOT_ALIVE, "adds brokers not live in the snapshot: 7"),  # not understood
    ("t", {}, [1, 3], [1, 3, 5], LintCode.REPLICATION_FACTOR_CHANGED, "replication factor 2 → 3: not requested"),
    ("t", {}, [1, 3], [1, 2], LintCode.RACKS_LOST, "racks 2 → 1: [a]"),
    ("t", {}, [1, 3], [1, 6], LintCode.RACKS_LOST, "racks 2 → 1: [a]"),
    ("__consumer_offsets", {}, [1, 3, 5], [2, 4, 5], None, None),  # only moved
    ("docker-connect-offsets", {}, [1, 3, 5], [5, 3, 1], None, None),
    ("strict", {}, [1, 3], [1, 4], None, None),  # as short as now
    ("strict", {}, [1, 3, 5], [2, 4, 5], None, None),
    ("t", {"leader": -1, "isr": [3]}, [1, 3], [1, 3], None, None),
    ("t", {"leader": -1, "isr": [3]}, [1, 3], [1, 4], LintCode.NO_LIVE_LEADER, LEADERLESS),
]


def _faults(
    spark: SparkSession,
    partitions: list[Row],
    targets: list[Row],
    *,
    min_isr: str = "1",
    more_brokers: Sequence[int] = (),
    **waived: Any,  # noqa: ANN401 - as the lint takes it
) -> list[Row]:
    racks = RACKS | dict.fromkeys(more_brokers)
    brokers = [*(broker_row(broker, rack=rack) for broker, rack in racks.items()), broker_row(7, understood=False)]
    faults = placement_faults(
        frame(spark, targets, PARTITIONS).select("topic", "partition", "replicas"),
        frame(spark, partitions, PARTITIONS),
        frame(spark, LISTS, TOPICS),
        frame(spark, brokers, BROKERS),
        frame(spark, [config_row(1, "min.insync.replicas", min_isr)], BROKER_CONFIGS),
        **waived,
    )
    return as_rows(faults)


def test_racks_that_are_given_up_may_be_lost(spark: SparkSession) -> None:
    partitions = [partition_row([1, 3, 5], 1, [1, 3, 5], topic="t", partition=number) for number in (0, 1)]
    targets = [
        {"topic": "t", "partition": 0, "replicas": [1, 3, 4]},
        {"topic": "t", "partition": 1, "replicas": [1, 2, 6]},
    ]
    codes = [
        (row["partition"], row["fault"])
        for row in _faults(spark, partitions, targets, rules=RackRules(given_up=frozenset("c"), may_hold={1, 2, 3, 4}))
    ]
    assert codes == [(1, "racks 2 → 1: [a]")]


def test_each_fault_by_itself(spark: SparkSession) -> None:
    partitions = [
        partition_row(now, 1, now, topic=topic, partition=number) | columns
        for number, (topic, columns, now, *_) in enumerate(CASES)
        if now is not None
    ]
    targets = [{"topic": case[0], "partition": number, "replicas": case[3]} for number, case in enumerate(CASES)]
    expected = [
        {"topic": topic, "partition": number, "code": code, "fault": fault}
        for number, (topic, _, _, _, code, fault) in enumerate(CASES)
        if code
    ]
    assert _faults(spark, partitions, targets) == sorted(expected, key=lambda row: (row["topic"], row["partition"]))


TWO_SITES: Final = dict.fromkeys((1, 2, 3, 7), "a") | dict.fromkeys((4, 5, 6), "b")
# brokers that may hold replicas, current, target, the fault
CROWDED: Final[list[tuple[AbstractSet[int] | None, list[int], list[int], str | None]]] = [
    (None, [1, 2, 4, 5], [1, 2, 3, 4], "most replicas in one rack 2 → 3: [a, a, a, b]; the minimum is 2"),
    (None, [1, 2, 4, 5], [1, 4, 5, 6], "most replicas in one rack 2 → 3: [a, b, b, b]; the minimum is 2"),
    (None, [1, 2, 4, 5], [7, 3, 6, 5], None),
    (None, [1, 2, 3, 4], [1, 2, 7, 4], None),
    (None, [1, 4], [1, 2, 4, 5], None),
    (None, [1, 4], [1, 2, 3, 4], "most replicas in one rack 1 → 3: [a, a, a, b]; the minimum is 2"),
    ({1, 2, 3, 7, 4}, [1, 2, 4, 5], [1, 2, 3, 4], None),
    (None, [1, 4, 8], [1, 2, 4], None),
    (None, [1, 4, 9], [1, 2, 4], "racks 3 → 2: [a, b]"),
]
"""Broker 8 was last seen in rack b, broker 9 in rack c."""


@pytest.mark.parametrize("may_hold", [None, {1, 2, 3, 7, 4}])
def test_crowded_racks(spark: SparkSession, may_hold: AbstractSet[int] | None) -> None:
    cases = [(now, to, fault) for held, now, to, fault in CROWDED if held == may_hold]
    last_seen = frame(spark, [{"broker_id": 8, "rack": "b"}, {"broker_id": 9, "rack": "c"}], BROKERS_LAST_SEEN)
    faults = placement_faults(
        frame(
            spark, [{"topic": "t", "partition": n, "replicas": to} for n, (_, to, _) in enumerate(cases)], PARTITIONS
        ).select("topic", "partition", "replicas"),
        frame(
            spark, [partition_row(now, 1, now, topic="t", partition=n) for n, (now, *_) in enumerate(cases)], PARTITIONS
        ),
        frame(spark, LISTS, TOPICS),
        frame(spark, [broker_row(broker, rack=rack) for broker, rack in TWO_SITES.items()], BROKERS),
        frame(spark, [config_row(1, "min.insync.replicas", "1")], BROKER_CONFIGS),
        factor_may_change=True,
        rules=RackRules(may_hold=may_hold, last_seen=last_seen),
    )
    found = {row["partition"]: row["fault"] for row in as_rows(faults)}
    assert found == {number: fault for number, (_, _, fault) in enumerate(cases) if fault}


def test_all_faults_of_a_partition_are_listed(spark: SparkSession) -> None:
    partitions = [partition_row([1, 3, 5], 1, [1], topic="t")]
    targets = [{"topic": "t", "partition": 0, "replicas": [9, 9]}] * 2
    codes = {row["code"] for row in _faults(spark, partitions, targets, min_isr="2")}
    assert codes == {
        LintCode.NAMED_TWICE,
        LintCode.DUPLICATE_BROKER,
        LintCode.BROKER_NOT_ALIVE,
        LintCode.REPLICATION_FACTOR_CHANGED,
        LintCode.RACKS_LOST,
        LintCode.MIN_ISR_UNREACHABLE,
    }


@pytest.mark.parametrize(
    ("target", "codes"),
    [([1, 3, 5], []), ([1], []), ([1, 2, 3], [LintCode.RACK_CROWDED]), ([1, 2, 3, 4, 5], []), ([1, 2, 3, 5, 6], [])],
)
def test_another_replication_factor_may_be_asked_for(spark: SparkSession, target: list[int], codes: list[str]) -> None:
    partitions = [partition_row([1, 3], 1, [1], topic="t")]
    targets = [{"topic": "t", "partition": 0, "replicas": target}]
    assert [row["code"] for row in _faults(spark, partitions, targets, factor_may_change=True)] == codes


def test_only_shrinking_below_min_isr_is_a_fault(spark: SparkSession) -> None:
    """Checks the documented rule for every length of list and every setting."""
    lengths, settings = range(1, 5), range(1, 6)
    cases = [(now, then, least) for now in lengths for then in lengths for least in settings]
    topics = [topic_row(f"min-{least}", config={"min.insync.replicas": str(least)}) for least in settings]
    partitions, targets = [], []
    for number, (now, then, least) in enumerate(cases):
        key = {"topic": f"min-{least}", "partition": number}
        partitions.append(partition_row([*range(1, 1 + now)], 1, [1]) | key)
        targets.append({"replicas": [*range(1, 1 + then)]} | key)
    faults = placement_faults(
        frame(spark, targets, PARTITIONS).select("topic", "partition", "replicas"),
        frame(spark, partitions, PARTITIONS),
        frame(spark, topics, TOPICS),
        frame(spark, [broker_row(broker) for broker in range(1, 6)], BROKERS),
        frame(spark, [], BROKER_CONFIGS),
        factor_may_change=True,
    )
    expected = {number for number, (now, then, least) in enumerate(cases) if then < now and then < least}
    assert {(row["partition"], row["code"]) for row in as_rows(faults)} == {
        (number, LintCode.MIN_ISR_UNREACHABLE.value) for number in expected
    }


def test_one_replica_below_the_cluster_default_is_allowed(spark: SparkSession) -> None:
    """A replication factor of 1 with min.insync.replicas=2 of the brokers, as in most clusters."""
    partitions = [partition_row([1], 1, [1])]
    assert _faults(spark, partitions, [{"topic": "t", "partition": 0, "replicas": [2]}], min_isr="2") == []


def test_a_large_znode_must_not_grow(spark: SparkSession) -> None:
    now = [*range(1001, 1061)]
    partitions = [partition_row(now, 1001, [1001], partition=number) for number in range(4000)]
    targets = {"reordered": now[::-1], "grown": [2001, *now[1:]]}
    codes = {
        name: {row["code"] for row in _faults(spark, partitions, [target], more_brokers=[*now, 2001])}
        for name, replicas in targets.items()
        for target in [{"topic": "t", "partition": 0, "replicas": replicas}]
    }
    assert codes == {"reordered": set(), "grown": {LintCode.ZNODE_TOO_LARGE}}


def test_a_znode_counts_with_what_is_added_and_removed(spark: SparkSession) -> None:
    """The estimate is exactly the bytes of the codec, except for a generous frame; many replicas, few partitions."""
    now, target = [*range(1001, 1061)], [*range(2001, 2061)]

    def written(count: int) -> int:
        assignment = Assignment(
            partitions={number: [*target, *now] for number in range(count)},
            adding_replicas=dict.fromkeys(range(count), target),
            removing_replicas=dict.fromkeys(range(count), now),
            topic_id="A" * 22,
        )
        return len(encode_assignment(assignment))

    bytes_each = (written(2000) - written(1000)) / 1000
    for size, large in ((0.99, False), (1.01, True)):
        count = int(size * ZNODE_LIMIT / bytes_each)
        partitions = [partition_row(now, 1001, [1001], partition=number) for number in range(count)]
        targets = [{"topic": "t", "partition": number, "replicas": target} for number in range(count)]
        codes = {row["code"] for row in _faults(spark, partitions, targets, more_brokers=[*now, *target])}
        assert (codes, written(count) > ZNODE_LIMIT) == ({LintCode.ZNODE_TOO_LARGE} if large else set(), large)


WAYS: Final = "topic string, partition int, wave int, replicas array<int>, goal array<int>"

# current replicas, intermediate list, final list -> code, fault
WAVES: Final[list[tuple[list[int], list[int], list[int], LintCode | None, str]]] = [
    ([1, 3], [4, 3], [4, 5], LintCode.RACKS_LOST, "racks 2 → 1: [b]"),
    ([1, 3], [5, 3], [5, 4], None, ""),
    ([1, 3, 5], [1, 3, 4], [1, 4], None, ""),  # two replicas cannot have three racks
    ([1, 3], [1, 3, 1], [1, 4, 5], LintCode.DUPLICATE_BROKER, "names a broker twice: 1, 3, 1"),
    ([1, 2], [1, 9], [1, 4], LintCode.BROKER_NOT_ALIVE, "adds brokers not live in the snapshot: 9"),
    ([9, 1, 3], [9, 1, 4], [5, 1, 4], None, ""),  # kept, not added
    ([1, 3], [3], [5, 4], LintCode.MIN_ISR_UNREACHABLE, "1 replica can never reach min.insync.replicas=3"),
    ([3], [3, 5], [1, 3, 5], None, ""),  # fewer than min.insync.replicas, but more than now
]


def test_each_fault_of_waves_by_itself(spark: SparkSession) -> None:
    partitions = [partition_row(now, 1, now, partition=number) for number, (now, *_) in enumerate(WAVES)]
    ways = [("t", number, 2, way, goal) for number, (_, way, goal, *_) in enumerate(WAVES)]
    brokers = [broker_row(broker, rack=rack) for broker, rack in RACKS.items()]
    faults = intermediate_faults(
        spark.createDataFrame(ways, WAYS),
        frame(spark, partitions, PARTITIONS),
        frame(spark, [topic_row("t")], TOPICS),
        frame(spark, brokers, BROKERS),
        frame(spark, [config_row(1, "min.insync.replicas", "3")], BROKER_CONFIGS),
    )
    codes = {(row["partition"], row["code"]): row["fault"] for row in as_rows(faults)}
    assert codes == {
        (number, code.value): f"on the way, after wave 2: {fault}"
        for number, (_, _, _, code, fault) in enumerate(WAVES)
        if code
    }
