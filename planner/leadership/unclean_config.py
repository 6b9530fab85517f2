"""Whether unclean elections are allowed (the topic's config overrides the brokers'), and the recovery state after one.

Corresponds to `LogConfig.uncleanLeaderElectionEnable` and its fallback to `KafkaConfig`, and to
`MetadataVersion.isLeaderRecoverySupported`. In: partitions with their topic's `config`, BROKER_CONFIGS. Out: the same
partitions with `unclean_allowed` and `unclean_state`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.config_values import UNCLEAN_OVERRIDE
from planner.columns.derived_columns import default_unclean_election
from schemas.broker_config_names import PROTOCOL_VERSION, RECOVERY_STATE_SINCE
from schemas.enums import RECOVERING


def with_unclean_allowed(partitions: DataFrame, broker_configs: DataFrame, *, everywhere: bool) -> DataFrame:
    """Add `unclean_allowed`.

    It is false if the topic's config could not be read, unless `everywhere` is true.
    """
    allowed = F.coalesce(F.expr(UNCLEAN_OVERRIDE), "default_unclean_election")
    defaults = broker_configs.agg(default_unclean_election(), default_recovery_state())
    return partitions.crossJoin(F.broadcast(defaults)).withColumns(
        {"unclean_allowed": F.lit(everywhere) | allowed},
    )


def default_recovery_state() -> Column:
    """Aggregate BROKER_CONFIGS to `unclean_state`: RECOVERING, null if a broker is known to use an older protocol."""
    major, minor = (rf"try_cast(regexp_extract(value, r'^(\d+)\.(\d+)', {group}) AS int)" for group in (1, 2))
    is_known = f"name = '{PROTOCOL_VERSION}' AND NOT coalesce(assumed, false)"
    oldest = f"min({major} * 100 + {minor}) FILTER (WHERE {is_known})"
    since = RECOVERY_STATE_SINCE[0] * 100 + RECOVERY_STATE_SINCE[1]
    return F.expr(f"IF(coalesce({oldest}, {since}) >= {since}, {RECOVERING}, NULL) AS unclean_state")
