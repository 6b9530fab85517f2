"""Guards that defer preferred elections: unstable replicas, brokers that joined recently, and a cap per plan.

Kafka's timer (`checkAndTriggerAutoLeaderRebalance`) elects every preferred replica that is in the ISR at that moment,
all at once. A flapping broker gets its leaders back each time, and a broker that has just joined gets all of them with
a cold cache. In: verdicts of `planner.leadership.preferred_election`, and as history PARTITION_HISTORY, BROKERS,
EVENTS, SNAPSHOTS, IMBALANCE. Out: the same verdicts; the deferred ones have a code.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.sentences import sentence
from planner.columns.shape import false, true
from planner.history.snapshot_diff import has_vanished
from schemas import reasons
from schemas.enums import EventKind, RejectionCode
from schemas.tables import PARTITION_KEY


def _defer(verdicts: DataFrame, holds: Column, code: RejectionCode, reason: Column) -> DataFrame:
    """Set a code on the planned elections for which `holds` is true or null."""
    waits = F.col("code").isNull() & F.coalesce(holds, true())
    return verdicts.withColumns(
        {
            "code": F.when(waits, code.value).otherwise(F.col("code")),
            "reason": F.when(waits, reason).otherwise(F.col("reason")),
        },
    )


def stable_partitions(candidates: DataFrame, history: DataFrame, first_snapshot: int, snapshot_id: int) -> DataFrame:
    """Return the partitions whose preferred replica was in the ISR in every snapshot of a range.

    `candidates` has topic, partition, preferred. History has a row only if something changed, so the state at
    `first_snapshot` is the last row up to it. A partition that did not exist then, or was not understood at some time,
    is not stable.
    """
    is_in_sync = ~has_vanished() & F.coalesce("understood", true()) & F.array_contains("isr", F.col("preferred"))
    until_first = F.col("snapshot_id") <= first_snapshot
    at_first = F.max_by(F.when(until_first, F.col("held")), F.when(until_first, F.col("snapshot_id")))
    since = F.bool_and(F.when(~until_first, F.col("held")))
    return (
        history.where(F.col("snapshot_id") <= snapshot_id)
        .join(F.broadcast(candidates.select(*PARTITION_KEY, "preferred")), PARTITION_KEY)
        .select(*PARTITION_KEY, "snapshot_id", F.coalesce(is_in_sync, false()).alias("held"))
        .groupBy(*PARTITION_KEY)
        .agg((at_first & F.coalesce(since, true())).alias("stable"))
        .where("stable")
        .select(*PARTITION_KEY)
    )


def defer_unstable(
    verdicts: DataFrame,
    history: DataFrame,
    first_snapshot: int | None,
    snapshot_id: int,
    snapshots: int,
) -> DataFrame:
    """Defer elections of a replica that was not in the ISR in each of the last `snapshots` snapshots.

    `first_snapshot` is the first of them, None if there are fewer snapshots: then no partition is stable.
    """
    reason = sentence(reasons.NOT_STABLE, preferred=F.col("preferred"), snapshots=F.lit(snapshots))
    code = RejectionCode.NOT_STABLE
    if first_snapshot is None:
        return _defer(verdicts, true(), code, reason)
    elections = verdicts.where(F.col("code").isNull())
    stable = stable_partitions(elections, history, first_snapshot, snapshot_id).withColumns({"stable": true()})
    joined = verdicts.join(F.broadcast(stable), PARTITION_KEY, "left")
    return _defer(joined, F.col("stable").isNull(), code, reason)


def broker_ages(brokers: DataFrame, events: DataFrame, snapshots: DataFrame, snapshot_id: int) -> DataFrame:
    """Return how long before a snapshot each broker was first seen with its epoch: broker_id, `age` in seconds.

    The first sighting is the snapshot with the broker's event, else the oldest snapshot: the broker was there at least
    since.
    """
    at = F.col("snapshot_id") == snapshot_id
    earlier_snapshots = snapshots.where(F.col("snapshot_id") <= snapshot_id)
    seconds = F.unix_micros("taken_at") / 1_000_000
    range_ = earlier_snapshots.agg(F.min(seconds).alias("oldest"), F.max(F.when(at, seconds)).alias("now"))
    epoch = F.col("broker_epoch").cast("string")
    snapshot_times = earlier_snapshots.select("snapshot_id", seconds.alias("seen"))
    joined = (
        events.where(F.col("kind").isin(EventKind.BROKER_JOINED.value, EventKind.BROKER_BOUNCED.value))
        .join(F.broadcast(snapshot_times), "snapshot_id")
        .groupBy("subject", F.col("after").alias("epoch"))
        .agg(F.max("seen").alias("seen"))
    )
    subject = sentence(reasons.BROKER, broker=F.col("broker_id"))
    return (
        brokers.select("broker_id", subject.alias("subject"), epoch.alias("epoch"))
        .join(F.broadcast(joined), ["subject", "epoch"], "left")
        .crossJoin(F.broadcast(range_))
        .select("broker_id", (F.col("now") - F.coalesce("seen", "oldest")).alias("age"))
    )


def defer_recent_brokers(verdicts: DataFrame, ages: DataFrame, settle_seconds: float) -> DataFrame:
    """Defer elections of a broker that was first seen less than `settle_seconds` before the snapshot."""
    ages = ages.select(F.col("broker_id").alias("preferred"), "age")
    reason = sentence(
        reasons.NOT_SETTLED,
        preferred=F.col("preferred"),
        age=F.floor("age"),
        minimum=F.lit(f"{settle_seconds:g}"),
    )
    joined = verdicts.join(F.broadcast(ages), "preferred", "left")
    return _defer(joined, F.col("age") < settle_seconds, RejectionCode.NOT_SETTLED, reason)


def defer_over_cap(verdicts: DataFrame, imbalance: DataFrame, max_elections: int) -> DataFrame:
    """Allow `max_elections` elections, those for the brokers with the worst imbalance first, in a total order."""
    ratios = imbalance.select(F.col("broker_id").alias("preferred"), "ratio")
    within_cap = (
        verdicts.where(F.col("code").isNull())
        .join(F.broadcast(ratios), "preferred", "left")
        .orderBy(F.desc_nulls_last("ratio"), "preferred", *PARTITION_KEY)
        .limit(max_elections)
        .select(*PARTITION_KEY, true().alias("within"))
    )
    reason = sentence(reasons.CAPPED, cap=F.lit(max_elections))
    joined = verdicts.join(within_cap, PARTITION_KEY, "left")
    return _defer(joined, F.col("within").isNull(), RejectionCode.CAPPED, reason)
