"""Kafka in KRaft mode as child processes: nodes that are broker and controller at once, without a ZooKeeper.

They listen on 127.0.0.1 only and run from the same jars as the brokers with ZooKeeper, or from the jars of another
version of Kafka. A node's folder is formatted before its first start (`kafka.tools.StorageTool`), with one cluster id
for all nodes of the quorum.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from jobs.adapters.embedded.ports import accepts, free_port
from jobs.adapters.embedded.processes import Servers, exit_on_sigterm, removed_unless_failed
from jobs.adapters.embedded.servers import BROKER_HEAP, FEW_AND_SMALL, KafkaServer
from jobs.adapters.java.jars import KAFKA_VERSION
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError

CLUSTER_ID: Final = "S3VydmV5b3JLUmFmdDAwMQ"
"""A cluster id as Kafka writes it: 16 bytes as 22 characters of base64url."""

FORMAT_SECONDS: Final = 60.0
"""Time limit for formatting a folder."""

PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
"""The listeners of a cluster whose controllers are separate from its brokers."""


class EmbeddedKRaftNode(KafkaServer):
    """A node with the roles broker and controller; `voters` is the value of controller.quorum.voters.

    Without a controller port it is a broker only.
    """

    def __init__(
        self,
        node_id: int,
        folder: Path,
        *,
        controller_port: int | None,
        port: int | None = None,
        voters: str,
        rack: str | None = None,
        overrides: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        heap: str = BROKER_HEAP,
        cluster_id: str = CLUSTER_ID,
        kafka_version: str = KAFKA_VERSION,
    ) -> None:
        super().__init__(f"node-{node_id}", folder, port, rack, overrides, heap, kafka_version)
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.controller_port = controller_port
        self.voters = voters
        self.format_options = format_options

    def properties(self) -> dict[str, str]:
        rack = {} if self.rack is None else {"broker.rack": self.rack}
        roles, listeners = "broker", f"PLAINTEXT://{self.address}"
        if self.controller_port is not None:
            roles, listeners = "broker,controller", f"{listeners},CONTROLLER://{LOOPBACK}:{self.controller_port}"
        return {
            "process.roles": roles,
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.leader.rebalance.enable": "false",
            **FEW_AND_SMALL,
            **rack,
            **self.overrides,
        }

    def command(self) -> list[str]:
        java, config = self._java()
        self._format(java, config)
        return [*java, "kafka.Kafka", str(config)]

    def is_ready(self) -> bool:
        return "Kafka Server started" in self.log_of_this_run() and accepts(self.port)

    def _format(self, java: Sequence[str], config: Path) -> None:
        """Format the log dirs, unless an earlier start did."""
        if all(Path(log_dir, "meta.properties").exists() for log_dir in self.properties()["log.dirs"].split(",")):
            return
        # the id of a cluster that ZooKeeper gave it may begin with a hyphen
        options = ["-c", str(config), "--ignore-formatted", *self.format_options]
        done = subprocess.run(  # noqa: S603 - the checked Java with arguments of our own
            [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=FORMAT_SECONDS,
            check=False,
        )
        if done.returncode:
            raise SurveyorError(f"the folder of {self.name} could not be formatted:\n{done.stdout}{done.stderr}")


class KRaftController(EmbeddedKRaftNode):
    """A node with the role controller only; its port is the port of the listener for controllers."""

    def properties(self) -> dict[str, str]:
        of_node = super().properties()
        del of_node["inter.broker.listener.name"]
        return {
            **of_node,
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "listener.security.protocol.map": PROTOCOLS,
        }


class EmbeddedKRaftCluster(Servers):
    """A quorum of combined nodes that runs inside its `with` block; its folder is removed afterwards.

    Node ids start at 1. Nodes can be killed and restarted: `cluster.nodes[1].kill()`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        racks: Mapping[int, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        heap: str = BROKER_HEAP,
        kafka_version: str = KAFKA_VERSION,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surveyor-kraft-"))
        ids = range(1, nodes + 1)
        controller_ports = {node_id: free_port() for node_id in ids}
        self._voters = ",".join(f"{node_id}@{LOOPBACK}:{port}" for node_id, port in controller_ports.items())
        # internal topics have as many replicas as there are nodes
        copies = str(min(nodes, 3))
        replication = {
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
        }
        self._overrides = {**replication, **(overrides or {})}
        self._racks = dict(racks or {})
        self._format_options = format_options
        self._heap = heap
        self._kafka_version = kafka_version
        self.nodes = {node_id: self._node(node_id, controller_ports[node_id]) for node_id in ids}

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def add_broker(self, node_id: int) -> EmbeddedKRaftNode:
        """Start one more broker, which is not a voter of the quorum, and wait until it is ready."""
        node = self.nodes[node_id] = self._node(node_id, controller_port=None)
        node.start()
        node.wait_ready()
        return node

    def _node(self, node_id: int, controller_port: int | None) -> EmbeddedKRaftNode:
        return EmbeddedKRaftNode(
            node_id,
            self.folder / f"node-{node_id}",
            controller_port=controller_port,
            voters=self._voters,
            rack=self._racks.get(node_id),
            overrides=self._overrides,
            format_options=self._format_options,
            heap=self._heap,
            kafka_version=self._kafka_version,
        )

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(exit_on_sigterm())
        stack.push(removed_unless_failed(self.folder))
        stack.callback(self._kill_nodes)
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.wait_ready()

    def _kill_nodes(self) -> None:
        for node in self.nodes.values():
            node.kill()
