"""Decisions by class of partitions are the same as decisions on each partition separately."""

from collections.abc import Collection, Sequence
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.prepared_queries import ParameterTables
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.decisions import engine as deciding
from jobs.controller.decisions.cache import DecisionCache, PartitionClass, group_by_class
from jobs.controller.decisions.engine import DecisionEngine, Decisions
from jobs.controller.decisions.precompute import FailurePrecomputer
from schemas.enums import DrainMode, RequestKind
from schemas.rows import Key

LIVE = (1, 2, 3)
ONCE_LIVE = (*LIVE, 4, 5)


def chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - the same each time


def some_partition(dice: Random, topic: str, partition: int) -> PartitionInfo:
    replicas = dice.sample(ONCE_LIVE, 3)
    isr = dice.sample(replicas, dice.randint(1, 3))
    led = dice.random() < 0.9
    return PartitionInfo(
        topic=topic,
        partition=partition,
        replicas=replicas,
        adding_replicas=[],
        removing_replicas=replicas[2:] if dice.random() < 0.05 else [],
        topic_version=dice.randint(0, 9),
        understood=dice.random() < 0.95,
        leader=dice.choice([*isr, -1]) if led else None,
        isr=isr if led else None,
        leader_epoch=dice.randint(0, 99) if led else None,
        controller_epoch=dice.randint(1, 9) if led else None,
        state_version=dice.randint(0, 99) if led else None,
        leader_recovery_state=dice.choice([0, 0, 1]) if led else None,
    )


def some_memory(dice: Random) -> ControllerContext:
    """Six topics, one of them queued for deletion, a request and a failed log dir."""
    memory = ControllerContext(requests=[{"kind": RequestKind.DELETE_TOPIC.value, "topic": "t0", "path": "/admin/t0"}])
    for broker in LIVE:
        memory.brokers[broker] = {"broker_id": broker, "broker_epoch": broker, "understood": True, "endpoints": []}
    for number in range(6):
        topic = {
            "topic": f"t{number}",
            "topic_version": 10,
            "topic_id": None if number == 1 else f"id{number}",
            "config": {"unclean.leader.election.enable": "true"} if number == 2 else {},
            "understood": True,
            "deletion_requested": number == 0,
        }
        memory.put_topic(topic, [some_partition(dice, f"t{number}", partition) for partition in range(80)])
    asked_for = {"kind": RequestKind.PREFERRED_ELECTION.value, "topic": "t3", "partition": 7, "path": "/admin/p"}
    memory.requests.append(asked_for)
    for partition in range(0, 80, 9):
        memory.failed["t4", partition].add(1)
    memory.stopped["t5", 1] = {2: -2}
    return memory


def sorted_rows(decided: Decisions) -> tuple[list[str], ...]:
    parts = decided.changes, decided.others, decided.withdrawn, decided.deletions, *decided.deletion_waves
    return tuple(sorted(map(str, part)) for part in parts)


def test_class_decision_equals_individual_decisions(decider: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the decision is cached from partitions at other epochs."""
    actions = set()
    for seed, requested in product(range(3), (True, False)):
        memory = some_memory(chance(seed))
        decider.drained = [{"broker_id": 2, "mode": DrainMode.RESIDENT.value}] if seed == 1 else []
        if not requested:
            memory.requests = []
            memory.moving.clear()  # so that the question is about leadership alone

        together = decider.decide(memory, {*memory.partitions}, deletions=True)
        with monkeypatch.context() as patched:
            patched.setattr(deciding, "group_by_class", each_by_itself)
            apart = decider.decide(memory, {*memory.partitions}, deletions=True)

        assert sorted_rows(together) == sorted_rows(apart)
        actions |= {change.action for change in apart.changes}
    assert actions >= {"elect", "create", "shrink_isr", "take_offline"}


def each_by_itself(memory: ControllerContext, keys: Collection[Key], _: object) -> list[PartitionClass]:
    return [PartitionClass(None, [key]) for key in keys if key in memory.partitions]


def test_precomputed_failure_needs_no_query(decider: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition has changed since, and only that one is queried."""
    memory = some_memory(chance(4))
    memory.requests = []
    foresight = FailurePrecomputer(decider, memory)
    while foresight.run_next():
        pass
    queries = asked_about(monkeypatch)

    changed = next(row for row in memory.partitions.values() if row.leader == 1 and not row.is_moving)
    memory.put_partition(replace(changed, isr=[*reversed(changed.replicas)], leader_epoch=77))
    del memory.brokers[1]
    foreseen = decider.decide(memory, memory.of_broker(1) - memory.moving, deletions=False)

    assert [[(row["topic"], row["partition"]) for row in rows] for rows in queries] == [[changed.key]]
    decider.cache = DecisionCache()
    assert sorted_rows(foreseen) == sorted_rows(
        decider.decide(memory, memory.of_broker(1) - memory.moving, deletions=False)
    )
    assert len(foreseen.changes) > 100


def test_failure_is_precomputed_again_after_changes(decider: DecisionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = some_memory(chance(5))
    looked_at: list[int] = []
    monkeypatch.setattr(
        DecisionEngine, "precompute_failure", lambda _self, _memory, broker, _most: looked_at.append(broker)
    )
    foresight = FailurePrecomputer(decider, memory)

    assert [foresight.run_next() for _ in range(4)] == [True, True, True, False]
    touched = next(row for row in memory.partitions.values() if {1, 2} <= row.brokers and 3 not in row.brokers)
    memory.put_partition(touched)
    assert not foresight.run_next()
    monkeypatch.setattr("jobs.controller.decisions.precompute.IDLE_SECONDS", 0.0)
    assert [foresight.run_next() for _ in range(3)] == [True, True, False]
    memory.brokers[3] |= {"broker_epoch": 99}
    assert [foresight.run_next() for _ in range(4)] == [True, True, True, False]
    assert looked_at == [1, 2, 3, 1, 2, 1, 2, 3]


def test_failure_with_too_many_classes_is_not_precomputed(
    decider: DecisionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = some_memory(chance(6))
    queries = asked_about(monkeypatch)

    decider.precompute_failure(memory, 1, 10)
    assert queries == []
    decider.precompute_failure(memory, 1, 5_000)
    assert len(queries) == 1


def asked_about(monkeypatch: pytest.MonkeyPatch) -> list[list[Row]]:
    """The partitions of each query, as they are put."""
    queries: list[list[Row]] = []
    put = ParameterTables.put

    def noted(files: ParameterTables, name: str, rows: Sequence[Any]) -> None:
        if name == "partitions":
            queries.append(msgspec.to_builtins(rows))
        put(files, name, rows)

    monkeypatch.setattr(ParameterTables, "put", noted)
    return queries


def test_least_recently_used_decisions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.controller.decisions.cache.MAX_CACHED_CLASSES", 2)
    known = DecisionCache()
    for broker in (1, 2):
        known.for_brokers([{"broker_id": broker}]).update({"a": [], "b": []})

    assert known.for_brokers([{"broker_id": 2}]).keys() == {"a", "b"}
    assert known.for_brokers([{"broker_id": 1}]) == {}


def test_names_epochs_and_versions_do_not_separate_classes() -> None:
    memory = ControllerContext()
    topic: Row = {"topic_version": 1, "topic_id": None, "config": {}, "understood": True, "deletion_requested": False}
    like = some_partition(chance(1), "a", 0)
    rows = {name: [like_it(like, name, partition) for partition in (0, 1, 2)] for name in ("a", "b", "c")}
    for name, partitions in rows.items():
        config = {"unclean.leader.election.enable": "true"} if name == "c" else {}
        memory.put_topic(topic | {"topic": name, "config": config}, partitions)
    memory.failed["b", 1].add(1)

    kinds = [{*kind.members} for kind in group_by_class(memory, [*memory.partitions, ("gone", 0)], {("a", 2)})]

    assert sorted(kinds, key=len) == [
        {("a", 2)},
        {("b", 1)},
        {("c", 0), ("c", 1), ("c", 2)},
        {("a", 0), ("a", 1), ("b", 0), ("b", 2)},
    ]


def like_it(row: PartitionInfo, topic: str, partition: int) -> PartitionInfo:
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
