"""Election of a new leader in place of a dead one: the leader, the preconditions of the choice, and the reason.

Corresponds to `PartitionStateMachine.doElectLeaderForPartitions` with the offline strategy, as
`planner.leadership.failure_handling` uses it. In: partitions with topic, broker sets and `unclean_allowed`. Out: the
same rows with `elected`, and the columns of an ELECT change.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, NO_BROKERS_SQL
from planner.columns.change_rows import leader_and_isr_recipients
from planner.columns.sentences import FAILED_SUFFIX, drained_leads, sentence, sentence_sql, sentences, sentences_sql
from planner.leadership.selectors import offline
from schemas import reasons
from schemas.enums import NO_LEADER

RECOVERY_AFTER: Final = "coalesce(IF(elected.unclean, unclean_state, NULL), leader_recovery_state)"
"""An unclean leader starts RECOVERING if brokers know that state."""

_ABSENT: Final = f"array_union(gone, IF(leader >= 0, array(leader), {NO_BROKERS_SQL}))"

ASSUMED_DEAD: Final = f"array_except({_ABSENT}, {FAILED_COLUMN})"
"""Brokers that an election assumes to be dead. If one of them is back at commit, the change is stale."""

ASSUMED_FAILED: Final = f"array_intersect({FAILED_COLUMN}, {_ABSENT})"
"""Brokers whose log dirs an election assumes to have failed; a restarted broker may have a repaired log dir."""

LEADER_LOSS_REASON: Final = f"""CASE
    WHEN leader = {NO_LEADER} THEN {sentence_sql(reasons.NO_LEADER)}
    WHEN array_contains({FAILED_COLUMN}, leader) THEN {sentence_sql(reasons.LEADERS_LOG_DIR_FAILED, leader="leader")}
    ELSE {sentence_sql(reasons.LEADER_GONE, leader="leader")}
END"""

ELECTION_REASON: Final = sentences_sql(
    LEADER_LOSS_REASON,
    f"""IF(
        elected.unclean,
        {sentence_sql(reasons.UNCLEAN_ELECTED, leader="elected.leader")},
        {sentence_sql(reasons.IN_SYNC_ELECTED, leader="elected.leader")}
    )""",
    drained_leads("elected.leader"),
    FAILED_SUFFIX,
)


ELECTED: Final = {
    "leader_after": "elected.leader",
    "isr_after": "elected.isr",
    "leader_epoch_after": "leader_epoch + 1",
    "leader_recovery_state_after": RECOVERY_AFTER,
    "leader_and_isr_to": leader_and_isr_recipients("array_union(isr, elected.isr)"),
    "requires_live": f"array_union(array(elected.leader), {ASSUMED_FAILED})",
    "requires_dead": ASSUMED_DEAD,
    "reason": ELECTION_REASON,
}
"""Columns of an ELECT change that follow from the election, in SQL."""


def with_election(partitions: DataFrame) -> DataFrame:
    """Add `elected` (leader, isr, unclean; null if no leader is found), `gone`, `survivors` and `leaderless`.

    `gone` and `survivors` are the ISR members that are not live, and those that are.
    """
    chosen = "named_struct('leader', leader_after, 'isr', isr_after, 'unclean', unclean)"
    return partitions.transform(offline, F.col("unclean_allowed")).selectExpr(
        "*",
        f"IF(leader_after IS NOT NULL, {chosen}, NULL) AS elected",
        "array_except(isr, live) AS gone",
        "array_intersect(isr, live) AS survivors",
        "NOT array_contains(live, leader) AS leaderless",
    )


def no_leader_reason() -> Column:
    """Return the reason why no leader can be elected.

    It names ISR members that are live but cannot be elected: not understood, not assigned, or without their log dir.
    """
    survivors = sentence(reasons.ALIVE_NOT_ELECTABLE, survivors=F.col("survivors"))
    none_live = sentence(reasons.NO_REPLICA_ALIVE, replicas=F.col("replicas"))
    none_in_sync = sentences(
        sentence(reasons.ISR_CANNOT_LEAD, isr=F.col("isr")), F.when(F.size("survivors") > 0, survivors)
    )
    any_live = F.arrays_overlap(F.concat("replicas", "isr"), "live")
    reason = F.when(any_live & (F.size("isr") == 0), sentence(reasons.ISR_EMPTY))
    return sentences(reason.when(any_live, none_in_sync).otherwise(none_live), F.expr(FAILED_SUFFIX))
