"""The output of kafka-reassign-partitions, word for word, for scripts that read it.

Corresponds to `ReassignPartitionsCommand`: `formatAsReassignmentJson`, the output of `--generate`, and
`partitionReassignmentStatesToString` of `--verify`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from jobs.runtime.input_files import ANY_LOG_DIR, CURRENT, PROPOSED
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Key

STATUS: Final = "Status of partition reassignment:"


def kafka_json(targets: Mapping[Key, Sequence[int]]) -> str:
    """Encode the replicas of partitions as Kafka does.

    >>> kafka_json({("foo", 0): [1, 2]})
    '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    """
    partitions = [
        {"topic": topic, "partition": partition, "replicas": replicas, "log_dirs": [ANY_LOG_DIR] * len(replicas)}
        for (topic, partition), replicas in sorted(targets.items())
    ]
    return msgspec.json.encode({"version": 1, "partitions": partitions}).decode()


def generated(now: Mapping[Key, Sequence[int]], proposed: Mapping[Key, Sequence[int]]) -> str:
    """Return the output of `--generate`."""
    return f"{CURRENT}\n{kafka_json(now)}\n\n{PROPOSED}\n{kafka_json(proposed)}"


def status_lines(targets: Mapping[Key, Sequence[int]], now: Mapping[Key, ReplicaAssignment | None]) -> Iterator[str]:
    """Return the lines of `--verify` for targets, with the live assignments; None if the partition does not exist.

    >>> now = {("foo", 3): ReplicaAssignment([2, 1]), ("foo", 2): ReplicaAssignment([1, 2, 3], adding=[2])}
    >>> for line in status_lines(dict.fromkeys(now, [1, 2]), now):
    ...     print(line)
    Status of partition reassignment:
    Reassignment of partition foo-2 is still in progress.
    There is no active reassignment of partition foo-3, but replica set is 2,1 rather than 1,2.
    """
    yield STATUS
    for key, goal in sorted(targets.items()):
        name, assignment = f"{key[0]}-{key[1]}", now[key]
        if assignment is not None and assignment.is_being_reassigned:
            yield f"Reassignment of partition {name} is still in progress."
        elif assignment is not None and list(assignment.replicas) == list(goal):
            yield f"Reassignment of partition {name} is completed."
        else:
            held, target = (
                ",".join(map(str, brokers)) for brokers in (assignment.replicas if assignment else (), goal)
            )
            instead = f"but replica set is {held} rather than {target}."
            yield f"There is no active reassignment of partition {name}, {instead}"
