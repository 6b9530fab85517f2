"""The impact of losing brokers: partitions offline or under min ISR, and the distribution of leaders.

Corresponds to `Election.leaderForOffline` without unclean elections: the first live replica in the ISR leads, a drained
broker last. The result is compared with the cluster after the elections due now, so a partition that is offline already
is not newly offline. Topics queued for deletion are left out. A partition that is not understood keeps its leader.

The effect on a partition depends only on the lost brokers among its own, so it is computed for parts of a scenario:
no broker lost, each single broker (or rack), and both of a pair. In: PARTITIONS, TOPICS, BROKERS,
BROKER_CONFIGS. Out: WHATIF.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import (
    difference,
    first,
    in_order_of_choice,
    intersect,
    no_brokers,
    with_referenced_brokers,
)
from planner.columns.derived_columns import default_min_isr, min_isr_override
from planner.columns.sentences import sentence
from planner.columns.shape import false, with_schema
from schemas import reasons
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


class BrokersLost(NamedTuple):
    """Given brokers lost together; `name` is the scenario."""

    name: str
    broker_ids: Sequence[int]

    def __str__(self) -> str:
        """Return the brokers as --lose names them."""
        return ",".join(map(str, self.broker_ids))


def whatif(  # noqa: PLR0913 - four tables and two options
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    snapshot_id: int,
    lose: FailureScenario | BrokersLost,
) -> DataFrame:
    """Return one row per scenario: every registered broker, rack or pair of brokers, or given brokers, lost at once."""
    scenarios = _scenarios(brokers, lose)
    worst_first = [F.desc_nulls_last(name) for name in ("offline", "under_min_isr", "leader_skew")]
    return (
        partitions.transform(_group_by_assignment, topics)
        .transform(with_referenced_brokers, brokers)
        .crossJoin(F.broadcast(default_min_isr(broker_configs)))
        .transform(_with_leadership)
        .transform(_with_parts, scenarios, lose)
        .transform(_costs_of_parts)
        .transform(_costs_of_scenarios, _parts(scenarios, lose))
        .transform(_with_skew, scenarios, brokers)
        .withColumns({"snapshot_id": F.lit(snapshot_id).cast("bigint"), "lose": F.lit(f"{lose}")})
        .orderBy(*worst_first, "lost")
        .transform(with_schema, WHATIF)
    )


def _group_by_assignment(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Count partitions with equal assignment and state: a cluster has far fewer assignments than partitions."""
    topic_facts = topics.select("topic", "deletion_requested", min_isr_override())
    return (
        partitions.join(F.broadcast(topic_facts), "topic", "left")
        .where(~F.coalesce("deletion_requested", false()))
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
            "live_replicas": F.expr(in_order_of_choice("replicas")),
            "in_sync": intersect(isr, live),
            "min_isr": F.coalesce("min_isr_override", "default_min_isr"),
            "members": F.when(judged, F.sort_array(intersect(touched, live))).otherwise(no_brokers()),
        },
    ).withColumns({"led_by": F.when(leads, leader).when(judged, first(F.col("candidates")))})


def _costs_of_parts(rows: DataFrame) -> DataFrame:
    """Sum the impact of each part by the broker that leads afterwards.

    For the part in which no broker is lost, that is all its leaders, else the leaders it gains.
    """
    lost_brokers, weight = F.col("lost_brokers"), F.col("partitions") * F.col("sign")
    return (
        rows.withColumns(
            {
                "loses_leader": F.coalesce(F.array_contains(lost_brokers, F.col("led_by")), false()),
                "next_leader": first(difference(F.col("candidates"), lost_brokers)),
                "remaining_in_sync": F.size(difference(F.col("in_sync"), lost_brokers)),
                "baseline": F.size("part") == 0,
            },
        )
        .withColumns(
            {"broker": F.when(F.col("baseline"), F.col("led_by")).when(F.col("loses_leader"), F.col("next_leader"))}
        )
        .groupBy("part", "broker")
        .agg(
            F.sum(F.when(F.col("broker").isNotNull(), weight)).alias("leaders"),
            *(F.sum(F.when(holds, weight).otherwise(0)).alias(name) for name, holds in _conditions().items()),
        )
    )


def _conditions() -> dict[str, Column]:
    judged, baseline, remaining_in_sync = F.col("judged"), F.col("baseline"), F.col("remaining_in_sync")
    newly_offline = F.col("loses_leader") & F.col("next_leader").isNull()
    none_in_sync = newly_offline & (remaining_in_sync == 0)
    has_live_replica = F.size(difference(F.col("live_replicas"), F.col("lost_brokers"))) > 0
    was_enough = F.size("in_sync") >= F.col("min_isr")
    newly = judged & was_enough & (remaining_in_sync < F.col("min_isr"))
    return {
        "offline": newly_offline | (baseline & judged & F.col("led_by").isNull()),
        "newly_offline": newly_offline,
        "unclean_only": none_in_sync & has_live_replica,
        "no_replica": none_in_sync & ~has_live_replica,
        "under_min_isr": newly | (baseline & judged & ~was_enough),
        "newly_under_min_isr": newly,
        "leaders_moved": F.col("loses_leader") & F.col("next_leader").isNotNull(),
        "not_judged": baseline & ~judged,
    }


def _costs_of_scenarios(costs: DataFrame, scenarios: DataFrame) -> DataFrame:
    """Sum the parts of each scenario, then its brokers; `most` is the surviving broker with the most leaders."""
    survives = F.col("broker").isNotNull() & ~F.array_contains("lost", F.col("broker"))
    leaders = F.when(survives, F.col("leaders"))
    # of several with the most leaders, the lowest id
    most = F.when(leaders > 0, F.struct(leaders.alias("leaders"), (-F.col("broker")).alias("minus_id")))
    return (
        costs.join(F.broadcast(scenarios), "part")
        .groupBy("scenario", "lost", "broker")
        .agg(*(F.sum(name).alias(name) for name in ("leaders", *_COSTS)))
        .groupBy("scenario")
        .agg(
            F.sum(leaders).alias("leaders"),
            F.max(most).alias("most"),
            *(F.sum(name).alias(name) for name in _COSTS),
        )
    )


def _with_skew(costs: DataFrame, scenarios: DataFrame, brokers: DataFrame) -> DataFrame:
    """Complete the scenarios, also for a cluster without partitions, and add the distribution of leaders."""
    survivors = F.col("registered") - F.size("lost")
    registered = brokers.agg(F.first("cluster").alias("cluster"), F.count("*").alias("registered"))
    return (
        scenarios.crossJoin(F.broadcast(registered))
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


def _scenarios(brokers: DataFrame, lose: FailureScenario | BrokersLost) -> DataFrame:
    """Return one row per scenario; a broker without a known rack counts as a rack of its own.

    >>> brokers = spark.createDataFrame([(1, "a"), (2, "a"), (3, None)], "broker_id int, rack string")
    >>> for lose in (FailureScenario.RACKS, FailureScenario.PAIRS):
    ...     _scenarios(brokers, lose).orderBy("lost").show()
    +--------+------+
    |scenario|  lost|
    +--------+------+
    |  rack a|[1, 2]|
    |broker 3|   [3]|
    +--------+------+
    <BLANKLINE>
    +-----------+------+
    |   scenario|  lost|
    +-----------+------+
    |brokers 1+2|[1, 2]|
    |brokers 1+3|[1, 3]|
    |brokers 2+3|[2, 3]|
    +-----------+------+
    <BLANKLINE>
    """
    if lose is FailureScenario.PAIRS:
        return _pairs(brokers)
    alone = sentence(reasons.BROKER, broker=F.col("broker_id"))
    together = sentence(reasons.RACK, rack=F.col("rack"))
    name = F.coalesce(together, alone) if lose is FailureScenario.RACKS else alone
    if isinstance(lose, BrokersLost):
        brokers, name = brokers.where(F.col("broker_id").isin(*lose.broker_ids)), F.lit(lose.name)
    return brokers.groupBy(name.alias("scenario")).agg(F.sort_array(F.collect_set("broker_id")).alias("lost"))


def _pairs(brokers: DataFrame) -> DataFrame:
    one, other = (brokers.select(F.col("broker_id").alias(name)) for name in ("one", "other"))
    name = sentence(reasons.BROKER_PAIR, one=F.col("one"), other=F.col("other"))
    return one.join(F.broadcast(other), F.col("one") < F.col("other")).select(
        name.alias("scenario"), F.array("one", "other").alias("lost")
    )


def _parts(scenarios: DataFrame, lose: FailureScenario | BrokersLost) -> DataFrame:
    """Return one row per scenario and part: no broker lost, all lost, and each broker of a pair."""
    lost = F.col("lost")
    single_losses = [F.array(F.get(lost, F.lit(place))) for place in (0, 1)] if lose is FailureScenario.PAIRS else []
    return scenarios.select("*", F.explode(F.array(no_brokers(), *single_losses, lost)).alias("part"))


def _with_parts(partitions: DataFrame, scenarios: DataFrame, lose: FailureScenario | BrokersLost) -> DataFrame:
    """Return one row per partition and each part with one of its `members`, and one row with no broker lost.

    `lost_brokers` are the brokers of a part, and `sign` its weight. A pair has the impact of both brokers together,
    minus the impact of each single broker, so the sum over the parts of a scenario is the impact of the scenario.
    """
    if lose is FailureScenario.PAIRS:
        return _with_pairs(partitions)
    lost = F.col("lost")
    own = scenarios.select("lost", F.explode("lost").alias("member"))
    once = F.col("member").isNull() | (F.get(F.array_intersect("members", lost), F.lit(0)) == F.col("member"))
    return (
        partitions.withColumns({"member": F.explode(F.concat(F.array(F.lit(None).cast("int")), "members"))})
        .join(F.broadcast(own), "member", "left")
        .where(once)
        .withColumns(
            {"part": F.coalesce(lost, no_brokers()), "lost_brokers": F.coalesce(lost, no_brokers()), "sign": F.lit(1)}
        )
    )


def _with_pairs(partitions: DataFrame) -> DataFrame:
    """Return the parts of pairs: no broker, each single member of a partition, and any two of them."""
    one, other = F.col("one"), F.col("other")
    onwards = F.slice("members", F.array_position("members", one).cast("int"), F.size("members"))
    part = F.when(one.isNull(), no_brokers()).otherwise(F.array_distinct(F.array(one, other)))
    whole = F.struct(F.col("part").alias("lost_brokers"), F.lit(1).alias("sign"))
    less = [F.struct(F.array(broker).alias("lost_brokers"), F.lit(-1).alias("sign")) for broker in (one, other)]
    return (
        partitions.withColumns({"one": F.explode(F.concat(F.array(F.lit(None).cast("int")), "members"))})
        .withColumns({"other": F.explode(F.when(one.isNull(), F.array(one)).otherwise(onwards))})
        .withColumns({"part": part})
        .withColumns(
            {"weighed": F.explode(F.when(F.size("part") > 1, F.array(whole, *less)).otherwise(F.array(whole)))}
        )
        .select("*", "weighed.*")
    )
