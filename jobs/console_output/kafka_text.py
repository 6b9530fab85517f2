"""The output of kafka-reassign-partitions, word for word, for scripts that read it.

Corresponds to `ReassignPartitionsCommand`: `formatAsReassignmentJson`, the output of `--generate`, and
`partitionReassignmentStatesToString` of `--verify`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from jobs.adapters.delta.warehouse import Row
from jobs.runtime.input_files import ANY_LOG_DIR, CURRENT, PROPOSED
from schemas.replica_assignment import ReplicaAssignment

STATUS: Final = "Status of partition reassignment:"


def kafka_json(targets: Iterable[Row]) -> str:
    """Encode targets (topic, partition, replicas) as Kafka does.

    >>> kafka_json([{"topic": "foo", "partition": 0, "replicas": [1, 2]}])
    '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    """
    ordered = sorted(targets, key=lambda row: (row["topic"], row["partition"]))
    partitions = [
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "replicas": row["replicas"],
            "log_dirs": [ANY_LOG_DIR] * len(row["replicas"]),
        }
        for row in ordered
    ]
    return msgspec.json.encode({"version": 1, "partitions": partitions}).decode()


def generated(now: Iterable[Row], proposed: Iterable[Row]) -> str:
    """Return the output of `--generate`."""
    return f"{CURRENT}\n{kafka_json(now)}\n\n{PROPOSED}\n{kafka_json(proposed)}"


def status_lines(assignments: Iterable[tuple[Row, ReplicaAssignment | None]]) -> Iterator[str]:
    """Return the lines of `--verify` for targets with their live assignments, None if the partition does not exist.

    >>> two, three = ({"topic": "foo", "partition": n, "replicas": [1, 2]} for n in (2, 3))
    >>> for line in status_lines([(three, ReplicaAssignment([2, 1])), (two, ReplicaAssignment([1, 2, 3], adding=[2]))]):
    ...     print(line)
    Status of partition reassignment:
    Reassignment of partition foo-2 is still in progress.
    There is no active reassignment of partition foo-3, but replica set is 2,1 rather than 1,2.
    """
    yield STATUS
    for row, now in sorted(assignments, key=lambda each: (each[0]["topic"], each[0]["partition"])):
        name, goal = f"{row['topic']}-{row['partition']}", row["replicas"]
        if now is not None and now.is_moving:
            yield f"Reassignment of partition {name} is still in progress."
        elif now is not None and list(now.replicas) == goal:
            yield f"Reassignment of partition {name} is completed."
        else:
            held, target = (",".join(map(str, brokers)) for brokers in (now.replicas if now else (), goal))
            instead = f"but replica set is {held} rather than {target}."
            yield f"There is no active reassignment of partition {name}, {instead}"
