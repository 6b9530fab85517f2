"""A Kafka cluster of child processes in one temporary folder: a ZooKeeper server and a few brokers."""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from jobs.adapters.embedded.processes import Servers, exit_on_sigterm
from jobs.adapters.embedded.servers import BROKER_HEAP, EmbeddedKafka, EmbeddedZooKeeper
from jobs.core.logs import module_logger


class EmbeddedCluster(Servers):
    """A cluster that runs inside its `with` block; its folder is removed afterwards, but kept for its logs on failure.

    Broker ids start at 0. Brokers can be killed, restarted and added: `cluster.brokers[1].kill()`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Mapping[int, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = BROKER_HEAP,
        keep: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surveyor-"))
        self.zookeeper = EmbeddedZooKeeper(self.folder / "zookeeper")
        self.brokers: dict[int, EmbeddedKafka] = {}
        self._initial_ids = range(brokers)
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
        stack.push(self._remove_folder)
        stack.enter_context(self.zookeeper)
        stack.callback(self._kill_brokers)
        for broker in [self._start_broker(broker_id, self._racks.get(broker_id)) for broker_id in self._initial_ids]:
            broker.wait_ready()

    def _start_broker(self, broker_id: int, rack: str | None) -> EmbeddedKafka:
        folder = self.folder / f"broker-{broker_id}"
        where = self.zookeeper.connect, broker_id, folder
        broker = EmbeddedKafka(*where, rack=rack, overrides=self._overrides, heap=self._heap)
        self.brokers[broker_id] = broker
        broker.start()
        return broker

    def _kill_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def _remove_folder(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        failed = kind is not None and issubclass(kind, Exception)
        if failed or self._keep:
            module_logger(__name__).info("the embedded cluster's logs and data are kept in %s", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
