"""The restart of brokers: worked examples, and plain Python and Spark on random clusters."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict
from pyspark.sql import SparkSession

from planner.rules.min_isr import known_min_isr
from planner.rules.restart_effect import restart_effect
from planner.whatif.restart_effect_rows import restarted_partitions
from schemas.rows import BrokerConfig, Row
from tests.planner.frames import as_rows
from tests.planner.rule_inputs import BATCHES
from tests.planner.rules.clusters import RandomCluster
from tests.planner.rules.test_equality import RandomClusters


def of_python(cluster: RandomCluster, restarting: set[int], margin: int) -> list[Row]:
    state = cluster.state()
    known = known_min_isr(BrokerConfig(**row) for row in cluster.configs)
    found = []
    for key, row in state.partitions.items():
        brokers = state.brokers.with_failed(state.failed.get(key, ()))
        topic = state.topics.get(row.topic)
        found.append(restart_effect(row, topic, brokers, known, restarting=frozenset(restarting), margin=margin))
    return [asdict(row) for row in found if row is not None]


@BATCHES
@given(RandomClusters, st.sets(st.integers(0, 6), min_size=1, max_size=3), st.integers(0, 2))
def test_both_forms_agree(spark: SparkSession, cluster: RandomCluster, restarting: set[int], margin: int) -> None:
    tables = cluster.tables(spark).tables
    of_spark = restarted_partitions(
        tables.partitions,
        tables.topics,
        tables.brokers,
        tables.broker_configs,
        restarting=restarting,
        margin=margin,
    )
    expected = sorted(of_python(cluster, restarting, margin), key=lambda row: (row["topic"], row["partition"]))
    assert as_rows(of_spark) == expected
