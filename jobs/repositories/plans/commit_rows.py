"""Builds and appends the rows of table `commits`: what a commit, a cancellation or a cycle of `surveyor control` did.

Callers give typed values, a `RowOutcome` for each change of a plan and an `AuditEntry` for any other action. All rows
of the table are built here, and only appended. Commands append them at once. The resident controller buffers them and
appends the rows of many cycles together (`jobs.controller.write_behind`), as it does with its plans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

import pyarrow as pa

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.actor import Actor, this_actor
from jobs.repositories.plans.plans_writer import count_attempt
from schemas.enums import OperationKind, Outcome, Step
from schemas.rows import CommitRecord, PlanRow
from schemas.stored_plan import RowOutcome

CHANGE_COLUMNS: Final = ("wave", "topic", "partition", "action")
"""The columns that identify a change."""


class AuditEntry(NamedTuple):
    """An action other than a change of a plan: a take-over, a resignation, a throttle, a removed topic or request."""

    action: Step | OperationKind
    message: str
    topic: str | None = None
    partition: int | None = None
    outcome: Outcome = Outcome.APPLIED

    @property
    def place(self) -> tuple[None, str | None, int | None, str]:
        """The place of the action, which belongs to no wave."""
        return None, self.topic, self.partition, self.action.value


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Writes the rows of one attempt to commit a plan."""

    warehouse: Warehouse
    plan_id: str
    attempt: int
    author: Actor = field(default_factory=this_actor)
    controller_epoch: int | None = None
    """Epoch under which the attempt writes as controller; None if Kafka's controller is asked."""

    @classmethod
    def begin(cls, warehouse: Warehouse, plan_id: str, attempt: int | None = None) -> Self:
        """Return the writer of an attempt; without a number, of a new one."""
        warehouse.ensure_columns("commits")
        return cls(warehouse, plan_id, next_attempt(warehouse, plan_id) if attempt is None else attempt)

    def append(self, entries: Iterable[RowOutcome | AuditEntry]) -> None:
        self._write(self.table(entries))

    def append_intents(self, changes: Sequence[PlanRow]) -> None:
        """Append the intents, built by columns, which is fast, because the controllership is held in the meantime."""
        if changes:
            first = self.table([RowOutcome(changes[0], Outcome.PENDING, "")])
            columns = {name: first[name].to_pylist() * len(changes) for name in first.column_names}
            columns |= {name: [getattr(change, name) for change in changes] for name in CHANGE_COLUMNS}
            self._write(pa.table(columns, schema=first.schema))

    def _write(self, rows: pa.Table) -> None:
        self.warehouse.append_all("commits", rows)

    def table(self, entries: Iterable[RowOutcome | AuditEntry]) -> pa.Table:
        """Return the rows of these entries, in their order, with all columns of the table."""
        return self.warehouse.arrow("commits", [self._record(entry) for entry in entries])

    def _record(self, entry: RowOutcome | AuditEntry) -> CommitRecord:
        wave, topic, partition, action = entry.change.place if isinstance(entry, RowOutcome) else entry.place
        return CommitRecord(
            plan_id=self.plan_id,
            attempt=self.attempt,
            wave=wave,
            topic=topic,
            partition=partition,
            action=action,
            outcome=entry.outcome.value,
            state_version_after=entry.state_version_after if isinstance(entry, RowOutcome) else None,
            committed_at=datetime.now(UTC),
            who=self.author.user,
            message=entry.message,
            controller_epoch=self.controller_epoch,
            run=self.author.run,
        )


def next_attempt(warehouse: Warehouse, plan_id: str) -> int:
    """Return the number for a new commit attempt; attempts that start concurrently get different numbers."""
    begun = warehouse.read("commits", ("plan_id", "=", plan_id), columns=["attempt"])["attempt"].to_pylist()
    return count_attempt(warehouse, plan_id, max(begun, default=0) + 1)
