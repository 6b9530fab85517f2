"""A cluster that is migrated from ZooKeeper to KRaft, by the procedure of Kafka 3.9's documentation, step by step.

One controller node joins; brokers restart with migration enabled, then as brokers of KRaft; the controller leaves the
migration at the end. Until the controller has done so, the migration can be rolled back. Each step is a method, so that
a test can look at the cluster between two of them. Brokers and controller have an authorizer for which
clients without a password are super users.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobs.adapters.embedded.ports import LOOPBACK, accepts, free_port
from jobs.adapters.embedded.servers import EmbeddedKafka, EmbeddedZooKeeper
from jobs.adapters.zookeeper.connection import connected, read
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from tests.jobs.support.kafka.kraft_controllers import HEAP, PROTOCOLS, KRaftController
from tests.jobs.support.kafka.real_cluster import eventually

CONTROLLER_ID = 3000
SUPER_USERS = {"super.users": "User:ANONYMOUS"}
OF_KRAFT = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", **SUPER_USERS}
OF_ZOOKEEPER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **SUPER_USERS}


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


class MigratingCluster:
    """The cluster and the steps of its migration."""

    def __init__(self, folder: Path, brokers: int) -> None:
        self.zookeeper_server = EmbeddedZooKeeper(folder / "zookeeper")
        self._folder = folder
        self._count = brokers
        self.brokers: list[MigratingBroker] = []
        self.controller: MigratingController

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self, stack: ExitStack) -> None:
        stack.enter_context(self.zookeeper_server)
        for number in range(self._count):
            folder = self._folder / f"broker-{number}"
            broker = MigratingBroker(self.zookeeper_server.connect, number, folder, heap=HEAP)
            stack.callback(broker.kill)
            broker.start()
            self.brokers.append(broker)
        for broker in self.brokers:
            broker.wait_ready()

    def add_controller(self, stack: ExitStack) -> None:
        """Start the controller that will take the metadata over, with the cluster's id."""
        with connected(ZooKeeperEndpoint(self.zookeeper_server.connect)) as client:
            cluster_id = json.loads(read(client, "/cluster/id").data or b"{}")["id"]
        port = free_port()
        self.controller = MigratingController(
            CONTROLLER_ID,
            Path(tempfile.mkdtemp(prefix="controller-", dir=self._folder)),
            port=port,
            controller_port=port,
            voters=f"{CONTROLLER_ID}@{LOOPBACK}:{port}",
            heap=HEAP,
            cluster_id=cluster_id,
        )
        self.controller.zookeeper_connect = self.zookeeper_server.connect
        stack.callback(self.controller.kill)
        self.controller.start()
        self.controller.wait_ready()

    def let_brokers_migrate(self, *, at_once: bool = False) -> None:
        """Restart each broker with migration enabled, and wait until the controller has copied the metadata."""
        for broker in self.brokers:
            broker.voters = self.controller.voters
        self._restart_brokers(at_once=at_once)
        assert eventually(lambda: "Completed migration of metadata" in self.controller.log.read_text(), 120)

    def let_brokers_leave(self, *, at_once: bool = False) -> None:
        """Restart each broker in KRaft mode; the controller still writes to ZooKeeper, too."""
        for broker in self.brokers:
            broker.is_kraft = True
        self._restart_brokers(at_once=at_once)

    def let_brokers_return(self) -> None:
        """Restart each broker with ZooKeeper and migration enabled, as a rollback begins once they have left."""
        for broker in self.brokers:
            broker.is_kraft = False
        self._restart_brokers(at_once=False)

    def roll_back(self) -> None:
        """Remove the controller and what it left in ZooKeeper, and restart the brokers without migration, at once."""
        self.controller.kill()
        with connected(ZooKeeperEndpoint(self.zookeeper_server.connect)) as client:
            for path in ("/controller", "/migration"):
                client.delete(path)
        for broker in self.brokers:
            broker.voters = ""
        self._restart_brokers(at_once=True)

    def finalize(self) -> None:
        """Restart the controller without ZooKeeper."""
        self.controller.zookeeper_connect = None
        self.controller.restart()

    def _restart_brokers(self, *, at_once: bool) -> None:
        with ThreadPoolExecutor(None if at_once else 1) as pool:
            list(pool.map(MigratingBroker.restart, self.brokers))


@contextmanager
def migrating_cluster(brokers: int) -> Iterator[tuple[MigratingCluster, ExitStack]]:
    folder = Path(tempfile.mkdtemp(prefix="surveyor-migration-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = MigratingCluster(folder, brokers)
        cluster.start(stack)
        yield cluster, stack
