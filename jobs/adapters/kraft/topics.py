"""Topics and partitions of a KRaft cluster: read in pages, with running reassignments, and read again if torn.

DescribeTopicPartitions (Kafka 3.8) returns pages of partitions with eligible leader replicas. Older brokers return all
topics in one Metadata response, without eligible leader replicas. A page has all replicas of a partition, and only the
controller lists the replicas that a reassignment adds and removes. A broker may apply the end of a reassignment seconds
after the controller stops listing it: until then its pages still have the replicas before and after it. So the list is
read, the broker catches up with it, the pages are read, and the list is read again. The pages then show a moment
between both lists. A partition for which the two lists or the replicas disagree is read again.

A large cluster is read in shares of its topics (`read_share`), by several processes from several brokers.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from kafka.admin import ConfigResourceType
from kafka.errors import KafkaProtocolError
from kafka.protocol.admin import DescribeConfigsRequest, DescribeTopicPartitionsRequest, ListConfigResourcesRequest
from kafka.protocol.metadata import MetadataRequest
from msgspec.structs import replace

from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.kraft.cluster import REASSIGNMENTS, NotPermittedError, Reassignments, RefusedReadError, read_moves
from jobs.adapters.kraft.fresh_reads import appended_end, await_applied, log_end
from jobs.adapters.kraft.session import UNSUPPORTED, BrokerSession, StaleMetadataError
from schemas.partition_info import PartitionInfo
from schemas.response_codes import NO_ERROR
from schemas.rows import Key, QuarantinedZnode

PAGE_PARTITIONS: Final = 2_000
"""Partitions in a page: the default of max.request.partition.size.limit, above which brokers cut a page."""

TOPICS_PER_LIST: Final = 200
"""Topics named in a request for partitions; the request for each page of a list repeats those that are left."""

TOPICS_PER_REQUEST: Final = 200
"""Topics whose configs are requested at a time; a response has all settings of each, about 3 kB."""

MAX_READINGS: Final = 10
"""Readings of a partition, after which it is not understood; usually its reassignment begins or ends in one of them."""

TOPIC: Final = "DescribeTopicPartitions"
CONFIG: Final = "DescribeConfigs"
"""Requests that stand for the znodes of a topic in `quarantine`, followed by its name."""

_OF_ALL_TYPES: Final = 1
"""First version of ListConfigResources that lists topics (Kafka 4.1); version 0 lists resources of client metrics."""

UNKNOWN_TOPIC: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
"""The leader is not live or there is none; the response has no leader then, and the rest is valid."""

_UNKNOWN_EPOCH: Final = -1
TOPIC_OVERRIDE: Final = 1
"""`config_source` of an override of a topic (DYNAMIC_TOPIC_CONFIG)."""

_NO_TOPIC_ID: Final = UUID(int=0)

_NO_BROKERS: Final[list[int]] = []
"""The adding and removing replicas of a partition that does not move; never changed."""


@dataclass(slots=True)
class KRaftTopic:
    """A topic with its partitions."""

    topic_id: str | None
    partitions: list[PartitionInfo] = field(default_factory=list)
    fault: str | None = None
    """Reason why its partitions are unknown."""
    config: dict[str, str | None] | None = None
    """Its overrides; None if they cannot be read, or were not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftTopicReading:
    """Metadata of topics: columns of TOPICS and PARTITIONS, reassignments, and metadata that cannot be decoded."""

    topics: pa.Table
    partitions: pa.Table
    moves: Reassignments
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    torn: Sequence[str] = ()
    """Topics of a share that are left out, because their replicas and reassignments are not of one moment."""


def list_topics(session: BrokerSession) -> tuple[list[str], bool]:
    """Return the names of all topics, and whether those are included that this client may not describe.

    ListConfigResources returns all names, and nothing else, to a client with DESCRIBE_CONFIGS on the cluster. Otherwise
    they are taken from Metadata, which also returns all partitions.
    """
    request = ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC.value], min_version=_OF_ALL_TYPES)
    try:
        response = session.ask(request)
    except UNSUPPORTED:
        pass
    else:
        if response.error_code == NO_ERROR:
            return sorted(row.resource_name for row in response.config_resources), True
    return sorted(row.name for row in _all_topics(session, None) if row.name is not None), False


def has_at_most(session: BrokerSession, limit: int) -> bool:
    """Count partitions page by page, and stop above the limit."""
    counted = 0
    for topics in _pages(session, None):
        counted += sum(len(topic.partitions) for topic in topics)
        if counted > limit:
            return False
    return True


def read_share(session: BrokerSession, names: Sequence[str], moves: Reassignments | None) -> KRaftTopicReading:
    """Read some topics with their configs; `moves` are the reassignments as listed before, None if they are unknown."""
    quarantine: list[QuarantinedZnode] = []
    topics = _read(session, names)
    torn = {topic for topic, _ in _torn(topics, moves or {}, moves or {})}
    kept = {name: row for name, row in topics.items() if name not in torn}
    return _reading(session, _Untorn(kept, moves), quarantine, torn=sorted(torn))


def read_topics(
    session: BrokerSession, names: Sequence[str] | None = None, more: Callable[[], Collection[str]] = frozenset
) -> KRaftTopicReading:
    """Read all topics, or those named, with their configs and reassignments.

    `more` returns topics that must exist besides those listed, for a client that may not describe all topics.
    """
    quarantine: list[QuarantinedZnode] = []
    reading = _read_untorn(session, names, lambda: listed_moves(session, quarantine))
    if names is None:
        reading.topics.update(_read(session, sorted({*more()} - reading.topics.keys())))
    return _reading(session, reading, quarantine)


def _reading(
    session: BrokerSession, reading: "_Untorn", quarantine: list[QuarantinedZnode], torn: Sequence[str] = ()
) -> KRaftTopicReading:
    """Read the configs of topics, and return all of it as tables."""
    topics = reading.topics = _with_configs(session, reading.topics, quarantine)
    for name, row in topics.items():
        if row.fault is not None:
            quarantine.append(QuarantinedZnode(path=f"{TOPIC}/{name}", reason=row.fault))
    reading.add_moves(quarantine)
    return KRaftTopicReading(
        topics=_topic_table(topics),
        partitions=_partition_table([row for topic in topics.values() for row in topic.partitions]),
        moves=reading.moves or {},
        quarantine=quarantine,
        torn=torn,
    )


def read_named_topics(session: BrokerSession, names: Sequence[str]) -> dict[str, KRaftTopic]:
    """Read these topics with their configs and running reassignments; a topic that does not exist is left out.

    If reassignments are not listed, no partition is understood.
    """
    reading = _read_untorn(session, sorted(set(names)), lambda: permitted_moves(session))
    reading.topics = _with_configs(session, reading.topics, [])
    reading.add_moves([])
    return reading.topics


def read_named_partitions(session: BrokerSession, keys: Collection[Key]) -> dict[str, KRaftTopic]:
    """Read these partitions and their running reassignments; their topics are returned without other partitions.

    Other partitions and their reassignments are not read: a large plan is read in batches while much of it moves.
    """
    names = sorted({topic for topic, _ in keys})
    reading = _read_untorn(session, names, lambda: permitted_moves(session, keys), frozenset(keys))
    reading.add_moves([])
    return reading.topics


@dataclass(slots=True)
class _Untorn:
    """Topics, and the reassignments that ran when each of their partitions was read."""

    topics: dict[str, KRaftTopic]
    moves: Reassignments | None
    """None if they are not listed."""
    torn: set[Key] = field(default_factory=set)
    """Partitions whose replicas and reassignments are not of one moment."""

    def read_again(self, names: Sequence[str], later: "_Untorn") -> None:
        """Replace the torn partitions of these topics, and those of a topic that was created again."""
        kept = set[Key]()
        for name in names:
            earlier, topic = self.topics.pop(name), later.topics.get(name)
            if topic is None:
                continue
            if earlier.topic_id == topic.topic_id:
                untorn = {row.key: row for row in earlier.partitions if row.key not in self.torn}
                topic.partitions = [untorn.get(row.key, row) for row in topic.partitions]
                kept |= untorn.keys()
            self.topics[name] = topic
        moves = (self.moves or {}).items()
        latest = {key: move for key, move in (later.moves or {}).items() if key[0] in names and key not in kept}
        self.moves = {key: move for key, move in moves if key[0] not in names or key in kept} | latest
        self.torn = later.torn - kept

    def add_moves(self, quarantine: list[QuarantinedZnode]) -> None:
        """Fill in what reassignments add and remove.

        A partition is not understood if reassignments are unknown, or if its own changed each time it was read: the
        rules leave it alone, and no figure counts it as healthy.
        """
        if self.moves is None:
            for topic in self.topics.values():
                topic.partitions = [replace(row, understood=False) for row in topic.partitions]
            return
        for name in {name for name, _ in self.moves.keys() | self.torn} & self.topics.keys():
            rows = self.topics[name].partitions
            for number, row in enumerate(rows):
                if row.key in self.torn:
                    rows[number] = replace(row, understood=False)
                    reason = "its reassignment changed while it was read; take a snapshot again"
                    quarantine.append(QuarantinedZnode(path=f"{TOPIC}/{row.topic}/{row.partition}", reason=reason))
                elif (move := self.moves.get(row.key)) is not None:
                    rows[number] = replace(row, adding_replicas=[*move.adding], removing_replicas=[*move.removing])


def _read_untorn(
    session: BrokerSession,
    names: Sequence[str] | None,
    list_moves: Callable[[], Reassignments | None],
    keys: frozenset[Key] | None = None,
) -> _Untorn:
    """Read topics between two lists of the running reassignments, and again while some of their partitions are torn.

    With `keys`, only these partitions are read.
    """
    reading = _read_between(session, names, list_moves(), list_moves, keys)
    latest = reading.moves
    for _ in range(1, MAX_READINGS):
        if latest is None or not reading.torn:
            break
        torn = sorted({topic for topic, _ in reading.torn})
        again = _read_between(session, torn, latest, list_moves, keys)
        latest = again.moves
        reading.read_again(torn, again)
    return reading if latest is not None else _Untorn(reading.topics, None)


def _read_between(
    session: BrokerSession,
    names: Sequence[str] | None,
    before: Reassignments | None,
    list_moves: Callable[[], Reassignments | None],
    keys: frozenset[Key] | None,
) -> _Untorn:
    """Read topics from a broker that has applied what the list `before` shows, and list the reassignments again.

    If the metadata log has grown meanwhile, named topics are read twice: a reassignment that began and ended between
    the lists is in neither, and its replicas before and after would count as an assignment.
    """
    if before is None:
        return _Untorn(_read(session, names, keys), None)
    end = appended_end(session)
    await_applied(session.ask, end)
    topics = _read(session, names, keys)
    moves = list_moves()
    if moves is None:
        return _Untorn(topics, None)
    torn = _torn(topics, before, moves)
    if names is not None and (later := log_end(session)) != end:
        await_applied(session.ask, later)
        replicas = {row.key: row.replicas for topic in _read(session, names, keys).values() for row in topic.partitions}
        rows = [row for topic in topics.values() for row in topic.partitions]
        torn |= {row.key for row in rows if replicas.get(row.key, row.replicas) != row.replicas}
    return _Untorn(topics, moves, torn)


def permitted_moves(session: BrokerSession, keys: Iterable[Key] | None = None) -> Reassignments | None:
    """Return the running reassignments, for all or some partitions; None if this client may not list them.

    Raise StaleMetadataError for any other refusal, as of a controller that was just replaced; then try again.
    """
    try:
        return read_moves(session, keys)
    except NotPermittedError:
        return None
    except RefusedReadError as error:
        raise StaleMetadataError(str(error)) from None


def torn_between(before: Reassignments | None, after: Reassignments | None) -> set[str]:
    """Return the topics whose reassignments differ between two lists; either list may be unknown."""
    return {topic for topic, _ in _changed(before or {}, after or {})}


def _changed(before: Reassignments, after: Reassignments) -> set[Key]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def listed_moves(session: BrokerSession, quarantine: list[QuarantinedZnode]) -> Reassignments | None:
    """Return the running reassignments; None if they are not listed, which is a row of QUARANTINE."""
    try:
        return read_moves(session)
    except RefusedReadError as error:
        quarantine.append(QuarantinedZnode(path=REASSIGNMENTS, reason=str(error)))
        return None


def _pages(
    session: BrokerSession, names: Sequence[str] | None, span: tuple[Key, Key] | None = None
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


def _all_topics(session: BrokerSession, names: Sequence[str] | None) -> Sequence[Any]:
    requests = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    topics: Sequence[Any] = session.ask(MetadataRequest(topics=requests, allow_auto_topic_creation=False)).topics
    return topics


def _read(
    session: BrokerSession, names: Sequence[str] | None, keys: frozenset[Key] | None = None
) -> dict[str, KRaftTopic]:
    """Read topics by name, or only these partitions of them; a topic that does not exist is left out."""
    read: dict[str, KRaftTopic] = {}
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
                topic = read[row.name] = KRaftTopic(topic_id)
            if row.error_code != NO_ERROR:
                topic.fault = refusal(row.error_code, "topic")
            rows = row.partitions
            if keys is not None:
                rows = [partition for partition in rows if (row.name, partition.partition_index) in keys]
            topic.partitions += [_partition(row.name, partition) for partition in rows]
    return read


def _partition(topic: str, row: Any) -> PartitionInfo:  # noqa: ANN401 - kafka-python is untyped
    """Decode a partition of a page or of a Metadata response, which has no eligible leader replicas."""
    understood = row.error_code in {NO_ERROR, LEADER_NOT_AVAILABLE}
    epoch = row.leader_epoch
    return PartitionInfo(
        topic=topic,
        partition=row.partition_index,
        replicas=row.replica_nodes,
        adding_replicas=_NO_BROKERS,
        removing_replicas=_NO_BROKERS,
        topic_version=None,
        leader=row.leader_id if understood else None,
        isr=row.isr_nodes,
        leader_epoch=None if epoch == _UNKNOWN_EPOCH else epoch,
        understood=understood,
        eligible_leader_replicas=getattr(row, "eligible_leader_replicas", None),
        last_known_elr=getattr(row, "last_known_elr", None),
    )


def _topic_id(topic_id: UUID | None) -> str | None:
    """Encode a topic id as Kafka's tools show it, in 22 characters of base64url; return None before Kafka 2.8.

    >>> _topic_id(UUID("287b6c7c-f939-47f0-9cef-536d485d3e57"))
    'KHtsfPk5R_Cc71NtSF0-Vw'
    """
    if topic_id is None or topic_id == _NO_TOPIC_ID:
        return None
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _torn(topics: Mapping[str, KRaftTopic], before: Reassignments, after: Reassignments) -> set[Key]:
    """Return the partitions of these topics that were read at another moment than their reassignments were listed."""
    described = {name: row for name, row in topics.items() if row.fault is None}
    moved = {name for name, _ in after} & described.keys()
    replicas = {row.key: {*row.replicas} for name in moved for row in described[name].partitions}
    misfits = {key for key, move in after.items() if replicas.get(key) != {*move.replicas}}
    return {key for key in _changed(before, after) | misfits if key[0] in described}


def _topic_table(topics: Mapping[str, KRaftTopic]) -> pa.Table:
    rows = topics.values()
    columns: dict[str, list[Any]] = {
        "topic": [*topics],
        "topic_id": [row.topic_id for row in rows],
        # Arrow makes maps of pairs
        "config": [None if row.config is None else [*row.config.items()] for row in rows],
        "understood": [row.fault is None and row.config is not None for row in rows],
        "assignment_understood": [row.fault is None for row in rows],
    }
    schema = schema_of("topics")
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def _partition_table(rows: Sequence[PartitionInfo]) -> pa.Table:
    schema = schema_of("partitions", *PartitionInfo.__struct_fields__)
    return pa.table([pa.array(map(attrgetter(field.name), rows), field.type) for field in schema], schema=schema)


def _with_configs(
    session: BrokerSession, topics: Mapping[str, KRaftTopic], quarantine: list[QuarantinedZnode]
) -> dict[str, KRaftTopic]:
    """Read the overrides of topics; a topic deleted since is left out."""
    kept = {name: row for name, row in topics.items() if row.fault is not None}
    names = [name for name, row in topics.items() if row.fault is None]
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        resources = [(ConfigResourceType.TOPIC, name, None) for name in names[start : start + TOPICS_PER_REQUEST]]
        for result in session.ask(DescribeConfigsRequest(resources=resources)).results:
            name = result.resource_name
            if result.error_code == UNKNOWN_TOPIC:
                continue
            kept[name] = topics[name]
            if result.error_code == NO_ERROR:
                overrides = (row for row in result.configs if row.config_source == TOPIC_OVERRIDE)
                topics[name].config = {row.name: row.value for row in overrides}
            else:
                reason = refusal(result.error_code, "topic", "DESCRIBE_CONFIGS")
                quarantine.append(QuarantinedZnode(path=f"{CONFIG}/{name}", reason=reason))
    return {name: row for name, row in topics.items() if name in kept}
