"""Where replicas go when brokers are in racks: Kafka's algorithm over a list in which racks take turns.

Corresponds to `AdminUtils.assignReplicasToBrokersRackAware` and `getRackAlternatedBrokerList`. A partition's replicas
depend on where its leader falls in the list and on how far its followers jump, so that all that can happen is a table
of at most n (n - 1) lists, whatever the number of partitions and topics: `rack_aware_lists` writes it in plain Python,
`assign_rack_aware` joins it. In: topic, partition and where the topic's round begins. Out: topic, partition, replicas.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.assignment import rounds

LISTS = "replication_factor int, first int, jump int, replicas array<int>"
"""Columns of the table that `assign_rack_aware` joins."""


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers with racks taking turns, racks by name, brokers of a rack by id.

    >>> rack_alternated({0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"})
    [0, 3, 1, 5, 4, 2]
    """
    by_rack = [[broker for broker in sorted(racks) if racks[broker] == rack] for rack in sorted(set(racks.values()))]
    turns = chain.from_iterable(zip_longest(*by_rack))
    return [broker for broker in turns if broker is not None]


def rack_aware_lists(
    racks: Mapping[int, str],
    replication_factor: int,
    shifts: Iterable[int] | None = None,
) -> Iterator[tuple[int, int, int, list[int]]]:
    """Rows of LISTS: replicas for each place of the leader and each jump of the followers.

    `shifts` that can occur (from a topic's shift to that and its rounds) keep the table small; None for all there are.
    """
    brokers, steps = rack_alternated(racks), max(len(racks) - 1, 1)
    count = len(set(racks.values()))
    jumps = range(steps) if shifts is None else sorted({shift * count % steps for shift in shifts})
    for first in range(len(brokers)):
        for jump in jumps:
            yield replication_factor, first, jump, _replicas(brokers, racks, replication_factor, (first, jump))


def _replicas(brokers: Sequence[int], racks: Mapping[int, str], factor: int, at: tuple[int, int]) -> list[int]:
    """Take brokers in order, passing over racks and brokers that have a replica while others have none."""
    n, every_rack = len(brokers), len(set(racks.values()))
    first, jump = at
    replicas, used, k = [brokers[first]], {racks[brokers[first]]}, 0
    while len(replicas) < factor:
        broker = brokers[(first + 1 + (jump + k) % (n - 1)) % n]
        k += 1
        if (racks[broker] not in used or len(used) == every_rack) and broker not in replicas:
            replicas.append(broker)
            used.add(racks[broker])
    return replicas


def assign_rack_aware(partition_ids: DataFrame, lists: DataFrame, racks: Mapping[int, str]) -> DataFrame:
    """Assign each row its replicas: topic, partition, replicas.

    `partition_ids` holds topic, partition, replication_factor, start_index, shift and first_partition, the lowest
    that is assigned now (0 for a new topic); `lists` the rows of `rack_aware_lists`, for each factor that occurs.

    >>> racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    >>> lists = spark.createDataFrame(list(rack_aware_lists(racks, 3)), LISTS)
    >>> ids = spark.sql("SELECT 't' topic, int(id) partition, 3 replication_factor, 0 start_index, 0 shift, "
    ...                 "0 first_partition FROM range(7)")
    >>> rows = assign_rack_aware(ids, lists, racks).orderBy("partition").collect()
    >>> " ".join("".join(map(str, row.replicas)) for row in rows)
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
