"""Intermediate lists: each fault alone, and lists without faults because the target requires them."""

from typing import Final

from pyspark.sql import SparkSession

from planner.reassignment.lint import intermediate_faults
from schemas.enums import LintCode
from schemas.tables import BROKER_CONFIGS, BROKERS, PARTITIONS, TOPICS
from tests.planner.frames import as_rows, broker_row, config_row, frame, partition_row, topic_row

RACKS: Final = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: None}
WAYS: Final = "topic string, partition int, wave int, replicas array<int>, goal array<int>"

# current replicas, intermediate list, final list -> code, fault
CASES: Final[list[tuple[list[int], list[int], list[int], LintCode | None, str]]] = [
    ([1, 3], [4, 3], [4, 5], LintCode.RACKS_LOST, "racks 2 → 1: [b]"),
    ([1, 3], [5, 3], [5, 4], None, ""),
    ([1, 3, 5], [1, 3, 4], [1, 4], None, ""),  # two replicas cannot have three racks
    ([1, 3], [1, 3, 1], [1, 4, 5], LintCode.DUPLICATE_BROKER, "names a broker twice: 1, 3, 1"),
    ([1, 2], [1, 9], [1, 4], LintCode.BROKER_NOT_ALIVE, "adds brokers not live in the snapshot: 9"),
    ([9, 1, 3], [9, 1, 4], [5, 1, 4], None, ""),  # kept, not added
    ([1, 3], [3], [5, 4], LintCode.MIN_ISR_UNREACHABLE, "1 replica can never reach min.insync.replicas=3"),
    ([3], [3, 5], [1, 3, 5], None, ""),  # fewer than min.insync.replicas, but more than now
]


def test_each_fault_by_itself(spark: SparkSession) -> None:
    partitions = [partition_row(now, 1, now, partition=number) for number, (now, *_) in enumerate(CASES)]
    ways = [("t", number, 2, way, goal) for number, (_, way, goal, *_) in enumerate(CASES)]
    brokers = [broker_row(broker, rack=rack) for broker, rack in RACKS.items()]
    faults = intermediate_faults(
        spark.createDataFrame(ways, WAYS),
        frame(spark, partitions, PARTITIONS),
        frame(spark, [topic_row("t")], TOPICS),
        frame(spark, brokers, BROKERS),
        frame(spark, [config_row(1, "min.insync.replicas", "3")], BROKER_CONFIGS),
    )
    codes = {(row["partition"], row["code"]): row["fault"] for row in as_rows(faults)}
    assert codes == {
        (number, code.value): f"on the way, after wave 2: {fault}"
        for number, (_, _, _, code, fault) in enumerate(CASES)
        if code
    }
