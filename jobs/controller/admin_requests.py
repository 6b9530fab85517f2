"""Requests in /admin that a controller that stays is done with: taken away and put on record; and topics removed.

It does so by `jobs.execution.batch.admin_znodes`, and each request that went is a row of `commits`. What was refused
leaves no row, as nothing was written; where nobody heard the answer, the row says `unknown`. In: decisions. Out: what
ZooKeeper refused, so that it is tried again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.controller.context import ControllerContext
from jobs.controller.decisions.engine import Decisions
from jobs.controller.write_behind import AuditEntry, WriteBehindLog
from jobs.execution.batch.admin_znodes import (
    RemovedRequests,
    remove_empty,
    remove_topic,
    withdraw_deletion,
    withdraw_elections,
    withdraw_reassignments,
)
from jobs.repositories.plans.commit_log import RowOutcome
from planner.reconciliation.decisions import FULFILLED
from schemas.enums import Action, OperationKind, Outcome, RequestKind, Step
from schemas.rows import Key

_PASSED: Final = "a pass was made"
_UNHEARD: Final = "the connection was lost, and nobody heard whether it is done"

_OF_VOID: Final = {
    REASSIGN: OperationKind.WITHDRAW_REASSIGNMENT,
    PREFERRED_ELECTION: OperationKind.WITHDRAW_ELECTION,
}


@dataclass(frozen=True, slots=True)
class AdminRequestRemover:
    """Takes requests away under one controllership."""

    control: Controllership
    context: ControllerContext
    log: WriteBehindLog
    say: Callable[[str], None]

    def withdraw(self, decided: Decisions, verdicts: Sequence[RowOutcome]) -> Iterator[MultiFailure | None]:
        """Take requests away that are carried out, or cannot be; what was refused of each znode.

        An election is made in one pass, but one that was out of date, or that waited for another change of its
        partition, is made in the next cycle, as Kafka tries it again at once.
        """
        for row in decided.withdrawn:
            if row["code"] is not None and row["code"] not in FULFILLED:
                self.say(f"  request for {row['topic']}-{row['partition']} is withdrawn: {row['why_not']}")
        moved, elected = _why(decided.withdrawn, Action.REASSIGN), _why(_judged(decided), Action.ELECT_PREFERRED)
        if moved:
            orders = {key: to for key, to in self._requested(RequestKind.REASSIGN).items() if key in moved}
            kind = OperationKind.WITHDRAW_REASSIGNMENT
            deeds = [AuditEntry(kind, f"asked to be on {to}: {moved[key]}", *key) for key, to in orders.items()]
            yield self._recorded(deeds, lambda: withdraw_reassignments(self.control, orders))
        again = {verdict.change.key for verdict in verdicts if _is_tried_again(verdict)}
        passed = [key for key in self._requested(RequestKind.PREFERRED_ELECTION) if key in elected and key not in again]
        if passed:
            deeds = [AuditEntry(OperationKind.WITHDRAW_ELECTION, elected[key] or _PASSED, *key) for key in passed]
            yield self._recorded(deeds, lambda: withdraw_elections(self.control, passed))

    def remove_empty(self) -> Iterator[MultiFailure | None]:
        """Take away what asks for nothing, or cannot be read: it is in the way of the next request."""
        for path, version, reason in self.context.empty_requests:
            self.say(f"  {path} is taken away: {reason}")
            deed = AuditEntry(_OF_VOID.get(path, Step.DISCARD_NOTIFICATION), f"{path}: {reason}")
            yield self._recorded([deed], partial(self._remove_void, path, version))

    def _remove_void(self, path: str, version: int) -> RemovedRequests:
        return RemovedRequests(refused=remove_empty(self.control, path, version))

    def refuse_deletion(self, topic: str, reason: str) -> MultiFailure | None:
        """Take the request away to delete a topic that is not there, or must not be deleted."""
        self.say(f"  deletion of {topic} is refused: {reason}")
        deed = AuditEntry(OperationKind.WITHDRAW_DELETION, reason, topic)
        return self._recorded([deed], lambda: RemovedRequests(refused=withdraw_deletion(self.control, topic)))

    def remove_topic(self, topic: str) -> MultiFailure | None:
        """Remove a topic whose replicas are all deleted, and the request for it."""
        deed = AuditEntry(OperationKind.DELETE_TOPIC, "every broker has confirmed it", topic)
        return self._recorded([deed], lambda: RemovedRequests(refused=remove_topic(self.control, topic)))

    def _requested(self, kind: RequestKind) -> dict[Key, list[int]]:
        """What is asked of partitions; replicas, where that is what is asked for."""
        return {(row["topic"], row["partition"]): row.get("replicas") or [] for row in self.context.of_kind(kind)}

    def _recorded(self, deeds: Sequence[AuditEntry], write: Callable[[], RemovedRequests]) -> MultiFailure | None:
        """Write, and record what of it was done; the requests that somebody else has taken away were not."""
        try:
            gone, refused = write()
        except SessionLostError:
            self._record_unknown(deeds)
            raise
        if refused is None:
            places = {(each.topic, each.partition) for each in gone}
            for deed in deeds:
                if deed.partition is None or (deed.topic, deed.partition) in places:
                    self.log.record(deed)
        elif refused.is_lost:
            self._record_unknown(deeds)
        return refused

    def _record_unknown(self, deeds: Sequence[AuditEntry]) -> None:
        for deed in deeds:
            self.log.record(deed._replace(message=f"{deed.message}; {_UNHEARD}", outcome=Outcome.UNKNOWN))


def _why(rows: Iterable[Row], action: Action) -> dict[Key, str | None]:
    """Decisions about requests of a kind, and why there is no change."""
    return {(row["topic"], row["partition"]): row["why_not"] for row in rows if row["wanted"] == action}


def _judged(decided: Decisions) -> Iterator[Row]:
    return chain(decided.withdrawn, decided.others)


def _is_tried_again(verdict: RowOutcome) -> bool:
    """Whether the next cycle judges the partition again, and an election of it was not what was written."""
    is_elected = verdict.outcome is Outcome.APPLIED and verdict.change.action == Action.ELECT_PREFERRED
    return verdict.outcome is not Outcome.FAILED and not is_elected
