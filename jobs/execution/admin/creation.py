"""Creation of topics and partitions over the Admin API: as many topics in a request as fit into its timeout."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from jobs.adapters.brokers.admin import Admin, Creation
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import OperationKind
from schemas.rows import Change

MAX_PARTITIONS_PER_REQUEST: Final = 1000
"""Partitions of new topics in one request: they take the controller a second or two of its 20; a larger topic gets a
request of its own.
"""

ErrorCodes = Mapping[tuple[str, int], int]
"""Error codes by topic and partition."""


def creations(
    ledger: CommitLog, admin: Admin, changes: Sequence[Change]
) -> Iterator[tuple[list[Change], Callable[[], ErrorCodes]]]:
    """Split new topics and partitions into requests; yield the changes of each, and the function that sends it."""
    changes_by_topic: dict[str, dict[int, Change]] = defaultdict(dict)
    for change in changes:
        changes_by_topic[change.topic][change.partition] = change
    topics: dict[str, Creation] = {}
    for operation in ledger.plan.operations:
        topic, data = operation.topic, json.loads(operation.data)
        rows = changes_by_topic.get(topic)
        if rows and operation.kind == OperationKind.CREATE_TOPIC:
            topics[topic] = ({number: row.replicas_after for number, row in rows.items()}, data["config"])
        elif rows and operation.kind == OperationKind.EXPAND_TOPIC:
            added = [rows[number].replicas_after for number in sorted(rows)]
            yield [*rows.values()], partial(_expand, admin, topic, data["partitions"], added, [*rows])
    for request in creation_requests(topics):
        yield [row for topic in request for row in changes_by_topic[topic].values()], partial(_create, admin, request)


def _expand(admin: Admin, topic: str, total: int, added: list[list[int]], numbers: Iterable[int]) -> ErrorCodes:
    code = admin.create_partitions(topic, total, added)
    return {(topic, number): code for number in numbers}


def _create(admin: Admin, request: Mapping[str, Creation]) -> ErrorCodes:
    answered = admin.create_topics(request).items()
    return {(topic, number): code for topic, code in answered for number in request[topic][0]}


def creation_requests(topics: Mapping[str, Creation]) -> Iterator[dict[str, Creation]]:
    """Split new topics into requests of a limited number of partitions: the controller answers once all are created.

    >>> few, many = ({partition: [0] for partition in range(count)} for count in (MAX_PARTITIONS_PER_REQUEST - 1, 9999))
    >>> [list(request) for request in creation_requests({"a": (few, {}), "b": ({0: [0]}, {}), "c": (many, {})})]
    [['a', 'b'], ['c']]
    """
    request: dict[str, Creation] = {}
    remaining = MAX_PARTITIONS_PER_REQUEST
    for topic, (replicas, config) in topics.items():
        if request and len(replicas) > remaining:
            yield request
            request, remaining = {}, MAX_PARTITIONS_PER_REQUEST
        request[topic] = (replicas, config)
        remaining -= len(replicas)
    if request:
        yield request
