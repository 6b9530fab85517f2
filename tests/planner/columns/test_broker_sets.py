"""Broker sets of rules: equal whether computed from all brokers or from those that a partition references."""

from datetime import UTC, datetime
from itertools import product
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.repositories.drained_brokers import NOT_REGISTERED, has_registered_again
from planner.columns.broker_sets import DRAIN_MODE, live_brokers, with_drained, with_referenced_brokers
from schemas.enums import NO_LEADER, DrainMode
from schemas.rows import DrainedBroker
from schemas.tables import BROKERS, DRAINED, PARTITIONS
from tests.planner.frames import CLUSTER, as_rows, broker_row, frame, partition_row

SETS: Final = ("live", "eligible", "drained", "electable", "informed")

# understood, how drained: brokers 0 to 5
FATES: Final = list(product((True, False), (None, DrainMode.ADMIN, DrainMode.RESIDENT)))

PARTITIONS_NAMED: Final = [
    ([0, 1, 2], 0, [0, 1, 2]),
    ([3, 4, 5], 4, [5, 4]),
    ([0, 9], 9, [9]),
    ([1, 2], NO_LEADER, [3]),  # in the ISR and not assigned
    ([2], 5, [2]),  # led by a broker that is neither
    ([0, 1], None, None),
]


def test_sets_of_registered_brokers(spark: SparkSession) -> None:
    rows = [broker_row(broker, understood=understood) for broker, (understood, _) in enumerate(FATES)]
    drained = [
        {"cluster": CLUSTER, "broker_id": broker, "mode": mode.value, "broker_epoch": 100 + broker}
        for broker, (_, mode) in enumerate(FATES)
        if mode is not None
    ]
    brokers = with_drained(frame(spark, rows, BROKERS), frame(spark, drained, DRAINED))
    [sets] = as_rows(live_brokers(brokers))
    assert sets == {
        "live": [0, 1, 2, 3, 4, 5],
        "eligible": [0, 1, 2],
        "drained": [1, 2, 4, 5],
        "electable": [0],
        "informed": [0, 1],
    }
    partitions = frame(spark, [partition_row(*named) for named in PARTITIONS_NAMED], PARTITIONS)
    marked = as_rows(partitions.transform(with_referenced_brokers, brokers).select("replicas", "leader", "isr", *SETS))
    assert len(marked) == len(PARTITIONS_NAMED)
    for row in marked:
        named = {*row["replicas"], *(row["isr"] or []), row["leader"]}
        assert {name: row[name] for name in SETS} == {name: [b for b in sets[name] if b in named] for name in SETS}


# drain mode and broker epoch of the mark, current broker epoch -> current drain mode
MARKS: Final = [
    (DrainMode.RESIDENT, 7, 7, DrainMode.RESIDENT),
    (DrainMode.RESIDENT, 7, 8, None),  # registered again
    (DrainMode.RESIDENT, 8, 7, DrainMode.RESIDENT),  # the snapshot of the broker is older than the mark
    (DrainMode.RESIDENT, NOT_REGISTERED, 7, None),
    (DrainMode.RESIDENT, None, 7, DrainMode.RESIDENT),  # drained by a version that did not record the epoch
    (DrainMode.ADMIN, 7, 8, DrainMode.ADMIN),  # the replica order persists
]


def test_a_resident_drain_ends_when_its_broker_registers_again(spark: SparkSession) -> None:
    """Checks the transform and its counterpart for a controller that holds the brokers in memory."""
    rows = [broker_row(broker, broker_epoch=now) for broker, (_, _, now, _) in enumerate(MARKS)]
    marks = [
        DrainedBroker(cluster=CLUSTER, broker_id=broker, mode=mode.value, broker_epoch=epoch, since=datetime.now(UTC))
        for broker, (mode, epoch, _, _) in enumerate(MARKS)
    ]

    drained = [mark.columns() for mark in marks]

    marked = as_rows(with_drained(frame(spark, rows, BROKERS), frame(spark, drained, DRAINED)))

    expected = [mode and mode.value for *_, mode in MARKS]
    registered = {row["broker_id"]: row["broker_epoch"] for row in rows}
    in_force = [None if has_registered_again(mark, registered) else mark.mode for mark in marks]
    by_broker = sorted(marked, key=lambda row: row["broker_id"])
    assert [row[DRAIN_MODE] for row in by_broker] == in_force == expected


def test_brokers_without_the_column_have_none_drained(spark: SparkSession) -> None:
    brokers = frame(spark, [broker_row(1), broker_row(2, understood=False)], BROKERS)
    [sets] = as_rows(live_brokers(brokers))
    none_drained = brokers.withColumns({DRAIN_MODE: F.lit(None).cast("string")})
    assert as_rows(live_brokers(none_drained)) == [sets]
    assert sets == {"live": [1, 2], "eligible": [1], "drained": [], "electable": [1], "informed": [1]}
