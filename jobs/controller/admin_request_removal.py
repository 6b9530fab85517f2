"""Withdraws requests in /admin that the resident controller has fulfilled or refused, and removes deleted topics.

It uses `jobs.execution.batch.admin_znodes`. Each removed request is a row of `commits`. If ZooKeeper refused, there is
no row, as nothing was written; if the response was lost, the outcome in the row is `unknown`. Callers are returned what
ZooKeeper refused, so that it is tried again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from jobs.adapters.zookeeper.cluster import PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.controller.context import ControllerContext
from jobs.controller.decision_engine import Decisions
from jobs.controller.write_behind import WriteBehindLog
from jobs.execution.batch.admin_znodes import (
    RemovedRequests,
    remove_empty,
    remove_topic,
    withdraw_deletion,
    withdraw_elections,
    withdraw_reassignments,
)
from jobs.repositories.plans.commit_rows import AuditEntry, RowOutcome
from planner.rules.decisions import FULFILLED, Decision
from schemas.enums import Action, OperationKind, Outcome, RequestKind, Step
from schemas.rows import Key

_ELECTION_DONE: Final = "a pass was made"
_OUTCOME_UNKNOWN: Final = "the connection was lost before the response arrived"

_EMPTY_REQUEST_KINDS: Final = {
    REASSIGN: OperationKind.WITHDRAW_REASSIGNMENT,
    PREFERRED_ELECTION: OperationKind.WITHDRAW_ELECTION,
}


@dataclass(frozen=True, slots=True)
class AdminRequestRemover:
    """Withdraws requests under one controllership."""

    control: Controllership
    context: ControllerContext
    log: WriteBehindLog
    log_line: Callable[[str], None]

    def withdraw(self, decisions: Decisions, outcomes: Sequence[RowOutcome]) -> Iterator[MultiFailure | None]:
        """Withdraw requests that are fulfilled or cannot be fulfilled; yield for each znode what ZooKeeper refused.

        A preferred election is done in one pass. If its change was outdated, or had to wait for another change of its
        partition, it is done in the next cycle, as Kafka tries it again immediately.
        """
        for decision in decisions.withdrawn:
            if decision.code is not None and decision.code not in FULFILLED:
                self.log_line(
                    f"  the request for {decision.topic}-{decision.partition} is withdrawn: {decision.why_not}"
                )
        reassigned, elected = (
            _reasons(decisions.withdrawn, Action.REASSIGN),
            _reasons(_all_decisions(decisions), Action.ELECT_PREFERRED),
        )
        if reassigned:
            orders = {
                key: replicas
                for key, replicas in self.context.requested(RequestKind.REASSIGN).items()
                if key in reassigned
            }
            kind = OperationKind.WITHDRAW_REASSIGNMENT
            entries = [
                AuditEntry(kind, f"asked to be on {replicas}: {reassigned[key]}", *key)
                for key, replicas in orders.items()
            ]
            yield self._write_and_record(entries, lambda: withdraw_reassignments(self.control, orders))
        retried = {outcome.change.key for outcome in outcomes if _will_be_retried(outcome)}
        done = [
            key
            for key in self.context.requested(RequestKind.PREFERRED_ELECTION)
            if key in elected and key not in retried
        ]
        if done:
            entries = [
                AuditEntry(OperationKind.WITHDRAW_ELECTION, elected[key] or _ELECTION_DONE, *key) for key in done
            ]
            yield self._write_and_record(entries, lambda: withdraw_elections(self.control, done))

    def remove_empty(self) -> Iterator[MultiFailure | None]:
        """Remove requests that are empty or cannot be read, because they block the next request."""
        for path, version, fault in self.context.empty_requests:
            reason = fault or "it is empty"
            self.log_line(f"  {path} is removed: {reason}")
            entry = AuditEntry(_EMPTY_REQUEST_KINDS.get(path, Step.DISCARD_NOTIFICATION), f"{path}: {reason}")
            yield self._write_and_record([entry], partial(self._remove_empty_znode, path, version))

    def _remove_empty_znode(self, path: str, version: int) -> RemovedRequests:
        return RemovedRequests(refused=remove_empty(self.control, path, version))

    def refuse_deletion(self, topic: str, reason: str) -> MultiFailure | None:
        """Withdraw the request to delete a topic that does not exist or must not be deleted."""
        self.log_line(f"  the deletion of {topic} is refused: {reason}")
        entry = AuditEntry(OperationKind.WITHDRAW_DELETION, reason, topic)
        return self._write_and_record([entry], lambda: RemovedRequests(refused=withdraw_deletion(self.control, topic)))

    def remove_topic(self, topic: str) -> MultiFailure | None:
        """Remove a topic whose replicas are all deleted, and the request to delete it."""
        entry = AuditEntry(OperationKind.DELETE_TOPIC, "every broker has confirmed it", topic)
        return self._write_and_record([entry], lambda: RemovedRequests(refused=remove_topic(self.control, topic)))

    def _write_and_record(
        self, entries: Sequence[AuditEntry], write: Callable[[], RemovedRequests]
    ) -> MultiFailure | None:
        """Write, and record what was removed; requests that another client has withdrawn are not recorded."""
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
        elif refused.is_lost:
            self._record_unknown(entries)
        return refused

    def _record_unknown(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            self.log.record(entry._replace(message=f"{entry.message}; {_OUTCOME_UNKNOWN}", outcome=Outcome.UNKNOWN))


def _reasons(decisions: Iterable[Decision], action: Action) -> dict[Key, str | None]:
    """Return the reason of each decision about a request of this kind, None if the request was fulfilled."""
    return {decision.key: decision.why_not for decision in decisions if decision.wanted is action}


def _all_decisions(decisions: Decisions) -> Iterator[Decision]:
    return chain(decisions.withdrawn, decisions.others)


def _will_be_retried(outcome: RowOutcome) -> bool:
    """Whether the next cycle decides on the partition again, and the change written was not its election."""
    is_elected = outcome.outcome is Outcome.APPLIED and outcome.change.action == Action.ELECT_PREFERRED
    return outcome.outcome is not Outcome.FAILED and not is_elected
