"""A process that forks commits and kills each by SIGKILL at one of its kill points.

A kill point is right before and right after each effect of a commit outside its process: a write to ZooKeeper, the end
of its session, a control request, a write to a Delta table. Points are numbered as they are passed, and their names are
written to a file.

Each job is a line of JSON on standard input: `arguments` of the command line; `notes`, the file for the names of
points; `die_at`, the number of a point, 0 for none; `asks`, the ZooKeeper of the fake controller if the command needs
one, and `stuck` if its reassignments must not complete (`fake_admin.py`). `meets` has two files for some multis: right
before such a multi the process creates the first file and waits for the second, so that two commits, or a commit and a
test, send theirs at the same time. The output is the exit code, -9 for a killed command. A fork costs a tenth of
starting a process, because all imports of a commit are done. This process starts no thread before the first fork and
connects to no server.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create, Create2, Delete, SetData, Transaction

import jobs.cancel
import jobs.commit  # noqa: F401 - what the command line would import in each process
from jobs import cli
from jobs.adapters.brokers.connection import BrokerConnection
from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.execution.killed import fake_admin
from tests.jobs.execution.killed.fake_admin import PACE

WRITES = (Create, Create2, Delete, SetData, Transaction)
TAKE_OVER = "take-over"
MEETING_TIMEOUT_SECONDS = 20.0
"""Seconds to wait for the other side."""


@dataclass
class Points:
    notes: int
    die_at: int
    passed: int = 0

    def __post_init__(self) -> None:
        self.lock = Lock()

    def reach(self, name: str) -> None:
        with self.lock:
            self.passed += 1
            os.write(self.notes, f"{name}\n".encode())
            if self.passed == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)


Meets = Mapping[str, tuple[str, str]]


@dataclass
class Meetings:
    """The waits of a process: at TAKE_OVER, and at `multi 1`, `multi 2`, ... of the multis that follow."""

    files: Meets
    multis: int = 0

    def keep(self, multi: Transaction) -> None:
        takes_over = any(
            isinstance(operation, Create) and operation.path.endswith("/controller") for operation in multi.operations
        )
        self.multis += not takes_over
        if files := self.files.get(TAKE_OVER if takes_over else f"multi {self.multis}"):
            meet(*map(Path, files))


def meet(own_file: Path, other_file: Path) -> None:
    """Create one's own file, and wait for the other one."""
    own_file.touch()
    deadline = time.monotonic() + MEETING_TIMEOUT_SECONDS
    while not other_file.exists():
        if time.monotonic() > deadline:
            os._exit(98)
        time.sleep(0.0002)


def once(reach: Callable[[], None]) -> Callable[[object], None]:
    """Make a callback that calls `reach` only once.

    kazoo may call it again if another link is made after the answer.
    """
    pending = [reach]

    def linked(_: object) -> None:
        if pending:
            pending.pop()()

    return linked


def mark(points: Points, meetings: Meetings) -> None:
    """Let everything that has an effect outside this process pass two kill points."""
    call, stop = KazooClient._call, KazooClient.stop  # noqa: SLF001 - where all requests come by
    send, answer, retried = BrokerConnection.send, BrokerConnection.receive_response, Warehouse._commit  # noqa: SLF001

    def calling(client: Any, request: Any, result: Any) -> Any:  # noqa: ANN401 - kazoo's
        if isinstance(request, Transaction):
            meetings.keep(request)
        if isinstance(request, WRITES):
            points.reach(f"before {type(request).__name__}")
            result.rawlink(once(partial(points.reach, f"after {type(request).__name__}")))
        return call(client, request, result)

    def stopping(client: Any) -> None:  # noqa: ANN401
        points.reach("before the session's end")
        stop(client)
        points.reach("after the session's end")

    def sending(channel: BrokerConnection, api: str, *request: Any) -> None:  # noqa: ANN401
        points.reach(f"before {api}")
        send(channel, api, *request)
        points.reach(f"after {api}")

    def answered(channel: BrokerConnection, *limits: Any) -> bytes:  # noqa: ANN401
        payload = answer(channel, *limits)
        points.reach("after an answer")
        return payload

    def writing(warehouse: Warehouse, table: str, write: Callable[..., Any], **limits: Any) -> Any:  # noqa: ANN401
        points.reach("before a table's write")
        written = retried(warehouse, table, write, **limits)
        points.reach("after a table's write")
        return written

    KazooClient._call, KazooClient.stop = calling, stopping  # noqa: SLF001
    BrokerConnection.send = sending  # type: ignore[assignment,method-assign]
    BrokerConnection.receive_response = answered  # type: ignore[assignment,method-assign]
    Warehouse._commit = writing  # type: ignore[assignment,method-assign]  # noqa: SLF001


def live(  # noqa: PLR0913 - the fields of a job
    arguments: list[str], notes: str, die_at: int, asks: str | None, *, stuck: bool, meets: Meets
) -> None:
    """Run one command in the forked child; it does not return."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(os.open(f"{notes}.stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    points = Points(os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), die_at)
    pace = PACE if asks is None else fake_admin.install(asks, points.reach, stuck=stuck)
    mark(points, Meetings(meets))
    sys.argv = ["surveyor", *arguments]
    cli.main(pace)


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            try:
                live(**job)
            except SystemExit as end:
                code = end.code
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 1)
            os._exit(99)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
