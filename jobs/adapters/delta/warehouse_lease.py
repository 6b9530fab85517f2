"""The lease of a cluster without ZooKeeper: a row in the warehouse, with a holder and a deadline.

Of two processes that take the lease at once, one loses the conditional commit of Delta and finds the other's row.

1. The holder renews the lease in a thread: it moves the deadline.
2. The holder stops writing some seconds (the margin) before the deadline, by its own monotonic clock. It checks this
   before each write, so a process that was suspended finds that its lease may have been taken.
3. A process that waits takes the lease after the deadline, which ends the lease of a holder that was killed. It also
   takes it if the row has not changed for the whole lease and the margin, by its monotonic clock. So a deadline that a
   wrong clock set far in the future cannot block it.
4. If the clocks of two hosts differ by more than the margin, the lease may be taken early. Its holder finds the row
   taken before its next write.

Processes are kept apart only if they use the same warehouse and the same name of the cluster. On stores without locks,
snapshots have a separate lease in the same table (`SnapshotLease`): one process at a time takes a snapshot of a
cluster. In a folder, a lock of the operating system ensures this (`jobs.adapters.delta.lock_files`).
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Lock, Thread
from typing import ClassVar, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.lock_files import LOCK_TIMEOUT_SECONDS
from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.adapters.delta.warehouse_paths import is_local
from jobs.core.errors import LeaseHeldError, LeaseLostError, SnapshotLeaseLostError, SurveyorError
from schemas.lease_holder import (
    LeaseHolder,
    encode_holder,
    held_advice,
    held_text,
    holder_now,
    holder_text,
    known_holder,
    lost_text,
    waiting_text,
)
from schemas.rows import LeaseRecord

_MAX_CHECKS: Final = 2
"""Attempts to find the lease ours: the second extends a lease that ran out during the first."""

SNAPSHOT: Final = "snapshot"
"""The command in the row of a snapshot's lease, which distinguishes it from the other lease."""

_TABLE: Final = LeaseRecord.TABLE
_ALL_ROWS: Final = ("token", "!=", "")
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class WarehouseLease:
    """A lease; it is held while the row has `token`. `token` is empty before it is taken and after its release."""

    lease_seconds: ClassVar[float] = 30.0
    """Seconds from a renewal to the deadline."""
    renewal_seconds: ClassVar[float] = 10.0
    """Seconds between two renewals."""
    margin_seconds: ClassVar[float] = 5.0
    """Seconds before the deadline from which on the holder writes nothing: for clocks that differ, and for a request
    that was sent just before.
    """
    lock_seconds: ClassVar[float] = 10.0
    """Seconds to wait for the lock of the table in a folder, which a commit keeps for a fraction of a second. A process
    that was stopped with the lock must not hold up others until their leases have run out.
    """
    poll_seconds: ClassVar[float] = 0.5

    warehouse: Warehouse
    holder: LeaseHolder
    notify: Callable[[str], None]
    is_patient: bool = False
    """Whether to wait also for a holder that lives, because it is expected to release the lease."""
    token: str = ""
    _expires: float = 0.0
    """When our lease ends by the monotonic clock, less the margin."""
    _read_at: DeltaTable | None = None
    """The table at the version in which the row was last seen to be ours."""
    _deadline: datetime = _NEVER
    """The deadline in our row, as last read or written."""
    _why_lost: str = "it was released"
    _lock: Lock = field(default_factory=Lock)
    """Keeps the renewing thread and the command apart."""

    def acquire(self, timeout: float) -> None:
        """Take the lease, waiting for another holder; raise LeaseHeldError after `timeout` seconds.

        Unless it is patient, it waits only until the other holder is seen to live, by a new deadline. A row that does
        not change for the time of a lease and the margin is taken, whatever its deadline.
        """
        if self.token:
            return
        give_up = time.monotonic() + timeout
        last: LeaseRecord | None = None
        since, is_alive = 0.0, False
        while True:
            is_overdue = last is not None and time.monotonic() - since >= self.lease_seconds + self.margin_seconds
            other = self._try_acquire(last if is_overdue else None)
            if other is None:
                return
            if last is None:
                self.notify(self._waiting_for(other, timeout))
            if other != last:
                is_alive = last is not None
                last, since = other, time.monotonic()
            if time.monotonic() > give_up or (is_alive and not self.is_patient):
                raise self._held_by(other)
            time.sleep(self.poll_seconds)

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless we have the lease; called right before each write.

        The warehouse may answer late, or this process may be stopped while it asks. So an answer counts only if the
        lease still runs once the answer is here.
        """
        with self._lock:
            for _ in range(_MAX_CHECKS):
                if not self.token:
                    raise self._lost(self._why_lost)
                if self._has_run_out:
                    self._extend()
                else:
                    self._refuse_taken()
                if not self._has_run_out:
                    return
            raise self._lost("the warehouse takes longer to answer than the lease lasts")

    @property
    def _has_run_out(self) -> bool:
        """Whether others may take the lease, by the monotonic clock or, as that may stop in a suspended machine, by
        the deadline in the row.
        """
        return time.monotonic() >= self._expires or self._deadline <= _deadline_in(self.margin_seconds)

    def _refuse_taken(self) -> None:
        """Raise LeaseLostError if the row is no longer ours."""
        if self._is_unchanged():
            return
        table = self.warehouse.opened(_TABLE)
        rows = [*filter(self._is_of_kind, self.warehouse.typed_rows(LeaseRecord, version=table.version()))]
        if [row.token for row in rows] != [self.token]:
            raise self._lost(_holder_now(rows))
        self._read_at, self._deadline = table, rows[0].deadline

    def renew(self) -> None:
        """Move the deadline on, if we have the lease; raise LeaseLostError if it was taken."""
        with self._lock:
            if self.token:
                self._extend()

    def release(self) -> None:
        """Release the lease; a row that another process has taken is left alone."""
        with self._lock:
            token, self.token = self.token, ""
            if not token:
                return

            def without_ours(rows: pa.Table) -> pa.Table:
                return rows if token not in rows["token"].to_pylist() else rows.slice(0, 0)

            with suppress(SurveyorError, DeltaError, OSError):  # it runs out
                self._transform(without_ours)

    def _is_unchanged(self) -> bool:
        """Return whether the table has had no commit since its row was seen to be ours; this reads no row."""
        if self._read_at is None:
            return False
        version = self._read_at.version()
        try:
            self._read_at.update_incremental()
        except (DeltaError, OSError):  # the row itself is read then
            self._read_at = None
            return False
        return self._read_at.version() == version

    def _transform(self, make: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the rows of leases of this kind by the result of `make`; the other kind's row stays unchanged."""
        self._read_at = None

        def transformed(rows: pa.Table) -> pa.Table:
            is_of_kind = pa.array(map(self._is_of_kind, decode_rows(LeaseRecord, rows)), pa.bool_())
            of_kind, others = rows.filter(is_of_kind), rows.filter(pc.invert(is_of_kind))
            made = make(of_kind)
            if made is of_kind:
                return rows
            return pa.concat_tables([made, others.cast(made.schema)]) if others.num_rows else made

        self.warehouse.transform_rows(_TABLE, _ALL_ROWS, transformed, lock_seconds=self.lock_seconds)

    def _is_of_kind(self, row: LeaseRecord) -> bool:
        """Return whether a row is a lease of this kind: for changing the cluster, also by a process of another version.

        A lease of the other kind excludes neither.
        """
        return not is_of_snapshot(row)

    def _try_acquire(self, overdue: LeaseRecord | None) -> LeaseRecord | None:
        """Take the lease unless another process has it; return its row then. The row `overdue` does not count."""

        def others_among(rows: Iterable[LeaseRecord]) -> list[LeaseRecord]:
            return [row for row in _valid(rows) if row != overdue and self._is_of_kind(row)]

        token, others = str(uuid4()), others_among(self.warehouse.typed_rows(LeaseRecord))
        if others:
            return others[0]
        with self._lock:
            begun, deadline = time.monotonic(), _deadline_in(self.lease_seconds)

            def taken(rows: pa.Table) -> pa.Table:
                others[:] = others_among(decode_rows(LeaseRecord, rows))
                return rows if others else self._row(token, deadline)

            self._transform(taken)
            if others:
                return others[0]
            self.token, self._deadline, self._expires = (
                token,
                deadline,
                begun + self.lease_seconds - self.margin_seconds,
            )
        return None

    def _extend(self) -> None:
        lost: list[str] = []
        begun, deadline = time.monotonic(), _deadline_in(self.lease_seconds)

        def extended(rows: pa.Table) -> pa.Table:
            leases = decode_rows(LeaseRecord, rows)
            lost[:] = [] if [row.token for row in leases] == [self.token] else [_holder_now(leases)]
            return rows if lost else self._row(self.token, deadline)

        try:
            self._transform(extended)
        except (SurveyorError, DeltaError, OSError) as error:
            raise self._lost(f"it could not be renewed: {error}") from None
        if lost:
            self.token, self._why_lost = "", lost[0]
            raise self._lost(lost[0])
        self._deadline, self._expires = deadline, begun + self.lease_seconds - self.margin_seconds

    def _row(self, token: str, deadline: datetime) -> pa.Table:
        holder = encode_holder(self.holder).decode()
        return self.warehouse.arrow(_TABLE, [{"token": token, "holder": holder, "deadline": deadline}])

    def _waiting_for(self, other: LeaseRecord, timeout: float) -> str:
        return waiting_text(holder_text(other.holder), timeout, _until(other))

    def _lost(self, reason: str) -> LeaseLostError:
        return LeaseLostError(lost_text(f"lease of this cluster in table {_TABLE}", reason))

    def _held_by(self, other: LeaseRecord) -> SurveyorError:
        advice = held_advice(self.holder, other.holder)
        return LeaseHeldError(held_text(holder_text(other.holder), f"table {_TABLE}", advice, _until(other)))


@contextmanager
def leased(
    warehouse: Warehouse, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
) -> Iterator[WarehouseLease]:
    """Hold the lease, and renew it until the end; raise LeaseHeldError if another process keeps it.

    Without a time limit, wait for the lease of a process that may have been killed, until it shows that it lives.
    """
    if not warehouse.has(_TABLE):
        warehouse.ensure_tables()
    lease = WarehouseLease(warehouse, holder, notify, is_patient=timeout_seconds is not None)
    limit = lease.lease_seconds + 2 * lease.margin_seconds if timeout_seconds is None else timeout_seconds
    with renewed(lease, limit):
        yield lease


@contextmanager
def renewed(lease: WarehouseLease, timeout_seconds: float) -> Iterator[None]:
    """Take a lease, waiting for another holder, and renew it until the block ends; then release it."""
    stop = Event()
    renewing = Thread(target=_renew, args=(lease, stop), daemon=True, name="lease")
    try:
        lease.acquire(timeout_seconds)
        renewing.start()
        lease.is_patient = True  # taken again, it was released to a cancellation, which lives
        yield
    finally:
        stop.set()
        if renewing.ident is not None:
            renewing.join()
        lease.release()


def _renew(lease: WarehouseLease, stop: Event) -> None:
    """Extend the deadline until `stop` is set; `refuse_lost` detects a failure before the next write."""
    while not stop.wait(lease.renewal_seconds):
        with suppress(LeaseLostError):
            lease.renew()


def current_holder(warehouse: Warehouse) -> LeaseHolder | None:
    """Return the holder of the lease of what changes the cluster, None if there is none or it cannot be decoded."""
    rows = warehouse.typed_rows(LeaseRecord) if warehouse.has(_TABLE) else []
    valid = _valid(row for row in rows if not is_of_snapshot(row))
    return known_holder(valid[0].holder) if valid else None


def _deadline_in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _valid(rows: Iterable[LeaseRecord]) -> list[LeaseRecord]:
    """Return the rows before their deadline."""
    return [row for row in rows if row.deadline > datetime.now(UTC)]


def is_of_snapshot(row: LeaseRecord) -> bool:
    """Return whether a row is the lease of a snapshot; one that cannot be decoded is not."""
    holder = known_holder(row.holder)
    return holder is not None and holder.command == SNAPSHOT


def _holder_now(rows: list[LeaseRecord]) -> str:
    return holder_now(rows[0].holder if rows else None)


def _until(row: LeaseRecord) -> str:
    return f" until {shown(row.deadline)}"


def shown(deadline: datetime) -> str:
    """Format a deadline for messages."""
    return f"{deadline:%H:%M:%S} UTC"


@dataclass(slots=True)
class SnapshotLease(WarehouseLease):
    """The lease of snapshots. It is independent of the lease of commits: neither excludes the other."""

    has_waited: bool = field(default=False, init=False)
    """Whether another process had the lease."""

    def _is_of_kind(self, row: LeaseRecord) -> bool:
        return is_of_snapshot(row)

    def _waiting_for(self, other: LeaseRecord, timeout: float) -> str:
        self.has_waited = True
        return (
            f"surveyor: waiting for another snapshot, by {holder_text(other.holder)}, {timeout:g} s at most; if that "
            f"process was killed, until {shown(other.deadline)}"
        )

    def _held_by(self, other: LeaseRecord) -> SurveyorError:
        return SurveyorError(
            f"{holder_text(other.holder)} still takes a snapshot of this cluster (table leases): check whether that "
            "process still works, then run this again"
        )

    def _lost(self, reason: str) -> LeaseLostError:
        return SnapshotLeaseLostError(
            f"the lease of snapshots of this cluster in table leases was lost ({reason}), so this snapshot was not "
            "completed, and no other one is affected; run the same command again"
        )


@contextmanager
def leased_snapshot(
    warehouse: Warehouse, holder: LeaseHolder, notify: Callable[[str], None]
) -> Iterator[SnapshotLease | None]:
    """Hold the lease of snapshots, and yield it; yield None in a folder, which has a lock instead.

    Raise SurveyorError if another process holds the lease for too long.
    """
    if is_local(warehouse.uri):
        yield None
        return
    assert holder.command == SNAPSHOT  # noqa: S101 - by which rows of the two kinds differ
    lease = SnapshotLease(warehouse, holder, notify, is_patient=True)
    with renewed(lease, LOCK_TIMEOUT_SECONDS):
        yield lease
