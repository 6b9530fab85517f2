"""One cycle of the controller: from the tables to the changes of partitions and deletions of topics that are due.

Corresponds to what `KafkaController.process` does on its events, for all of them at once: a cycle sees the present
state and not what has happened. Each rule decides for each partition; the first one in `Precedence` makes the change,
and the others wait for the next cycle. No state is kept, so a cycle after a crash continues from the cluster's current
state. In: the tables, of all partitions or of those to be decided on. Out: DECISIONS and DELETIONS.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.sentences import sentence_sql
from planner.leadership.failure_handling import CHANGE_COLUMNS, reconcile_verdicts, rejection_reason
from planner.leadership.preferred_election import preferred_verdicts
from planner.reconciliation.decision_rows import Precedence, one_change_per_partition, to_decisions
from planner.reconciliation.deletion_steps import deletions, replicas_of
from planner.reconciliation.reassignment_steps import reassignment_decisions
from schemas.enums import LEADER_DURING_DELETE, Action, RequestKind
from schemas.reasons import PREFERRED_ELECTED

_PREFERRED: Final = {
    "leader_after": "leader_after",
    "isr_after": "isr_after",
    "leader_epoch_after": "leader_epoch_after",
    "requires_live": "array(leader_after)",
    "reason": sentence_sql(PREFERRED_ELECTED, preferred="preferred"),
}
"""The columns that a preferred election changes.

It is done in one pass, and the request is withdrawn whatever the outcome.
"""


@dataclass(frozen=True)
class CycleInput:
    """The input of a cycle, each with the schema of its table.

    `stopped`: rows of `answers`, the responses of brokers to StopReplica under this controller epoch. `is_resident`:
    whether the controller waits until brokers have responded.
    """

    partitions: DataFrame
    topics: DataFrame
    brokers: DataFrame
    broker_configs: DataFrame
    requests: DataFrame
    stopped: DataFrame
    is_resident: bool = True
    allow_unclean: bool = False

    def of_kind(self, kind: RequestKind) -> DataFrame:
        return self.requests.where(F.col("kind") == kind.value)


@dataclass(frozen=True)
class Cycle:
    """Changes and requests that are due by these tables."""

    tables: CycleInput

    @cached_property
    def decisions(self) -> DataFrame:
        """Return DECISIONS, with one change at most for each partition."""
        return one_change_per_partition([self._leadership(), self._reassignment(), self._preferred()])

    def _leadership(self) -> DataFrame:
        t = self.tables
        verdicts = reconcile_verdicts(
            t.partitions, t.topics, t.brokers, t.broker_configs, allow_unclean=t.allow_unclean
        )
        return verdicts.withColumns(
            {"why_not": F.when(F.col("code").isNotNull(), rejection_reason()), "withdrawn": F.expr("false")}
        ).transform(to_decisions, CHANGE_COLUMNS, Precedence.LEADERSHIP, f"'{Action.ELECT}'")

    def _reassignment(self) -> DataFrame:
        t = self.tables
        orders = t.of_kind(RequestKind.REASSIGN)
        return reassignment_decisions(t.partitions, t.topics, t.brokers, orders, t.stopped, is_resident=t.is_resident)

    def _preferred(self) -> DataFrame:
        t = self.tables
        requested = t.of_kind(RequestKind.PREFERRED_ELECTION)
        verdicts = preferred_verdicts(t.partitions, t.topics, t.brokers, requested)
        action = F.when(F.col("code").isNull(), Action.ELECT_PREFERRED.value)
        return verdicts.withColumns(
            {"action": action, "why_not": F.col("reason"), "withdrawn": F.expr("true")}
        ).transform(to_decisions, _PREFERRED, Precedence.PREFERRED, f"'{Action.ELECT_PREFERRED}'")

    def multi_step_work(self) -> DataFrame:
        """Return what only a resident controller can do, as it takes several steps: topic, partition, what, why.

        These are requested reassignments and preferred elections, and topics that are queued for deletion.
        """
        steps = one_change_per_partition([self._reassignment(), self._preferred()]).selectExpr(
            "topic", "partition", "coalesce(action, code) AS what", "coalesce(reason, why_not) AS why"
        )
        topics = self.deletions.selectExpr(
            "topic",
            "CAST(NULL AS int) AS partition",
            "concat(step, ' topic') AS what",
            "coalesce(reason, 'queued for deletion') AS why",
        )
        return steps.unionByName(topics)

    @cached_property
    def deletions(self) -> DataFrame:
        """Return DELETIONS: the next step for each topic that is queued for deletion."""
        t = self.tables
        return deletions(t.requests, self._queued, t.topics, self._replicas, t.broker_configs)

    @property
    def replicas_to_delete(self) -> DataFrame:
        """Return the replicas of queued topics: topic, partition, broker_id."""
        return self._replicas.select("topic", "partition", "broker_id")

    @cached_property
    def _queued(self) -> DataFrame:
        queued = self.tables.of_kind(RequestKind.DELETE_TOPIC).select("topic").distinct()
        return self.tables.partitions.join(F.broadcast(queued), "topic", "left_semi")

    @cached_property
    def _replicas(self) -> DataFrame:
        confirmed = self.tables.stopped.where(f"leader_epoch = {LEADER_DURING_DELETE}")
        return replicas_of(self._queued, self.tables.brokers, confirmed)
