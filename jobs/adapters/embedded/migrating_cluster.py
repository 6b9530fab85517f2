"""A cluster that is migrated from ZooKeeper to KRaft, by the procedure of Kafka 3.9's documentation, step by step.

One controller node joins. Brokers restart with migration enabled, and then as brokers of KRaft. The controller leaves
the migration at the end. Until the controller has done so, the migration can be rolled back. Each step is a method that
changes the settings of the servers; the restarts of the brokers are a separate step. Brokers and controller have an
authorizer for which clients without a password are super users.
"""

import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from jobs.adapters.embedded.kraft import PROTOCOLS, KRaftController
from jobs.adapters.embedded.ports import accepts, free_port
from jobs.adapters.embedded.processes import Servers, exit_on_sigterm, removed_unless_failed
from jobs.adapters.embedded.servers import EmbeddedKafka, EmbeddedZooKeeper
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError
from jobs.core.polling import poll_until

CONTROLLER_ID: Final = 3000
HEAP: Final = "320m"
SUPER_USERS: Final = {"super.users": "User:ANONYMOUS"}
OF_KRAFT: Final = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", **SUPER_USERS}
OF_ZOOKEEPER: Final = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **SUPER_USERS}

STEP_SECONDS: Final = 120.0
"""Time limit for copying the metadata, and for replicas to be in sync again after a restart."""


class MigratingController(KRaftController):
    """A controller that migrates from ZooKeeper while `zookeeper_connect` is set."""

    zookeeper_connect: str | None = None

    def properties(self) -> dict[str, str]:
        migration = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": str(self.zookeeper_connect)}
        return {**super().properties(), **OF_KRAFT, **(migration if self.zookeeper_connect else {})}


class MigratingBroker(EmbeddedKafka):
    """A broker that knows the controller once `voters` is set, and has left ZooKeeper once `is_kraft` is."""

    voters = ""
    is_kraft = False

    def properties(self) -> dict[str, str]:
        properties = super().properties() | (OF_KRAFT if self.is_kraft else OF_ZOOKEEPER)
        if self.voters:
            properties |= {
                "controller.quorum.voters": self.voters,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": PROTOCOLS,
                "inter.broker.listener.name": "PLAINTEXT",
            }
        if self.voters and not self.is_kraft:
            properties["zookeeper.metadata.migration.enable"] = "true"
        if self.is_kraft:
            for name in ("broker.id", "zookeeper.connect", "zookeeper.session.timeout.ms"):
                del properties[name]
            properties |= {"process.roles": "broker", "node.id": str(self.broker_id)}
        return properties

    def is_ready(self) -> bool:
        if not self.is_kraft:
            return super().is_ready()
        return "Kafka Server started" in self.log_of_this_run() and accepts(self.port)

    def restart(self, timeout: float = 90.0) -> None:
        super().restart(timeout)


class MigratingCluster(Servers):
    """The cluster, which runs inside its `with` block, and the steps of its migration."""

    controller: MigratingController

    def __init__(self, brokers: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surveyor-migration-"))
        self.zookeeper_server = EmbeddedZooKeeper(self.folder / "zookeeper")
        self.brokers = [
            MigratingBroker(self.zookeeper_server.connect, number, self.folder / f"broker-{number}", heap=HEAP)
            for number in range(brokers)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def add_controller(self) -> None:
        """Start the controller that will take the metadata over, with the cluster's id."""
        with connected(ZooKeeperEndpoint(self.zookeeper_server.connect)) as client:
            cluster_id = json.loads(read(client, "/cluster/id").data or b"{}")["id"]
        port = free_port()
        self.controller = MigratingController(
            CONTROLLER_ID,
            Path(tempfile.mkdtemp(prefix="controller-", dir=self.folder)),
            port=port,
            controller_port=port,
            voters=f"{CONTROLLER_ID}@{LOOPBACK}:{port}",
            heap=HEAP,
            cluster_id=cluster_id,
        )
        self.controller.zookeeper_connect = self.zookeeper_server.connect
        self._up.callback(self.controller.kill)
        self.controller.start()
        self.controller.wait_ready()

    def enable_migration(self) -> None:
        """Set what brokers need to register with the controller, so that it can copy the metadata."""
        for broker in self.brokers:
            broker.voters = self.controller.voters

    def leave_zookeeper(self) -> None:
        """Set the role of brokers of KRaft; the controller still writes to ZooKeeper, too."""
        for broker in self.brokers:
            broker.is_kraft = True

    def restart_brokers(self) -> None:
        """Restart one broker after another."""
        for broker in self.brokers:
            self.restart_broker(broker)

    def restart_broker(self, broker: MigratingBroker) -> None:
        """Restart a broker, and wait until all replicas are in sync, so that the next one may restart."""
        broker.restart()
        self._wait_until(self.all_in_sync, "its replicas are not in sync again after a restart")

    def wait_until_copied(self) -> None:
        """Wait until the controller has copied the metadata from ZooKeeper."""
        log = self.controller.log
        self._wait_until(lambda: "Completed migration of metadata" in log.read_text(), "the metadata is not copied")

    def roll_back(self) -> None:
        """Remove the controller and what it left in ZooKeeper, and restart the brokers without migration, at once."""
        self.controller.kill()
        with connected(ZooKeeperEndpoint(self.zookeeper_server.connect)) as client:
            for path in ("/controller", "/migration"):
                client.delete(path)
        for broker in self.brokers:
            broker.voters = ""
        with ThreadPoolExecutor() as pool:
            list(pool.map(MigratingBroker.restart, self.brokers))

    def finalize(self) -> None:
        """Restart the controller without ZooKeeper, and stop ZooKeeper."""
        self.controller.zookeeper_connect = None
        self.controller.restart()
        self.zookeeper_server.stop()

    def all_in_sync(self) -> bool:
        """Return whether all brokers are there and all replicas in sync, as a broker knows them."""
        try:
            metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=10)
        except KafkaException:
            return False
        partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
        return len(metadata.brokers) == len(self.brokers) and all(
            {*partition.isrs} == {*partition.replicas} for partition in partitions
        )

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(exit_on_sigterm())
        stack.push(removed_unless_failed(self.folder))
        stack.enter_context(self.zookeeper_server)
        for broker in self.brokers:
            broker.zookeeper_connect = self.zookeeper_server.connect
            stack.callback(broker.kill)
            broker.start()
        for broker in self.brokers:
            broker.wait_ready()

    def _wait_until(self, happened: Callable[[], bool], failure: str) -> None:
        if not poll_until(happened, bool, STEP_SECONDS):
            raise SurveyorError(f"{failure} within {STEP_SECONDS:g} s; logs: {self.folder}")
