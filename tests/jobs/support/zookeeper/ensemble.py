"""A ZooKeeper ensemble of child processes on the loopback interface: one server leads, and it may be killed.

Each server is a `jobs.adapters.embedded.processes.Server`: `kill()` is SIGKILL, `restart()` brings it back with its
data on its ports, and none outlives the tests.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.processes import Servers, four_letter_word
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.core.addresses import LOOPBACK

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
HEAP: Final = "128m"
_POLL_SECONDS: Final = 0.05

# Limits are in ticks of half a second.
_QUORUM: Final = """\
initLimit=20
syncLimit=10
"""


class EnsembleServer(EmbeddedZooKeeper):
    """One of several servers; `peers` are all of them by their numbers, as `host:quorum port:election port`."""

    def __init__(self, number: int, peers: Mapping[int, str], folder: Path, *, port: int) -> None:
        super().__init__(folder, port=port, heap=HEAP)
        self.name = f"zookeeper-{number}"
        self.log = folder / f"{self.name}.log"
        self.number = number
        self.peers = peers

    def config(self) -> str:
        return super().config() + _QUORUM + "".join(f"server.{n}={peer}\n" for n, peer in self.peers.items())

    def command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(self.number))
        return super().command()

    @property
    def mode(self) -> str | None:
        """`leader` or `follower`, None while it serves no clients."""
        lines = four_letter_word(self.port, "srvr").splitlines() if self.is_running() else []
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), None)


class Ensemble(Servers):
    """Up, with a leader, inside its `with` block; `servers` by their numbers, from 1."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        ports = iter(_free_ports(3 * size))
        peers = {number: f"{LOOPBACK}:{next(ports)}:{next(ports)}" for number in range(1, size + 1)}
        self.servers = {
            number: EnsembleServer(number, peers, folder / str(number), port=next(ports)) for number in peers
        }

    @property
    def connect(self) -> str:
        """All servers, those that are dead included: `host:port,host:port,host:port`."""
        return ",".join(server.connect for server in self.servers.values())

    def leader(self, timeout: float = 30.0) -> EnsembleServer:
        """Return the leader, once there is one and every server that runs follows it."""
        deadline = time.monotonic() + timeout
        while not _settled(modes := self.modes()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no ZooKeeper leads after {timeout:g} s: {modes}")
            time.sleep(_POLL_SECONDS)
        return next(self.servers[number] for number, mode in modes.items() if mode == LEADER)

    def followers(self) -> list[EnsembleServer]:
        """Return the servers that run and do not lead."""
        leader = self.leader()
        return [server for server in self.servers.values() if server.is_running() and server is not leader]

    def modes(self) -> dict[int, str | None]:
        """What each server that runs is, by its number."""
        return {number: server.mode for number, server in self.servers.items() if server.is_running()}

    def _start(self, stack: ExitStack) -> None:
        for server in self.servers.values():
            stack.callback(server.kill)
            server.start()
        for server in self.servers.values():
            server.wait_ready()
        self.leader()


def _settled(modes: Mapping[int, str | None]) -> bool:
    return sorted(modes.values(), key=str) == [FOLLOWER] * (len(modes) - 1) + [LEADER]


def _free_ports(count: int) -> set[int]:
    """Distinct ports; no server listens on one before all are chosen."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return ports
