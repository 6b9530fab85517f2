"""Leaders for offline partitions: a clean leader if there is one, else the replica that by history has most data.

Corresponds to `Election.leaderForOffline`, whose unclean part takes the first live replica. An unclean election is
planned only if it is allowed; other partitions are rejections that name the candidates. A registered ISR member that is
assigned and cannot be elected may hold the data, so no other replica is elected. A member that is not assigned can
never lead. Kafka ignores it and elects another replica; the reason names it. A missing state znode is created again
from what history knows. In: PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS, EVIDENCE and the allowed partitions. Out:
CHANGES, REJECTIONS; `offline` holds the partitions for which evidence is needed.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, difference, first, in_order_of_choice, intersect, no_brokers
from planner.columns.change_rows import as_rejections, change_columns, with_topic_and_brokers
from planner.columns.requested_partitions import reason_by_code
from planner.columns.sentences import FAILED_SUFFIX, drained_leads, sentence, sentences
from planner.columns.shape import true
from planner.history.lost_states import LAST_STATE_REASON, STATE
from planner.leadership.offline_strategy import ASSUMED_DEAD, ELECTED, LEADER_LOSS_REASON
from planner.leadership.unclean_config import default_recovery_state
from schemas import reasons
from schemas.enums import Action, RejectionCode
from schemas.tables import PARTITION_KEY


def offline_partitions(partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return partitions without a live leader, with `in_sync` and `live_replicas`.

    These are the replicas that could lead, in order, only those in the ISR and also others.
    """
    isr = F.col("isr")
    return (
        partitions.where(F.col("leader").isNotNull())
        .transform(with_topic_and_brokers, topics, brokers)
        .where(~F.col("deletion_requested") & ~F.array_contains("live", F.col("leader")))
        .withColumns(
            {
                "live_replicas": F.expr(in_order_of_choice("replicas")),
                "kafkas": first(intersect(F.col("replicas"), F.col("live"))),
                "in_sync": F.expr(in_order_of_choice("array_intersect(replicas, isr)")),
                "gone": difference(isr, F.col("live")),
                "seen": F.lit(None).cast("bigint"),
            },
        )
    )


def stateless_partitions(
    lost_states: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame
) -> DataFrame:
    """Return partitions with a missing state znode, in the shape of `offline_partitions`, with the last known state.

    `seen` is the snapshot of that state. The partition may have changed after it, so no replica counts as in sync. The
    leader of that state has most data.
    """
    isr, leader = F.col("isr"), F.array("leader")
    return (
        partitions.drop(*STATE)
        .join(F.broadcast(lost_states.select(*PARTITION_KEY, "seen", *STATE)), PARTITION_KEY)
        .transform(with_topic_and_brokers, topics, brokers)
        .withColumns(
            {
                "live_replicas": intersect(
                    F.array_distinct(F.concat(leader, isr, "replicas")), F.expr(in_order_of_choice("replicas"))
                ),
                "kafkas": first(intersect(F.col("replicas"), F.col("live"))),
                "in_sync": no_brokers(),
                "gone": difference(isr, F.col("live")),
            },
        )
    )


def without_in_sync(offline: DataFrame) -> DataFrame:
    """Return the partitions that only an unclean election can bring back.

    No assigned ISR member is registered, and a replica is live. With a missing state, a former ISR member that can be
    elected is included too.
    """
    may = (F.size(intersect(intersect(F.col("isr"), F.col("replicas")), F.col("live"))) == 0) | (
        F.col("seen").isNotNull() & F.arrays_overlap("isr", "live_replicas")
    )
    return offline.where(F.col("understood") & may & (F.size("live_replicas") > 0))


def _with_evidence(
    offline: DataFrame, broker_configs: DataFrame, evidence: DataFrame, allowed_partitions: DataFrame | None
) -> DataFrame:
    """Add the candidate leader and its evidence; `allowed_partitions` is None if all are allowed."""
    key = ["topic", "partition"]
    considered = offline.join(_describe_evidence(evidence), key, "left").crossJoin(
        F.broadcast(broker_configs.agg(default_recovery_state())),
    )
    if allowed_partitions is None:
        return considered.withColumns({"is_allowed": true()})
    allowed_keys = allowed_partitions.select(*key, true().alias("is_allowed"))
    return considered.join(F.broadcast(allowed_keys), key, "left")


def _describe_evidence(evidence: DataFrame) -> DataFrame:
    """Return one row per partition: `best`, the chosen broker, and `ranked`, a text with all candidates."""
    last_in_isr = sentence(reasons.LAST_IN_SYNC, snapshot=F.col("last_in_isr_snapshot"), epochs=F.col("epochs_since"))
    history = sentences(
        F.coalesce(last_in_isr, sentence(reasons.NEVER_IN_SYNC)),
        sentence(reasons.LOG_SIZE, size=F.col("log_size")),
        F.when(F.col("kafkas_choice"), sentence(reasons.KAFKAS_CHOICE)),
    )
    text = sentence(reasons.CANDIDATE, broker=F.col("broker_id"), history=history)
    ranked = F.sort_array(F.collect_list(F.struct("rank", text.alias("text"))))
    return evidence.groupBy("topic", "partition").agg(
        F.max(F.when(F.col("chosen"), F.col("broker_id"))).alias("best"),
        F.array_join(F.transform(ranked, lambda candidate: candidate["text"]), ", ").alias("ranked"),
        F.max(F.when(F.col("chosen"), F.date_format("last_in_isr_at", "yyyy-MM-dd HH:mm:ss"))).alias("since"),
    )


def recover_changes(
    offline: DataFrame,
    broker_configs: DataFrame,
    evidence: DataFrame,
    allowed_partitions: DataFrame | None,
) -> DataFrame:
    """Return one CHANGES row per offline partition that gets a leader.

    `offline` has the shape of `offline_partitions`. `evidence` covers the partitions of `without_in_sync`.
    `allowed_partitions` are those (topic, partition) that may have an unclean election, None for all. An unclean leader
    is the whole ISR.
    """
    clean, unclean = F.size("in_sync") > 0, F.col("best").isNotNull() & F.col("is_allowed")
    leader = F.when(clean, first(F.col("in_sync"))).otherwise(F.col("best"))
    isr = F.when(clean, F.array_except("isr", "gone")).otherwise(F.array(leader))
    elected = F.struct(leader.alias("leader"), isr.alias("isr"), (~clean).alias("unclean"))
    return (
        _with_evidence(offline, broker_configs, evidence, allowed_partitions)
        .where(F.col("understood") & (clean | unclean))
        .withColumns({"elected": elected})
        .transform(
            change_columns,
            {
                "action": f"'{Action.ELECT}'",
                **ELECTED,
                "requires_dead": F.when(F.col("seen").isNull(), F.expr(ASSUMED_DEAD))
                .when(F.array_contains("isr", leader), no_brokers())
                .otherwise(F.array_except("gone", FAILED_COLUMN)),
                "reason": sentences(
                    F.when(clean, sentences(_cause(), sentence(reasons.IN_SYNC_ELECTED, leader=leader))).otherwise(
                        sentence(reasons.CAUSE_AND_RISK, cause=_cause(), risk=_unclean_consequences())
                    ),
                    F.expr(drained_leads("elected.leader")),
                    F.expr(FAILED_SUFFIX),
                ),
            },
        )
    )


def _cause() -> Column:
    return F.when(F.col("seen").isNull(), F.expr(LEADER_LOSS_REASON)).otherwise(F.expr(LAST_STATE_REASON))


def _unclean_consequences() -> Column:
    """Return what an unclean election may lose.

    A znode that is created again starts at version 0, which a broker that knows a later version ignores.
    """
    restart = F.when(F.col("seen").isNotNull(), sentence(reasons.RESTART_BROKERS))
    return sentences(_unclean_reason(), restart)


def _unclean_reason() -> Column:
    lost = F.coalesce(sentence(reasons.LOSES_SINCE, since=F.col("since")), sentence(reasons.LOSES_ALL))
    outside = difference(intersect(F.col("isr"), F.col("live")), F.col("replicas"))
    holders = F.when(F.size(outside) > 0, sentence(reasons.HOLDERS_OUTSIDE, outside=outside))
    return sentences(sentence(reasons.UNCLEAN_MAY_LOSE, lost=lost, ranked=F.col("ranked")), holders)


def recover_rejections(
    offline: DataFrame,
    broker_configs: DataFrame,
    evidence: DataFrame,
    allowed_partitions: DataFrame | None,
) -> DataFrame:
    """Return one REJECTIONS row per offline partition that stays offline, with its candidates if there are any."""
    codes = RejectionCode
    code = (
        F.when(~F.col("understood"), codes.NOT_UNDERSTOOD.value)
        .when(F.size("in_sync") > 0, F.lit(None))
        .when(F.col("best").isNull(), codes.NO_ELIGIBLE_LEADER.value)
        .when(F.col("is_allowed").isNotNull(), F.lit(None))
        .when(F.col("seen").isNotNull(), codes.STATE_VANISHED.value)
        .otherwise(codes.UNCLEAN_NOT_ALLOWED.value)
    )
    hidden = difference(F.col("isr"), F.col("gone"))
    holders = sentence(reasons.HOLDERS_HIDDEN, hidden=hidden)
    none_electable = sentence(reasons.NONE_ELECTABLE, replicas=F.col("replicas"))
    vanished = sentences(
        sentence(reasons.CAUSE_AND_RISK, cause=_cause(), risk=_unclean_reason()), sentence(reasons.CHECK_LOGS)
    )
    none = sentences(F.when(F.size(hidden) > 0, holders).otherwise(none_electable), F.expr(FAILED_SUFFIX))
    reason = reason_by_code(
        {
            codes.NOT_UNDERSTOOD: reasons.QUARANTINED,
            codes.UNCLEAN_NOT_ALLOWED: sentences(_unclean_reason(), sentence(reasons.NOT_ALLOWED)),
            codes.STATE_VANISHED: vanished,
            codes.NO_ELIGIBLE_LEADER: none,
        }
    )
    return (
        _with_evidence(offline, broker_configs, evidence, allowed_partitions)
        .withColumns({"code": code})
        .withColumns({"reason": reason})
        .transform(as_rejections, Action.ELECT)
    )


def unneeded_rejections(allowed_partitions: DataFrame, partitions: DataFrame, offline: DataFrame) -> DataFrame:
    """Return one REJECTIONS row per requested partition that does not exist or is not offline."""
    key = ["topic", "partition"]
    existing = partitions.select(*key, F.col("cluster"), true().alias("there"))
    unknown = F.col("there").isNull()
    return (
        allowed_partitions.select(*key)
        .join(offline.select(*key), key, "left_anti")
        .join(existing, key, "left")
        .withColumns(
            {
                "code": F.when(unknown, RejectionCode.UNKNOWN_PARTITION.value).otherwise(
                    RejectionCode.NOT_OFFLINE.value,
                ),
                "reason": F.when(unknown, sentence(reasons.UNKNOWN_IN_SNAPSHOT)).otherwise(
                    sentence(reasons.NOT_OFFLINE)
                ),
            },
        )
        .transform(as_rejections, Action.ELECT)
    )
