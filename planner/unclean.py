"""Where an unclean election is allowed: the topic's word over the brokers'.

Corresponds to `LogConfig.uncleanLeaderElectionEnable` and its fall-back to `KafkaConfig`. In: partitions with their
topic's `config`, BROKER_CONFIGS. Out: the same partitions with `unclean_allowed`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.derived import UNCLEAN_ELECTION, default_unclean_election


def with_unclean_allowed(partitions: DataFrame, broker_configs: DataFrame, *, everywhere: bool) -> DataFrame:
    """Add `unclean_allowed`; false for a topic whose config was not read, for it may say so, unless `everywhere`."""
    by_topic = F.lower(F.col("config")[UNCLEAN_ELECTION]) == "true"
    by_brokers = F.col("config").isNotNull() & F.col("default_unclean_election")
    return partitions.crossJoin(F.broadcast(default_unclean_election(broker_configs))).withColumns(
        {"unclean_allowed": F.lit(everywhere) | F.coalesce(by_topic, by_brokers)},
    )
