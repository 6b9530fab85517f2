"""A KRaft cluster whose controllers are apart from its brokers."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from jobs.adapters.embedded.kraft import EmbeddedKRaftNode, KRaftController
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.processes import Servers, exit_on_sigterm, removed_unless_failed
from jobs.core.addresses import LOOPBACK

FIRST_CONTROLLER: Final = 3001
HEAP: Final = "320m"


class SeparatedKRaftCluster(Servers):
    """Controllers from id 3001 and brokers from id 1, which run inside the `with` block."""

    def __init__(self, controllers: int, brokers: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surveyor-kraft-"))
        ports = {FIRST_CONTROLLER + number: free_port() for number in range(controllers)}
        voters = ",".join(f"{node_id}@{LOOPBACK}:{port}" for node_id, port in ports.items())
        self.controllers = {
            node_id: KRaftController(
                node_id, self.folder / f"node-{node_id}", port=port, controller_port=port, voters=voters, heap=HEAP
            )
            for node_id, port in ports.items()
        }
        self.brokers = {
            node_id: EmbeddedKRaftNode(
                node_id,
                self.folder / f"node-{node_id}",
                controller_port=None,
                voters=voters,
                heap=HEAP,
            )
            for node_id in range(1, brokers + 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(exit_on_sigterm())
        stack.push(removed_unless_failed(self.folder))
        nodes = [*self.controllers.values(), *self.brokers.values()]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        for node in nodes:
            node.wait_ready()
