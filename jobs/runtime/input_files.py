"""Parsing of input files and option values: their content is checked strictly, the form of a file is not.

Files may contain the lines that Kafka's tools print around the JSON, in any encoding that
`jobs.core.text_decoding` reads.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobs.core.errors import RefusedError, UsageError
from jobs.core.text_decoding import read_text_file
from jobs.runtime.console import log
from schemas.replica_assignment import PartitionTarget
from schemas.rows import Key
from schemas.text import partition_name, pluralise

T = TypeVar("T")

ANY_LOG_DIR: Final = "any"
"""Value of kafka-reassign-partitions for any log dir."""

CURRENT: Final = "Current partition replica assignment"
"""The line before the first assignment in the output of `--generate` and `--execute`."""

PROPOSED: Final = "Proposed partition reassignment configuration"
"""The line before the second assignment in the output of `--generate`."""

ROLLBACK: Final = "Save this to use as the --reassignment-json-file option during rollback"
"""The line after the assignment in the output of `--execute`."""

Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Partition numbers and broker ids."""


Version = Literal[1]
"""`version` of Kafka's files; Kafka accepts no other one and assumes it if the field is missing."""


class _Target(Struct):
    topic: str
    partition: Number
    replicas: list[Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]]
    log_dirs: list[str] | None = None


class _Reassignment(Struct):
    """The input of kafka-reassign-partitions."""

    partitions: list[_Target]
    version: Version = 1


class _Topic(Struct):
    topic: str


class _TopicsToMove(Struct):
    """The input of kafka-reassign-partitions --generate."""

    topics: list[_Topic]
    version: Version = 1


class _TargetPartition(Struct):
    topic: str
    partition: Number


class _Election(Struct):
    """The input of kafka-leader-election."""

    partitions: list[_TargetPartition]


Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class NewTopicEntry(Struct, forbid_unknown_fields=True):
    """A topic in a file of new topics, with sizes or with given replicas."""

    topic: str
    partitions: Count | None = None
    replication_factor: Count | None = None
    replica_assignment: Annotated[list[Annotated[list[Number], Meta(min_length=1)]], Meta(min_length=1)] | None = None
    config: dict[str, str] = {}


REASSIGNMENT: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
TOPICS_TO_MOVE: Final = '{"version":1,"topics":[{"topic":"t"}]}'
ELECTION: Final = '{"partitions":[{"topic":"t","partition":0}]}'
NEW_TOPICS: Final = (
    '[{"topic":"a","partitions":6,"replication_factor":3,"config":{}},{"topic":"b","replica_assignment":[[0,1]]}]'
)
"""Examples of the files, for error messages."""


def read_new_topics(path: Path) -> list[NewTopicEntry]:
    """Read a file of new topics."""
    topics = read_json(path, list[NewTopicEntry], NEW_TOPICS)
    if not topics:
        raise UsageError(f"{path} names no topic")
    return topics


def read_reassignment(path: Path) -> list[PartitionTarget]:
    """Read the targets of a reassignment file.

    The file may be the output of `kafka-reassign-partitions`: of `--generate` the proposal is used, of `--execute` the
    assignment for a rollback. The lint checks whether the targets are possible, and for duplicate partitions.
    """
    text = _assignment_in(path, read_text_file(path))
    targets = _decode(path, text, _Reassignment, REASSIGNMENT).partitions
    if not targets:
        raise UsageError(f"{path} names no partition")
    for target in targets:
        _check_log_dirs(path, target)
    return [PartitionTarget(topic=row.topic, partition=row.partition, replicas=row.replicas) for row in targets]


def _check_log_dirs(path: Path, target: _Target) -> None:
    if target.log_dirs is None:
        return
    name = partition_name(target.topic, target.partition)
    if len(target.log_dirs) != len(target.replicas):
        counts = f"{pluralise(len(target.replicas), 'replica')} and {pluralise(len(target.log_dirs), 'log dir')}"
        raise UsageError(f"{path} has {counts} for {name}: give as many log dirs as replicas, or leave log_dirs out")
    if set(target.log_dirs) - {ANY_LOG_DIR}:
        raise RefusedError(
            f"{path} wants log dirs for {name} ({', '.join(target.log_dirs)}): brokers "
            f"choose them here; say {ANY_LOG_DIR!r} or leave log_dirs out",
        )


def _assignment_in(path: Path, text: str) -> str:
    """Return the text from the target assignment on, with preceding lines emptied to keep line numbers."""
    proposed, current = _after(PROPOSED, text), _after(CURRENT, text)
    if proposed is not None:
        return _from(text, proposed)
    if current is None:
        return text
    assignment, rollback, _ = _from(text, current).partition(ROLLBACK)
    if not rollback:
        raise UsageError(
            f"{path} holds the current assignment and no proposal: give what follows {PROPOSED!r}, "
            f"or remove the line {CURRENT!r} if the plan is to lead there",
        )
    log(f"surveyor: {path} is what --execute printed: the plan leads to the assignment before it")
    return assignment


def _after(line: str, text: str) -> int | None:
    """Return the offset after the last such line, None if there is none."""
    found = [match.end() for match in re.finditer(rf"^[ \t]*{re.escape(line)}[ \t:]*$", text, re.MULTILINE)]
    return found[-1] if found else None


def _from(text: str, start: int) -> str:
    return "\n" * text.count("\n", 0, start) + text[start:]


def read_topics_to_move(path: Path) -> list[str]:
    """Read the topics of a topics-to-move file."""
    topics = [topic.topic for topic in read_json(path, _TopicsToMove, TOPICS_TO_MOVE).topics]
    if not topics:
        raise UsageError(f"{path} names no topic")
    twice = sorted(topic for topic, count in Counter(topics).items() if count > 1)
    if twice:
        raise UsageError(f"{path} names twice: {', '.join(twice)}; name each topic once")
    return topics


def read_election(path: Path) -> list[Key]:
    """Read the partitions of an election file."""
    partitions = [(row.topic, row.partition) for row in read_json(path, _Election, ELECTION).partitions]
    refuse_repeated(path, partitions)
    return partitions


def read_json(path: Path, shape: type[T], example: str) -> T:
    """Decode a JSON file; raise UsageError with `example` if it is malformed."""
    return _decode(path, read_text_file(path), shape, example)


def _decode(path: Path, text: str, shape: type[T], example: str) -> T:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_what_is_wrong(error)}; expected {example}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {_what_to_remove(text) or error}; expected {example}") from None


def _what_is_wrong(error: msgspec.ValidationError) -> str:
    """Return msgspec's message, with Kafka's words for an unsupported version."""
    return (
        f"not supported version: {error}; leave it out or say 1" if str(error).endswith("`$.version`") else str(error)
    )


def _what_to_remove(text: str) -> str | None:
    r"""Describe text before or after the JSON; None if that is not the error.

    >>> _what_to_remove('{"version":1}\n\n$ ls')
    "line 3: remove the text after the JSON: '$ ls'"
    >>> _what_to_remove('moved:\n{"version":1}')
    "line 1: remove the text before the JSON: 'moved:'"
    >>> _what_to_remove('{"version":1}{"version":1}')
    'line 1: a second JSON value begins: keep one of them'
    """
    start = re.search(r"[{\[]", text)
    if start is None:
        return None
    if before := text[: start.start()].strip():
        return f"line {_line_of(text, before)}: remove the text before the JSON: {before.splitlines()[0]!r}"
    try:
        _, end = json.JSONDecoder().raw_decode(text, start.start())
    except (ValueError, RecursionError):
        return None
    after = text[end:].strip()
    if not after:
        return None
    line = text.count("\n", 0, end + text[end:].index(after[0])) + 1
    if after[0] in "{[":
        return f"line {line}: a second JSON value begins: keep one of them"
    return f"line {line}: remove the text after the JSON: {after.splitlines()[0]!r}"


def _line_of(text: str, part: str) -> int:
    return text.count("\n", 0, text.index(part)) + 1


def refuse_repeated(path: Path, partitions: Iterable[Key]) -> None:
    """Raise RefusedError if a partition occurs twice."""
    earlier = set[Key]()
    for key in partitions:
        if key in earlier:
            raise RefusedError(f"{path} names {partition_name(*key)} twice; say once what it should be")
        earlier.add(key)


def parse_replica_assignment(text: str) -> list[list[int]]:
    """Parse an assignment as in kafka-topics: partitions separated by commas, replicas by colons.

    >>> parse_replica_assignment("0:1:2,1:2:0")
    [[0, 1, 2], [1, 2, 0]]
    """
    if not re.fullmatch(r"\d+(:\d+)*(,\d+(:\d+)*)*", text):
        raise UsageError(f"--replica-assignment {text!r}: expected brokers as in 0:1:2,1:2:0")
    assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    fault = next(assignment_faults(assignment), None)
    if fault is not None:
        raise RefusedError(f"--replica-assignment: {fault}")
    return assignment


def assignment_faults(assignment: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the reasons why Kafka refuses an assignment (`AdminZkClient.validateTopicCreate`).

    >>> list(assignment_faults([[0, 1], [2, 2]]))
    ['partition 1 names a broker twice: [2, 2]']
    """
    for partition, replicas in enumerate(assignment):
        if len(set(replicas)) < len(replicas):
            yield f"partition {partition} names a broker twice: {replicas}"
        if len(replicas) != len(assignment[0]):
            yield (
                f"partition {partition} has {pluralise(len(replicas), 'replica')}, partition 0 has "
                f"{len(assignment[0])}; all need the same replication factor"
            )


def parse_broker_ids(text: str, option: str = "--brokers") -> list[int]:
    """Parse comma-separated, distinct broker ids.

    >>> parse_broker_ids("2,0")
    [2, 0]
    """
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise UsageError(f"{option} {text!r}: expected ids as in 0,1,2")
    ids = [int(broker) for broker in text.split(",")]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{option} {text!r} names a broker twice")
    return ids


def parse_replacements(text: str) -> list[tuple[int, int]]:
    """Parse pairs of a broker and its replacement.

    >>> parse_replacements("7=107,8=108")
    [(7, 107), (8, 108)]
    """
    if not re.fullmatch(r"\d+=\d+(,\d+=\d+)*", text):
        raise UsageError(f"--replace {text!r}: expected a broker and its successor as in 7=107")
    pairs = [(int(old), int(new)) for old, new in (pair.split("=") for pair in text.split(","))]
    brokers = [broker for pair in pairs for broker in pair]
    if len(set(brokers)) < len(brokers):
        raise UsageError(f"--replace {text!r} names a broker twice")
    return pairs


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    """Parse key=value pairs.

    >>> parse_configs(["min.insync.replicas=2"])
    {'min.insync.replicas': '2'}
    """
    configs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"--config {pair!r}: expected key=value")
        configs[key] = value
    return configs
