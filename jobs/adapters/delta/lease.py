"""The lease of a cluster without ZooKeeper: a row in the warehouse, with a holder and a deadline.

The row is replaced by a conditional commit of Delta, so of two processes that take the lease at once one finds the
other's row. A thread moves the deadline on while the holder lives; the row of a process that was killed runs out, and
the next one takes it. The holder's own clock for the deadline is monotonic. It stops some seconds before the deadline
that others see, so a holder whose lease may have been taken finds that out before its next write, also if it was
stopped for a while. Clocks of hosts that differ by more than the margin can shorten the lease of another host; its
holder then finds the row taken. Processes are kept apart only if they use the same warehouse and name of the cluster.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Lock, Thread
from typing import Final
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.warehouse import Warehouse, typed
from jobs.core.errors import LeaseHeldError, LeaseLostError, SurveyorError
from schemas.lease import LeaseHolder, decode_holder, encode_holder
from schemas.rows import LeaseRecord
from schemas.znodes import MalformedZnodeError

LEASE_SECONDS: Final = 30.0
"""Seconds from a renewal to the deadline."""

RENEWAL_SECONDS: Final = 10.0
"""Seconds between two renewals."""

MARGIN_SECONDS: Final = 5.0
"""Seconds before the deadline from which on the holder writes nothing: for clocks that differ, and for a request that
was sent just before.
"""

_POLL_SECONDS: Final = 0.5
_TABLE: Final = LeaseRecord.TABLE
_ALL_ROWS: Final = ("token", "!=", "")


@dataclass(slots=True)
class WarehouseLease:
    """A lease; it is held while the row has `token`. `token` is empty before it is taken and after its release."""

    warehouse: Warehouse
    holder: LeaseHolder
    notify: Callable[[str], None]
    is_patient: bool = False
    """Whether to wait also for a holder that lives, because it is expected to release the lease."""
    token: str = ""
    _expires: float = 0.0
    """When our lease ends by the monotonic clock, less the margin."""
    _why_lost: str = "it was released"
    _lock: Lock = field(default_factory=Lock)
    """Keeps the renewing thread and the command apart."""

    def take(self, timeout: float) -> None:
        """Take the lease, waiting for another holder; raise LeaseHeldError after `timeout` seconds.

        Unless it is patient, it waits only until the other holder is seen to live, by a new deadline.
        """
        if self.token:
            return
        give_up = time.monotonic() + timeout
        first: LeaseRecord | None = None
        while (other := self._try_take()) is not None:
            is_alive = first is not None and (other.token, other.deadline) != (first.token, first.deadline)
            if time.monotonic() > give_up or (is_alive and not self.is_patient):
                raise LeaseHeldError(self._held_by(other))
            if first is None:
                first = other
                self.notify(
                    f"surveyor: {holder_of(other)} has the lease of this cluster until {_shown(other.deadline)}; "
                    f"waiting for it, {timeout:g} s at most: that of a process that was killed ends by then"
                )
            time.sleep(_POLL_SECONDS)

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless we have the lease; called right before each write."""
        with self._lock:
            if not self.token:
                raise _lost(self._why_lost)
            if time.monotonic() >= self._expires:  # this process was stopped, or the warehouse did not answer
                self._extend()
                return
            rows = self._read()
            if [row.token for row in rows] != [self.token]:
                raise _lost(_holder_now(rows))
            if rows[0].deadline <= datetime.now(UTC) + timedelta(seconds=MARGIN_SECONDS):
                self._extend()  # the machine was suspended, and its monotonic clock with it

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
                self.warehouse.transform_rows(_TABLE, _ALL_ROWS, without_ours)

    def _read(self) -> list[LeaseRecord]:
        return self.warehouse.typed_rows(LeaseRecord)

    def _try_take(self) -> LeaseRecord | None:
        """Take the lease unless another process has it; return its row then."""
        token, others = str(uuid4()), _valid(self._read())
        if others:
            return others[0]
        with self._lock:
            begun = time.monotonic()

            def taken(rows: pa.Table) -> pa.Table:
                others[:] = _valid(typed(LeaseRecord, rows))
                return rows if others else self._row(token)

            self.warehouse.transform_rows(_TABLE, _ALL_ROWS, taken)
            if others:
                return others[0]
            self.token, self._expires = token, begun + LEASE_SECONDS - MARGIN_SECONDS
        return None

    def _extend(self) -> None:
        lost: list[str] = []
        begun = time.monotonic()

        def extended(rows: pa.Table) -> pa.Table:
            found = typed(LeaseRecord, rows)
            lost[:] = [] if [row.token for row in found] == [self.token] else [_holder_now(found)]
            return rows if lost else self._row(self.token)

        try:
            self.warehouse.transform_rows(_TABLE, _ALL_ROWS, extended)
        except (SurveyorError, DeltaError, OSError) as error:
            raise _lost(f"it could not be renewed: {error}") from None
        if lost:
            self.token, self._why_lost = "", lost[0]
            raise _lost(lost[0])
        self._expires = begun + LEASE_SECONDS - MARGIN_SECONDS

    def _row(self, token: str) -> pa.Table:
        deadline = datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS)
        holder = encode_holder(self.holder).decode()
        return self.warehouse.arrow(_TABLE, [{"token": token, "holder": holder, "deadline": deadline}])

    def _held_by(self, other: LeaseRecord) -> str:
        advice = "wait until it is done, or interrupt it, then run this again"
        if self.holder.plan and _decoded(other) == self.holder.plan:
            advice = "interrupt it and run this again: the requested moves continue, and this commit resumes from there"
        return (
            f"{holder_of(other)} has the lease of this cluster (table {_TABLE}) until {_shown(other.deadline)}, and "
            f"only one process may at a time: {advice}"
        )


class NoLease(WarehouseLease):
    """A lease that excludes no other process, for clusters with commit_lease = false."""

    def take(self, timeout: float) -> None:
        del timeout

    def refuse_lost(self) -> None:
        """Do nothing: this lease cannot be lost."""

    def release(self) -> None:
        """Do nothing: no process waits for this lease."""


@contextmanager
def leased(
    warehouse: Warehouse, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
) -> Iterator[WarehouseLease]:
    """Hold the lease, and renew it meanwhile; raise LeaseHeldError if another process keeps it.

    Without a time limit, wait for the lease of a process that may have been killed, until it shows that it lives.
    """
    if not warehouse.has(_TABLE):
        warehouse.ensure_tables()
    lease = WarehouseLease(warehouse, holder, notify, is_patient=timeout_seconds is not None)
    stop = Event()
    renewing = Thread(target=_renew, args=(lease, stop), daemon=True, name="lease")
    try:
        lease.take(LEASE_SECONDS + MARGIN_SECONDS if timeout_seconds is None else timeout_seconds)
        renewing.start()
        lease.is_patient = True  # taken again, it was released to a cancellation, which lives
        yield lease
    finally:
        stop.set()
        if renewing.ident is not None:
            renewing.join()
        lease.release()


def _renew(lease: WarehouseLease, stop: Event) -> None:
    """Move the deadline on until `stop`; whatever fails is found by `refuse_lost` before the next write."""
    while not stop.wait(RENEWAL_SECONDS):
        with suppress(LeaseLostError):
            lease.renew()


def current_holder(warehouse: Warehouse) -> LeaseHolder | None:
    """Return the holder of the lease, None if there is none or it cannot be decoded."""
    valid = _valid(warehouse.typed_rows(LeaseRecord) if warehouse.has(_TABLE) else [])
    try:
        return decode_holder(valid[0].holder.encode()) if valid else None
    except MalformedZnodeError:
        return None


def _valid(rows: Iterable[LeaseRecord]) -> list[LeaseRecord]:
    """Return the rows before their deadline."""
    return [row for row in rows if row.deadline > datetime.now(UTC)]


def holder_of(row: LeaseRecord) -> str:
    """Describe the holder of the lease."""
    try:
        return str(decode_holder(row.holder.encode()))
    except MalformedZnodeError:
        return f"a process of another version ({row.holder[:200]!r})"


def _decoded(row: LeaseRecord) -> str | None:
    """The plan that the holder commits."""
    try:
        return decode_holder(row.holder.encode()).plan
    except MalformedZnodeError:
        return None


def _holder_now(rows: list[LeaseRecord]) -> str:
    return f"{holder_of(rows[0])} has it now" if rows else "it has no holder now"


def _shown(deadline: datetime) -> str:
    return f"{deadline:%H:%M:%S} UTC"


def _lost(reason: str) -> LeaseLostError:
    return LeaseLostError(
        f"the lease of this cluster in table {_TABLE} was lost ({reason}). Nothing more is written; the requested "
        "moves continue in the cluster. Run the same command again to resume"
    )
