"""Input files and values that people write: read strictly, refused with what is wrong and where."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobs.adapters.delta.lake import Row
from jobs.basics.errors import RefusedError, UsageError
from planner.rows.words import counted

T = TypeVar("T")

ANY_LOG_DIR: Final = "any"
"""What kafka-reassign-partitions writes where it is all the same which log dir holds a replica."""

PROPOSED: Final = "Proposed partition reassignment configuration"
"""The line before the second assignment that its `--generate` prints."""

_PROPOSED: Final = f"{PROPOSED}\n".encode()

Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""What Kafka has for partitions and brokers."""


class _Target(Struct):
    topic: str
    partition: Number
    replicas: list[Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]]
    log_dirs: list[str] = []


class _Reassignment(Struct):
    """What kafka-reassign-partitions reads."""

    partitions: list[_Target]
    version: int = 1


class _Topic(Struct):
    topic: str


class _TopicsToMove(Struct):
    """What kafka-reassign-partitions --generate reads."""

    topics: list[_Topic]
    version: int = 1


class _Partition(Struct):
    topic: str
    partition: Number


class _Election(Struct):
    """What kafka-leader-election reads."""

    partitions: list[_Partition]


Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _NewTopic(Struct, forbid_unknown_fields=True):
    """A topic of a file of new topics: sizes, or replicas by hand."""

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
"""Examples of the files, for those that cannot be read."""


def read_new_topics(path: Path) -> list[Row]:
    """Return the topics of a file of new topics: topic, partitions, replication_factor, replica_assignment, config."""
    topics = read_json(path, list[_NewTopic], NEW_TOPICS)
    if not topics:
        raise UsageError(f"{path} names no topic")
    return [msgspec.structs.asdict(topic) for topic in topics]


def read_reassignment(path: Path) -> list[Row]:
    """Return the targets of a reassignment file: topic, partition, replicas.

    What `kafka-reassign-partitions --generate` printed may be given as it is: its proposal is taken. Whether what the
    rows say may be done, and whether two are about one partition, is for the lint.
    """
    targets = read_json(path, _Reassignment, REASSIGNMENT, after=_PROPOSED).partitions
    rows = [{"topic": t.topic, "partition": t.partition, "replicas": t.replicas} for t in targets]
    if not rows:
        raise UsageError(f"{path} names no partition")
    for target in targets:
        if set(target.log_dirs) - {ANY_LOG_DIR}:
            raise RefusedError(
                f"{path} wants log dirs for {target.topic}-{target.partition} ({', '.join(target.log_dirs)}): brokers "
                f"choose them here; say {ANY_LOG_DIR!r} or leave log_dirs out",
            )
    return rows


def read_topics_to_move(path: Path) -> list[str]:
    """Return the topics of a file of topics to move."""
    topics = [each.topic for each in read_json(path, _TopicsToMove, TOPICS_TO_MOVE).topics]
    if not topics:
        raise UsageError(f"{path} names no topic")
    return topics


def read_election(path: Path) -> list[Row]:
    """Return the partitions of an election file: topic, partition."""
    rows = [{"topic": w.topic, "partition": w.partition} for w in read_json(path, _Election, ELECTION).partitions]
    refuse_repeated(path, rows)
    return rows


def read_json(path: Path, shape: type[T], example: str, after: bytes | None = None) -> T:
    """Decode a JSON file, or what of it comes `after` a line; raise UsageError with the example if it is malformed."""
    try:
        content = path.read_bytes()
        return msgspec.json.decode(content.rpartition(after)[2] if after else content, type=shape)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; expected {example}") from None


def refuse_repeated(path: Path, rows: Iterable[Row]) -> None:
    """Raise RefusedError where a partition is named twice."""
    seen: set[tuple[str, int]] = set()
    for row in rows:
        key = (row["topic"], row["partition"])
        if key in seen:
            raise RefusedError(f"{path} names {key[0]}-{key[1]} twice; say once what it should be")
        seen.add(key)


def parse_replica_assignment(text: str) -> list[list[int]]:
    """Read what kafka-topics takes: partitions by comma, replicas by colon.

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
    """Say what Kafka has against replicas by hand (`AdminZkClient.validateTopicCreate`).

    >>> list(assignment_faults([[0, 1], [2, 2]]))
    ['partition 1 names a broker twice: [2, 2]']
    """
    for partition, replicas in enumerate(assignment):
        if len(set(replicas)) < len(replicas):
            yield f"partition {partition} names a broker twice: {replicas}"
        if len(replicas) != len(assignment[0]):
            yield (
                f"partition {partition} has {counted(len(replicas), 'replica')}, partition 0 has {len(assignment[0])}; "
                "all need the same replication factor"
            )


def parse_broker_ids(text: str, option: str = "--brokers") -> list[int]:
    """Read broker ids by comma, none twice.

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
    """Read brokers and their successors.

    >>> parse_replacements("7=107,8=108")
    [(7, 107), (8, 108)]
    """
    if not re.fullmatch(r"\d+=\d+(,\d+=\d+)*", text):
        raise UsageError(f"--replace {text!r}: expected a broker and its successor as in 7=107")
    pairs = [(int(old), int(new)) for old, new in (pair.split("=") for pair in text.split(","))]
    named = [broker for pair in pairs for broker in pair]
    if len(set(named)) < len(named):
        raise UsageError(f"--replace {text!r} names a broker twice")
    return pairs


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    """Read key=value pairs.

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
