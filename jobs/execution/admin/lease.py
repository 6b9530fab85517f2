"""The lease of the cluster, as commands take it: for what plan, and how long they wait for somebody else's."""

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from jobs.adapters.zookeeper import lease as adapter
from jobs.adapters.zookeeper.lease import Lease, NoLease, leased
from jobs.core.signals import unwinding
from jobs.execution.admin.audited_configs import ConfigAdmin
from jobs.runtime.console import say
from jobs.runtime.settings import Settings
from schemas.lease import Holder

HAND_OVER: Final = 60.0
"""Seconds that a cancellation waits for a commit to let go: between two looks, or once a request is answered."""


def this_process(command: str, plan_id: str = "") -> Holder:
    """Who we are, and what for, in the words that others read."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(getpass.getuser(), socket.gethostname(), os.getpid(), command, plan_id, since)


@contextmanager
def lease_for(settings: Settings, plan_id: str, command: str, patience: float | None = None) -> Iterator[Lease]:
    """Hold the lease of the cluster; raise LeaseHeldError where somebody else keeps it, KeyboardInterrupt on Ctrl-C."""
    holder = this_process(command, plan_id)
    with unwinding():
        if settings.conf.commit_lease:
            with leased(settings.zookeeper, holder, adapter.PATIENCE if patience is None else patience, say) as lease:
                yield lease
        else:
            yield NoLease(None, holder, say)


@dataclass(frozen=True, slots=True)
class UnderLease:
    """Who sets configurations, asked only while the lease is ours."""

    admin: ConfigAdmin
    lease: Lease

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        self.lease.refuse_lost()
        return self.admin.alter_override(kind, resource, overrides)
