"""Topics and partitions of a KRaft cluster: read in pages, with running reassignments, and read again if torn.

DescribeTopicPartitions (Kafka 3.8) returns pages of partitions with eligible leader replicas. Older brokers return all
topics in one Metadata response, without them. Pages and the list of reassignments are of different moments, so the list
is read before and after the pages. A topic for which the two lists or the replicas disagree is read once more.

A large cluster is read in shares of its topics (`read_share`), by several processes from several brokers.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from kafka.admin import ConfigResourceType
from kafka.errors import KafkaProtocolError
from kafka.protocol.admin import DescribeConfigsRequest, DescribeTopicPartitionsRequest, ListConfigResourcesRequest
from kafka.protocol.metadata import MetadataRequest
from msgspec import Struct

from jobs.adapters.brokers.admin_client import NONE
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.kraft.cluster import REASSIGNMENTS, NotPermittedError, Reassignments, RefusedReadError, read_moves
from jobs.adapters.kraft.session import UNSUPPORTED, Session, StaleMetadataError
from schemas.rows import Key, QuarantinedZnode

PAGE_PARTITIONS: Final = 2_000
"""Partitions in a page: the default of max.request.partition.size.limit, above which brokers cut a page."""

TOPICS_PER_LIST: Final = 200
"""Topics named in a request for partitions; the request for each page of a list repeats those that are left."""

TOPICS_PER_REQUEST: Final = 200
"""Topics whose configs are requested at a time; a response has all settings of each, about 3 kB."""

TOPIC: Final = "DescribeTopicPartitions"
CONFIG: Final = "DescribeConfigs"
"""Requests that stand for the znodes of a topic in `quarantine`, followed by its name."""

_OF_ALL_TYPES: Final = 1
"""First version of ListConfigResources that lists topics (Kafka 4.1); version 0 lists resources of client metrics."""

UNKNOWN_TOPIC: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
"""The leader is not alive or there is none; the response has no leader then, and the rest is valid."""

_UNKNOWN_EPOCH: Final = -1
TOPIC_OVERRIDE: Final = 1
"""`config_source` of an override of a topic (DYNAMIC_TOPIC_CONFIG)."""

_NO_TOPIC_ID: Final = UUID(int=0)

TOPIC_COLUMNS: Final = ("topic", "topic_id", "config", "understood", "assignment_understood")

Columns = dict[str, list[Any]]


class KRaftPartition(Struct, frozen=True, kw_only=True, gc=False):
    """One partition as brokers describe it: the columns of PARTITIONS that a KRaft cluster has."""

    topic: str
    partition: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    leader: int | None
    isr: list[int]
    leader_epoch: int | None
    understood: bool
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None


PARTITION_COLUMNS: Final = KRaftPartition.__struct_fields__


@dataclass(slots=True)
class _Topic:
    """A topic, and its partitions by column."""

    topic_id: str | None
    columns: Columns
    fault: str | None = None
    """Why its partitions are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftTopicReading:
    """What was read of topics: columns of TOPICS and PARTITIONS, reassignments, and what is not understood."""

    topics: pa.Table
    partitions: pa.Table
    moves: Reassignments
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    torn: Sequence[str] = ()
    """Topics of a share that are left out, because their replicas and reassignments are not of one moment."""


def list_topics(session: Session) -> tuple[list[str], bool]:
    """Return the names of all topics, and whether those are included that this client may not describe.

    ListConfigResources returns all names alone, to a client with DESCRIBE_CONFIGS on the cluster. Otherwise they are
    taken from Metadata, which also returns all partitions.
    """
    request = ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC.value], min_version=_OF_ALL_TYPES)
    try:
        response = session.ask(request)
    except UNSUPPORTED:
        pass
    else:
        if response.error_code == NONE:
            return sorted(row.resource_name for row in response.config_resources), True
    return sorted(row.name for row in _all_topics(session, None) if row.name is not None), False


def has_at_most(session: Session, limit: int) -> bool:
    """Count partitions page by page, and stop above the limit."""
    counted = 0
    for topics in _pages(session, None):
        counted += sum(len(topic.partitions) for topic in topics)
        if counted > limit:
            return False
    return True


def read_share(session: Session, names: Sequence[str], moves: Reassignments | None) -> KRaftTopicReading:
    """Read some topics with their configs; `moves` are the reassignments as listed before, None if they are unknown."""
    quarantine: list[QuarantinedZnode] = []
    topics = _read(session, names)
    torn = _torn(topics, moves or {}, moves or {})
    kept = {name: row for name, row in topics.items() if name not in torn}
    return _reading(session, kept, moves, quarantine, torn=sorted(torn))


def read_topics(
    session: Session, names: Sequence[str] | None = None, more: Callable[[], Collection[str]] = frozenset
) -> KRaftTopicReading:
    """Read all topics, or those named, with their configs and reassignments.

    `more` returns topics that must exist besides those listed, for a client that may not describe all topics.
    """
    quarantine: list[QuarantinedZnode] = []
    topics, moves = _read_untorn(session, names, lambda: listed_moves(session, quarantine))
    if names is None:
        topics |= _read(session, sorted({*more()} - topics.keys()))
    return _reading(session, topics, moves, quarantine)


def _reading(
    session: Session,
    topics: Mapping[str, _Topic],
    moves: Reassignments | None,
    quarantine: list[QuarantinedZnode],
    torn: Sequence[str] = (),
) -> KRaftTopicReading:
    """Read the configs of topics, and return all of it as tables."""
    configs = _read_configs(session, topics, quarantine)
    topics = {name: row for name, row in topics.items() if name in configs}
    for name, row in topics.items():
        if row.fault is not None:
            quarantine.append(QuarantinedZnode(path=f"{TOPIC}/{name}", reason=row.fault))
    partitions = _merged(topics)
    _add_moves(partitions, moves, quarantine)
    schema = schema_of("partitions")
    return KRaftTopicReading(
        topics=_topic_table(topics, configs),
        partitions=pa.table(
            {name: pa.array(partitions[name], schema.field(name).type) for name in PARTITION_COLUMNS},
        ),
        moves=moves or {},
        quarantine=quarantine,
        torn=torn,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A topic with its partitions."""

    topic_id: str | None
    partitions: list[KRaftPartition]
    fault: str | None
    """Why its partitions are unknown."""
    config: dict[str, str | None] | None
    """Its overrides; None if they cannot be read, or were not asked for."""


def read_named_topics(
    session: Session, names: Sequence[str], *, with_configs: bool
) -> tuple[dict[str, NamedTopic], Reassignments | None]:
    """Read these topics, and all running reassignments; None if those are not listed.

    A topic that does not exist is left out. Without the reassignments, no partition is understood.
    """
    topics, moves = _read_untorn(session, sorted(set(names)), lambda: permitted_moves(session))
    configs = _read_configs(session, topics, []) if with_configs else dict.fromkeys(topics)
    return _named({name: row for name, row in topics.items() if name in configs}, moves, configs), moves


def read_named_partitions(session: Session, keys: Collection[Key]) -> dict[str, NamedTopic]:
    """Read these partitions and their running reassignments; their topics are returned without other partitions.

    What else the cluster has, or moves, is not read: a large plan is read in portions while much of it is moving.
    """
    names = sorted({topic for topic, _ in keys})
    topics, moves = _read_untorn(session, names, lambda: permitted_moves(session, keys), frozenset(keys))
    return _named(topics, moves, dict.fromkeys(topics))


def _named(
    topics: Mapping[str, _Topic],
    moves: Reassignments | None,
    configs: Mapping[str, dict[str, str | None] | None],
) -> dict[str, NamedTopic]:
    columns = _merged(topics)
    _add_moves(columns, moves, [])
    rows: dict[str, list[KRaftPartition]] = {name: [] for name in topics}
    for values in zip(*(columns[name] for name in PARTITION_COLUMNS), strict=True):
        row = KRaftPartition(**dict(zip(PARTITION_COLUMNS, values, strict=True)))
        rows[row.topic].append(row)
    return {
        name: NamedTopic(topic_id=row.topic_id, partitions=rows[name], fault=row.fault, config=configs[name])
        for name, row in topics.items()
    }


def _read_untorn(
    session: Session,
    names: Sequence[str] | None,
    list_moves: Callable[[], Reassignments | None],
    keys: frozenset[Key] | None = None,
) -> tuple[dict[str, _Topic], Reassignments | None]:
    """Read topics between two lists of the running reassignments, and those that are torn once more.

    With `keys`, only these partitions are read.
    """
    before = list_moves()
    topics = _read(session, names, keys)
    moves = None if before is None else list_moves()
    if before is not None and moves is not None and (torn := _torn(topics, before, moves)):
        again = _read(session, sorted(torn), keys)
        topics = {name: row for name, row in topics.items() if name not in torn} | again
        latest = list_moves()
        moves = None if latest is None else _moves_when_read(again, torn, moves, latest)
    return topics, moves


def _moves_when_read(
    again: Mapping[str, _Topic],
    torn: Collection[str],
    listed: Reassignments,
    latest: Reassignments,
) -> Reassignments:
    """Return the reassignments at the moment when each topic was read: `torn` between two lists, the others before.

    A move that has ended since has left the last list. Without it, all its replicas would count as assigned.
    """
    replicas = {
        (name, partition): brokers
        for name, topic in again.items()
        for partition, brokers in zip(topic.columns["partition"], topic.columns["replicas"], strict=True)
    }
    earlier = {
        key: move for key, move in listed.items() if key[0] not in torn or {*replicas.get(key, ())} == {*move.replicas}
    }
    return earlier | {key: move for key, move in latest.items() if key[0] in torn}


def permitted_moves(session: Session, keys: Iterable[Key] | None = None) -> Reassignments | None:
    """Return the running reassignments, all or those of some partitions; None if this client may not list them.

    Raise StaleMetadataError for any other refusal, as of a controller that was just replaced; then try again.
    """
    try:
        return read_moves(session, keys)
    except NotPermittedError:
        return None
    except RefusedReadError as error:
        raise StaleMetadataError(str(error)) from None


def torn_between(before: Reassignments | None, after: Reassignments | None) -> set[str]:
    """Return the topics whose reassignments differ between two lists, of which either may be unknown."""
    old, new = before or {}, after or {}
    return {key[0] for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def listed_moves(session: Session, quarantine: list[QuarantinedZnode]) -> Reassignments | None:
    """Return the running reassignments; None if they are not listed, which is a row of QUARANTINE."""
    try:
        return read_moves(session)
    except RefusedReadError as error:
        quarantine.append(QuarantinedZnode(path=REASSIGNMENTS, reason=str(error)))
        return None


def _pages(
    session: Session, names: Sequence[str] | None, span: tuple[Key, Key] | None = None
) -> Iterator[Sequence[Any]]:
    """Yield pages of topics; one response of all topics from a broker that does not know pages.

    `span` is the first and the last partition that are needed: pages before and after it are not requested.
    """
    page = DescribeTopicPartitionsRequest
    remaining_names = sorted(names or ())  # as brokers sort them
    cursor = span[0] if span is not None and remaining_names[:1] == [span[0][0]] else None
    while True:
        start = None if cursor is None else page.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        topics = [page.TopicRequest(name=name) for name in remaining_names]
        request = page(topics=topics, response_partition_limit=PAGE_PARTITIONS, cursor=start)
        try:
            response = session.ask(request)
        except UNSUPPORTED:
            yield _all_topics(session, names)
            return
        yield response.topics
        following = response.next_cursor
        if following is None:
            return
        if cursor == (following.topic_name, following.partition_index):
            raise KafkaProtocolError(f"DescribeTopicPartitions stays at {cursor}")
        cursor = following.topic_name, following.partition_index
        if span is not None and cursor > span[1]:
            return
        remaining_names = remaining_names[bisect_left(remaining_names, following.topic_name) :]
        if names is not None and not remaining_names:  # a request without names would be for all topics
            return


def _all_topics(session: Session, names: Sequence[str] | None) -> Sequence[Any]:
    requests = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    topics: Sequence[Any] = session.ask(MetadataRequest(topics=requests, allow_auto_topic_creation=False)).topics
    return topics


def _read(session: Session, names: Sequence[str] | None, keys: frozenset[Key] | None = None) -> dict[str, _Topic]:
    """Read topics by name, or only these partitions of them; a topic that does not exist is left out."""
    read: dict[str, _Topic] = {}
    if names is not None and not names:
        return read
    lists = [None] if names is None else [names[i : i + TOPICS_PER_LIST] for i in range(0, len(names), TOPICS_PER_LIST)]
    span = (min(keys), max(keys)) if keys else None
    for page in chain.from_iterable(_pages(session, some, span) for some in lists):
        for row in page:
            if row.error_code == UNKNOWN_TOPIC or row.name is None:
                continue
            topic_id = _topic_id(row.topic_id)
            topic = read.get(row.name)
            if topic is None or topic.topic_id != topic_id:  # it was created again between two pages
                topic = read[row.name] = _Topic(topic_id, {name: [] for name in PARTITION_COLUMNS})
            if row.error_code != NONE:
                topic.fault = refusal(row.error_code, "topic")
            rows = row.partitions
            if keys is not None:
                rows = [partition for partition in rows if (row.name, partition.partition_index) in keys]
            _extend(topic.columns, row.name, rows)
    return read


def _extend(columns: Columns, topic: str, partitions: Sequence[Any]) -> None:
    """Append a page's partitions of one topic, column by column."""
    count = len(partitions)
    nothing = [None] * count
    columns["topic"] += [topic] * count
    columns["partition"] += [row.partition_index for row in partitions]
    columns["replicas"] += [row.replica_nodes for row in partitions]
    columns["adding_replicas"] += [[]] * count
    columns["removing_replicas"] += [[]] * count
    legible = [row.error_code in {NONE, LEADER_NOT_AVAILABLE} for row in partitions]
    columns["understood"] += legible
    columns["leader"] += [row.leader_id if holds else None for row, holds in zip(partitions, legible, strict=True)]
    columns["isr"] += [row.isr_nodes for row in partitions]
    columns["leader_epoch"] += [_epoch(row.leader_epoch) for row in partitions]
    for name in ("eligible_leader_replicas", "last_known_elr"):
        columns[name] += [getattr(row, name, None) for row in partitions] if count else nothing


def _epoch(leader_epoch: int) -> int | None:
    return None if leader_epoch == _UNKNOWN_EPOCH else leader_epoch


def _topic_id(topic_id: UUID | None) -> str | None:
    """Encode a topic id as Kafka's tools show it, in 22 characters of base64url; return None before Kafka 2.8.

    >>> _topic_id(UUID("287b6c7c-f939-47f0-9cef-536d485d3e57"))
    'KHtsfPk5R_Cc71NtSF0-Vw'
    """
    if topic_id is None or topic_id == _NO_TOPIC_ID:
        return None
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _torn(topics: Mapping[str, _Topic], before: Reassignments, after: Reassignments) -> set[str]:
    """Return the topics whose partitions and reassignments are not of one moment.

    A topic that is left out of `topics` was not asked for, or does not exist.
    """
    torn = torn_between(before, after)
    for (name, partition), move in after.items():
        topic = topics.get(name)
        if topic is None or name in torn:
            continue
        replicas = dict(zip(topic.columns["partition"], topic.columns["replicas"], strict=True)).get(partition)
        if replicas is None or set(replicas) != set(move.replicas):
            torn.add(name)
    return torn & topics.keys()


def _merged(topics: Mapping[str, _Topic]) -> Columns:
    columns: Columns = {name: [] for name in PARTITION_COLUMNS}
    for topic in topics.values():
        for name, values in columns.items():
            values.extend(topic.columns[name])
    return columns


def _add_moves(partitions: Columns, moves: Reassignments | None, quarantine: list[QuarantinedZnode]) -> None:
    """Fill in what reassignments add and remove.

    A partition is not understood if reassignments are unknown, or if its own changed each time it was read: the rules
    leave it alone, and no figure counts it as healthy.
    """
    if moves is None:
        partitions["understood"] = [False] * len(partitions["partition"])
        return
    if not moves:
        return
    for number, key in enumerate(zip(partitions["topic"], partitions["partition"], strict=True)):
        move = moves.get(key)
        if move is None:
            continue
        partitions["adding_replicas"][number] = [*move.adding]
        partitions["removing_replicas"][number] = [*move.removing]
        if set(move.replicas) != set(partitions["replicas"][number]):
            partitions["understood"][number] = False
            reason = "its reassignment changed while it was read; take a snapshot again"
            quarantine.append(QuarantinedZnode(path=f"{TOPIC}/{key[0]}/{key[1]}", reason=reason))


def _topic_table(topics: Mapping[str, _Topic], configs: Mapping[str, dict[str, str | None] | None]) -> pa.Table:
    schema = schema_of("topics")
    columns: Columns = {
        "topic": [*topics],
        "topic_id": [row.topic_id for row in topics.values()],
        "config": [configs[name] for name in topics],
        "understood": [row.fault is None and configs[name] is not None for name, row in topics.items()],
        "assignment_understood": [row.fault is None for row in topics.values()],
    }
    # Arrow makes maps of pairs
    columns["config"] = [None if config is None else [*config.items()] for config in columns["config"]]
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in TOPIC_COLUMNS})


def _read_configs(
    session: Session, topics: Mapping[str, _Topic], quarantine: list[QuarantinedZnode]
) -> dict[str, dict[str, str | None] | None]:
    """Return the overrides of topics, or None if this client may not read them; a topic deleted since is left out."""
    configs: dict[str, dict[str, str | None] | None] = {}
    configs |= {name: None for name, row in topics.items() if row.fault is not None}
    names = [name for name, row in topics.items() if row.fault is None]
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        resources = [(ConfigResourceType.TOPIC, name, None) for name in names[start : start + TOPICS_PER_REQUEST]]
        for result in session.ask(DescribeConfigsRequest(resources=resources)).results:
            name = result.resource_name
            if result.error_code == NONE:
                overrides = (row for row in result.configs if row.config_source == TOPIC_OVERRIDE)
                configs[name] = {row.name: row.value for row in overrides}
            elif result.error_code != UNKNOWN_TOPIC:
                configs[name] = None
                reason = refusal(result.error_code, "topic", "DESCRIBE_CONFIGS")
                quarantine.append(QuarantinedZnode(path=f"{CONFIG}/{name}", reason=reason))
    return configs
