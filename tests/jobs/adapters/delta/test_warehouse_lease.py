"""The lease in the warehouse: one holder, a deadline, and a holder that stops once another process has taken it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.adapters.delta import warehouse_lease as module
from jobs.adapters.delta.lock_files import locked
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import WarehouseLease, current_holder, leased, renewed
from jobs.core.errors import ExitCode, LeaseHeldError, LeaseLostError
from schemas.lease_holder import LeaseHolder
from schemas.rows import LeaseRecord
from tests.jobs.support.warehouses.leases import expire_lease

pytestmark = pytest.mark.usefixtures("empty_tables")

ANN = LeaseHolder("ann", "ops1", 7, "commit", "1f", "2026-11-22T06:00:00+00:00")
BOB = LeaseHolder("bob", "ops2", 9, "cancel", "2e", "2026-11-22T06:00:05+00:00")


def silent(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def held(warehouse: Warehouse) -> Iterator[WarehouseLease]:
    with leased(warehouse, ANN, None, silent) as lease:
        yield lease


class BriefLease(WarehouseLease):
    """Of less than a second."""

    lease_seconds, margin_seconds, poll_seconds = 0.6, 0.2, 0.05


def take(warehouse: Warehouse, holder: LeaseHolder, timeout: float = 0.0) -> WarehouseLease:
    lease = WarehouseLease(warehouse, holder, silent, is_patient=True)
    lease.acquire(timeout)
    return lease


def test_the_second_learns_the_holder_and_the_deadline(warehouse: Warehouse, held: WarehouseLease) -> None:
    (row,) = warehouse.typed_rows(LeaseRecord)
    with pytest.raises(LeaseHeldError) as refused:
        take(warehouse, BOB)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert f"{ANN} has the lease of this cluster (table leases) until {row.deadline:%H:%M:%S} UTC" in str(refused.value)
    assert current_holder(warehouse) == ANN
    held.refuse_lost()


def test_it_ends_with_its_holder(warehouse: Warehouse) -> None:
    with leased(warehouse, ANN, None, silent):
        pass
    assert (warehouse.rows("leases"), current_holder(warehouse)) == ([], None)
    take(warehouse, BOB).refuse_lost()


def test_an_expired_lease_is_taken_and_its_holder_stops(warehouse: Warehouse, held: WarehouseLease) -> None:
    expire_lease(warehouse)
    assert current_holder(warehouse) is None
    other = take(warehouse, BOB)
    with pytest.raises(LeaseLostError, match=r"bob@ops2 .* has it now\). Nothing more is written") as lost:
        held.refuse_lost()
    assert lost.value.exit_code is ExitCode.RUNNING
    with pytest.raises(LeaseLostError):
        held.renew()
    held.release()
    other.refuse_lost()
    assert current_holder(warehouse) == BOB


def test_holder_stopped_past_its_deadline_takes_only_its_own_lease_again(
    warehouse: Warehouse, held: WarehouseLease
) -> None:
    expire_lease(warehouse)
    held._expires = 0.0  # noqa: SLF001 - as if the process had been stopped
    held.refuse_lost()
    assert current_holder(warehouse) == ANN
    expire_lease(warehouse)
    held._expires = 0.0  # noqa: SLF001
    take(warehouse, BOB)
    with pytest.raises(LeaseLostError, match="bob@ops2"):
        held.refuse_lost()


def test_a_holder_whose_machine_was_suspended_extends_it_before_it_writes(
    warehouse: Warehouse, held: WarehouseLease
) -> None:
    """Its monotonic clock stood still, so the deadline alone shows that another process may take the lease."""
    expire_lease(warehouse)
    held.refuse_lost()
    assert current_holder(warehouse) == ANN


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_check_answered_after_expiry_does_not_count(warehouse: Warehouse, *, is_taken: bool) -> None:
    """The warehouse finds the row unchanged, and then answers so late that another process may have taken it."""

    class Late(WarehouseLease):
        def _is_unchanged(self) -> bool:
            self._expires = 0.0  # as if the time had passed
            expire_lease(warehouse)
            if is_taken:
                take(warehouse, BOB)
            return True

    held = Late(warehouse, ANN, silent)
    held.acquire(0.0)
    with pytest.raises(LeaseLostError, match="bob@ops2") if is_taken else nullcontext():
        held.refuse_lost()
    assert current_holder(warehouse) == (BOB if is_taken else ANN)


def test_a_renewal_answered_after_its_deadline_does_not_count(warehouse: Warehouse) -> None:
    """Another process takes the row between the commit and the answer; if none does, the second renewal counts."""
    renewals: list[str] = []

    class Late(WarehouseLease):
        def _extend(self) -> None:
            super()._extend()
            renewals.append(self.token)
            self._expires = 0.0

    held = Late(warehouse, ANN, silent)
    held.acquire(0.0)
    held._expires = 0.0  # noqa: SLF001
    with pytest.raises(LeaseLostError, match="takes longer to answer than the lease lasts"):
        held.refuse_lost()
    assert len(renewals) == module._MAX_CHECKS  # noqa: SLF001


def test_it_is_renewed_while_its_holder_lives(warehouse: Warehouse) -> None:
    """A command that waits for one that was killed is refused once it sees that the other lives."""

    class Renewed(WarehouseLease):
        renewal_seconds = 0.3

    with renewed(Renewed(warehouse, ANN, silent), 0.0):
        (first,) = warehouse.typed_rows(LeaseRecord)
        lease = WarehouseLease(warehouse, BOB, silent)
        with pytest.raises(LeaseHeldError):
            lease.acquire(60.0)
        (row,) = warehouse.typed_rows(LeaseRecord)
        assert (row.token, row.deadline > first.deadline) == (first.token, True)


def put_ahead(warehouse: Warehouse) -> None:
    """Set the deadline as a holder with a clock an hour ahead writes it."""
    (row,) = warehouse.typed_rows(LeaseRecord)
    late = datetime.now(UTC) + timedelta(hours=1)
    warehouse.replace("leases", [{"token": row.token, "holder": row.holder, "deadline": late}])


@pytest.fixture
def brief(warehouse: Warehouse) -> Iterator[BriefLease]:
    lease = BriefLease(warehouse, ANN, silent)
    with renewed(lease, 0.0):
        yield lease


def test_a_deadline_by_a_wrong_clock_does_not_hold_longer(warehouse: Warehouse, brief: BriefLease) -> None:
    """The holder is stopped and renews nothing; when it continues, it finds out before its next write."""
    put_ahead(warehouse)
    other = BriefLease(warehouse, BOB, silent)
    other.acquire(60.0)
    with pytest.raises(LeaseLostError, match="bob@ops2"):
        brief.refuse_lost()
    other.renew()
    assert current_holder(warehouse) == BOB


def test_a_holder_that_renews_keeps_it_with_any_clock(warehouse: Warehouse, brief: BriefLease) -> None:
    put_ahead(warehouse)
    other = BriefLease(warehouse, BOB, silent, is_patient=True)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(other.acquire, 3.0)
        while not taking.done():
            put_ahead(warehouse)
        with pytest.raises(LeaseHeldError, match="ann@ops1"):
            taking.result()
    assert current_holder(warehouse) == ANN
    brief.release()


def test_the_row_is_read_only_if_the_table_has_changed(warehouse: Warehouse) -> None:
    """Thousands of requests are each preceded by the check; what another process writes is found by the next one."""
    reads: list[object] = []

    class CountedWarehouse(Warehouse):
        def typed_rows(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the original
            reads.append(arguments)
            return super().typed_rows(*arguments, **options)

    held = take(CountedWarehouse(warehouse.uri, warehouse.cluster), ANN)
    reads.clear()
    for _ in range(20):
        held.refuse_lost()
    assert len(reads) == 1
    other_cluster = take(Warehouse(warehouse.uri, "other"), BOB)
    held.refuse_lost()
    assert len(reads) == 2
    expire_lease(warehouse)
    take(warehouse, BOB)
    with pytest.raises(LeaseLostError, match="bob@ops2"):
        held.refuse_lost()
    other_cluster.release()


def test_a_stopped_lock_holder_fails_renewal_after_a_timeout(warehouse: Warehouse) -> None:
    class Impatient(WarehouseLease):
        lock_seconds = 0.1

    held = Impatient(warehouse, ANN, silent)
    held.acquire(0.0)
    with locked(warehouse.uri, "leases"):
        held.refuse_lost()
        with pytest.raises(LeaseLostError, match=r"could not be renewed: .* has held the lock"):
            held.renew()
    held.renew()


def test_a_released_lease_is_waited_for(warehouse: Warehouse, held: WarehouseLease) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, warehouse, BOB, 60.0)
        held.release()
        waiting.result(timeout=60).refuse_lost()
    with pytest.raises(LeaseLostError, match="it was released"):
        held.refuse_lost()


def test_lease_released_to_a_live_client_is_waited_for(warehouse: Warehouse) -> None:
    """A commit hands it to a cancellation, and takes it again to remove its throttle."""
    waits = Event()
    with leased(warehouse, ANN, None, lambda _: waits.set()) as lease, ThreadPoolExecutor(1) as pool:
        lease.release()
        other = take(warehouse, BOB)
        taking = pool.submit(lease.acquire, 60.0)
        assert waits.wait(60)
        other.renew()
        with pytest.raises(FutureTimeoutError):
            taking.result(timeout=1)
        other.release()
        taking.result(timeout=60)
        lease.refuse_lost()


def test_commands_without_a_plan_do_not_resume_each_other(warehouse: Warehouse) -> None:
    for holder, advice in ((ANN, "this commit resumes"), (replace(ANN, plan=""), "wait until it is done")):
        with leased(warehouse, holder, None, silent), pytest.raises(LeaseHeldError, match=advice):
            take(warehouse, holder)


@pytest.mark.parametrize("locks", [True, False], ids=["folder", "object store"])
def test_of_many_at_once_one_gets_it(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:  # noqa: FBT001
    """On an object store there is no lock of a folder, and Delta's commit alone decides."""
    if not locks:
        monkeypatch.setattr("jobs.adapters.delta.lock_files.locked", lambda *_, **__: nullcontext())

    def attempt(number: int) -> bool:
        try:
            take(warehouse, LeaseHolder("u", "h", number, "commit", "p", "now"))
        except LeaseHeldError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    assert len(warehouse.rows("leases")) == 1


def test_leases_of_clusters_are_apart(warehouse: Warehouse, held: WarehouseLease) -> None:
    other = Warehouse(warehouse.uri, "other")
    taken = take(other, BOB)
    taken.refuse_lost()
    held.refuse_lost()
    assert [row["token"] for row in other.rows("leases")] == [taken.token]
    assert [row["token"] for row in warehouse.rows("leases")] == [held.token]
