"""The cluster of the torture rounds: three ZooKeeper servers, three brokers, and links between them that can be cut.

Brokers reach ZooKeeper over links, and Surveyor reaches both over links of its own: brokers have a second listener,
LINK, whose advertised address is a link's. Planning, measuring and checking use direct connections. Brokers with
inter.broker.protocol.version 2.6 change ISRs in ZooKeeper themselves; with the newest version they ask the controller,
`surveyor control --listen` over a link too. Surveyor's processes use a clock that can be set.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from abc import abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded import die_with_parent
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.processes import Servers, exit_on_sigterm
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.zookeeper.ensemble import Ensemble
from tests.jobs.torture.clock import Clock
from tests.jobs.torture.links import Link
from tests.jobs.torture.zookeeper_log import Transaction, transactions

BROKERS: Final = (0, 1, 2)
SURVEYOR_IDS: Final = (2147483647, 2147483646)
"""Ids of controllers that are no brokers: the default, and that of a second committer."""

EARLY, NEWEST = "2.6", "3.9"
"""Protocols that brokers speak to each other: the last one with which they need no `--listen`, and their own."""

SETTINGS: Final = {
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "10000",  # so that a broker stopped for long leaves the ISR within a round
    "offsets.topic.replication.factor": "3",
}
_DISK: Final = "64m"


@dataclass
class Run:
    """A command in a process of its own, and its output."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class CommandedCluster(Servers):
    """Runs inside its `with` block, with Surveyor's processes for it.

    `folder` has all logs; it is kept after a failure, or if `keep` is set.
    """

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="surveyor-torture-")))
    runs: list[Run] = field(default_factory=list)
    """Surveyor's processes that may write, the newest last."""
    killed: set[int] = field(default_factory=set)
    """The process ids of those that were killed."""
    keep: bool = False
    broker_ids: ClassVar[tuple[int, ...]]
    prelude: ClassVar = ""
    """Code that Surveyor's processes run first."""

    def __post_init__(self) -> None:
        self.warehouse_folder = self.folder / "warehouse"
        self.to_broker: dict[int, Link] = {}
        """Surveyor's links to brokers."""
        self.clock = Clock(self.folder)

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The brokers, reached directly."""

    @property
    @abstractmethod
    def where(self) -> list[str]:
        """The options that name the cluster, for planning and checking: it is reached directly."""

    @property
    @abstractmethod
    def linked(self) -> list[str]:
        """The same for processes that may write: over the links."""

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.warehouse_folder), "default")

    def start(self, *arguments: str) -> Run:
        """Run a command that may write, over the links."""
        log = self.folder / f"command-{len(self.runs)}.log"
        tethered = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid())]
        code = f"{self.prelude}\nimport sys; from jobs.entry import main; sys.argv[0] = 'surveyor'; main()"
        command = [*tethered, sys.executable, "-c", code, *arguments, *self.linked]
        command += ["--warehouse", str(self.warehouse_folder)]
        with log.open("wb") as output:
            output.write(f"{' '.join(arguments)}\n".encode())
            output.flush()
            environment = os.environ | self.clock.environment
            running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        self.runs.append(Run(running, log))
        return self.runs[-1]

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(exit_on_sigterm())
        stack.push(self._tidy)
        stack.callback(self._end_runs)
        self._mount(stack)
        self._start_servers(stack)

    @abstractmethod
    def _start_servers(self, stack: ExitStack) -> None:
        """Start links and servers, and push onto the stack what stops them."""

    def _mount(self, stack: ExitStack) -> None:
        """Give the warehouse a disk of its own, small enough to be filled; this needs root."""
        self.warehouse_folder.mkdir(parents=True)
        if os.geteuid() == 0:
            options = ["-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(self.warehouse_folder)]
            if subprocess.run(["/bin/mount", *options], check=False).returncode == 0:
                stack.push(self._unmount)

    def _unmount(self, kind: type[BaseException] | None, *_: object) -> None:
        """Unmount the warehouse; a copy is kept if the logs are."""
        if kind is not None or self.keep:
            shutil.copytree(self.warehouse_folder, self.folder / "kept-warehouse")
        subprocess.run(["/bin/umount", "--lazy", str(self.warehouse_folder)], check=False)

    def _tidy(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end_runs(self) -> None:
        for run in self.runs:
            run.process.kill()
            run.process.wait()


C = TypeVar("C", bound=CommandedCluster)


@dataclass
class TortureCluster(CommandedCluster):
    """A cluster with ZooKeeper."""

    listening_sessions: set[int] = field(default_factory=set)
    """ZooKeeper sessions of controllers that brokers could ask to change ISRs."""
    protocol: str = EARLY
    listener: ClassVar = "LINK"
    """The listener of the brokers that Surveyor uses."""
    broker_ids: ClassVar = BROKERS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensemble = Ensemble(self.folder / "zookeeper")
        self.brokers: dict[int, EmbeddedKafka] = {}
        self.to_zookeeper: dict[int, Link] = {}
        """Brokers' links to ZooKeeper."""

    @property
    def hosts(self) -> str:
        return self.ensemble.connect

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def where(self) -> list[str]:
        return ["--zookeeper", self.hosts]

    @property
    def linked(self) -> list[str]:
        return ["--zookeeper", self.own_link.hosts]

    def history(self) -> list[Transaction]:
        """All transactions of this ZooKeeper ensemble."""
        return transactions(server.folder / "data" for server in self.ensemble.servers.values())

    @property
    def listen_options(self) -> list[str]:
        """Options of a controller that brokers ask over a link; none if they change ISRs in ZooKeeper themselves."""
        if self.protocol == EARLY:
            return []
        return ["--listen", f"{LOOPBACK}:{self._listen_port}", "--advertise", self.to_controller.hosts]

    def start(self, *arguments: str, controller_id: int = SURVEYOR_IDS[0]) -> Run:
        """Run a command that may write, over the links, as a controller of this id."""
        conf = self.folder / f"{controller_id}.toml"
        conf.write_text(f'[clusters.default]\ncontroller_id = {controller_id}\ncontrol_listener = "{self.listener}"\n')
        return super().start(*arguments, "--conf", str(conf))

    def _start_servers(self, stack: ExitStack) -> None:
        stack.enter_context(self.ensemble)
        self.own_link = stack.enter_context(self._link_to_ensemble("committer to ZooKeeper"))
        self._listen_port = free_port()
        self.to_controller = stack.enter_context(Link("brokers to the controller", self._listen_port))
        stack.callback(self._kill_brokers)
        for broker in BROKERS:
            self._start_broker(broker, stack)
        for server in self.brokers.values():
            server.wait_ready()

    def _link_to_ensemble(self, name: str) -> Link:
        return Link(name, *(server.port for server in self.ensemble.servers.values()))

    def _start_broker(self, broker_id: int, stack: ExitStack) -> None:
        folder, behind, port = self.folder / f"broker-{broker_id}", free_port(), free_port()
        link = stack.enter_context(Link(f"committer to broker {broker_id}", behind))
        own = stack.enter_context(self._link_to_ensemble(f"broker {broker_id} to ZooKeeper"))
        direct = f"PLAINTEXT://{LOOPBACK}:{port}"
        overrides = {
            **SETTINGS,
            "inter.broker.protocol.version": self.protocol,
            "zookeeper.connect": own.hosts,
            "listeners": f"{direct},LINK://{LOOPBACK}:{behind}",
            "advertised.listeners": f"{direct},LINK://{link.hosts}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": f"{folder / 'data'},{folder / 'second'}",
        }
        self.to_broker[broker_id], self.to_zookeeper[broker_id] = link, own
        self.brokers[broker_id] = EmbeddedKafka(self.hosts, broker_id, folder, port=port, overrides=overrides)
        self.brokers[broker_id].start()

    def _kill_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
