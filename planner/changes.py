"""The change row: what is, what should be, and the premise that must still hold when it is committed.

Every rule starts from `unchanged` and overrides what it changes, so that a change always says everything. One
change a partition and cycle. In: partitions with topic and live brokers. Out: CHANGES without a plan id.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.liveness import among, nobody, with_live_brokers, with_topic
from planner.shape import shaped
from schemas.names import NO_VERSION
from schemas.tables import CHANGES

_BOTH = ("replicas", "leader", "isr", "leader_epoch", "leader_recovery_state")


def surroundings(partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Join to the partitions all that a rule may ask for: their topics and the live brokers."""
    return partitions.transform(with_topic, topics).transform(with_live_brokers, brokers)


def unchanged(partitions: DataFrame) -> DataFrame:
    """Add the columns of a change in which nothing changes; told are all live replicas of the assignment.

    LeaderAndIsr goes to the live replicas whatever the election: `Election.scala` names the assignment or its
    online part as recipients, and `ControllerBrokerRequestBatch` sends to live brokers only.
    """
    return partitions.withColumns(
        {f"{name}_before": F.col(name) for name in _BOTH}
        | {f"{name}_after": F.col(name) for name in _BOTH}
        | {
            "wave": F.lit(0),
            "adding_before": F.col("adding_replicas"),
            "adding_after": F.col("adding_replicas"),
            "removing_before": F.col("removing_replicas"),
            "removing_after": F.col("removing_replicas"),
            "controller_epoch_before": F.col("controller_epoch"),
            "state_version": F.coalesce("state_version", F.lit(NO_VERSION)),
            "is_new": F.col("leader").isNull(),
            "leader_and_isr_to": among(F.col("replicas"), F.col("informed")),
            "stop_replica_to": nobody(),
            "requires_live": nobody(),
            "requires_dead": nobody(),
        },
    )


def as_changes(rows: DataFrame) -> DataFrame:
    """Fix the shape and leave the plan id to `planner.plan`."""
    return rows.withColumns({"plan_id": F.lit(None).cast("string")}).transform(shaped, CHANGES)
