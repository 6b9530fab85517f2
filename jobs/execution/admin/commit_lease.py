"""The lease of a cluster that a command holds while it commits, so that no other command does at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.core.signals import raise_on_signal
from jobs.repositories.actor import this_process
from jobs.runtime.console import log
from jobs.runtime.settings import Settings


class NoLease:
    """A lease that excludes no other process and cannot be lost, for clusters with commit_lease = false."""

    def acquire(self, timeout: float) -> None:
        """Do nothing: several processes can have this lease at once."""

    def refuse_lost(self) -> None:
        """Do nothing: this lease cannot be lost."""

    def release(self) -> None:
        """Do nothing: no process waits for this lease."""


@contextmanager
def lease_for(
    settings: Settings, cluster: Cluster, plan_id: str, command: str, timeout_seconds: float | None = None
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
