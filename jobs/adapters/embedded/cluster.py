"""A Kafka cluster of child processes in one temporary folder: a ZooKeeper server and a few brokers."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from jobs.adapters.embedded.processes import Servers, exit_on_sigterm, removed_unless_failed
from jobs.adapters.embedded.servers import BROKER_HEAP, EmbeddedKafka, EmbeddedZooKeeper


class EmbeddedCluster(Servers):
    """A cluster that runs inside its `with` block; its folder is removed afterwards, but kept for its logs on failure.

    Broker ids start at `first_id`. Brokers can be killed, restarted and added: `cluster.brokers[1].kill()`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        first_id: int = 0,
        racks: Mapping[int, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = BROKER_HEAP,
        keep: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surveyor-"))
        self.zookeeper_server = EmbeddedZooKeeper(self.folder / "zookeeper")
        self.brokers: dict[int, EmbeddedKafka] = {}
        self._initial_ids = range(first_id, first_id + brokers)
        self._racks = dict(racks or {})
        self._overrides = overrides
        self._heap = heap
        self._keep = keep

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def add_broker(self, broker_id: int, rack: str | None = None) -> EmbeddedKafka:
        """Start one more broker and wait until it is ready."""
        broker = self._start_broker(broker_id, rack)
        broker.wait_ready()
        return broker

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(exit_on_sigterm())
        stack.push(removed_unless_failed(self.folder, keep=self._keep))
        stack.enter_context(self.zookeeper_server)
        stack.callback(self._kill_brokers)
        for broker in [self._start_broker(broker_id, self._racks.get(broker_id)) for broker_id in self._initial_ids]:
            broker.wait_ready()

    def _start_broker(self, broker_id: int, rack: str | None) -> EmbeddedKafka:
        folder = self.folder / f"broker-{broker_id}"
        where = self.zookeeper_server.connect, broker_id, folder
        broker = EmbeddedKafka(*where, rack=rack, overrides=self._overrides, heap=self._heap)
        self.brokers[broker_id] = broker
        broker.start()
        return broker

    def _kill_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
