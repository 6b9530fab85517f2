"""Who is alive, as rules see it: the same whether a partition is told of all brokers or of those it names."""

from itertools import product
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.rows.liveness import DRAIN_MODE, live_brokers, with_brokers_named, with_drained
from schemas.names import NO_LEADER, DrainMode
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
    ([2], 5, [2]),  # led by one that is neither
    ([0, 1], None, None),
]


def test_sets_of_registered_brokers(spark: SparkSession) -> None:
    rows = [broker_row(broker, understood=understood) for broker, (understood, _) in enumerate(FATES)]
    drained = [
        {"cluster": CLUSTER, "broker_id": broker, "mode": mode.value}
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
    marked = as_rows(partitions.transform(with_brokers_named, brokers).select("replicas", "leader", "isr", *SETS))
    assert len(marked) == len(PARTITIONS_NAMED)
    for row in marked:
        named = {*row["replicas"], *(row["isr"] or []), row["leader"]}
        assert {name: row[name] for name in SETS} == {name: [b for b in sets[name] if b in named] for name in SETS}


def test_brokers_without_the_column_have_none_drained(spark: SparkSession) -> None:
    brokers = frame(spark, [broker_row(1), broker_row(2, understood=False)], BROKERS)
    [sets] = as_rows(live_brokers(brokers))
    none_drained = brokers.withColumns({DRAIN_MODE: F.lit(None).cast("string")})
    assert as_rows(live_brokers(none_drained)) == [sets]
    assert sets == {"live": [1, 2], "eligible": [1], "drained": [], "electable": [1], "informed": [1]}
