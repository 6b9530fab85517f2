"""Decisions about a cluster that does not exist, so that those about the real one are quick from the first.

Spark's first queries take ten times as long as later ones: an election would wait for that. So each shape of
query that a controller asks is asked some times before the take-over, about three brokers, one of them dead, and a
topic with a partition for everything that can be due.
"""

from typing import Final

from jobs.adapters.delta.warehouse import Row
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.decisions.cache import DecisionCache
from jobs.controller.decisions.engine import DecisionEngine
from schemas.enums import RequestKind

WARMUP_ROUNDS: Final = 2
"""How often each shape is asked: 8.5 s the first time, then 2.1, 1.6 and 1.4, and from there on little less."""

WARMUP_PARTITIONS: Final = 1000
"""Partitions that dead brokers led, in those about leadership: what is done for each row is to be quick, too."""

_TOPIC: Final = "t"


def warm_up(decider: DecisionEngine) -> None:
    """Ask each shape of query; whatever comes of it is thrown away."""
    moves = [_request(RequestKind.REASSIGN, 1, replicas=[2, 3]), _request(RequestKind.PREFERRED_ELECTION, 2)]
    deletion: list[Row] = [{"kind": RequestKind.DELETE_TOPIC.value, "topic": _TOPIC, "path": f"/admin/{_TOPIC}"}]
    for _ in range(WARMUP_ROUNDS):
        for requests in ([], moves, deletion):
            memory = _cluster(requests, few=bool(requests))
            decider.decide(memory, memory.partitions.keys(), deletions=True)
            decider.cache = DecisionCache()


def _request(kind: RequestKind, partition: int, replicas: list[int] | None = None) -> Row:
    return {"kind": kind.value, "topic": _TOPIC, "partition": partition, "replicas": replicas, "path": "/admin/t"}


def _cluster(requests: list[Row], *, few: bool) -> ControllerContext:
    memory = ControllerContext(requests=requests)
    for broker in (1, 2):
        memory.brokers[broker] = {"broker_id": broker, "broker_epoch": broker, "understood": True, "endpoints": []}
    topic = {
        "topic": _TOPIC,
        "topic_version": 0,
        "topic_id": None,
        "config": {},
        "understood": True,
        "deletion_requested": False,
    }
    like_it = [] if few else [_partition(number, number, third=number) for number in range(4, WARMUP_PARTITIONS)]
    some = [_partition(0, 3), _partition(1, 1), _partition(2, 2), _partition(3, None)]
    memory.put_topic(topic, some + like_it)
    return memory


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
