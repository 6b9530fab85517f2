"""The lease of snapshots on stores without locks: one at a time, apart from the lease of commits, none in a folder."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import SnapshotLease, current_holder, leased, leased_snapshot, renewed
from jobs.core.errors import ExitCode, SnapshotLeaseLostError, SurveyorError
from schemas.lease_holder import LeaseHolder
from schemas.rows import LeaseRecord
from tests.jobs.support.warehouses.leases import expire_lease

ANN = LeaseHolder("ann", "ops1", 7, "snapshot", "", "2026-11-22T06:00:00+00:00")
BOB = replace(ANN, user="bob", pid=9)
COMMIT = replace(ANN, command="commit", plan="1f")


def silent(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "warehouse"), "default")
    made.ensure_tables()
    return made


@contextmanager
def leased_on_store(
    warehouse: Warehouse, holder: LeaseHolder, notify: Callable[[str], None], timeout: float = 1800.0
) -> Iterator[SnapshotLease]:
    """Hold the lease as on an object store."""
    lease = SnapshotLease(warehouse, holder, notify, is_patient=True)
    with renewed(lease, timeout):
        yield lease


def test_a_folder_needs_none(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    before = warehouse.version("leases")
    with leased_snapshot(warehouse, ANN, silent) as lease:
        assert (lease, warehouse.version("leases")) == (None, before)


def test_a_snapshot_makes_two_commits(warehouse: Warehouse) -> None:
    before = warehouse.version("leases")
    with leased_on_store(warehouse, ANN, silent) as lease:
        for _ in range(9):
            lease.refuse_lost()
        assert not lease.has_waited
    assert (warehouse.version("leases") - before, warehouse.rows("leases")) == (2, [])


def test_the_second_waits_and_names_the_holder_and_the_time(warehouse: Warehouse) -> None:
    said, waits = list[str](), Event()

    def heard(line: str) -> None:
        said.append(line)
        waits.set()

    def second() -> bool:
        with leased_on_store(warehouse, BOB, heard) as lease:
            lease.refuse_lost()
            return lease.has_waited

    with ThreadPoolExecutor() as pool:
        with leased_on_store(warehouse, ANN, silent):
            (row,) = warehouse.typed_rows(LeaseRecord)
            waiting = pool.submit(second)
            assert waits.wait(60)
            assert not waiting.done()
        assert waiting.result(60)
    (line,) = said
    assert line.startswith(f"surveyor: waiting for another snapshot, by {ANN}, 1800 s at most; ")
    assert line.endswith(f"if that process was killed, until {row.deadline:%H:%M:%S} UTC")


def test_the_row_of_a_killed_snapshot_runs_out(warehouse: Warehouse) -> None:
    """Its holder continues after a pause and finds out before its next write."""
    with leased_on_store(warehouse, ANN, silent) as paused:
        expire_lease(warehouse)
        with leased_on_store(warehouse, BOB, silent):
            with pytest.raises(SnapshotLeaseLostError, match=r"bob@ops1 .* has it now\), so this snapshot") as lost:
                paused.refuse_lost()
            assert lost.value.exit_code is ExitCode.ERROR
        assert warehouse.rows("leases") == []


def test_one_that_never_ends_is_named_after_half_an_hour(warehouse: Warehouse) -> None:
    with (
        leased_on_store(warehouse, ANN, silent),
        pytest.raises(SurveyorError, match=r"ann@ops1 .* still takes a snapshot") as refused,
        leased_on_store(warehouse, BOB, silent, timeout=0.0),
    ):
        pass
    assert refused.value.exit_code is ExitCode.ERROR


@pytest.mark.parametrize("commit_first", [True, False])
def test_commits_and_snapshots_do_not_exclude_each_other(warehouse: Warehouse, *, commit_first: bool) -> None:
    """Each keeps its row through the renewals and the release of the other."""
    both = [leased(warehouse, COMMIT, 0.0, silent), leased_on_store(warehouse, ANN, silent)]
    first, second = both if commit_first else reversed(both)
    with first as one:
        with second as other:
            assert current_holder(warehouse) == COMMIT
            for lease in (one, other):
                lease.renew()
                lease.refuse_lost()
            assert len(warehouse.rows("leases")) == 2
        one.renew()
        one.refuse_lost()
        assert current_holder(warehouse) == (COMMIT if commit_first else None)
    assert warehouse.rows("leases") == []
