"""Placement of replicas over racks: Kafka's algorithm on a broker list in which racks alternate.

Corresponds to `AdminUtils.assignReplicasToBrokersRackAware` and `getRackAlternatedBrokerList`. The replicas of a
partition depend on the position of its leader in the list and on the jump of its followers. So all possible lists form
a table of at most n (n - 1) rows per replication factor, for any number of partitions and topics. `rack_aware_lists`
computes it in plain Python, and `assign_rack_aware` joins it. In: `assignment.partition_ids`. Out: topic, partition,
replicas.

Once every rack has a replica, Kafka takes any broker: of four replicas in two racks it may put three into one. With
`balanced`, a rack gets no replica while another rack with fewer replicas has room. With as many racks as replicas both
give the same result.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, zip_longest
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.topics.assignment import rounds

LISTS = "replication_factor int, first int, jump int, replicas array<int>"
"""Columns of the table that `assign_rack_aware` joins."""


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return brokers with alternating racks: racks by name, brokers of a rack by id.

    >>> rack_alternated({0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"})
    [0, 3, 1, 5, 4, 2]
    """
    names = sorted(set(racks.values()), key=_java_sort_key)
    by_rack = [[broker for broker in sorted(racks) if racks[broker] == rack] for rack in names]
    turns = chain.from_iterable(zip_longest(*by_rack))
    return [broker for broker in turns if broker is not None]


def _java_sort_key(name: str) -> bytes:
    """Sort names as Java does, by UTF-16; this differs from Python only beyond the basic multilingual plane."""
    return name.encode("utf-16-be", "surrogatepass")


def shifts_of(brokers: int, shift: int, first_partition: int, partitions: int) -> range:
    """Return the shifts that occur in a topic: the first one, and one more each time the leaders have gone round.

    >>> [list(shifts_of(5, shift=2, first_partition=first, partitions=11)) for first in (0, 5)]
    [[2, 3, 4], [2, 3, 4]]
    """
    return range(shift, shift + (partitions - 1) // brokers - (max(first_partition, 1) - 1) // brokers + 1)


def rack_aware_lists(
    racks: Mapping[int, str],
    replication_factor: int,
    shifts: Iterable[int] | None = None,
    *,
    balanced: bool = False,
) -> Iterator[tuple[int, int, int, list[int]]]:
    """Yield rows of LISTS: the replicas for each position of the leader and each jump of the followers.

    `shifts` are those that can occur, which keeps the table small; None for all.
    """
    brokers, steps = rack_alternated(racks), max(len(racks) - 1, 1)
    count = len(set(racks.values()))
    jumps = range(steps) if shifts is None else sorted({shift * count % steps for shift in shifts})
    for first in range(len(brokers)):
        for jump in jumps:
            order = [brokers[(first + 1 + (jump + step) % steps) % len(brokers)] for step in range(len(brokers) - 1)]
            take = _pick_balanced if balanced else _pick_as_kafka
            yield replication_factor, first, jump, take([brokers[first], *order], racks, replication_factor)


def lists_for(
    racks: Mapping[int, str],
    topics: Iterable[Mapping[str, Any]],
    *,
    balanced: bool = False,
) -> Iterator[tuple[int, int, int, list[int]]]:
    """Yield the rows of LISTS that an assignment of `topics` (rows of `assignment.NEW_TOPICS`) can need.

    >>> topic = {"replication_factor": 2, "shift": 1, "first_partition": 0, "partitions": 3}
    >>> list(lists_for({0: "a", 1: "b", 2: "c"}, [topic, topic]))
    [(2, 0, 1, [0, 2]), (2, 1, 1, [1, 0]), (2, 2, 1, [2, 1])]
    """
    shifts: dict[int, set[int]] = defaultdict(set)
    for topic in topics:
        occurring = shifts_of(len(racks), *(topic[name] for name in ("shift", "first_partition", "partitions")))
        shifts[topic["replication_factor"]].update(occurring)
    for factor in sorted(shifts):
        yield from rack_aware_lists(racks, factor, shifts[factor], balanced=balanced)


def _pick_as_kafka(order: Sequence[int], racks: Mapping[int, str], factor: int) -> list[int]:
    """Pick brokers in order; skip racks and brokers that have a replica while others have none."""
    every_rack = len(set(racks.values()))
    replicas, used = [order[0]], {racks[order[0]]}
    turns = cycle(order[1:])
    while len(replicas) < factor:
        broker = next(turns)
        if (racks[broker] not in used or len(used) == every_rack) and broker not in replicas:
            replicas.append(broker)
            used.add(racks[broker])
    return replicas


def _pick_balanced(order: Sequence[int], racks: Mapping[int, str], factor: int) -> list[int]:
    """Pick brokers in order; skip racks that have more replicas than others that still have room.

    >>> _pick_balanced([1, 2, 3, 7, 4, 5, 6], dict.fromkeys((1, 2, 3, 7), "a") | dict.fromkeys((4, 5, 6), "b"), 4)
    [1, 4, 5, 2]
    """
    replicas = [order[0]]
    turns = cycle(order[1:])
    while len(replicas) < factor:
        held = Counter(racks[broker] for broker in replicas)
        least = min(held[racks[broker]] for broker in order if broker not in replicas)
        replicas.append(next(b for b in turns if b not in replicas and held[racks[b]] == least))
    return replicas


def assign_rack_aware(partition_ids: DataFrame, lists: DataFrame, racks: Mapping[int, str]) -> DataFrame:
    """Assign each row its replicas: topic, partition, replicas.

    `lists` holds the rows of `rack_aware_lists` for each replication factor that occurs.

    >>> racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    >>> lists = spark.createDataFrame(list(rack_aware_lists(racks, 3)), LISTS)
    >>> from planner.topics.assignment import partition_ids
    >>> topics = spark.sql("SELECT 't' topic, 0 first_partition, 7 partitions, 3 replication_factor, 0 start_index, "
    ...                    "0 shift")
    >>> rows = topics.transform(partition_ids).transform(assign_rack_aware, lists, racks).orderBy("partition")
    >>> " ".join("".join(map(str, row.replicas)) for row in rows.collect())
    '031 315 154 542 420 203 042'
    """
    n, steps = len(racks), max(len(racks) - 1, 1)
    shift = F.col("shift") + rounds(F.col("partition"), n, F.col("first_partition"))
    placed = partition_ids.select(
        "topic",
        "partition",
        "replication_factor",
        ((F.col("partition") + F.col("start_index")) % n).cast("int").alias("first"),
        (shift * len(set(racks.values())) % steps).cast("int").alias("jump"),
    )
    return placed.join(F.broadcast(lists), ["replication_factor", "first", "jump"]).select(
        "topic",
        "partition",
        "replicas",
    )
