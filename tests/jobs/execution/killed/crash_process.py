"""A process that lets commits die: each is forked off, and killed by SIGKILL at one of the points that it passes.

A point is right before and right after each thing that a commit does to somebody else: a write to ZooKeeper, the end of
its session, a control request, a write to a Delta table. Points are numbered as they are passed, and written down.

In, a line of JSON each: `arguments` of the command line, `notes`, a file for the names of points, `die_at`, the number
of a point, 0 for none, and, for who asks Kafka's controller, `asks`, the ZooKeeper that it lives in, and `stuck`, where
what it moves is not to arrive (`fake_admin.py`). `meets` are files by multi: right before that one it makes the
first file and waits for the second, so that two commits, or a commit and a test, send theirs at once. Out: the exit
code, -9 for who died. To fork costs a tenth of starting a process, as all that a commit imports is there; no thread is
before the first fork, and this process itself connects to nobody.
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
from jobs.execution.batch import commit as commit_batch
from jobs.execution.batch import fenced_writer as fenced_writes
from tests.jobs.execution.killed import fake_admin

WRITES = (Create, Create2, Delete, SetData, Transaction)
TAKE_OVER = "take-over"
MEETING_TIMEOUT_SECONDS = 20.0
"""Seconds to wait for somebody."""


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
    """Where others are waited for: TAKE_OVER, and `multi 1`, `multi 2`, ... of those that follow."""

    files: Meets
    multis: int = 0

    def keep(self, multi: Transaction) -> None:
        takes_over = any(isinstance(each, Create) and each.path.endswith("/controller") for each in multi.operations)
        self.multis += not takes_over
        if files := self.files.get(TAKE_OVER if takes_over else f"multi {self.multis}"):
            meet(*map(Path, files))


def meet(mine: Path, other: Path) -> None:
    """Say that one is there, and wait for the other."""
    mine.touch()
    deadline = time.monotonic() + MEETING_TIMEOUT_SECONDS
    while not other.exists():
        if time.monotonic() > deadline:
            os._exit(98)
        time.sleep(0.0002)


def once(reach: Callable[[], None]) -> Callable[[object], None]:
    """A link that kazoo may call again, where another is made after the answer came: that would be a point too many."""
    left = [reach]

    def linked(_: object) -> None:
        if left:
            left.pop()()

    return linked


def mark(points: Points, meetings: Meetings) -> None:
    """Let whatever touches somebody else pass two points."""
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
        heard = answer(channel, *limits)
        points.reach("after an answer")
        return heard

    def writing(lake: Warehouse, table: str, write: Callable[[], Any], *, shared: bool = False) -> Any:  # noqa: ANN401
        points.reach("before a table's write")
        written = retried(lake, table, write, shared=shared)
        points.reach("after a table's write")
        return written

    KazooClient._call, KazooClient.stop = calling, stopping  # noqa: SLF001
    BrokerConnection.send = sending  # type: ignore[assignment,method-assign]
    BrokerConnection.receive_response = answered  # type: ignore[assignment,method-assign]
    Warehouse._commit = writing  # type: ignore[assignment,method-assign]  # noqa: SLF001


def live(  # noqa: PLR0913 - all that a job says
    arguments: list[str], notes: str, die_at: int, asks: str | None, *, stuck: bool, meets: Meets
) -> None:
    """Be a commit, and do not come back."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(os.open(f"{notes}.stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    points = Points(os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), die_at)
    if asks is not None:
        fake_admin.install(asks, points.reach, stuck=stuck)
    mark(points, Meetings(meets))
    fenced_writes.MAX_BATCH_CHANGES = 2  # type: ignore[misc]
    commit_batch.RESIGN_TIMEOUT_SECONDS = 0.0  # type: ignore[misc]
    sys.argv = ["surveyor", *arguments]
    cli.main()


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
