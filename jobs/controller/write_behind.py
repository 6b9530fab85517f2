"""Writes the tables of the resident controller in the background: decisions and their outcomes, in order.

A cycle of a second cannot wait for Delta, so a separate thread writes plans with their changes and rejections, the
intents and outcomes of `commits`, and the responses of brokers. It is given the intents before ZooKeeper is written,
and writes them first unless the outcomes arrive within a second. Cycles that end while it writes are written together.
Rows that the warehouse cannot take, as with a full disk, are kept and tried again. If the process is killed, the rows
that were not written yet are lost; ZooKeeper has all changes, and the next snapshot shows them.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict

from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from jobs.adapters.delta.warehouse import Row, Warehouse, quoted
from jobs.repositories import broker_responses
from jobs.repositories.actor import Actor, this_actor
from jobs.repositories.drained_brokers import delete_marks
from jobs.repositories.plans import digest
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.names import parameters_json
from jobs.repositories.plans.repository import CONTROL
from jobs.runtime.console import log
from schemas.digest import plan_header
from schemas.enums import OperationKind, Outcome, PlanKind, PlanStatus, Step
from schemas.rows import Change, PlanRow

FLUSH_INTERVAL_SECONDS: Final = 1.0
"""Seconds in which rows are collected before they are written."""

RETRY_SECONDS: Final = 5.0
"""Seconds after which a failed write is tried again."""

MAX_BUFFERED_ROWS: Final = 500_000
"""Rows that are kept while they cannot be written; beyond these, all of them are dropped."""

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
    rejections: Sequence[Row]
    verdicts: Sequence[RowOutcome] | None = None
    """None until the cycle has ended."""
    plan_id: str | None = None
    """Its plan, once the intents are written and as long as the outcomes are not."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class AuditEntry(NamedTuple):
    """An action other than a change of a partition: a take-over, a resignation, a removed topic or request."""

    action: Step | OperationKind
    message: str
    topic: str | None = None
    partition: int | None = None
    outcome: Outcome = Outcome.APPLIED


class EndedDrains(NamedTuple):
    """Marks of resident drains whose brokers have registered again."""

    marks: Sequence[Row]


@dataclass(frozen=True, slots=True)
class _CycleFinished:
    """A recorded cycle that has ended."""

    record: CycleRecord


@dataclass(slots=True)
class WriteBehindLog:
    """Writes the records that it is given, until it is closed."""

    warehouse: Warehouse
    author: Actor = field(default_factory=this_actor)
    _work: SimpleQueue[CycleRecord | _CycleFinished | BrokerResponse | AuditEntry | EndedDrains | None] = field(
        default_factory=SimpleQueue
    )
    _thread: Thread | None = None
    failed: str | None = None
    """Why the last write failed; None if it succeeded."""
    _rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in _APPENDED})
    _statuses: dict[str, str] = field(default_factory=dict)
    _responses: list[BrokerResponse] = field(default_factory=list)
    """Together with the rows: everything to be written, including what could not be."""
    _ended_drains: list[Row] = field(default_factory=list)
    _plan_id: str = ""
    """The plan of the last cycle, to which a take-over and a resignation belong."""
    _epoch: int | None = None
    """The controller epoch of that cycle."""

    def start(self) -> None:
        self._thread = Thread(target=self._run, daemon=True, name="write-behind")
        self._thread.start()

    def record(self, item: "CycleRecord | BrokerResponse | AuditEntry | EndedDrains") -> None:
        self._work.put(item)

    def finish(self, record: CycleRecord, verdicts: Sequence[RowOutcome]) -> None:
        """Record the outcomes of a cycle."""
        record.verdicts = verdicts
        self._work.put(_CycleFinished(record))

    def close(self, timeout_seconds: float = 60.0) -> None:
        """Write the remaining rows, and wait for it."""
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        over = False
        while not over:
            work, over = self._next()
            try:
                self._buffer(work)
                waiting = self._buffered_rows
                self._write()
            except Exception as error:  # noqa: BLE001 - a full disk must not end the controllership
                self._on_write_error(str(error))
            else:
                if waiting and self.failed is not None:
                    log("surveyor: writing to the warehouse has resumed")
                    self.failed = None

    def _next(self) -> tuple[list[Any], bool]:
        """Wait for records or for the next retry; return the records, and whether the log was closed."""
        try:
            first = self._work.get(timeout=None if self.failed is None else RETRY_SECONDS)
        except Empty:
            return [], False
        if first is None:
            return [], True
        time.sleep(FLUSH_INTERVAL_SECONDS)
        return self._drain_queue(first)

    @property
    def _buffered_rows(self) -> int:
        """Return the number of rows to be written."""
        return sum(map(len, self._rows.values())) + len(self._statuses) + len(self._responses) + len(self._ended_drains)

    def _on_write_error(self, why: str) -> None:
        if self.failed is None:
            log(f"surveyor: cannot write to the warehouse: {why}; control of the cluster continues")
        self.failed = why
        if self._buffered_rows > MAX_BUFFERED_ROWS:
            log("surveyor: too many rows wait for the warehouse: actions since the failed write will not be recorded")
            self._rows = {table: [] for table in _APPENDED}
            self._statuses, self._responses = {}, []

    def _drain_queue(self, first: Any) -> tuple[list[Any], bool]:  # noqa: ANN401 - of the kinds that `record` takes
        work = [first]
        with suppress(Empty):
            while (own_columns := self._work.get_nowait()) is not None:
                work.append(own_columns)
            return work, True
        return work, False

    def _buffer(self, work: Sequence[Any]) -> None:
        """Convert records to rows."""
        rows = self._rows
        for each in work:
            if isinstance(each, CycleRecord):
                self._add(rows, each)
            elif isinstance(each, _CycleFinished):
                self._add_outcomes(rows, self._statuses, each.record)
            elif isinstance(each, AuditEntry):
                place = {"topic": each.topic, "partition": each.partition}
                of_it = {"action": each.action.value, "plan_id": self._plan_id, **place}
                rows["commits"].append(self._commit(each.outcome, each.message, of_it))
            elif isinstance(each, EndedDrains):
                self._ended_drains += each.marks
            else:
                self._responses.append(each)

    def _write(self) -> None:
        """Write all rows; each table's rows are dropped as soon as they are written, so that none is written twice."""
        for table in _APPENDED:
            if self._rows[table]:
                self.warehouse.append(table, self._rows[table])
                self._rows[table] = []
        for plan_id, status in list(self._statuses.items()):
            self.warehouse.update("plans", f"plan_id = {quoted(plan_id)}", status=quoted(status))
            del self._statuses[plan_id]
        delete_marks(self.warehouse, self._ended_drains)
        self._ended_drains = []
        if self._responses:
            broker_responses.record(self.warehouse, BrokerResponses.of(self._responses).table(self.warehouse.cluster))
            self._responses = []

    def _add(self, rows: dict[str, list[Row]], record: CycleRecord) -> None:
        """Add the rows of a plan with its intents, and with its outcomes if it has already ended."""
        verdicts = record.verdicts
        changes = [asdict(change) for change in record.changes]
        epochs = [{"broker_id": b, "broker_epoch": e} for b, e in sorted(record.broker_epochs.items())]
        plan: Row = {
            "cluster": self.warehouse.cluster,
            "name": None,
            "names": [],
            "snapshot_id": record.snapshot_id,
            "kind": PlanKind.RECONCILE.value,
            "parameters": parameters_json({CONTROL: record.controller_epoch, "at": record.at.isoformat()}),
            "created_at": record.at,
            "status": _status(record),
            "cluster_id": record.cluster_id,
            "brokers": epochs,
        }
        content: dict[str, Any] = {"changes": changes, "rejections": record.rejections, "operations": []}
        plan |= digest.summary(
            plan_header(plan), {table: digest.in_arrow(table, content_rows) for table, content_rows in content.items()}
        )
        self._plan_id, self._epoch = plan["plan_id"], record.controller_epoch
        plan_key = {"plan_id": plan["plan_id"], "cluster": self.warehouse.cluster}
        rows["changes"] += [row | plan_key for row in changes]
        rows["rejections"] += [row | plan_key for row in record.rejections]
        rows["plans"].append(plan)
        rows["commits"] += [self._commit(Outcome.PENDING, "", _row_key(change) | plan_key) for change in record.changes]
        if verdicts is None:
            record.plan_id = plan["plan_id"]
        else:
            self._append_outcomes(rows, plan["plan_id"], verdicts)

    def _add_outcomes(self, rows: dict[str, list[Row]], statuses: dict[str, str], record: CycleRecord) -> None:
        """Add the outcomes of a plan whose intents were written before."""
        if record.plan_id is not None and record.verdicts is not None:
            self._append_outcomes(rows, record.plan_id, record.verdicts)
            statuses[record.plan_id] = _status(record)

    def _append_outcomes(self, rows: dict[str, list[Row]], plan_id: str, verdicts: Sequence[RowOutcome]) -> None:
        for verdict in verdicts:
            own_columns = {
                "plan_id": plan_id,
                "cluster": self.warehouse.cluster,
                "state_version_after": verdict.state_version_after,
            }
            rows["commits"].append(
                self._commit(verdict.outcome, verdict.message, _row_key(verdict.change) | own_columns)
            )

    def _commit(self, outcome: Outcome, message: str, own_columns: Row) -> Row:
        common = {"attempt": 1, "outcome": outcome.value, "committed_at": datetime.now(UTC), **self.author.columns}
        return common | {"message": message, "controller_epoch": self._epoch} | own_columns


def _row_key(change: PlanRow) -> Row:
    return {name: getattr(change, name) for name in ("wave", "topic", "partition", "action")}


def _status(record: CycleRecord) -> str:
    if record.verdicts is None:
        return PlanStatus.COMMITTING.value
    done = sum(verdict.outcome is Outcome.APPLIED for verdict in record.verdicts) == len(record.changes)
    return (PlanStatus.COMMITTED if done else PlanStatus.PARTIAL).value
