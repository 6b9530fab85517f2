"""Decisions by class of partitions are the same as decisions on each partition separately."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.prepared_queries import ParameterTables
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.decisions import engine as engine_module
from jobs.controller.decisions.cache import DecisionCache, PartitionClass, group_by_class
from jobs.controller.decisions.engine import DecisionEngine, Decisions
from jobs.controller.decisions.precompute import FailurePrecomputer
from schemas.enums import DrainMode, RequestKind
from schemas.rows import DrainedBroker, Key

LIVE = (1, 2, 3)
LIVE_AND_DEAD = (*LIVE, 4, 5)


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - the same each time


def random_partition(random: Random, topic: str, partition: int) -> PartitionInfo:
    replicas = random.sample(LIVE_AND_DEAD, 3)
    isr = random.sample(replicas, random.randint(1, 3))
    led = random.random() < 0.9
    return PartitionInfo(
        topic=topic,
        partition=partition,
        replicas=replicas,
        adding_replicas=[],
        removing_replicas=replicas[2:] if random.random() < 0.05 else [],
        topic_version=random.randint(0, 9),
        understood=random.random() < 0.95,
        leader=random.choice([*isr, -1]) if led else None,
        isr=isr if led else None,
        leader_epoch=random.randint(0, 99) if led else None,
        controller_epoch=random.randint(1, 9) if led else None,
        state_version=random.randint(0, 99) if led else None,
        leader_recovery_state=random.choice([0, 0, 1]) if led else None,
    )


def random_context(random: Random) -> ControllerContext:
    """Six topics, one of them queued for deletion, a request and a failed log dir."""
    context = ControllerContext(requests=[{"kind": RequestKind.DELETE_TOPIC.value, "topic": "t0", "path": "/admin/t0"}])
    for broker in LIVE:
        context.brokers[broker] = {"broker_id": broker, "broker_epoch": broker, "understood": True, "endpoints": []}
    for number in range(6):
        topic = {
            "topic": f"t{number}",
            "topic_version": 10,
            "topic_id": None if number == 1 else f"id{number}",
            "config": {"unclean.leader.election.enable": "true"} if number == 2 else {},
            "understood": True,
            "deletion_requested": number == 0,
        }
        context.put_topic(topic, [random_partition(random, f"t{number}", partition) for partition in range(80)])
    asked_for = {"kind": RequestKind.PREFERRED_ELECTION.value, "topic": "t3", "partition": 7, "path": "/admin/p"}
    context.requests.append(asked_for)
    for partition in range(0, 80, 9):
        context.failed["t4", partition].add(1)
    context.stopped["t5", 1] = {2: -2}
    return context


def sorted_rows(decided: Decisions) -> tuple[list[str], ...]:
    parts = decided.changes, decided.others, decided.withdrawn, decided.deletions, *decided.deletion_batches
    return tuple(sorted(map(str, part)) for part in parts)


def test_class_decision_equals_individual_decisions(engine: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the decision is cached from partitions at other epochs."""
    actions = set()
    for seed, requested in product(range(3), (True, False)):
        context = random_context(seeded(seed))
        mark = DrainedBroker(broker_id=2, mode=DrainMode.RESIDENT.value, since=datetime.now(UTC))
        engine.drained = [mark] if seed == 1 else []
        if not requested:
            context.requests = []
            context.moving.clear()  # so that the query decides on leadership only

        by_class = engine.decide(context, {*context.partitions}, deletions=True)
        with monkeypatch.context() as patched:
            patched.setattr(engine_module, "group_by_class", one_class_each)
            separate = engine.decide(context, {*context.partitions}, deletions=True)

        assert sorted_rows(by_class) == sorted_rows(separate)
        actions |= {change.action for change in separate.changes}
    assert actions >= {"elect", "create", "shrink_isr", "take_offline"}


def one_class_each(context: ControllerContext, keys: Collection[Key], _: object) -> list[PartitionClass]:
    return [PartitionClass(None, [key]) for key in keys if key in context.partitions]


def test_precomputed_failure_needs_no_query(engine: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition has changed since, and only that one is queried."""
    context = random_context(seeded(4))
    context.requests = []
    precomputer = FailurePrecomputer(engine, context)
    while precomputer.run_next():
        pass
    queries = record_queries(monkeypatch)

    changed = next(row for row in context.partitions.values() if row.leader == 1 and not row.is_moving)
    context.put_partition(replace(changed, isr=[*reversed(changed.replicas)], leader_epoch=77))
    del context.brokers[1]
    precomputed = engine.decide(context, context.of_broker(1) - context.moving, deletions=False)

    assert [[(row["topic"], row["partition"]) for row in rows] for rows in queries] == [[changed.key]]
    engine.cache = DecisionCache()
    assert sorted_rows(precomputed) == sorted_rows(
        engine.decide(context, context.of_broker(1) - context.moving, deletions=False)
    )
    assert len(precomputed.changes) > 100


def test_failure_is_precomputed_again_after_changes(engine: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    context = random_context(seeded(5))
    computed: list[int] = []
    monkeypatch.setattr(
        DecisionEngine, "precompute_failure", lambda _self, _memory, broker, _most: computed.append(broker)
    )
    precomputer = FailurePrecomputer(engine, context)

    assert [precomputer.run_next() for _ in range(4)] == [True, True, True, False]
    changed = next(row for row in context.partitions.values() if {1, 2} <= row.brokers and 3 not in row.brokers)
    context.put_partition(changed)
    assert not precomputer.run_next()
    monkeypatch.setattr("jobs.controller.decisions.precompute.IDLE_SECONDS", 0.0)
    assert [precomputer.run_next() for _ in range(3)] == [True, True, False]
    context.brokers[3] |= {"broker_epoch": 99}
    assert [precomputer.run_next() for _ in range(4)] == [True, True, True, False]
    assert computed == [1, 2, 3, 1, 2, 1, 2, 3]


def test_failure_with_too_many_classes_is_not_precomputed(
    engine: DecisionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = random_context(seeded(6))
    queries = record_queries(monkeypatch)

    engine.precompute_failure(context, 1, 10)
    assert queries == []
    engine.precompute_failure(context, 1, 5_000)
    assert len(queries) == 1


def record_queries(monkeypatch: pytest.MonkeyPatch) -> list[list[Row]]:
    """The partitions of each query, as they are put."""
    queries: list[list[Row]] = []
    put = ParameterTables.put

    def recorded(files: ParameterTables, name: str, rows: Sequence[Any]) -> None:
        if name == "partitions":
            queries.append(msgspec.to_builtins(rows))
        put(files, name, rows)

    monkeypatch.setattr(ParameterTables, "put", recorded)
    return queries


def test_least_recently_used_decisions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.controller.decisions.cache.MAX_CACHED_CLASSES", 2)
    cache = DecisionCache()
    for broker in (1, 2):
        cache.for_brokers([{"broker_id": broker}]).update({"a": [], "b": []})

    assert cache.for_brokers([{"broker_id": 2}]).keys() == {"a", "b"}
    assert cache.for_brokers([{"broker_id": 1}]) == {}


def test_names_epochs_and_versions_do_not_separate_classes() -> None:
    context = ControllerContext()
    topic: Row = {"topic_version": 1, "topic_id": None, "config": {}, "understood": True, "deletion_requested": False}
    model_row = random_partition(seeded(1), "a", 0)
    rows = {name: [same_class(model_row, name, partition) for partition in (0, 1, 2)] for name in ("a", "b", "c")}
    for name, partitions in rows.items():
        config = {"unclean.leader.election.enable": "true"} if name == "c" else {}
        context.put_topic(topic | {"topic": name, "config": config}, partitions)
    context.failed["b", 1].add(1)

    classes = [
        {*partition_class.members}
        for partition_class in group_by_class(context, [*context.partitions, ("gone", 0)], {("a", 2)})
    ]

    assert sorted(classes, key=len) == [
        {("a", 2)},
        {("b", 1)},
        {("c", 0), ("c", 1), ("c", 2)},
        {("a", 0), ("a", 1), ("b", 0), ("b", 2)},
    ]


def same_class(row: PartitionInfo, topic: str, partition: int) -> PartitionInfo:
    """Another partition of the same class: with another name, other epochs and versions."""
    return PartitionInfo(
        topic=topic,
        partition=partition,
        replicas=[1, 2, 3],
        adding_replicas=[],
        removing_replicas=[],
        topic_version=row.topic_version + partition,
        understood=True,
        leader=1,
        isr=[1, 2],
        leader_epoch=partition,
        controller_epoch=partition,
        state_version=partition,
        leader_recovery_state=0,
    )
