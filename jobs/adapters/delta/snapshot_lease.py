"""The lease of snapshots on stores without locks: of two processes, one at a time takes a snapshot of a cluster.

In a folder, a lock of the operating system ensures this (`jobs.adapters.delta.locks`). On object stores and HDFS, a row
in the table `leases` does. It has a deadline, which its holder extends, so the lease of a killed process expires.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jobs.adapters.delta.locks import LOCK_TIMEOUT_SECONDS
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import SNAPSHOT, WarehouseLease, is_of_snapshot, renewed, shown
from jobs.adapters.delta.warehouse_paths import is_local
from jobs.core.errors import LeaseLostError, SnapshotLeaseLostError, SurveyorError
from schemas.lease_holder import LeaseHolder, holder_text
from schemas.rows import LeaseRecord


@dataclass(slots=True)
class SnapshotLease(WarehouseLease):
    """The lease of snapshots; that of commits excludes no snapshot, and a snapshot no commit."""

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
