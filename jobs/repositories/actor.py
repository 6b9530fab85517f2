"""Who commits, as `commits` has it: the user and host, and the run of Airflow's that the process belongs to."""

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AIRFLOW: Final = ("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID", "AIRFLOW_CTX_TASK_ID")
"""What Airflow puts into the environment of a task and of what that starts."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The columns `who` and `run`."""

    user: str
    run: str | None = None
    """The run of the DAG and its task; None where no Airflow started this."""

    @property
    def columns(self) -> dict[str, str | None]:
        return {"who": self.user, "run": self.run}


def this_actor() -> Actor:
    """Name whoever runs this process."""
    return Actor(f"{getpass.getuser()}@{socket.gethostname()}", run_in(os.environ))


def run_in(environment: Mapping[str, str]) -> str | None:
    """Name the task of Airflow's that runs this, None where none does.

    >>> run_in(dict(zip(AIRFLOW, ["balance", "manual__2026-11-23", "commit"])))
    'balance/manual__2026-11-23/commit'
    """
    # a name that is missing leaves its place empty: which of the three it is stays plain
    names = [environment.get(key, "") for key in AIRFLOW]
    return "/".join(names) if any(names) else None
