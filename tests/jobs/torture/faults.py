"""Faults, each a context manager: the fault begins, and is lifted at the end of the block.

SIGKILL and SIGSTOP of brokers, ZooKeeper servers and Surveyor's processes; links cut, held or slowed; a full disk under
the warehouse, a failed log dir; a clock that is set; Kafka's own tools at the same time.
"""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from jobs.adapters.embedded.processes import Server
from tests.jobs.support.kafka.kafka_tools import java_of_tools
from tests.jobs.torture.clock import COMPILER
from tests.jobs.torture.links import Link
from tests.jobs.torture.torture_cluster import C, CommandedCluster, Run, TortureCluster

TOOL: Final = "org.apache.kafka.tools.LeaderElectionCommand"
_TOOL_SECONDS: Final = 90
_SHUTDOWN_SECONDS: Final = 60


@contextmanager
def killed_broker(cluster: TortureCluster, target: int) -> Iterator[None]:
    """SIGKILL; ZooKeeper expires the session after its timeout, or, for a broker with an even id, at once."""
    broker = cluster.brokers[target]
    broker.kill()
    if target % 2 == 0:
        broker.expire()
    yield
    broker.start()
    broker.wait_ready(120)


@contextmanager
def shut_down_broker(cluster: TortureCluster, target: int) -> Iterator[None]:
    """SIGTERM: the broker asks the controller to move its leaders away; SIGKILL if it has not ended by then."""
    broker = cluster.brokers[target]
    broker.stop(_SHUTDOWN_SECONDS)
    yield
    broker.start()
    broker.wait_ready(120)


@contextmanager
def killed_zookeeper(cluster: TortureCluster, target: int) -> Iterator[None]:
    """SIGKILL of a server, of the leader for target 0; the others are a quorum."""
    server = cluster.ensemble.leader() if target == 0 else cluster.ensemble.servers[target + 1]
    server.kill()
    yield
    server.start()
    server.wait_ready(120)


@contextmanager
def killed_committer(cluster: CommandedCluster, _: int) -> Iterator[None]:
    for run in _running(cluster):
        cluster.killed.add(run.process.pid)
        run.process.kill()
    yield


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, number)


def pids_of(*servers: Server) -> list[int]:
    return [server.pid for server in servers if server.pid is not None]


def _running(cluster: CommandedCluster) -> list[Run]:
    return [run for run in cluster.runs if run.process.poll() is None]


@contextmanager
def harmed(link: Link, harm: Callable[[Link], object]) -> Iterator[None]:
    harm(link)
    try:
        yield
    finally:
        link.lift()


def late(link: Link) -> None:
    link.slow(0.7)


Fault = Callable[[C, int], AbstractContextManager[None]]
"""A fault of a cluster, or of one of its brokers or servers; brokers and servers are numbered from 0."""


def of_link(near: str, far: str, link: Callable[[C, int], Link]) -> dict[str, Fault[C]]:
    """Return the faults of a link: cut, held or slow."""
    return {
        f"cut {near} from {far}": lambda cluster, target: harmed(link(cluster, target), Link.cut),
        f"hold {near} from {far}": lambda cluster, target: harmed(link(cluster, target), Link.hold),
        f"slow {near} to {far}": lambda cluster, target: harmed(link(cluster, target), late),
    }


@contextmanager
def full_disk(cluster: CommandedCluster, _: int) -> Iterator[None]:
    """Fill the disk of the warehouse; without root, committers may write no file instead."""
    if not cluster.warehouse_folder.is_mount():
        limited = [run.process.pid for run in _running(cluster)]
        for pid in limited:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        yield
        for pid in limited:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return
    ballast = cluster.warehouse_folder / ".ballast"
    with ballast.open("wb", buffering=0) as opened, suppress(OSError):
        while True:
            opened.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def failed_log_dir(cluster: TortureCluster, target: int) -> Iterator[None]:
    """Replace a log dir by a file; its content returns with the broker's next start."""
    broker = cluster.brokers[target]
    folder = broker.folder / "second"
    folder.rename(broker.folder / "away")
    folder.touch()
    yield
    broker.kill()
    folder.unlink()
    (broker.folder / "away").rename(folder)
    broker.start()
    broker.wait_ready(120)


@contextmanager
def set_clock(cluster: CommandedCluster, target: int) -> Iterator[None]:
    """Set the clock hours ahead, hours behind, or so far ahead that every plan is too old; then reset it."""
    cluster.clock.set((7_200, -7_200, 200_000)[target])
    yield
    cluster.clock.set(0)


@contextmanager
def kafkas_tool(cluster: CommandedCluster, _: int) -> Iterator[None]:
    """Elect all preferred leaders with kafka-leader-election; it may fail."""
    flags = ["--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions"]
    command = [*java_of_tools(), TOOL, *flags]
    with (cluster.folder / "tool.log").open("ab") as log:
        subprocess.run(command, stdout=log, stderr=log, check=False, timeout=_TOOL_SECONDS)
    yield


AT_BROKERS: Final[dict[str, Fault[TortureCluster]]] = {
    "kill broker": killed_broker,
    "shut down broker": shut_down_broker,
    "stop broker": lambda cluster, target: stopped(pids_of(cluster.brokers[target])),
    "fail log dir": failed_log_dir,
    **of_link("broker", "ZooKeeper", lambda cluster, target: cluster.to_zookeeper[target]),
}
_WITHOUT_ZOOKEEPER: Final = {"stop broker", "cut broker from ZooKeeper", "hold broker from ZooKeeper"}
AT_BROKERS_WITH_ZOOKEEPER: Final = {name: fault for name, fault in AT_BROKERS.items() if name not in _WITHOUT_ZOOKEEPER}
"""Faults that do not cut a broker from ZooKeeper while it lives."""

AT_ZOOKEEPER: Final[dict[str, Fault[TortureCluster]]] = {
    "kill ZooKeeper": killed_zookeeper,
    "stop ZooKeeper": lambda cluster, target: stopped(pids_of(cluster.ensemble.servers[target + 1])),
}
AT_ANY_COMMITTERS: Final[dict[str, Fault[CommandedCluster]]] = {
    "kill committer": killed_committer,
    "stop committer": lambda cluster, _: stopped([run.process.pid for run in _running(cluster)]),
    **of_link("committer", "broker", lambda cluster, target: cluster.to_broker[cluster.broker_ids[target]]),
    "fill disk": full_disk,
    "run Kafka's tool": kafkas_tool,
    **({} if COMPILER is None else {"set clock": set_clock}),
}
"""Faults of Surveyor's processes in clusters of both kinds."""

AT_COMMITTERS: Final[dict[str, Fault[TortureCluster]]] = {
    **AT_ANY_COMMITTERS,
    **of_link("committer", "ZooKeeper", lambda cluster, _: cluster.own_link),
}
AT_LISTENER: Final[dict[str, Fault[TortureCluster]]] = of_link(
    "brokers", "controller", lambda cluster, _: cluster.to_controller
)
"""Faults on the way of brokers' requests to a controller that listens."""
