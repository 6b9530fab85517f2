"""Withdraws requests in /admin that the resident controller has fulfilled or refused, and removes deleted topics.

Corresponds to `maybeRemoveFromZkReassignment` and `removePartitionsFromPreferredReplicaElection` of `KafkaController`,
and to `TopicDeletionManager.completeDeleteTopic`. Each removed request is a row of `commits`. If ZooKeeper refused,
there is no row, as nothing was written, and the requests are decided on again in the next cycle. If the response was
lost, the outcome in the row is `unknown`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from jobs.adapters.zookeeper.cluster_state import PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decision_engine import Decisions
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import POLL_INTERVAL_SECONDS, PendingWork
from jobs.controller.write_behind import WriteBehindLog
from jobs.execution.batch.znode_removal import (
    RemovedRequests,
    remove_empty,
    remove_topic,
    withdraw_deletion,
    withdraw_elections,
    withdraw_reassignments,
)
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.runtime.console import LogLine
from planner.rules.decisions import FULFILLED, Decision
from planner.rules.topic_deletion import DeletionStep
from schemas.enums import Action, OperationKind, Outcome, RejectionCode, RequestKind, Step
from schemas.rows import Key
from schemas.stored_plan import RowOutcome
from schemas.text import join_ids

_EMPTY_REQUEST_KINDS: Final = {
    REASSIGN: OperationKind.WITHDRAW_REASSIGNMENT,
    PREFERRED_ELECTION: OperationKind.WITHDRAW_ELECTION,
}


@dataclass(frozen=True, slots=True)
class AdminRequestRemover:
    """Withdraws requests under one controllership."""

    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    broker_requests: BrokerRequestBatch
    log: WriteBehindLog
    summary: CycleSummary
    pending: PendingWork
    log_line: LogLine

    def without_premature_withdrawals(self, decided: Decisions) -> Decisions:
        """Leave out refusals of requests whose topics or partitions were created during the cycle.

        A request may be read before the topic that it names. Such a request is decided on in the next cycle instead of
        being withdrawn.
        """
        topics = {decision.topic for decision in decided.withdrawn if decision.code is RejectionCode.UNKNOWN_PARTITION}
        topics |= {deletion.topic for deletion in decided.deletions if deletion.code is RejectionCode.UNKNOWN_TOPIC}
        if not topics:
            return decided
        appeared = self.reader.refresh_topics(topics)
        self.pending.add(appeared, requests_due=bool(appeared) or not topics.isdisjoint(self.context.topics))
        return replace(
            decided,
            withdrawn=[decision for decision in decided.withdrawn if decision.key not in appeared],
            others=[decision for decision in decided.others if decision.key not in appeared],
            deletions=[
                deletion
                for deletion in decided.deletions
                if deletion.code is not RejectionCode.UNKNOWN_TOPIC or deletion.topic not in self.context.topics
            ],
        )

    def withdraw(self, decisions: Decisions, outcomes: Sequence[RowOutcome]) -> None:
        """Withdraw requests that are fulfilled, that cannot be fulfilled, or that are empty.

        A preferred election is done in one pass. If its change was outdated, or had to wait for another change of its
        partition, it is done in the next cycle, as Kafka tries it again immediately.
        """
        for decision in decisions.withdrawn:
            if decision.code is not None and decision.code not in FULFILLED:
                self.log_line(
                    f"  the request for {decision.topic}-{decision.partition} is withdrawn: {decision.why_not}"
                )
        reassigned = _reasons(decisions.withdrawn, Action.REASSIGN)
        requested = self.context.requested(RequestKind.REASSIGN)
        orders = {key: replicas for key, replicas in requested.items() if key in reassigned}
        if orders:
            kind = OperationKind.WITHDRAW_REASSIGNMENT
            entries = [
                AuditEntry(kind, f"requested replicas [{join_ids(replicas)}]: {reassigned[key]}", *key)
                for key, replicas in orders.items()
            ]
            self._write_and_record(entries, lambda: withdraw_reassignments(self.control, orders))
        elected = _reasons([*decisions.withdrawn, *decisions.others], Action.ELECT_PREFERRED)
        finished = elected.keys() - {outcome.change.key for outcome in outcomes if _will_be_retried(outcome)}
        done = [key for key in self.context.requested(RequestKind.PREFERRED_ELECTION) if key in finished]
        if done:
            entries = [
                AuditEntry(OperationKind.WITHDRAW_ELECTION, elected[key] or "the election was attempted", *key)
                for key in done
            ]
            self._write_and_record(entries, lambda: withdraw_elections(self.control, done))
        self._remove_empty()

    def _remove_empty(self) -> None:
        """Remove requests that are empty or cannot be read, because they block the next request."""
        for path, version, fault in self.context.empty_requests:
            reason = fault or "it is empty"
            self.log_line(f"  {path} is removed: {reason}")
            kind = _EMPTY_REQUEST_KINDS.get(path, Step.DISCARD_NOTIFICATION)
            entry = AuditEntry(kind, f"{path}: {reason}")
            self._write_and_record([entry], partial(remove_empty, self.control, path, version))

    def delete_topics(self, decided: Decisions) -> None:
        """Send the requests that delete topics to brokers, and remove the topics that are deleted everywhere."""
        self.broker_requests.send_deletions(decided)
        deadline = time.monotonic() + POLL_INTERVAL_SECONDS
        for deletion in decided.deletions:
            if time.monotonic() > deadline:
                self.pending.requests_due = True
                return  # the next cycle continues, so that other work does not wait for a thousand topics
            if deletion.step is DeletionStep.REMOVE:
                self._remove_topic(deletion.topic)
            elif deletion.step is DeletionStep.REFUSE:
                self._refuse_deletion(deletion.topic, deletion.reason or "")

    def _refuse_deletion(self, topic: str, reason: str) -> None:
        """Withdraw the request to delete a topic that does not exist or must not be deleted."""
        self.log_line(f"  the deletion of {topic} is refused: {reason}")
        entry = AuditEntry(OperationKind.WITHDRAW_DELETION, reason, topic)
        self._write_and_record([entry], lambda: withdraw_deletion(self.control, topic))

    def _remove_topic(self, topic: str) -> None:
        """Remove a topic whose replicas are all deleted, and the request to delete it."""
        entry = AuditEntry(OperationKind.DELETE_TOPIC, "every broker has confirmed it", topic)
        if self._write_and_record([entry], lambda: remove_topic(self.control, topic)):
            self.pending.requests_due = True
            self.context.remove_topic(topic)
            self.broker_requests.forget_topic(topic)
            self.summary.by_action[OperationKind.DELETE_TOPIC] += 1
            self.log_line(f"  topic {topic} is deleted")

    def _write_and_record(self, entries: Sequence[AuditEntry], write: Callable[[], RemovedRequests]) -> bool:
        """Write, and record what was removed; return whether ZooKeeper let the requests be removed.

        Requests that another client has withdrawn are not recorded. If ZooKeeper refused, the requests are decided on
        again in the next cycle, after a pause.
        """
        try:
            removed, refused = write()
        except SessionLostError:
            self._record_unknown(entries)
            raise
        if refused is None:
            removed_keys = {(request.topic, request.partition) for request in removed}
            for entry in entries:
                if entry.partition is None or (entry.topic, entry.partition) in removed_keys:
                    self.log.record(entry)
            self.pending.failed_attempts = 0
            return True
        if refused.is_lost:
            self._record_unknown(entries)
        self.log_line(f"surveyor: {refused}; retrying", logging.WARNING)
        self.pending.failed_attempts += 1
        self.pending.requests_due = True
        return False

    def _record_unknown(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            message = f"{entry.message}; the connection was lost before the response arrived"
            self.log.record(entry._replace(message=message, outcome=Outcome.UNKNOWN))


def _reasons(decisions: Iterable[Decision], action: Action) -> dict[Key, str | None]:
    """Return the reason of each decision about a request of this kind, None if the request was fulfilled."""
    return {decision.key: decision.why_not for decision in decisions if decision.wanted is action}


def _will_be_retried(outcome: RowOutcome) -> bool:
    """Return whether the next cycle decides on the partition again, and the change written was not its election."""
    is_elected = outcome.outcome is Outcome.APPLIED and outcome.change.action == Action.ELECT_PREFERRED
    return outcome.outcome is not Outcome.FAILED and not is_elected
