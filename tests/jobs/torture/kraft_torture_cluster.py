"""The KRaft cluster of the torture rounds: a quorum of three combined nodes, and links that can be cut.

Surveyor's processes reach brokers over links of their own, by a second listener LINK. The nodes reach the leader of
their quorum over a link, which all voters and the advertised listener of controllers name. Planning, measuring and
checking use direct connections. Leases are short, so that a process that is stopped for a while loses its own.
"""

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeQuorumRequest

from jobs.adapters.brokers.kafka_python_client import connected_broker
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster, EmbeddedKRaftNode
from jobs.adapters.embedded.ports import free_port
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError
from tests.jobs.torture.links import Link
from tests.jobs.torture.torture_cluster import SETTINGS, CommandedCluster

NODES: Final = (1, 2, 3)

Requested = tuple[str, int, tuple[int, ...]]
"""Topic, partition and target of a requested reassignment."""

_MAP: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LINK:PLAINTEXT"


@dataclass
class KRaftTortureCluster(CommandedCluster):
    """Three nodes that are broker and controller at once."""

    broker_ids: ClassVar = NODES
    prelude: ClassVar = (
        "from jobs.adapters.delta.warehouse_lease import WarehouseLease as lease\n"
        "lease.lease_seconds, lease.renewal_seconds, lease.margin_seconds = 9.0, 3.0, 3.0\n"
        "from jobs.adapters.brokers import admin_client\n"
        "admin_client._AdminClient.send_seconds = 3.0"
    )
    nodes: dict[int, EmbeddedKRaftNode] = field(default_factory=dict)
    to_controller: dict[int, Link] = field(default_factory=dict)
    """The nodes' links to the controller of each node."""
    foreign: list[Requested] = field(default_factory=list)
    """What other clients requested."""

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def where(self) -> list[str]:
        return ["--bootstrap-server", self.bootstrap]

    @property
    def linked(self) -> list[str]:
        return ["--bootstrap-server", ",".join(link.hosts for link in self.to_broker.values())]

    def quorum_leader(self) -> int:
        """Return the leader of the quorum; the first node if none of the nodes names one."""
        request = DescribeQuorumRequest(topics=[("__cluster_metadata", [(0,)])])
        named: list[tuple[int, int]] = []
        for node in self.nodes.values():
            with suppress(KafkaError, SurveyorError, OSError), connected_broker(node.address, {}) as ask:
                quorum = ask(request, 5.0).topics[0].partitions[0]
                named.append((quorum.leader_epoch, quorum.leader_id))
        leader = max(named)[1] if named else -1
        return leader if leader in self.nodes else NODES[0]

    def _start_servers(self, stack: ExitStack) -> None:
        controllers = {node_id: free_port() for node_id in NODES}
        for node_id, port in controllers.items():
            self.to_controller[node_id] = stack.enter_context(Link(f"nodes to controller {node_id}", port))
        voters = ",".join(f"{node_id}@{link.hosts}" for node_id, link in self.to_controller.items())
        stack.callback(self._kill_nodes)
        for node_id in NODES:
            self._start_node(node_id, controllers[node_id], voters, stack)
        for node in self.nodes.values():
            node.wait_ready()

    def _start_node(self, node_id: int, controller_port: int, voters: str, stack: ExitStack) -> None:
        port, behind = free_port(), free_port()
        link = self.to_broker[node_id] = stack.enter_context(Link(f"committer to broker {node_id}", behind))
        direct, controller = f"PLAINTEXT://{LOOPBACK}:{port}", self.to_controller[node_id].hosts
        overrides = {
            **SETTINGS,
            "transaction.state.log.min.isr": "2",
            "listeners": f"{direct},LINK://{LOOPBACK}:{behind},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"{direct},LINK://{link.hosts},CONTROLLER://{controller}",
            "listener.security.protocol.map": _MAP,
        }
        node = self.nodes[node_id] = EmbeddedKRaftNode(
            node_id,
            self.folder / f"node-{node_id}",
            port=port,
            controller_port=controller_port,
            voters=voters,
            overrides=overrides,
            heap="320m",
        )
        node.start()

    def _kill_nodes(self) -> None:
        for node in self.nodes.values():
            node.kill()


class SmallKRaftTortureCluster(KRaftTortureCluster):
    """Runs inside its `with` block on a cluster of the caller, without links, and with leases of 3 s."""

    prelude: ClassVar = (
        "from jobs.adapters.delta.warehouse_lease import WarehouseLease as lease\n"
        "lease.lease_seconds, lease.renewal_seconds, lease.margin_seconds = 3.0, 1.0, 1.0"
    )

    def __init__(self, cluster: EmbeddedKRaftCluster, warehouse: Path, folder: Path) -> None:
        super().__init__(folder, keep=True)
        self.nodes = cluster.nodes
        self.warehouse_folder = warehouse

    @property
    def linked(self) -> list[str]:
        return self.where

    def _mount(self, _: ExitStack) -> None:
        """The caller provides the warehouse."""

    def _start_servers(self, _: ExitStack) -> None:
        """The servers are the caller's."""
