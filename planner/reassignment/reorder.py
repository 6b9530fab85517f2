"""The order of a partition's replicas changes, and leadership follows: two waves, for Kafka's controller to execute.

Corresponds to a reassignment to the same replicas (`KafkaController.onPartitionReassignment`, complete at once: no
data moves, the leader epoch grows by one) and then `Election.electPreferredReplica`, which is asked for only when the
order stands. In: partitions with their surroundings, a `target` order and a `why`. Out: CHANGES without a plan id.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import EMPTY, first
from planner.columns.changes import changed
from schemas.enums import Action

ORDER_WAVE = 0
LEADER_WAVE = 1


def is_reordered() -> Column:
    """Whether the target is another order than that of now."""
    return F.col("target") != F.col("replicas")


def reorders(rows: DataFrame) -> DataFrame:
    """One CHANGES row for each partition whose order is not yet the target; leader and ISR stay."""
    return changed(
        rows.where(is_reordered()),
        {
            "wave": F.lit(ORDER_WAVE),
            "action": f"'{Action.REASSIGN}'",
            "replicas_after": "target",
            "leader_epoch_after": "NULL",
            "leader_and_isr_to": EMPTY,
            "reason": F.concat(F.col("why"), F.lit(": order of replicas changes, no data moves")),
        },
    )


def elections_after(rows: DataFrame) -> DataFrame:
    """One CHANGES row for each partition, whose premise is the new order: its first replica is to lead."""
    leader = first(F.col("target"))
    epoch = F.col("leader_epoch") + is_reordered().cast("int")
    return changed(
        rows,
        {
            "wave": F.lit(LEADER_WAVE),
            "action": f"'{Action.ELECT_PREFERRED}'",
            "replicas_before": "target",
            "replicas_after": "target",
            "leader_after": leader,
            "leader_epoch_before": epoch,
            "leader_epoch_after": epoch + 1,
            "requires_live": F.array(leader),
            "reason": F.concat(F.col("why"), F.lit(": first in sync is "), leader.cast("string")),
        },
    )
