"""Recovery: clean if possible, else by evidence; with a history in which Kafka's rule loses more."""

from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from planner.columns.broker_sets import with_drained
from planner.history.evidence import log_sizes, ranked_evidence
from planner.leadership.failure_handling import SOURCE_COLUMNS, needing_attention
from planner.leadership.unclean_config import default_recovery_state
from planner.leadership.unclean_recovery import (
    offline_partitions,
    recover_changes,
    recover_rejections,
    unneeded_rejections,
    without_in_sync,
)
from schemas.enums import NO_LEADER, RECOVERED, RECOVERING, PartitionState
from schemas.rows import Row
from schemas.tables import BROKER_CONFIGS, DRAINED, PARTITION_HISTORY, PARTITIONS, SIZES, SNAPSHOTS
from tests.planner.frames import RuleInput, as_rows, assert_changes, by_partition, config_row, frame, partition_row
from tests.planner.rule_inputs import BATCHES

NOW: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
IBP: Final = "inter.broker.protocol.version"


def _snapshots(spark: SparkSession, ids: list[int]) -> DataFrame:
    rows = [{"cluster": "test", "snapshot_id": i, "taken_at": NOW + timedelta(minutes=i)} for i in ids]
    return frame(spark, rows, SNAPSHOTS)


def _evidence(
    spark: SparkSession, offline: DataFrame, history: list[Row], ids: list[int], sizes: DataFrame | None = None
) -> DataFrame:
    past = frame(spark, history, PARTITION_HISTORY)
    return ranked_evidence(without_in_sync(offline), past, _snapshots(spark, ids), sizes).localCheckpoint()


def _past(snapshot: int, isr: list[int], epoch: int = 5, **columns: object) -> Row:
    return partition_row([1, 2, 3], isr[0], isr, snapshot_id=snapshot, leader_epoch=epoch, **columns)


WORSE_FIRST: Final = [
    _past(1, [3, 1, 2], epoch=2),
    _past(2, [3, 2], epoch=3),  # 1, the first of the assignment, fell behind early
    _past(5, [3], epoch=4),
]
DEAD_LEADER: Final = partition_row([1, 2, 3], 3, [3], leader_epoch=5)


def test_kafka_takes_a_worse_one(spark: SparkSession) -> None:
    """Kafka elects 1, the first live replica; 2 was in the ISR until snapshot 4 and has three more minutes of data."""
    rule_input = RuleInput([DEAD_LEADER], live=frozenset({1, 2}))
    offline = offline_partitions(*rule_input.frames(spark))
    evidence = _evidence(spark, offline, WORSE_FIRST, [1, 2, 3, 4, 5, 6])
    ranked = [
        (e["rank"], e["broker_id"], e["last_in_isr_snapshot"], e["epochs_since"], e["kafkas_choice"], e["chosen"])
        for e in sorted(as_rows(evidence), key=lambda row: row["rank"])
    ]
    assert ranked == [(1, 2, 4, 2, False, True), (2, 1, 1, 3, True, False)]
    assert {e["last_in_isr_at"].minute for e in as_rows(evidence)} == {4, 1}
    change = by_partition(recover_changes(offline, rule_input.frames_and_configs(spark)[3], evidence, None))["t", 0]
    expected = {
        "leader_after": 2,
        "isr_after": [2],
        "leader_epoch_after": 6,
        "leader_recovery_state_after": RECOVERING,
        "requires_live": [2],
        "requires_dead": [3],
        "reason": (
            "broker 3 is not live; unclean election may lose what was acknowledged after 2026-11-21 12:04:00 UTC; "
            "ranked: 2 (in sync until snapshot 4, leader epochs since: 2), "
            "1 (in sync until snapshot 1, leader epochs since: 3; Kafka's choice)"
        ),
    }
    assert {name: change[name] for name in expected} == expected


def test_larger_log_decides_where_nothing_else_does(spark: SparkSession) -> None:
    """Both left the ISR at the same time; future logs and older sizes do not count."""
    logs = [(1, 900, 1, False), (1, 100, 2, False), (1, 800, 3, True), (2, 200, 2, False)]
    rows: list[Row] = [
        {"broker_id": broker, "bytes": size, "taken_at": NOW + timedelta(minutes=minute), "is_future": future}
        for broker, size, minute, future in logs  # in the log dirs of topic t, partition 0
    ]
    offline = offline_partitions(*RuleInput([DEAD_LEADER], live=frozenset({1, 2})).frames(spark))
    past = [_past(1, [3, 1, 2], epoch=3), _past(2, [3], epoch=4)]
    sizes = frame(spark, [{**row, "topic": "t", "partition": 0} for row in rows], SIZES)
    evidence = as_rows(_evidence(spark, offline, past, [1, 2, 3], log_sizes(sizes)))
    assert {(e["rank"], e["broker_id"], e["log_size"]) for e in evidence} == {(1, 2, 200), (2, 1, 100)}


def test_unless_allowed_the_ranking_is_a_rejection(spark: SparkSession) -> None:
    rows = [DEAD_LEADER, DEAD_LEADER | {"partition": 1}]
    rule_input = RuleInput(rows, live=frozenset({1, 2}))
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    offline = offline_partitions(partitions, topics, brokers)
    evidence = _evidence(spark, offline, WORSE_FIRST, [1, 2, 3, 4, 5])
    candidates = frame(spark, [{"topic": "t", "partition": p} for p in (1, 7)], PARTITIONS).select("topic", "partition")
    changes = by_partition(recover_changes(offline, configs, evidence, candidates))
    rejected = by_partition(recover_rejections(offline, configs, evidence, candidates))
    assert {key: row["leader_after"] for key, row in changes.items()} == {("t", 1): 1}  # no history: Kafka's choice
    assert {key: row["code"] for key, row in rejected.items()} == {("t", 0): "UNCLEAN_NOT_ALLOWED"}
    assert "ranked: 2 (in sync until snapshot 4" in rejected["t", 0]["reason"]
    assert "never seen in sync" in changes["t", 1]["reason"]
    unneeded = by_partition(unneeded_rejections(candidates, partitions, offline))
    assert {key: row["code"] for key, row in unneeded.items()} == {("t", 7): "UNKNOWN_PARTITION"}


# replicas, leader, ISR -> leader, ISR, or the code of the rejection; 1, 2 live, 4 not understood, 5 drained
CASES: Final[list[tuple[list[int], int, list[int], int | None, list[int] | None, str | None]]] = [
    ([3, 2, 1], 3, [3, 1, 2], 2, [1, 2], None),
    ([3, 2, 1], NO_LEADER, [3, 1], 1, [1], None),
    ([3, 2], 3, [3], 2, [2], None),
    ([3, 9], 3, [3, 9], None, None, "NO_ELIGIBLE_LEADER"),
    ([3, 4, 2], 3, [3, 4], None, None, "NO_ELIGIBLE_LEADER"),  # 4 may hold the data
    ([3, 5, 2], 3, [3, 5], 5, [5], None),  # drained, and the only one in sync: before any unclean choice
    ([5, 2], 3, [3, 5, 2], 2, [5, 2], None),
    ([3, 5], 3, [3], 5, [5], None),
    ([2], NO_LEADER, [1], 2, [2], None),  # 1 is in the ISR and not assigned: it can never lead
    ([3, 2], NO_LEADER, [3, 4], 2, [2], None),  # nor can 4
    ([3], NO_LEADER, [1], None, None, "NO_ELIGIBLE_LEADER"),
    ([4, 2], 4, [4, 2], None, None, None),  # its leader is live
    ([1, 3], 1, [1, 3], None, None, None),
]


def test_each_kind_of_partition(spark: SparkSession) -> None:
    rows = [partition_row(c[0], c[1], c[2], partition=number) for number, c in enumerate(CASES)]
    rule_input = RuleInput(rows, live=frozenset({1, 2, 5}), opaque=frozenset({4}))
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    drained = frame(spark, [{"cluster": "test", "broker_id": 5, "mode": "admin"}], DRAINED)
    offline = offline_partitions(partitions, topics, with_drained(brokers, drained))
    evidence = _evidence(spark, offline, [], [1])
    expected = [
        {"partition": number, "action": "elect", "leader_after": leader, "isr_after": isr}
        for number, (_, _, _, leader, isr, _) in enumerate(CASES)
        if leader is not None
    ]
    assert_changes(recover_changes(offline, configs, evidence, None), expected)
    codes = {key[1]: row["code"] for key, row in by_partition(_rejected(offline, configs, evidence)).items()}
    assert codes == {number: case[5] for number, case in enumerate(CASES) if case[5]}


def test_a_member_that_is_not_assigned_is_named(spark: SparkSession) -> None:
    rule_input = RuleInput([partition_row([2], NO_LEADER, [1])], live=frozenset({1, 2}))
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    offline = offline_partitions(partitions, topics, brokers)
    considered = offline, configs, _evidence(spark, offline, [], [1])
    no_partitions = frame(spark, [], PARTITIONS).select("topic", "partition")
    outside = "live and in the ISR, but not assigned, so it cannot lead: 1"
    (change,) = as_rows(recover_changes(*considered, None))
    (rejection,) = as_rows(recover_rejections(*considered, no_partitions))
    assert outside in change["reason"]
    assert (rejection["code"], outside in rejection["reason"]) == ("UNCLEAN_NOT_ALLOWED", True)


def _rejected(offline: DataFrame, configs: DataFrame, evidence: DataFrame) -> DataFrame:
    return recover_rejections(offline, configs, evidence, None)


# inter-broker protocol versions, assumed or not -> the state after an unclean election, None for none
SPOKEN: Final[list[tuple[list[str | None], bool, int | None]]] = [
    (["3.9-IV0", "3.9-IV0"], False, RECOVERING),
    (["2.6"], False, None),
    (["3.9-IV0", "2.6-IV0"], False, None),
    (["3.2-IV0"], False, RECOVERING),
    (["2.6"], True, RECOVERING),
    ([], False, RECOVERING),
    ([None], False, RECOVERING),
]


def test_only_brokers_that_know_recovering_are_sent_it(spark: SparkSession) -> None:
    rows = []
    for spoken, assumed, _ in SPOKEN:
        configs = [config_row(number, IBP, version, assumed=assumed) for number, version in enumerate(spoken)]
        rows += frame(spark, configs, BROKER_CONFIGS).agg(default_recovery_state()).collect()
    assert [row.unclean_state for row in rows] == [state for _, _, state in SPOKEN]


def test_older_brokers_keep_the_recovery_state(spark: SparkSession) -> None:
    rule_input = RuleInput([DEAD_LEADER], live=frozenset({1, 2}), configs=[config_row(1, IBP, "2.6")])
    *frames, configs = rule_input.frames_and_configs(spark)
    offline = offline_partitions(*frames)
    (change,) = as_rows(recover_changes(offline, configs, _evidence(spark, offline, [], [1]), None))
    assert change["leader_recovery_state_after"] == RECOVERED


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[Row], list[int], dict[int, int | None]]:
    """Draw the history of a partition: rows where it changed, the snapshots kept, log sizes."""
    rows = []
    epoch = 0
    for snapshot in sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=6))):
        epoch += draw(st.integers(0, 2))
        isr = draw(st.lists(st.sampled_from([1, 2, 3, 9]), min_size=1, max_size=4, unique=True))
        vanished = draw(st.integers(0, 7)) == 0
        state = PartitionState.NON_EXISTENT if vanished else PartitionState.ONLINE
        legible = draw(st.integers(0, 7)) > 0
        rows.append(_past(snapshot, isr, epoch, partition_state=state.value, understood=legible))
    kept = draw(st.sets(st.integers(1, 12)))
    sizes = draw(st.fixed_dictionaries({b: st.one_of(st.none(), st.integers(0, 3)) for b in (1, 2, 3)}))
    return rows, sorted({*kept, 12}), sizes


def _ranked_by_hand(rows: list[Row], kept: list[int], sizes: dict[int, int | None], epoch_now: int) -> list[int]:
    """Order: latest membership, fewest epochs, larger log, position in the assignment."""
    vanished = [row["snapshot_id"] for row in rows if row["partition_state"] == PartitionState.NON_EXISTENT]
    alive = [r for r in rows if r["snapshot_id"] > max(vanished, default=0) and r["leader_epoch"] <= epoch_now]

    def key(broker: int) -> tuple[int, ...]:
        size = sizes[broker]
        by_size = (1, 0) if size is None else (0, -size)
        for number in range(len(alive) - 1, -1, -1):
            row = alive[number]
            if broker in row["isr"] and row["understood"]:
                until = alive[number + 1]["snapshot_id"] if number + 1 < len(alive) else 99
                last_seen = max([i for i in kept if row["snapshot_id"] <= i < until], default=row["snapshot_id"])
                return (0, -last_seen, epoch_now - row["leader_epoch"], *by_size, broker)
        return (1, 0, 0, *by_size, broker)

    return sorted([1, 2, 3], key=key)


@settings(BATCHES, max_examples=3)
@given(st.lists(_histories(), min_size=1, max_size=40))
def test_ranking_by_hand(
    spark: SparkSession, histories: list[tuple[list[Row], list[int], dict[int, int | None]]]
) -> None:
    """Rank partition by partition; all share the snapshots of the first one."""
    kept = histories[0][1]
    rows = [partition_row([1, 2, 3], 9, [9], partition=n, leader_epoch=8) for n in range(len(histories))]
    offline = offline_partitions(*RuleInput(rows, live=frozenset({1, 2, 3})).frames(spark))
    past = [row | {"partition": n} for n, (its_rows, _, _) in enumerate(histories) for row in its_rows]
    sized = [("t", n, b, size) for n, (_, _, sizes) in enumerate(histories) for b, size in sizes.items()]
    sizes = spark.createDataFrame(sized, "topic string, partition int, broker_id int, log_size bigint")
    evidence = as_rows(_evidence(spark, offline, past, kept, sizes))
    ranked = [
        [e["broker_id"] for e in sorted(evidence, key=lambda e: e["rank"]) if e["partition"] == n]
        for n in range(len(histories))
    ]
    assert ranked == [_ranked_by_hand(rows, kept, sizes, 8) for rows, _, sizes in histories]


# replicas, leader, ISR, understood -> whether it is a candidate
CANDIDATES: Final = [
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
        for number, (replicas, leader, isr, understood, _) in enumerate(CANDIDATES)
    ]
    partitions, _, brokers = RuleInput(rows, live=frozenset({1, 2}), opaque=frozenset({4})).frames(spark)
    needed = [row for row, (*_, needs) in zip(rows, CANDIDATES, strict=True) if needs]
    actual = sorted(as_rows(needing_attention(partitions, brokers)), key=lambda row: row["partition"])
    assert actual == as_rows(frame(spark, needed, PARTITIONS).select(*SOURCE_COLUMNS))
