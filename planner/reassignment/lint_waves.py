"""Checks of intermediate lists: waves may take a partition through lists that were not requested.

Like `planner.reassignment.lint`, for lists that a later wave replaces: no broker twice or dead, no fewer racks than now
(if the final list can have as many), no more replicas in one rack than at the worse end, and min.insync.replicas no
further away than now. The znode is not measured again, as it is never larger than with all moves at once. In: `ways`
(topic, partition, wave, replicas, and goal, the final list) and the tables of a snapshot. Out: one row per fault.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.reassignment.lint import (
    NO_RULES,
    RackRules,
    crowded_fault,
    dead_fault,
    duplicate_fault,
    min_isr_fault,
    rack_fault,
    with_lint_inputs,
)


def intermediate_faults(  # noqa: PLR0913 - five tables, and facts about racks
    ways: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    rules: RackRules = NO_RULES,
) -> DataFrame:
    """Return the faults of intermediate lists: topic, partition, code, fault; a plan with one is refused as a whole."""
    lists = ways.select("topic", "partition", "wave", "goal", F.col("replicas").alias("target"))
    target, known = F.col("target"), F.col("replicas").isNotNull()
    faults = [
        duplicate_fault(target),
        dead_fault(target, known),
        min_isr_fault(target, known),
        rack_fault(target, F.least(F.size(target), F.size("goal")), known, rules.given_up),
        crowded_fault(target, known, rules.given_up, F.col("goal")),
    ]
    text = F.concat(F.lit("on the way, after wave "), "wave", F.lit(": "), "fault.fault")
    return (
        lists.transform(with_lint_inputs, partitions, topics, brokers, broker_configs, rules)
        .select("topic", "partition", "wave", F.explode(F.array_compact(F.array(*faults))).alias("fault"))
        .select("topic", "partition", "fault.code", text.alias("fault"))
        .orderBy("topic", "partition", "code", "fault")
    )
