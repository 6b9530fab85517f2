"""Common parts of plans for existing topics: a topic in its snapshot, and why it must not be changed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from jobs.core.errors import RefusedError, UsageError
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import rows_as_of
from schemas.replica_assignment import is_being_reassigned
from schemas.rows import Partition, Topic
from schemas.znode_codecs import MalformedZnodeError, check_topic_name


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic and its partitions, in order, as in a snapshot."""

    row: Topic
    partitions: list[Partition]

    @property
    def name(self) -> str:
        return self.row.topic

    @property
    def moving(self) -> list[int]:
        """Partitions that a running reassignment moves."""
        return [p.partition for p in self.partitions if is_being_reassigned(p.adding_replicas, p.removing_replicas)]


def name_fault(topic: str) -> str | None:
    """Return why Kafka would refuse the topic name, None if it would accept it."""
    try:
        check_topic_name(topic)
    except MalformedZnodeError as error:
        return str(error)
    return None


_OF_REGEXES: Final = frozenset("*?+|()[]^$\\{}")
"""Characters of regexes that no name of a topic has."""


def topic_name(topic: str) -> str:
    """Return the name; raise UsageError if Kafka would refuse it."""
    fault = name_fault(topic)
    if fault is not None:
        instead = "; --topic takes one name" if "," in topic or _OF_REGEXES.intersection(topic) else ""
        raise UsageError(f"--topic: {fault}{instead}")
    return topic


def topic_or_regex(text: str, option: str) -> str:
    """Return the name or regex; raise UsageError if it is neither."""
    if not _OF_REGEXES.intersection(text) and (fault := name_fault(text)) is not None:
        raise UsageError(f"{option}: {fault}")
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is not a regular expression: {error}") from None
    return text


def find_topic(tables: SnapshotTables, topic: str) -> ExistingTopic:
    """Return a topic that may be changed; raise RefusedError if it may not."""
    snapshot_id, of_topic = tables.snapshot.snapshot_id, ("topic", "=", topic)
    rows = rows_as_of(tables.warehouse, tables.snapshot, Topic, of_topic)
    if not rows:
        raise unknown_topics([topic], tables)
    if rows[0].deletion_requested:
        raise RefusedError(f"topic {topic} is queued for deletion in snapshot {snapshot_id}, so it cannot be changed")
    partitions = rows_as_of(tables.warehouse, tables.snapshot, Partition, of_topic)
    return ExistingTopic(rows[0], sorted(partitions, key=attrgetter("partition")))


def is_assignment_understood(topic: Topic) -> bool:
    """Return whether all of /brokers/topics/T was understood; rows of older versions combine it with the config."""
    understood = topic.assignment_understood
    return bool(topic.understood if understood is None else understood)


def unknown_topics(topics: Sequence[str], tables: SnapshotTables) -> RefusedError:
    """Return the error for topics that a snapshot does not have."""
    return RefusedError(
        f"no topic {' or '.join(topics)} in snapshot {tables.snapshot.snapshot_id}; `surveyor show topics` lists "
        f"existing topics; {tables.age_hint}",
    )
