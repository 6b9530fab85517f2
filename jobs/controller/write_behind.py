"""Writes the tables of the resident controller in the background: decisions and their outcomes, in order.

A cycle of a second cannot wait for Delta, so a separate thread writes plans with their changes and rejections, the
intents and outcomes of `commits`, and the responses of brokers. It is given the intents before ZooKeeper is written,
and writes them first unless the outcomes arrive within a second. Cycles that end while it writes are written together.
Rows that the warehouse cannot take, as with a full disk, are kept and tried again. If the process is killed, the rows
that were not written yet are lost; ZooKeeper has all changes, and the next snapshot shows them.
"""

import ctypes
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

import pyarrow as pa

from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.repositories import broker_responses
from jobs.repositories.actor import Actor, this_actor
from jobs.repositories.drained_brokers import delete_marks
from jobs.repositories.plans.commit_rows import AuditEntry, CommitRows
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader, plan_row, transition_after
from jobs.repositories.plans.plans_writer import append_plans, apply_transition
from jobs.runtime.console import log
from schemas.enums import Outcome, PlanKind
from schemas.rows import CONTROL, Change, DrainedBroker, RejectionRecord
from schemas.stored_plan import RowOutcome, Transition
from schemas.text import partition_name, pluralise

MAX_EXAMPLES: Final = 3
"""Partitions that the log names of a cycle that cannot be recorded."""

MAX_FAILURES: Final = 24
"""Failed writes in a row after which the table is at fault; 20 writes find a bad row among half a million."""

CONSTRAINT_VIOLATED: Final = "Invalid data found"
"""Part of Delta's message about rows that violate a constraint of their table, which no retry changes."""

_ERRORS_OF_VALUES: Final = (ValueError, TypeError, OverflowError)
"""Errors that Arrow raises about values. A DeltaError may be about the store: deltalake reports a full disk as one."""

_C_LIBRARY: Final = ctypes.CDLL(None)

_APPENDED: Final = ("changes", "rejections", "commits", "plans")
"""Tables in the order in which they are written: the row of a plan after the rows of its content."""


@dataclass(slots=True)
class CycleRecord:
    """One cycle: its changes and rejections and, once it has ended, the outcomes."""

    snapshot_id: int
    cluster_id: str | None
    broker_epochs: dict[int, int]
    controller_epoch: int
    changes: Sequence[Change]
    rejections: Sequence[RejectionRecord]
    outcomes: Sequence[RowOutcome] | None = None
    """None until the cycle has ended."""
    plan_id: str | None = None
    """Its plan, once the intents are written and as long as the outcomes are not."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def transition(self, outcomes: "Sequence[RowOutcome] | None") -> Transition:
        """The transition of its plan with these outcomes; the cycle may set its own at any time."""
        if outcomes is None:
            return Transition.BEGIN
        return transition_after([outcome.outcome for outcome in outcomes], len(self.changes), stale_is_done=True)


class EndedDrains(NamedTuple):
    """Marks of resident drains whose brokers have registered again."""

    marks: Sequence[DrainedBroker]


@dataclass(frozen=True, slots=True)
class _CycleFinished:
    """A recorded cycle that has ended."""

    record: CycleRecord


_Item = CycleRecord | _CycleFinished | BrokerResponse | AuditEntry | EndedDrains


@dataclass(slots=True)
class WriteBehindLog:
    """Writes the records that it is given, until it is closed.

    Records and tables fail independently: an invalid record is logged and left out, and a table that cannot be written
    is retried while the others are written.
    """

    warehouse: Warehouse
    author: Actor = field(default_factory=this_actor)
    flush_interval_seconds: float = 1.0
    """Seconds in which rows are collected before they are written."""
    retry_seconds: float = 5.0
    """Seconds after which a failed write is tried again."""
    max_buffered_rows: int = 500_000
    """Rows that are kept while they cannot be written; above it all are discarded, except marks of ended drains."""
    _work: SimpleQueue[_Item | None] = field(default_factory=SimpleQueue)
    _thread: Thread | None = None
    _failures: dict[str, str] = field(default_factory=dict)
    """Reasons why the last write of a table failed, by table; a table whose last write succeeded has no entry."""
    _rows: dict[str, list[pa.Table]] = field(default_factory=lambda: {table: [] for table in _APPENDED})
    """Together with the three below: everything to be written, including what could not be."""
    _transitions: dict[str, Transition] = field(default_factory=dict)
    _responses: list[pa.Table] = field(default_factory=list)
    _ended_drains: list[DrainedBroker] = field(default_factory=list)
    _plan_id: str = ""
    """The plan of the last cycle, to which a take-over and a resignation belong."""
    _epoch: int | None = None
    """The controller epoch of that cycle."""
    _pending_since: float | None = None
    """Time of time.monotonic of the oldest record that is not yet in the warehouse; None if all are."""

    def start(self) -> None:
        self._thread = Thread(target=self._run, daemon=True, name="write-behind")
        self._thread.start()

    @property
    def failed(self) -> str | None:
        """Reason why the last write failed; None if everything was written."""
        return next(iter(self._failures.values()), None)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest record that is not yet in the warehouse."""
        since = self._pending_since
        return 0.0 if since is None else time.monotonic() - since

    def record(self, item: "CycleRecord | BrokerResponse | AuditEntry | EndedDrains") -> None:
        if self._pending_since is None:
            self._pending_since = time.monotonic()
        self._work.put(item)

    def finish(self, record: CycleRecord, outcomes: Sequence[RowOutcome]) -> None:
        """Record the outcomes of a cycle."""
        record.outcomes = outcomes
        self._work.put(_CycleFinished(record))

    def close(self, timeout_seconds: float = 60.0) -> None:
        """Write the remaining rows, and wait for it."""
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while self._write_next():
            _return_unused_memory()  # of what was written
        if rows := self._buffered_rows:
            lost = f"{pluralise(rows, 'row')} could not be written to the warehouse before the end, and are lost"
            log(f"surveyor: {lost}", logging.ERROR)

    def _write_next(self) -> bool:
        """Write the next records; return whether more may follow."""
        work, over = self._next()
        for item in work:
            self._buffer(item)
        self._write()
        if not self._buffered_rows and self._work.empty():
            self._pending_since = None
        return not over

    def _next(self) -> tuple[list[_Item], bool]:
        """Wait for records or for the next retry; return the records, and whether the log was closed."""
        try:
            first = self._work.get(timeout=self.retry_seconds if self._failures else None)
        except Empty:
            return [], False
        if first is None:
            return [], True
        time.sleep(self.flush_interval_seconds)
        work = [first]
        with suppress(Empty):
            while (item := self._work.get_nowait()) is not None:
                work.append(item)
            return work, True
        return work, False

    @property
    def _buffered_rows(self) -> int:
        """Return the number of rows to be written."""
        tables = [*chain.from_iterable(self._rows.values()), *self._responses]
        return sum(int(rows.num_rows) for rows in tables) + len(self._transitions) + len(self._ended_drains)

    def _buffer(self, item: _Item) -> None:
        """Convert a record to rows: all of them, or none if one cannot be converted."""
        try:
            rows = self._to_rows(item)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the next record is not
            log(f"surveyor: {_title(item)} is not recorded: {type(error).__name__}: {error}", logging.ERROR)
            return
        for table, converted in rows.items():
            if converted.num_rows:
                self._rows[table].append(converted)

    def _to_rows(self, item: _Item) -> dict[str, pa.Table]:
        """Convert a record to rows of the appended tables; what belongs elsewhere is put there."""
        if isinstance(item, BrokerResponse):
            self._responses.append(BrokerResponses.of([item]).table(self.warehouse.cluster))
        elif isinstance(item, EndedDrains):
            self._ended_drains += item.marks
        elif isinstance(item, AuditEntry):
            return {"commits": self._commit_rows(self._plan_id).table([item])}
        elif isinstance(item, CycleRecord):
            return self._cycle(item)
        elif item.record.plan_id is not None and item.record.outcomes is not None:
            outcomes = self._commit_rows(item.record.plan_id).table(item.record.outcomes)
            self._transitions[item.record.plan_id] = item.record.transition(item.record.outcomes)
            return {"commits": outcomes}
        return {}

    def _write(self) -> None:
        """Write all rows, each table separately. Rows are dropped as soon as they are written, and never written twice.

        The row of a plan waits for the rows of its content, and its new status for its row.
        """
        for table in _APPENDED:
            if table != "plans" or not (self._rows["changes"] or self._rows["rejections"]):
                self._attempt(table, bool(self._rows[table]), partial(self._append, table))
        if not self._rows["plans"]:
            self._attempt("status of plans", bool(self._transitions), self._update_statuses)
        self._attempt("drained", bool(self._ended_drains), self._delete_marks)
        self._attempt("answers", bool(self._responses), self._write_responses)
        if self._failures and self._buffered_rows > self.max_buffered_rows:
            discarded = self._buffered_rows - len(self._ended_drains)
            log(
                f"surveyor: discarded all {discarded} buffered rows, because writes to the warehouse fail; they will "
                "be missing from the tables. The control of the cluster continues",
                logging.ERROR,
            )
            self._rows = {table: [] for table in _APPENDED}
            self._transitions, self._responses = {}, []

    def _attempt(self, table: str, is_due: bool, write: Callable[[], None]) -> None:  # noqa: FBT001 - private
        if not is_due:
            return
        try:
            write()
        except Exception as error:  # noqa: BLE001 - a full disk must not end the controllership
            reason = str(error) or type(error).__name__
            if reason not in self._failures.values():
                log(
                    f"surveyor: cannot write to the warehouse: {reason} ({table}); control of the cluster continues",
                    logging.ERROR,
                )
            self._failures[table] = reason
        else:
            if self._failures.pop(table, None) is not None and not self._failures:
                log("surveyor: writing to the warehouse has resumed")

    def _append(self, table: str) -> None:
        append = (
            partial(append_plans, self.warehouse) if table == "plans" else partial(self.warehouse.append_all, table)
        )
        self._rows[table], error = _write_by_halves(table, self._rows[table], append)
        if error is not None:
            raise error

    def _update_statuses(self) -> None:
        """Update the plans one at a time. A plan that fails comes last at the next attempt and holds back no other."""
        for plan_id in list(self._transitions):
            transition = self._transitions[plan_id]
            try:
                apply_transition(self.warehouse, plan_id, transition)
            except Exception:
                self._transitions[plan_id] = self._transitions.pop(plan_id)
                raise
            del self._transitions[plan_id]

    def _delete_marks(self) -> None:
        delete_marks(self.warehouse, self._ended_drains)
        self._ended_drains = []

    def _write_responses(self) -> None:
        record = partial(broker_responses.record, self.warehouse)
        self._responses, error = _write_by_halves("answers", self._responses, record)
        if error is not None:
            raise error

    def _cycle(self, record: CycleRecord) -> dict[str, pa.Table]:
        """Convert a cycle to a plan with its intents, and with its outcomes if it has already ended.

        The cycle may end in another thread in the meantime. Its outcomes then follow by `_CycleFinished`.
        """
        outcomes = record.outcomes
        self._epoch = record.controller_epoch
        content = InMemoryRows(warehouse=self.warehouse, changes=record.changes, rejections=record.rejections)
        header = PlanHeader(
            kind=PlanKind.RECONCILE,
            parameters={CONTROL: record.controller_epoch, "at": record.at.isoformat()},
            snapshot_id=record.snapshot_id,
            cluster_id=record.cluster_id,
            broker_epochs=record.broker_epochs,
            status=record.transition(outcomes).after,
            created_at=record.at,
        )
        plan = plan_row(self.warehouse.cluster, header, content)
        intents = (RowOutcome(change, Outcome.PENDING, "") for change in record.changes)
        commits = self._commit_rows(plan.plan_id).table([*intents, *(outcomes or ())])
        of_plan = content.of_plan(plan.plan_id) | {"plans": [plan.columns()]}
        rows = {table: self.warehouse.arrow(table, some) for table, some in of_plan.items()}
        self._plan_id = plan.plan_id
        if outcomes is None:
            record.plan_id = self._plan_id
        return rows | {"commits": commits}

    def _commit_rows(self, plan_id: str) -> CommitRows:
        return CommitRows(self.warehouse, plan_id, 1, self.author, self._epoch)


def _write_by_halves(
    table: str, tables: Sequence[pa.Table], write: Callable[[pa.Table], None]
) -> tuple[list[pa.Table], Exception | None]:
    """Write rows together; if some have invalid values, find these by halves, leave them out, and write the others.

    Only rows that violate a constraint are left out in any case. Rows that Arrow cannot convert are left out if others
    are written; if none is written, the table may be at fault. Return the rows to try again, and the error of the store
    or the table, if that fails and not a row.
    """
    pending = [pa.concat_tables(tables)]
    failed: list[tuple[pa.Table, Exception]] = []
    has_written, failures = False, 0
    while pending:
        rows = pending.pop(0)
        error = _error_of(write, rows)
        if error is None:
            has_written, failures = True, 0
            continue
        failures += 1
        violates_constraint = CONSTRAINT_VIOLATED in str(error)
        if not (violates_constraint or isinstance(error, _ERRORS_OF_VALUES)) or failures > MAX_FAILURES:
            return [*pending, *(rows for rows, _ in failed), rows], error  # the next attempt begins with others
        if rows.num_rows > 1:
            middle = rows.num_rows // 2
            pending[:0] = [rows.slice(0, middle), rows.slice(middle)]
        elif violates_constraint:
            _log_row(rows, f"it violates a constraint of table {table}")
            failures = 0
        else:
            failed.append((rows, error))
    if failed and not has_written:
        return [rows for rows, _ in failed], failed[0][1]
    for rows, error in failed:
        _log_row(rows, f"table {table} cannot take it: {str(error) or type(error).__name__}")
    return [], None


def _error_of(write: Callable[[pa.Table], None], rows: pa.Table) -> Exception | None:
    try:
        write(rows)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with these rows, others may be written
        return error
    return None


def _log_row(row: pa.Table, reason: str) -> None:
    """Name a row that is left out."""
    shown = {name: value for name, value in as_rows(row)[0].items() if value is not None}
    log(f"surveyor: a row is not recorded, because {reason}: {shown}", logging.ERROR)


def _return_unused_memory() -> None:
    """Give unused memory of Arrow and of the C library back to the system; the latter is possible with glibc only."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):
        _C_LIBRARY.malloc_trim(0)


def _title(item: _Item) -> str:
    """Name a record."""
    if isinstance(item, BrokerResponse):
        return f"a response of broker {item.broker.broker_id} to {item.api}"
    if isinstance(item, AuditEntry):
        place = "" if item.topic is None else f" of {item.topic}" + f"-{item.partition}" * (item.partition is not None)
        return f"{item.action}{place}"
    if isinstance(item, EndedDrains):
        return "an ended drain"
    record = item.record if isinstance(item, _CycleFinished) else item
    subject = "the outcome of the cycle" if isinstance(item, _CycleFinished) else "the cycle"
    names = ", ".join(partition_name(change.topic, change.partition) for change in record.changes[:MAX_EXAMPLES])
    return f"{subject} at {record.at:%H:%M:%S} with {pluralise(len(record.changes), 'change')} ({names or 'none'})"
