"""`surveyor control --standby`: processes that wait for the end of an active controller, and follow it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import end_session
from jobs.adapters.zookeeper.connection import SESSION_TIMEOUT
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.controllers.resident import put_assignment
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import ZooKeeperProxy

OURS = 2147483647
CONTROL = ("control", "--apply", "--yes", "--allow-silent", "0,1,2")


@dataclass
class Controller:
    """One process of `surveyor control`."""

    process: "subprocess.Popen[str]"
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def logged(self, text: str) -> bool:
        return bool(eventually(lambda: text in self.output or self.process.poll() is not None)) and text in self.output

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def start(tree: KafkaTree, tmp_path: Path) -> Iterator["Start"]:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    with ExitStack() as stack:
        yield Start(tree, tmp_path, stack)


@dataclass
class Start:
    """Starts controllers that share a warehouse, and kills them at the end."""

    tree: KafkaTree
    folder: Path
    stack: ExitStack
    hosts: str | None = None
    """Another address of ZooKeeper."""

    def __call__(self, *options: str) -> Controller:
        log = self.folder / f"{len([*self.folder.glob('*.log')])}.log"
        return self.stack.enter_context(self._started([*CONTROL, *options], log))

    def active_and_standby(self) -> tuple[Controller, Controller]:
        """Start a controller, and one that stands by for it."""
        active = self()
        assert active.logged("  read 3 brokers")
        standby = self("--standby")
        assert standby.logged("standing by: another Surveyor is the controller")
        return active, standby

    @contextmanager
    def _started(self, arguments: list[str], log: Path) -> Iterator[Controller]:
        place = ["--zookeeper", self.hosts or self.tree.hosts, "--warehouse", str(self.folder / "w")]
        command = [sys.executable, "-m", "jobs.entry", *arguments, *place]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
        try:
            yield Controller(process, log)
        finally:
            process.kill()
            process.wait()


def processes_below(pid: int) -> set[int]:
    """The processes that a process has started, and theirs, as /proc has them now."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    below, found = [pid], set[int]()
    while below:
        started = children.get(below.pop(), [])
        found.update(started)
        below += started
    return found


def ticks_of_ended_children(pid: int) -> int:
    """Processor time of the children that a process has waited for, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])


def owner(tree: KafkaTree) -> int | None:
    stat = tree.client.exists("/controller")
    return None if stat is None else int(stat.ephemeralOwner)


def epoch(tree: KafkaTree) -> int:
    return int(tree.client.get("/controller_epoch")[0])


def test_a_standby_follows_a_killed_controller(tree: KafkaTree, start: Start) -> None:
    """A broker becomes the controller in between, and is taken over from."""
    active, standby = start.active_and_standby()
    before = epoch(tree)

    active.process.kill()
    killed_at = time.monotonic()
    assert eventually(lambda: epoch(tree) > before)

    assert time.monotonic() - killed_at < SESSION_TIMEOUT + 6.0
    assert standby.logged("  read 3 brokers")
    tree.unregister(0)
    assert eventually(lambda: tree.state("orders").leader == 1)
    assert standby.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_standby_follows_no_other_cluster(tree: KafkaTree, start: Start) -> None:
    """What it has read before is not that of a cluster which was created again at the same address."""
    write_first_snapshot(Surveyor(tree.hosts, start.folder / "w"))
    active, standby = start.active_and_standby()
    before = epoch(tree)
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')

    active.process.kill()

    assert standby.logged("that of AAAAAAAAAAAAAAAAAAAAAA; check the address")
    assert standby.process.poll() is None
    assert epoch(tree) == before


def test_of_two_standbys_one_wins_and_the_other_waits(start: Start) -> None:
    active = start()
    assert active.logged("  read 3 brokers")
    standbys = [start("--standby"), start("--standby")]
    assert all(standby.logged("standing by") for standby in standbys)

    assert active.end(signal.SIGTERM) == 128 + signal.SIGTERM

    assert eventually(lambda: sum("controllership taken over" in standby.output for standby in standbys) == 1)
    (winner,) = [standby for standby in standbys if "controllership taken over" in standby.output]
    (waiting,) = [standby for standby in standbys if standby is not winner]
    assert winner.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert waiting.logged("controllership taken over")


def test_a_controller_starts_no_jvm(tree: KafkaTree, start: Start) -> None:
    """Nor does a standby; a JVM would be a process of its own, or a library of this one."""
    controllers = start.active_and_standby()
    before = tree.version("orders")
    tree.unregister(0)
    assert eventually(lambda: tree.state("orders").leader == 1)
    put_assignment(tree, "new", {0: [1, 2]})
    assert eventually(lambda: tree.client.exists("/brokers/topics/new/partitions/0/state") is not None)
    assert tree.version("orders") > before

    for controller in controllers:
        pid = controller.process.pid
        assert (processes_below(pid), ticks_of_ended_children(pid)) == (set(), 0)
        assert "libjvm" not in Path(f"/proc/{pid}/maps").read_text()


def test_processes_below_one_are_found() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (sleeping,) = processes_below(child.pid)
        assert {child.pid, sleeping} <= processes_below(os.getpid())
        os.kill(sleeping, signal.SIGKILL)


def test_a_running_controller_is_replaced_on_request_only(tree: KafkaTree, start: Start) -> None:
    """Without --standby another one is refused; a standby waits, and ends with a signal."""
    closed = f"{LOOPBACK}:{free_port()}"
    active = start("--listen", f"{LOOPBACK}:{free_port()}", "--advertise", closed)
    assert active.logged(f"warning: cannot connect from here to {closed}, the address for brokers")
    assert active.logged("  read 3 brokers")

    second, standby = start(), start("--standby")
    assert second.process.wait(60) == 23
    assert "`surveyor control --replace` takes over from it" in second.output
    assert standby.logged("standing by")
    assert standby.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert "ended while standing by" in standby.output
    assert active.process.poll() is None

    successor = start("--replace")
    assert successor.logged("controllership taken over")
    assert active.process.wait(60) == 20
    assert "another controller took over after our epoch" in active.output
    assert owner(tree) is not None


def test_a_standby_waits_while_it_could_not_read_what_is_deleted(tree: KafkaTree, start: Start) -> None:
    """A take-over that is bound to fail would cost the cluster its controller for some seconds, again and again."""
    active, standby = start.active_and_standby()
    before = epoch(tree)
    tree.client.set_acls("/admin/delete_topics", [make_acl("world", "anyone", create=True, delete=True, admin=True)])

    session = owner(tree)
    active.process.kill()
    assert session is not None
    end_session(tree.hosts, session)
    assert owner(tree) is None
    assert standby.logged("denies Surveyor permission to list /admin/delete_topics")
    time.sleep(3)
    assert (epoch(tree), standby.output.count("permission to list")) == (before, 1)

    tree.client.set_acls("/admin/delete_topics", OPEN_ACL_UNSAFE)
    assert eventually(lambda: epoch(tree) > before)
    assert standby.logged("  read 3 brokers")
    assert standby.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_standby_that_starts_without_zookeeper_waits_for_it(start: Start) -> None:
    start.hosts = f"{LOOPBACK}:{free_port()}"
    standby = start("--standby")
    assert standby.logged("no ZooKeeper answered at")
    assert standby.logged("; trying again")
    assert standby.process.poll() is None
    assert standby.end(signal.SIGTERM) == 128 + signal.SIGTERM

    assert start().process.wait(60) == 22


def test_a_standby_waits_for_no_cluster_where_there_is_none(start: Start) -> None:
    """ZooKeeper answers, so the chroot is wrong."""
    start.hosts = f"{start.tree.hosts}/nowhere"
    standby = start("--standby")
    assert standby.process.wait(60) == 22
    [line] = standby.output.splitlines()
    assert "/nowhere: no Kafka cluster keeps its metadata there; check the chroot" in line


def test_a_lost_connection_to_zookeeper_is_reported_at_once(proxy: ZooKeeperProxy, start: Start) -> None:
    start.hosts = f"{proxy.hosts.partition('/')[0]}/{start.tree.hosts.partition('/')[2]}"
    active = start()
    assert active.logged("  read 3 brokers")

    proxy.cut()
    lost_at = time.monotonic()
    assert active.logged("warning: the connection to ZooKeeper is lost")

    assert time.monotonic() - lost_at < SESSION_TIMEOUT
    assert active.process.poll() is None
