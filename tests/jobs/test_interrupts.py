"""Ctrl-C and SIGTERM at many moments of real processes: one line, exit code 130 or 143, no process left over."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.spark.engine_choice import Engine
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

PROGRESS = re.compile(r"  \.\.\. .*")
pytestmark = [pytest.mark.spark, pytest.mark.torture]

SURVEYOR = [sys.executable, "-m", "jobs.entry"]
ENDED = "surveyor: interrupted; nothing was written to the cluster"

ASLEEP = """\
import time
from jobs.core.signals import defer_signals, install_handlers, is_interrupted, raise_on_signal
install_handlers()
with {way}():
    try:
        print("here", flush=True)
        while not is_interrupted():
            time.sleep(0.01)
        time.sleep(30)
    finally:
        print("put in order", flush=True)
"""

WHILE_IMPORTING = """\
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
from jobs.entry import main
sys.meta_path.insert(0, Interrupting())
sys.argv = ["surveyor", "show", "brokers", "--warehouse", {warehouse!r}]
main()
"""

LEAVING = """\
import os, signal, sys
from jobs.entry import main
class Leaving:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)
leaving = Leaving()
sys.argv = ["surveyor", "show", "brokers", "--warehouse", {warehouse!r}]
main()
"""

READ_BY_EXECUTORS = """\
from jobs import cli
from jobs.runtime.pace import Pace
from jobs.snapshots import topic_reading
run = cli.main
cli.main = lambda: run(Pace(small_cluster=0))
read_on_executors = topic_reading.read_on_executors
asleep = "java_method('java.lang.Thread', 'sleep', 60000L) = 'null'"
topic_reading.read_on_executors = lambda *args: read_on_executors(*args).where(asleep)
from jobs.entry import main
main()
"""
"""Each row takes an executor a minute, so that Spark is at work when the signal comes, however quick the machine."""

READ_BY_THE_ENGINE: Final = """\
import time
from jobs import cli
from jobs.runtime.pace import Pace
from jobs.snapshots import topic_reading
run = cli.main
cli.main = lambda: run(Pace(small_cluster=0))
read_on_executors = topic_reading.read_on_executors
def asleep(batches):
    time.sleep(60)
    yield from batches
def read(*args):
    rows = read_on_executors(*args)
    return rows.mapInArrow(asleep, rows.schema)
topic_reading.read_on_executors = read
from jobs.entry import main
main()
"""
"""The same for the embedded engine."""


class Running:
    """A process with a session of its own, as a shell gives each job a group."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.stderr = folder / "stderr"
        self.stdout = folder / "stdout"
        with self.stderr.open("wb") as errors, self.stdout.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )

    def handles_signals(self) -> bool:
        """SIGTERM is among the signals it catches: Python itself catches SIGINT alone."""
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert caught
        return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)

    def says(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.stderr.read_text() + self.stdout.read_text()

    def has_child(self) -> bool:
        return len(self.session()) > 1

    def session(self) -> list[int]:
        """The processes in its session."""
        pids = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            except OSError:  # gone meanwhile
                continue
            if int(session) == self.process.pid and state != "Z":
                pids.append(int(stat.parent.name))
        return pids

    def lines(self) -> list[str]:
        return [line for line in self.stderr.read_text().splitlines() if not PROGRESS.fullmatch(line)]

    def stop(self, number: signal.Signals, *, alone: bool = False) -> tuple[int, list[str]]:
        """Send a signal, to all of the group as a terminal does or to the process alone."""
        if alone:
            self.process.send_signal(number)
        else:
            os.killpg(self.process.pid, number)
        code = self.process.wait(20)
        assert eventually(lambda: not self.session(), 10)
        return code, self.lines()


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_while_modules_are_imported(tmp_path: Path, seconds: float) -> None:
    running = Running(tmp_path, *SURVEYOR, "show", "brokers", "--warehouse", str(tmp_path / "none"))
    assert eventually(running.handles_signals)
    time.sleep(seconds)
    code, lines = running.stop(signal.SIGINT)
    if code == 22:  # a quick machine is through by then, or nearly
        assert [line.startswith("surveyor: no warehouse at") for line in lines] == [True]
    else:
        assert (code, lines) == (130, [ENDED])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_several_clusters_are_read(tmp_path: Path, number: signal.Signals) -> None:
    """Threads that wait for servers without an answer, and clusters that have not begun, end with the process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        conf = tmp_path / "surveyor.toml"
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        conf.write_text("".join(f'[clusters.{name}]\nzookeeper = "{hosts}"\n' for name in "abcd"))
        running = Running(tmp_path, *SURVEYOR, "status", "--all-clusters", "--parallel", "2", "--conf", str(conf))
        assert eventually(running.says("  ... status: 0 of 4 clusters"))
        assert running.stop(number) == (128 + number, [ENDED])


COMPLAINING = """\
import os, subprocess, time
from jobs.core.signals import relay_stderr, install_handlers
install_handlers()
reading, writing = os.pipe()
relay_stderr(reading)
child = "trap 'echo told to end >&2; exit 1' TERM; echo at work >&2; while :; do sleep 0.05; done"
subprocess.Popen(["sh", "-c", child], stderr=writing)
time.sleep(30)
"""


def test_a_child_is_heard_until_the_last_line(tmp_path: Path) -> None:
    running = Running(tmp_path, sys.executable, "-c", COMPLAINING)
    assert eventually(running.says("at work"))
    assert running.stop(signal.SIGTERM, alone=True) == (143, ["at work", ENDED])


STARTING = """\
import os, signal, threading
from kazoo.handlers.threading import SequentialThreadingHandler
from jobs.adapters.zookeeper.connection import ZooKeeperEndpoint, connected
from jobs.core.signals import install_handlers, raise_on_signal
class Interrupting(SequentialThreadingHandler):
    def spawn(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return SequentialThreadingHandler.spawn(self, *args, **kwargs)
import kazoo.client
kazoo.client.SequentialThreadingHandler = Interrupting
install_handlers()
try:
    with raise_on_signal(), connected(ZooKeeperEndpoint("{hosts}")):
        print("never here")
except KeyboardInterrupt:
    print("interrupted, nothing left" if threading.active_count() == 1 else threading.enumerate())
"""


def test_while_python_puts_itself_away(tmp_path: Path) -> None:
    """Everything is said by then, and the exit code stands."""
    program = LEAVING.format(warehouse=str(tmp_path / "none"))
    running = Running(tmp_path, sys.executable, "-c", program)
    assert running.process.wait(20) == 22
    assert "no warehouse at" in running.lines()[0]


@pytest.mark.parametrize("module", ["jobs.core.signals", "typer", "deltalake"])
def test_at_any_import(tmp_path: Path, module: str) -> None:
    """From the first on, before any signal is handled, to those of a command's own."""
    program = WHILE_IMPORTING.format(module=module, warehouse=str(tmp_path / "none"))
    running = Running(tmp_path, sys.executable, "-c", program)
    assert (running.process.wait(20), running.lines()) == (130, [ENDED])


@pytest.mark.parametrize(
    ("program", "seconds", "how"),
    [
        (None, 0.0, (signal.SIGINT, False)),
        pytest.param(None, 0.5, (signal.SIGINT, True), marks=pytest.mark.repeat),
        pytest.param(None, 1.5, (signal.SIGINT, False), marks=pytest.mark.repeat),
        (None, 3.0, (signal.SIGTERM, True)),
        pytest.param(READ_BY_EXECUTORS, 0.0, (signal.SIGINT, False), marks=pytest.mark.repeat),
        (READ_BY_EXECUTORS, 2.0, (signal.SIGTERM, True)),
        pytest.param(READ_BY_THE_ENGINE, 0.0, (signal.SIGINT, False), marks=pytest.mark.repeat),
        (READ_BY_THE_ENGINE, 2.0, (signal.SIGTERM, True)),
    ],
)
def test_snapshot(
    bare_tree: KafkaTree, tmp_path: Path, program: str | None, seconds: float, how: tuple[signal.Signals, bool]
) -> None:
    """From the first moment of Spark's JVM on: while it starts, when it has just started, and at work."""
    bare_tree.lay_out(brokers=())  # brokers that do not listen are waited for
    bare_tree.add_topic("t", {partition: [0] for partition in range(20)})
    engine = Engine.EMBEDDED if program == READ_BY_THE_ENGINE else Engine.SPARK
    place = ("--zookeeper", bare_tree.hosts, "--warehouse", str(tmp_path / "warehouse"))
    arguments = (*place, "--engine", engine, "--json")
    result = tmp_path / "result.json"
    result.write_text("of the run before")
    command = SURVEYOR if program is None else [sys.executable, "-c", program]
    running = Running(tmp_path, *command, "snapshot", *arguments, "--result-file", str(result))
    began = running.has_child if program is None else running.says("reading topics")
    assert eventually(began, 120), running.lines()
    time.sleep(seconds)
    number, alone = how
    assert running.stop(number, alone=alone) == (128 + number, [ENDED])
    assert json.loads(running.stdout.read_text())["exit_code"] == 128 + number
    assert result.read_text() == running.stdout.read_text()


def test_a_client_of_zookeeper_is_not_cut_in_two(zookeeper_hosts: str) -> None:
    """Kazoo cannot stop what was never started; what was, it stops."""
    script = STARTING.format(hosts=zookeeper_hosts)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted, nothing left\n", "")


@pytest.mark.parametrize("way", ["raise_on_signal", "defer_signals"])
def test_second_signal_ends_what_takes_too_long(tmp_path: Path, way: str) -> None:
    """The first lets it put things in order; one that follows at once is the same; a later one ends it."""
    running = Running(tmp_path, sys.executable, "-c", ASLEEP.format(way=way))
    assert eventually(running.says("here"))
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGINT)
    if way == "raise_on_signal":
        assert running.process.wait(20) != 0
        assert "put in order" in running.stdout.read_text()
        return
    time.sleep(1.2)
    code, lines = running.stop(signal.SIGINT)
    assert (code, len(lines)) == (130, 1)
    assert "stopped at once" in lines[0]


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + ASLEEP.format(way="defer_signals")
    running = Running(tmp_path, sys.executable, "-c", ignoring)
    assert eventually(running.says("here"))
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert running.process.poll() is None
    running.process.kill()
    running.process.wait(20)
