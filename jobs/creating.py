"""New topics and partitions, asked of Kafka's controller: many topics a request, but no more than it makes in time."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from jobs.adapters.admin import Admin, Creation
from jobs.adapters.lake import Row
from jobs.ledger import Ledger
from schemas.names import OperationKind

CREATED_AT_ONCE: Final = 1000
"""Partitions of new topics in one request: a second or two for the controller, which is given 20; a larger topic goes
alone."""


def create(ledger: Ledger, admin: Admin, changes: Sequence[Row]) -> dict[tuple[str, Any], int | str]:
    """Ask for new topics and partitions; error codes by topic and partition."""
    replicas: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for change in changes:
        replicas[change["topic"]][change["partition"]] = change["replicas_after"]
    codes: dict[tuple[str, Any], int | str] = {}
    wanted: dict[str, Creation] = {}
    for operation in ledger.plan.operations:
        topic, data = operation["topic"], json.loads(operation["data"])
        mine = replicas.get(topic)
        if mine and operation["kind"] == OperationKind.CREATE_TOPIC:
            wanted[topic] = (mine, data["config"])
        elif mine and operation["kind"] == OperationKind.EXPAND_TOPIC:
            added = [mine[partition] for partition in sorted(mine)]
            codes |= dict.fromkeys(_keys(topic, mine), admin.create_partitions(topic, data["partitions"], added))
    for request in creation_requests(wanted):
        for topic, code in admin.create_topics(request).items():
            codes |= dict.fromkeys(_keys(topic, replicas[topic]), code)
    return codes


def creation_requests(wanted: Mapping[str, Creation]) -> Iterator[dict[str, Creation]]:
    """Cut new topics into requests of some partitions each: the controller answers once all of one are made.

    >>> few, many = ({partition: [0] for partition in range(count)} for count in (CREATED_AT_ONCE - 1, 9999))
    >>> [list(request) for request in creation_requests({"a": (few, {}), "b": ({0: [0]}, {}), "c": (many, {})})]
    [['a', 'b'], ['c']]
    """
    request: dict[str, Creation] = {}
    room = CREATED_AT_ONCE
    for topic, (replicas, config) in wanted.items():
        if request and len(replicas) > room:
            yield request
            request, room = {}, CREATED_AT_ONCE
        request[topic] = (replicas, config)
        room -= len(replicas)
    if request:
        yield request


def _keys(topic: str, partitions: Iterable[int]) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in partitions]
