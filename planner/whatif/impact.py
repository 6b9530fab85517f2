"""The impact of losing brokers: partitions offline or under min ISR, and the distribution of leaders.

Corresponds to `Election.leaderForOffline` without unclean elections: the first live replica in the ISR leads, a drained
broker last. The result is compared with the cluster after the elections due now, so a partition that is offline already
is not newly offline. Topics queued for deletion are left out. A partition that is not understood keeps its leader. In:
PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS. Out: WHATIF.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference, first, in_order_of_choice, intersect, live_brokers, no_brokers
from planner.columns.derived_columns import default_min_isr, min_isr_override
from planner.columns.shape import shaped
from planner.whatif.scenarios import parts, scenarios, with_parts
from schemas.enums import FailureScenario
from schemas.tables import WHATIF

_GROUP_COLUMNS: Final = ("replicas", "isr", "leader", "understood", "min_isr_override")
_COSTS: Final = (
    "offline",
    "newly_offline",
    "unclean_only",
    "no_replica",
    "under_min_isr",
    "newly_under_min_isr",
    "leaders_moved",
    "not_judged",
)


def whatif(  # noqa: PLR0913 - four tables and two options
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    snapshot_id: int,
    lose: FailureScenario,
) -> DataFrame:
    """Return one row per scenario: every registered broker, rack or pair of brokers lost at once."""
    of = scenarios(brokers, lose)
    facts = live_brokers(brokers).crossJoin(default_min_isr(broker_configs))
    worst_first = [F.desc_nulls_last(name) for name in ("offline", "under_min_isr", "leader_skew")]
    return (
        partitions.transform(_group_by_assignment, topics)
        .crossJoin(F.broadcast(facts))
        .transform(_with_leadership)
        .transform(with_parts, of, lose)
        .transform(_costs_of_parts)
        .transform(_costs_of_scenarios, parts(of, lose))
        .transform(_with_skew, of, brokers)
        .withColumns({"snapshot_id": F.lit(snapshot_id).cast("bigint"), "lose": F.lit(lose.value)})
        .orderBy(*worst_first, "lost")
        .transform(shaped, WHATIF)
    )


def _group_by_assignment(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Count partitions with equal assignment and state: a cluster has far fewer assignments than partitions."""
    topic_facts = topics.select("topic", "deletion_requested", min_isr_override())
    return (
        partitions.join(F.broadcast(topic_facts), "topic", "left")
        .where(~F.coalesce("deletion_requested", F.lit(False)))  # noqa: FBT003 - a Spark literal
        .groupBy(*_GROUP_COLUMNS)
        .agg(F.count("*").alias("partitions"))
    )


def _with_leadership(alike: DataFrame) -> DataFrame:
    """Add the current leader, the candidates, the live ISR, and `members`, the live brokers whose loss matters."""
    replicas, isr, live, leader = F.col("replicas"), F.col("isr"), F.col("live"), F.col("leader")
    judged = F.col("understood") & leader.isNotNull()
    leads = F.array_contains(live, leader)
    touched = F.array_union(F.array_union(replicas, isr), F.array(leader))
    return alike.withColumns(
        {
            "judged": judged,
            "candidates": F.expr(in_order_of_choice("array_intersect(replicas, isr)")),
            "alive": F.expr(in_order_of_choice("replicas")),
            "in_sync": intersect(isr, live),
            "min_isr": F.coalesce("min_isr_override", "default_min_isr"),
            "members": F.when(judged, F.sort_array(intersect(touched, live))).otherwise(no_brokers()),
        },
    ).withColumns({"led_by": F.when(leads, leader).when(judged, first(F.col("candidates")))})


def _costs_of_parts(rows: DataFrame) -> DataFrame:
    """Sum the impact of each part by the broker that leads afterwards.

    For the part in which no broker is lost, that is all its leaders, else the leaders it gains.
    """
    felled, weight = F.col("felled"), F.col("partitions") * F.col("sign")
    return (
        rows.withColumns(
            {
                "deposed": F.coalesce(F.array_contains(felled, F.col("led_by")), F.lit(False)),  # noqa: FBT003
                "heir": first(difference(F.col("candidates"), felled)),
                "left": F.size(difference(F.col("in_sync"), felled)),
                "baseline": F.size("part") == 0,
            },
        )
        .withColumns({"broker": F.when(F.col("baseline"), F.col("led_by")).when(F.col("deposed"), F.col("heir"))})
        .groupBy("part", "broker")
        .agg(
            F.sum(F.when(F.col("broker").isNotNull(), weight)).alias("leaders"),
            *(F.sum(F.when(holds, weight).otherwise(0)).alias(name) for name, holds in _conditions().items()),
        )
    )


def _conditions() -> dict[str, Column]:
    judged, baseline, left = F.col("judged"), F.col("baseline"), F.col("left")
    newly_offline = F.col("deposed") & F.col("heir").isNull()
    none_in_sync = newly_offline & (left == 0)
    alive = F.size(difference(F.col("alive"), F.col("felled"))) > 0
    was_enough = F.size("in_sync") >= F.col("min_isr")
    newly = judged & was_enough & (left < F.col("min_isr"))
    return {
        "offline": newly_offline | (baseline & judged & F.col("led_by").isNull()),
        "newly_offline": newly_offline,
        "unclean_only": none_in_sync & alive,
        "no_replica": none_in_sync & ~alive,
        "under_min_isr": newly | (baseline & judged & ~was_enough),
        "newly_under_min_isr": newly,
        "leaders_moved": F.col("deposed") & F.col("heir").isNotNull(),
        "not_judged": baseline & ~judged,
    }


def _costs_of_scenarios(costs: DataFrame, of: DataFrame) -> DataFrame:
    """Sum the parts of each scenario, then its brokers; `most` is the surviving broker with the most leaders."""
    survives = F.col("broker").isNotNull() & ~F.array_contains("lost", F.col("broker"))
    leaders = F.when(survives, F.col("leaders"))
    # of several with the most leaders, the lowest id
    most = F.when(leaders > 0, F.struct(leaders.alias("leaders"), (-F.col("broker")).alias("minus_id")))
    return (
        costs.join(F.broadcast(of), "part")
        .groupBy("scenario", "lost", "broker")
        .agg(*(F.sum(name).alias(name) for name in ("leaders", *_COSTS)))
        .groupBy("scenario")
        .agg(
            F.sum(leaders).alias("leaders"),
            F.max(most).alias("most"),
            *(F.sum(name).alias(name) for name in _COSTS),
        )
    )


def _with_skew(costs: DataFrame, of: DataFrame, brokers: DataFrame) -> DataFrame:
    """Complete the scenarios, also for a cluster without partitions, and add the distribution of leaders."""
    survivors = F.col("registered") - F.size("lost")
    registered = brokers.agg(F.first("cluster").alias("cluster"), F.count("*").alias("registered"))
    return (
        of.crossJoin(F.broadcast(registered))
        .join(costs, "scenario", "left")
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in ("leaders", *_COSTS)})
        .withColumns(
            {
                "max_leaders": F.coalesce("most.leaders", F.lit(0)),
                "most_leaders_on": -F.col("most.minus_id"),
                "mean_leaders": F.when(survivors > 0, F.col("leaders") / survivors),
            },
        )
        .withColumns({"leader_skew": F.when(F.col("leaders") > 0, F.col("max_leaders") / F.col("mean_leaders"))})
    )
