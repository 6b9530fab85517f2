"""Failure scenarios: the loss of every broker, rack or pair of brokers.

The effect on a partition depends only on which of its own brokers are lost, so it is computed for parts of a scenario:
no broker lost, each broker (or rack) alone, and both of a pair. `parts` lists the parts of a scenario. Kafka has no
such class. In: BROKERS and the kind of loss. Out: `scenario` and `lost`, ascending ids.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import no_brokers
from schemas.enums import FailureScenario


def scenarios(brokers: DataFrame, lose: FailureScenario) -> DataFrame:
    """Return one row per scenario; a broker without a known rack counts as a rack of its own.

    >>> brokers = spark.createDataFrame([(1, "a"), (2, "a"), (3, None)], "broker_id int, rack string")
    >>> for lose in (FailureScenario.RACKS, FailureScenario.PAIRS):
    ...     scenarios(brokers, lose).orderBy("lost").show()
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
    alone = F.concat(F.lit("broker "), F.col("broker_id").cast("string"))
    together = F.concat(F.lit("rack "), F.col("rack"))
    name = F.coalesce(together, alone) if lose is FailureScenario.RACKS else alone
    return brokers.groupBy(name.alias("scenario")).agg(F.sort_array(F.collect_set("broker_id")).alias("lost"))


def _pairs(brokers: DataFrame) -> DataFrame:
    one, other = (brokers.select(F.col("broker_id").alias(name)) for name in ("one", "other"))
    both = F.array("one", "other")
    name = F.concat(F.lit("brokers "), F.array_join(both.cast("array<string>"), "+"))
    return one.join(F.broadcast(other), F.col("one") < F.col("other")).select(
        name.alias("scenario"), both.alias("lost")
    )


def parts(of: DataFrame, lose: FailureScenario) -> DataFrame:
    """Return one row per scenario and part: no broker lost, all lost, and each broker of a pair."""
    lost = F.col("lost")
    single_losses = [F.array(F.get(lost, F.lit(place))) for place in (0, 1)] if lose is FailureScenario.PAIRS else []
    return of.select("*", F.explode(F.array(no_brokers(), *single_losses, lost)).alias("part"))


def with_parts(partitions: DataFrame, of: DataFrame, lose: FailureScenario) -> DataFrame:
    """Return one row per partition and each part with one of its `members`, and one row with no broker lost.

    `felled` are the lost brokers of a part, and `sign` its weight. A pair has the impact of both brokers together,
    minus the impact of each alone, so the sum over the parts of a scenario is the impact of the scenario.
    """
    if lose is FailureScenario.PAIRS:
        return _with_pairs(partitions)
    lost = F.col("lost")
    own = of.select("lost", F.explode("lost").alias("member"))
    once = F.col("member").isNull() | (F.get(F.array_intersect("members", lost), F.lit(0)) == F.col("member"))
    return (
        partitions.withColumns({"member": F.explode(F.concat(F.array(F.lit(None).cast("int")), "members"))})
        .join(F.broadcast(own), "member", "left")
        .where(once)
        .withColumns(
            {"part": F.coalesce(lost, no_brokers()), "felled": F.coalesce(lost, no_brokers()), "sign": F.lit(1)}
        )
    )


def _with_pairs(partitions: DataFrame) -> DataFrame:
    """Return the parts of pairs: no broker, each of a partition's members alone, and any two of them."""
    one, other = F.col("one"), F.col("other")
    onwards = F.slice("members", F.array_position("members", one).cast("int"), F.size("members"))
    part = F.when(one.isNull(), no_brokers()).otherwise(F.array_distinct(F.array(one, other)))
    whole = F.struct(F.col("part").alias("felled"), F.lit(1).alias("sign"))
    less = [F.struct(F.array(who).alias("felled"), F.lit(-1).alias("sign")) for who in (one, other)]
    return (
        partitions.withColumns({"one": F.explode(F.concat(F.array(F.lit(None).cast("int")), "members"))})
        .withColumns({"other": F.explode(F.when(one.isNull(), F.array(one)).otherwise(onwards))})
        .withColumns({"part": part})
        .withColumns(
            {"weighed": F.explode(F.when(F.size("part") > 1, F.array(whole, *less)).otherwise(F.array(whole)))}
        )
        .select("*", "weighed.*")
    )
