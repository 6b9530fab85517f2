"""The process as other processes see it: the author of a commit in `commits`, or the holder of a lease."""

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from schemas.lease_holder import LeaseHolder

AIRFLOW: Final = ("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID", "AIRFLOW_CTX_TASK_ID")
"""Environment variables that Airflow sets for a task and its child processes."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a commit: the columns `who` and `run`."""

    user: str
    run: str | None = None
    """DAG, run and task; None outside Airflow."""

    @property
    def columns(self) -> dict[str, str | None]:
        return {"who": self.user, "run": self.run}


def this_actor() -> Actor:
    """Return the user, host and Airflow task of this process."""
    return Actor(f"{getpass.getuser()}@{socket.gethostname()}", run_in(os.environ))


def this_process(command: str, plan_id: str = "") -> LeaseHolder:
    """Describe this process and its purpose for other processes that read the lease."""
    since = msgspec.to_builtins(datetime.now(UTC).replace(microsecond=0))
    return LeaseHolder(getpass.getuser(), socket.gethostname(), os.getpid(), command, plan_id, since)


def run_in(environment: Mapping[str, str]) -> str | None:
    """Return the Airflow task as `DAG/run/task`, or None outside Airflow.

    >>> run_in(dict(zip(AIRFLOW, ["balance", "manual__2026-11-23", "commit"])))
    'balance/manual__2026-11-23/commit'
    """
    # a missing name leaves an empty part, so the position of the others still identifies them
    names = [environment.get(key, "") for key in AIRFLOW]
    return "/".join(names) if any(names) else None
