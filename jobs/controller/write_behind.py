"""The tables, written behind a controller that stays: what it decided and what became of it, in the order it happened.

A cycle of a second cannot wait for Delta, so a thread of its own writes: plans with their changes and rejections, the
intents and outcomes of `commits`, and what brokers answered. It is given intents before ZooKeeper is written, and
writes them first unless the outcomes come within a second. Cycles that end while it writes are put together. What the
warehouse does not take, as with a full disk, is kept and tried again. Killed, the process loses what was not written
yet; ZooKeeper has all of it, and the next snapshot shows it.
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
"""Seconds that what is to be written is gathered."""

RETRY_SECONDS: Final = 5.0
"""Seconds after which what could not be written is tried again."""

MAX_BUFFERED_ROWS: Final = 500_000
"""Rows that are kept while they cannot be written; beyond these, all of them are given up."""

_APPENDED: Final = ("changes", "rejections", "commits", "plans")
"""Tables in the order they are written: a plan's row after its rows."""


@dataclass(slots=True)
class CycleRecord:
    """What one cycle does: its changes, what it says of others, and, once it has ended, what became of it."""

    snapshot_id: int
    cluster_id: str | None
    broker_epochs: dict[int, int]
    controller_epoch: int
    changes: Sequence[Change]
    rejections: Sequence[Row]
    verdicts: Sequence[RowOutcome] | None = None
    """None as long as it is being written."""
    plan_id: str | None = None
    """Its plan, once the intents are in the tables and the outcomes are not."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class AuditEntry(NamedTuple):
    """What is no change of a partition: a take-over, a resignation, a topic that is gone, a request taken away."""

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
    """An episode that has ended."""

    episode: CycleRecord


@dataclass(slots=True)
class WriteBehindLog:
    """Writes what it is given, until it is closed."""

    warehouse: Warehouse
    author: Actor = field(default_factory=this_actor)
    _work: SimpleQueue[CycleRecord | _CycleFinished | BrokerResponse | AuditEntry | EndedDrains | None] = field(
        default_factory=SimpleQueue
    )
    _thread: Thread | None = None
    failed: str | None = None
    """Why the tables could not be written when it was last tried."""
    _rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in _APPENDED})
    _statuses: dict[str, str] = field(default_factory=dict)
    _answers: list[BrokerResponse] = field(default_factory=list)
    """What is to be written, with all that could not be."""
    _ended_drains: list[Row] = field(default_factory=list)
    _plan_id: str = ""
    """The plan of the last episode, to which a take-over and a resignation belong."""
    _epoch: int | None = None
    """The controller epoch of that episode."""

    def start(self) -> None:
        self._thread = Thread(target=self._run, daemon=True, name="write-behind")
        self._thread.start()

    def record(self, what: "CycleRecord | BrokerResponse | AuditEntry | EndedDrains") -> None:
        self._work.put(what)

    def finish(self, episode: CycleRecord, verdicts: Sequence[RowOutcome]) -> None:
        """Say what became of an episode that was put."""
        episode.verdicts = verdicts
        self._work.put(_CycleFinished(episode))

    def close(self, patience: float = 60.0) -> None:
        """Write what is left, and wait for it."""
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        over = False
        while not over:
            work, over = self._next()
            try:
                self._buffer(work)
                waiting = self._waiting
                self._write()
            except Exception as error:  # noqa: BLE001 - a full disk must not end the controllership
                self._on_write_error(str(error))
            else:
                if waiting and self.failed is not None:
                    log("surveyor: the warehouse is written again")
                    self.failed = None

    def _next(self) -> tuple[list[Any], bool]:
        """Wait for something to be written, or for its turn to be tried again; and tell whether it is the last."""
        try:
            first = self._work.get(timeout=None if self.failed is None else RETRY_SECONDS)
        except Empty:
            return [], False
        if first is None:
            return [], True
        time.sleep(FLUSH_INTERVAL_SECONDS)
        return self._drain_queue(first)

    @property
    def _waiting(self) -> int:
        """Count what is to be written."""
        return sum(map(len, self._rows.values())) + len(self._statuses) + len(self._answers) + len(self._ended_drains)

    def _on_write_error(self, why: str) -> None:
        if self.failed is None:
            log(f"surveyor: the warehouse could not be written: {why}; the cluster is controlled nevertheless")
        self.failed = why
        if self._waiting > MAX_BUFFERED_ROWS:
            log("surveyor: too much is waiting for the warehouse; what was done since it failed will not be in it")
            self._rows = {table: [] for table in _APPENDED}
            self._statuses, self._answers = {}, []

    def _drain_queue(self, first: Any) -> tuple[list[Any], bool]:  # noqa: ANN401 - of the kinds `put` takes
        work = [first]
        with suppress(Empty):
            while (more := self._work.get_nowait()) is not None:
                work.append(more)
            return work, True
        return work, False

    def _buffer(self, work: Sequence[Any]) -> None:
        """Make rows of what was put."""
        rows = self._rows
        for each in work:
            if isinstance(each, CycleRecord):
                self._add(rows, each)
            elif isinstance(each, _CycleFinished):
                self._add_outcomes(rows, self._statuses, each.episode)
            elif isinstance(each, AuditEntry):
                place = {"topic": each.topic, "partition": each.partition}
                of_it = {"action": each.action.value, "plan_id": self._plan_id, **place}
                rows["commits"].append(self._commit(each.outcome, each.message, of_it))
            elif isinstance(each, EndedDrains):
                self._ended_drains += each.marks
            else:
                self._answers.append(each)

    def _write(self) -> None:
        """Write what there is; what is written is forgotten at once, so that it is not written twice."""
        for table in _APPENDED:
            if self._rows[table]:
                self.warehouse.append(table, self._rows[table])
                self._rows[table] = []
        for plan_id, status in list(self._statuses.items()):
            self.warehouse.update("plans", f"plan_id = {quoted(plan_id)}", status=quoted(status))
            del self._statuses[plan_id]
        delete_marks(self.warehouse, self._ended_drains)
        self._ended_drains = []
        if self._answers:
            broker_responses.record(self.warehouse, BrokerResponses.of(self._answers).table(self.warehouse.cluster))
            self._answers = []

    def _add(self, rows: dict[str, list[Row]], episode: CycleRecord) -> None:
        """The plan with its intents, and with its outcomes where it has ended meanwhile."""
        verdicts = episode.verdicts
        changes = [asdict(change) for change in episode.changes]
        epochs = [{"broker_id": b, "broker_epoch": e} for b, e in sorted(episode.broker_epochs.items())]
        plan: Row = {
            "cluster": self.warehouse.cluster,
            "name": None,
            "names": [],
            "snapshot_id": episode.snapshot_id,
            "kind": PlanKind.RECONCILE.value,
            "parameters": parameters_json({CONTROL: episode.controller_epoch, "at": episode.at.isoformat()}),
            "created_at": episode.at,
            "status": _status(episode),
            "cluster_id": episode.cluster_id,
            "brokers": epochs,
        }
        content: dict[str, Any] = {"changes": changes, "rejections": episode.rejections, "operations": []}
        plan |= digest.summary(
            plan_header(plan), {table: digest.in_arrow(table, some) for table, some in content.items()}
        )
        self._plan_id, self._epoch = plan["plan_id"], episode.controller_epoch
        mine = {"plan_id": plan["plan_id"], "cluster": self.warehouse.cluster}
        rows["changes"] += [row | mine for row in changes]
        rows["rejections"] += [row | mine for row in episode.rejections]
        rows["plans"].append(plan)
        rows["commits"] += [self._commit(Outcome.PENDING, "", _named(change) | mine) for change in episode.changes]
        if verdicts is None:
            episode.plan_id = plan["plan_id"]
        else:
            self._append_outcomes(rows, plan["plan_id"], verdicts)

    def _add_outcomes(self, rows: dict[str, list[Row]], statuses: dict[str, str], episode: CycleRecord) -> None:
        """What became of a plan whose intents were written before."""
        if episode.plan_id is not None and episode.verdicts is not None:
            self._append_outcomes(rows, episode.plan_id, episode.verdicts)
            statuses[episode.plan_id] = _status(episode)

    def _append_outcomes(self, rows: dict[str, list[Row]], plan_id: str, verdicts: Sequence[RowOutcome]) -> None:
        for verdict in verdicts:
            more = {
                "plan_id": plan_id,
                "cluster": self.warehouse.cluster,
                "state_version_after": verdict.state_version_after,
            }
            rows["commits"].append(self._commit(verdict.outcome, verdict.message, _named(verdict.change) | more))

    def _commit(self, outcome: Outcome, message: str, more: Row) -> Row:
        common = {"attempt": 1, "outcome": outcome.value, "committed_at": datetime.now(UTC), **self.author.columns}
        return common | {"message": message, "controller_epoch": self._epoch} | more


def _named(change: PlanRow) -> Row:
    return {name: getattr(change, name) for name in ("wave", "topic", "partition", "action")}


def _status(episode: CycleRecord) -> str:
    if episode.verdicts is None:
        return PlanStatus.COMMITTING.value
    done = sum(verdict.outcome is Outcome.APPLIED for verdict in episode.verdicts) == len(episode.changes)
    return (PlanStatus.COMMITTED if done else PlanStatus.PARTIAL).value
