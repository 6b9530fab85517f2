"""Placement in racks: Kafka's own vectors, and its loop written out as a second way to the same answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from planner.rack_aware import LISTS, assign_rack_aware, rack_alternated, rack_aware_lists
from tests.planner.frames import as_rows

T: Final = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
B: Final = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r1"}
C: Final = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
D: Final = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r2"}
E: Final = dict.fromkeys(range(6), "r1")

# racks, replication factor, start and shift (Kafka's fixed start is its first shift), first partition, replicas
Vector = tuple[Mapping[int, str], int, int, int, str]
KAFKA: Final[dict[str, Vector]] = {
    "AdminRackAwareTest": (T, 3, 0, 0, "031 315 154 542 420 203 042"),
    "start 1": (T, 3, 1, 0, "320 103 531 415 254 042 352"),
    "two a rack, start 2": (B, 3, 2, 0, "320 541 203 415 032 154"),
    "thirteen": (B, 3, 0, 0, "013 135 352 524 240 401 024 140 301 513 235 452 032"),
    "two replicas": (B, 2, 0, 0, "01 13 35 52 24 40 02 14 30 51 23 45"),
    "racks of one and three": (C, 4, 2, 0, "2013 3124 4213 0123 1423 2413"),
    "more replicas than racks": (D, 5, 0, 0, "01324 13024 32014 24013 45013 50324"),
    "one rack": (E, 3, 0, 0, "012 123 234 345 450 501"),
    "one broker": ({7: "r1"}, 1, 3, 0, "7 7"),
}


def _loop(vector: Vector, count: int) -> list[list[int]]:
    """Write out the loop of AdminUtils over a rack-alternated list."""
    racks, factor, start, first_partition, _ = vector
    brokers, names = rack_alternated(racks), set(racks.values())
    n, shift, found = len(brokers), start, []
    for p in range(first_partition, first_partition + count):
        if p > 0 and p % n == 0:
            shift += 1
        first = (p + start) % n
        leader = brokers[first]
        replicas, in_racks, in_brokers, k = [leader], {racks[leader]}, {leader}, 0
        for _ in range(factor - 1):
            done = False
            while not done:
                broker = brokers[(first + 1 + (shift * len(names) + k) % (n - 1)) % n]
                if (racks[broker] not in in_racks or in_racks == names) and (
                    broker not in in_brokers or len(in_brokers) == n
                ):
                    replicas.append(broker)
                    in_racks.add(racks[broker])
                    in_brokers.add(broker)
                    done = True
                k += 1
        found.append(replicas)
    return found


def _placed(spark: SparkSession, vectors: Sequence[Vector], count: int) -> list[list[list[int]]]:
    """Assign a topic for each vector, all of the same racks at once."""
    racks = vectors[0][0]
    lists = [row for factor in {vector[1] for vector in vectors} for row in rack_aware_lists(racks, factor)]
    ids = [
        (str(number), partition, factor, start, start, first)
        for number, (_, factor, start, first, _) in enumerate(vectors)
        for partition in range(first, first + count)
    ]
    columns = "topic string, partition int, replication_factor int, start_index int, shift int, first_partition int"
    frame = spark.createDataFrame(ids, columns)
    rows = as_rows(assign_rack_aware(frame, spark.createDataFrame(lists, LISTS), racks).orderBy("topic", "partition"))
    return [[row["replicas"] for row in rows if row["topic"] == str(number)] for number in range(len(vectors))]


def test_kafkas_vectors_by_its_loop() -> None:
    for vector in KAFKA.values():
        wanted = [[int(digit) for digit in replicas] for replicas in vector[4].split()]
        assert _loop(vector, len(wanted)) == wanted


def test_racks_take_turns() -> None:
    assert rack_alternated({broker: T[broker] for broker in range(5)}) == [0, 3, 1, 4, 2]
    assert rack_alternated({broker: f"r{broker // 3}" for broker in range(9)}) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_only_the_lists_that_can_occur() -> None:
    every = {row[1:3]: row for row in rack_aware_lists(T, 3)}
    some = list(rack_aware_lists(T, 3, shifts=(4, 5, 9)))
    assert {row[2] for row in some} == {4 * 3 % 5, 5 * 3 % 5, 9 * 3 % 5}
    assert some == [every[row[1:3]] for row in some]


def test_many_topics_at_once_as_kafkas_loop_does(spark: SparkSession) -> None:
    """New topics and added partitions, of every replication factor, start and first partition, in one plan."""
    for racks in (T, C, {0: "r1", 1: "r1", 2: "r2", 3: "r3", 4: "r3", 5: "r1", 9: "r4"}):
        vectors = [
            (racks, factor, start, first, "")
            for factor in range(1, len(racks) + 1)
            for start in (0, 1, 4)
            for first in (0, 1, 6, 13)
        ]
        assert _placed(spark, vectors, 31) == [_loop(vector, 31) for vector in vectors]


def test_one_broker(spark: SparkSession) -> None:
    assert _placed(spark, [KAFKA["one broker"]], 2) == [[[7], [7]]]
