"""Changes of replica order followed by leader elections: two waves, executed by Kafka's controller.

Corresponds to a reassignment to the same replicas (`KafkaController.onPartitionReassignment`), which is complete at
once: no data moves and the leader epoch grows by one. `Election.leaderForPreferredReplica` is requested only after
that. In: partitions with topic and broker sets, a `target` order and a `why`. Out: CHANGES without a plan id.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import NO_BROKERS_SQL, first, intersect
from planner.columns.change_rows import change_columns
from planner.columns.sentences import sentence
from schemas import reasons
from schemas.enums import Action

ORDER_WAVE = 0
LEADER_WAVE = 1


def is_reordered() -> Column:
    """Return whether the target order differs from the current one."""
    return F.col("target") != F.col("replicas")


def reorders(rows: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition whose order is not the target; leader and ISR stay.

    The first replica is preferred from then on, so it must stay live if it is.
    """
    return change_columns(
        rows.where(is_reordered()),
        {
            "wave": F.lit(ORDER_WAVE),
            "action": f"'{Action.REASSIGN}'",
            "replicas_after": "target",
            "leader_epoch_after": "NULL",
            "leader_and_isr_to": NO_BROKERS_SQL,
            "requires_live": intersect(F.array(first(F.col("target"))), F.col("eligible")),
            "reason": sentence(reasons.WHY_REORDERED, why=F.col("why")),
        },
    )


def elections_after(rows: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition, with the new order as precondition: the first replica becomes leader."""
    leader = first(F.col("target"))
    epoch = F.col("leader_epoch") + is_reordered().cast("int")
    return change_columns(
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
            "reason": sentence(reasons.WHY_ELECTED, why=F.col("why"), leader=leader),
        },
    )
