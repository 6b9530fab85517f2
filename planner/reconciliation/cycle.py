"""One cycle of the controller: from the tables to what is due, whatever has happened.

Corresponds to what `KafkaController.process` does on its events, seed 000, all of them at once: a cycle sees what is,
not what happened. Its rules say what they want for each partition; the first in `Precedence` is a change, the others
wait for the next cycle. Nothing is remembered: run again after a crash, it goes on from where the cluster is. In: the
tables, of all partitions or of those that something concerns. Out: DECISIONS, DELETIONS and NOTICES.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.leadership.failure_handling import CHANGE_COLUMNS, reconcile_verdicts, rejection_reason
from planner.leadership.preferred import preferred_verdicts
from planner.reconciliation.decisions import Precedence, decided, one_change_each
from planner.reconciliation.reassignment_steps import reassignment_decisions
from planner.reconciliation.topic_deletion import deletion_notices, deletions, replicas_of
from schemas.enums import LEADER_DURING_DELETE, Action, RequestKind

_PREFERRED: Final = {
    "leader_after": "leader_after",
    "isr_after": "isr_after",
    "leader_epoch_after": "leader_epoch_after",
    "requires_live": "array(leader_after)",
    "reason": "concat('preferred replica ', string(preferred), ' is alive and in the ISR')",
}
"""What a preferred election changes; one pass, and the request is done with, whatever became of it."""


@dataclass(frozen=True)
class CycleInput:
    """What a cycle looks at, each of the shape of its table.

    `stopped`: rows of `answers`, what brokers said to StopReplica under this controller epoch. `moves`: whether some
    partition may be under reassignment, or something may be asked for in /admin. `stays`: whether the controller stays
    until brokers have answered.
    """

    partitions: DataFrame
    topics: DataFrame
    brokers: DataFrame
    broker_configs: DataFrame
    requests: DataFrame
    stopped: DataFrame
    moves: bool = True
    stays: bool = True
    allow_unclean: bool = False

    def of_kind(self, kind: RequestKind) -> DataFrame:
        return self.requests.where(F.col("kind") == kind.value)


@dataclass(frozen=True)
class Cycle:
    """What is due by these tables."""

    tables: CycleInput

    @cached_property
    def decisions(self) -> DataFrame:
        """DECISIONS, of each partition one change at most."""
        rules = [self._leadership()]
        if self.tables.moves:
            rules += [self._reassignment(), self._preferred()]
        return one_change_each(rules)

    def _leadership(self) -> DataFrame:
        t = self.tables
        verdicts = reconcile_verdicts(
            t.partitions, t.topics, t.brokers, t.broker_configs, allow_unclean=t.allow_unclean
        )
        return verdicts.withColumns(
            {"why_not": F.when(F.col("code").isNotNull(), rejection_reason()), "withdrawn": F.expr("false")}
        ).transform(decided, CHANGE_COLUMNS, Precedence.LEADERSHIP, f"'{Action.ELECT}'")

    def _reassignment(self) -> DataFrame:
        t = self.tables
        orders = t.of_kind(RequestKind.REASSIGN)
        return reassignment_decisions(t.partitions, t.topics, t.brokers, orders, t.stopped, stays=t.stays)

    def _preferred(self) -> DataFrame:
        t = self.tables
        named = t.of_kind(RequestKind.PREFERRED_ELECTION)
        verdicts = preferred_verdicts(t.partitions, t.topics, t.brokers, named)
        action = F.when(F.col("code").isNull(), Action.ELECT_PREFERRED.value)
        return verdicts.withColumns(
            {"action": action, "why_not": F.col("reason"), "withdrawn": F.expr("true")}
        ).transform(decided, _PREFERRED, Precedence.PREFERRED, f"'{Action.ELECT_PREFERRED}'")

    def multi_step_work(self) -> DataFrame:
        """What only a controller that stays can do, as it takes several steps: topic, partition, what, why.

        Reassignments and preferred elections as they are asked for, and topics that are queued for deletion.
        """
        steps = one_change_each([self._reassignment(), self._preferred()]).selectExpr(
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
        """DELETIONS: what is to be done about each queued topic."""
        t = self.tables
        return deletions(t.requests, self._queued, t.topics, self._replicas, t.broker_configs)

    def deletion_notices(self, *, delete: bool) -> DataFrame:
        """NOTICES of topics that are being deleted; first those without `delete`, then those with it."""
        return deletion_notices(self.deletions, self._queued, self._replicas, self.tables.brokers, delete=delete)

    @property
    def replicas_to_delete(self) -> DataFrame:
        """Replicas of queued topics: topic, partition, broker_id."""
        return self._replicas.select("topic", "partition", "broker_id")

    @cached_property
    def _queued(self) -> DataFrame:
        queued = self.tables.of_kind(RequestKind.DELETE_TOPIC).select("topic").distinct()
        return self.tables.partitions.join(F.broadcast(queued), "topic", "left_semi")

    @cached_property
    def _replicas(self) -> DataFrame:
        confirmed = self.tables.stopped.where(f"leader_epoch = {LEADER_DURING_DELETE}")
        return replicas_of(self._queued, self.tables.brokers, confirmed)
