"""The cluster's lease as commands take it: for which plan, and how long they wait for another holder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from jobs.adapters.cluster_connections.interface import ClusterConnection, Lease
from jobs.core.signals import raise_on_signal
from jobs.execution.admin.audited_configs import ConfigAdmin
from jobs.repositories.actor import this_process
from jobs.runtime.console import log
from jobs.runtime.settings import Settings

LEASE_HANDOVER_SECONDS: Final = 60.0
"""Seconds that a cancellation waits for a commit to release the lease: it does so between two polls or requests."""


class NoLease:
    """A lease that excludes no other process and cannot be lost, for clusters with commit_lease = false."""

    def take(self, timeout: float) -> None:
        """Do nothing: several processes can have this lease at once."""

    def refuse_lost(self) -> None:
        """Do nothing: this lease cannot be lost."""

    def release(self) -> None:
        """Do nothing: no process waits for this lease."""


@contextmanager
def lease_for(
    settings: Settings, cluster: ClusterConnection, plan_id: str, command: str, timeout_seconds: float | None = None
) -> Iterator[Lease]:
    """Hold the cluster's lease, after waiting `timeout_seconds` at most; None waits only for a process that was killed.

    Raise LeaseHeldError if another process keeps it, and KeyboardInterrupt on Ctrl-C.
    """
    holder = this_process(command, plan_id)
    with raise_on_signal():
        if settings.conf.commit_lease:
            with cluster.lease(holder, timeout_seconds, log) as lease:
                yield lease
        else:
            yield NoLease()


@dataclass(frozen=True, slots=True)
class LeaseGuardedAdmin:
    """A client that alters configs only while we hold the lease."""

    admin: ConfigAdmin
    lease: Lease

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        self.lease.refuse_lost()
        return self.admin.alter_override(kind, resource, overrides)
