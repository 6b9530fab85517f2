"""Decisions about a made-up cluster, so that the first decisions about the real one are quick.

Spark's first queries take ten times as long as later ones, and an election would have to wait for that. Before the
take-over each query of the controller is run some times on three brokers, one of them dead, and a topic with a
partition for each kind of change.
"""

from typing import Final

from jobs.adapters.delta.warehouse import Row
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.decisions.cache import DecisionCache
from jobs.controller.decisions.engine import DecisionEngine
from schemas.enums import RequestKind

WARMUP_ROUNDS: Final = 2
"""How often each query is run: it takes 8.5 s the first time, then 2.1, 1.6 and 1.4, and hardly less after that."""

WARMUP_PARTITIONS: Final = 1000
"""Partitions that dead brokers led, in the queries about leadership: code that runs per row must be compiled, too."""

_TOPIC: Final = "t"


def warm_up(engine: DecisionEngine) -> None:
    """Run each query, and discard the results."""
    moves = [_request(RequestKind.REASSIGN, 1, replicas=[2, 3]), _request(RequestKind.PREFERRED_ELECTION, 2)]
    deletion: list[Row] = [{"kind": RequestKind.DELETE_TOPIC.value, "topic": _TOPIC, "path": f"/admin/{_TOPIC}"}]
    for _ in range(WARMUP_ROUNDS):
        for requests in ([], moves, deletion):
            context = _cluster(requests, few=bool(requests))
            engine.decide(context, context.partitions.keys(), deletions=True)
            engine.cache = DecisionCache()


def _request(kind: RequestKind, partition: int, replicas: list[int] | None = None) -> Row:
    return {"kind": kind.value, "topic": _TOPIC, "partition": partition, "replicas": replicas, "path": "/admin/t"}


def _cluster(requests: list[Row], *, few: bool) -> ControllerContext:
    context = ControllerContext(requests=requests)
    for broker in (1, 2):
        context.brokers[broker] = {"broker_id": broker, "broker_epoch": broker, "understood": True, "endpoints": []}
    topic = {
        "topic": _TOPIC,
        "topic_version": 0,
        "topic_id": None,
        "config": {},
        "understood": True,
        "deletion_requested": False,
    }
    similar = [] if few else [_partition(number, number, third=number) for number in range(4, WARMUP_PARTITIONS)]
    distinct = [_partition(0, 3), _partition(1, 1), _partition(2, 2), _partition(3, None)]
    context.put_topic(topic, distinct + similar)
    return context


def _partition(number: int, leader: int | None, third: int = 3) -> PartitionInfo:
    return PartitionInfo(
        topic=_TOPIC,
        partition=number,
        replicas=[1, 2, third],
        adding_replicas=[],
        removing_replicas=[],
        topic_version=0,
        understood=True,
        leader=leader,
        isr=None if leader is None else [1, 2, third],
        leader_epoch=None if leader is None else 1,
        controller_epoch=None if leader is None else 1,
        state_version=None if leader is None else 0,
        leader_recovery_state=None if leader is None else 0,
    )
