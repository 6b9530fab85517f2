"""A ZooKeeper tree as Kafka writes it, without Kafka: registered brokers are fakes, or ports without a listener.

Everything is written through a separate session, so its ephemeral znodes exist until the test ends.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol.states import ZnodeStat

from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.znode_codecs import (
    Assignment,
    State,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_controller,
    encode_state,
)
from tests.jobs.support.kafka.fake_brokers import FakeBrokers

CLUSTER_ID = "mN2cq7yVTnOp0vNYnbx6Rg"
TOPIC_ID = "r8iTzkX6SnyvLkbjRRRoow"
PATHS = (
    "/brokers/ids",
    "/brokers/topics",
    "/config/topics",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
# A port without a listener; only root may listen on it.
NO_PORT = 1

Dump = dict[str, tuple[bytes | None, ZnodeStat]]


def registration(port: int = NO_PORT, rack: str | None = None) -> bytes:
    return json.dumps(
        {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "jmx_port": -1,
            "timestamp": "1700000000000",
            "features": {},
            "rack": rack,
        }
    ).encode()


def state_path(topic: str, partition: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


class KafkaTree:
    """The tree under `hosts`; `client` may do to it whatever a test needs.

    With `brokers`, brokers that are registered at no given address receive control requests, and record them.
    """

    def __init__(
        self, hosts: str, client: KazooClient, brokers: FakeBrokers | None = None, config: Path | None = None
    ) -> None:
        self.hosts = hosts
        self.endpoint = ZooKeeperEndpoint(hosts, config)
        self.client = client
        self.brokers = brokers

    def lay_out(self, brokers: Sequence[int] = (0, 1, 2)) -> None:
        """Make what brokers make when they start, where nothing is yet."""
        multi = self.client.transaction()
        parents = {path.rpartition("/")[0] for path in PATHS} - {""}
        for path in sorted({*PATHS, *parents}):
            multi.create(path)
        multi.create("/cluster")
        multi.create("/cluster/id", json.dumps({"version": "1", "id": CLUSTER_ID}).encode())
        for broker in brokers:
            multi.create(f"/brokers/ids/{broker}", self._registration(broker), ephemeral=True)
        self._commit(multi)

    def write(self, path: str, data: bytes) -> None:
        """Create or overwrite a persistent znode."""
        if self.client.exists(path):
            self.client.set(path, data)
        else:
            self.client.create(path, data, makepath=True)

    def register(self, broker: int, data: bytes | None = None) -> None:
        data = self._registration(broker) if data is None else data
        self.client.create(f"/brokers/ids/{broker}", data, ephemeral=True)

    def _registration(self, broker: int) -> bytes:
        return registration(NO_PORT if self.brokers is None else self.brokers[broker].port)

    def unregister(self, broker: int) -> None:
        self.client.delete(f"/brokers/ids/{broker}")

    def bounce(self, broker: int) -> None:
        self.unregister(broker)
        self.register(broker)

    def elect(self, controller: int, epoch: int) -> None:
        """Let a broker be the controller, as `registerControllerAndIncrementControllerEpoch` does."""
        self.client.ensure_path("/controller_epoch")
        multi = self.client.transaction()
        if self.client.exists("/controller"):
            multi.delete("/controller")
        multi.create("/controller", encode_controller(controller, 1_700_000_000_000), ephemeral=True)
        multi.set_data("/controller_epoch", str(epoch).encode())
        self._commit(multi)

    def add_topic(self, topic: str, replicas: Mapping[int, list[int]], topic_id: str | None = TOPIC_ID) -> None:
        """Create a topic; the first replica of each partition leads, all are in sync, leader epoch 5."""
        multi = self.client.transaction()
        multi.create(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
        multi.create(f"/brokers/topics/{topic}", encode_assignment(Assignment(dict(replicas), {}, {}, topic_id)))
        multi.create(f"/brokers/topics/{topic}/partitions")
        for partition, assigned in replicas.items():
            multi.create(f"/brokers/topics/{topic}/partitions/{partition}")
            data = encode_state(State(controller_epoch=1, leader=assigned[0], leader_epoch=5, isr=assigned))
            multi.create(state_path(topic, partition), data)
        self._commit(multi)

    @staticmethod
    def _commit(multi: TransactionRequest) -> None:
        assert not [result for result in multi.commit() if isinstance(result, Exception)]

    def touch(self, path: str) -> None:
        """Write what a znode holds once more, so that its version moves."""
        self.client.set(path, self.client.get(path)[0])

    def assignment(self, topic: str) -> Assignment:
        return decode_assignment(self.client.get(f"/brokers/topics/{topic}")[0])

    def state(self, topic: str, partition: int = 0) -> State:
        return decode_state(self.client.get(state_path(topic, partition))[0])

    def version(self, topic: str, partition: int = 0) -> int:
        return int(self.client.get(state_path(topic, partition))[1].version)

    def versions(self, topic: str) -> dict[int, int]:
        partitions = self.client.get_children(f"/brokers/topics/{topic}/partitions")
        return {int(name): self.version(topic, int(name)) for name in partitions}

    def dump(self) -> Dump:
        """Everything that ZooKeeper says about every znode."""
        znodes: Dump = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            znodes[path] = self.client.get(path)
            pending += [f"{path.rstrip('/')}/{name}" for name in self.client.get_children(path)]
        return znodes


def new_chroot(connect: str) -> str:
    """Make an empty tree on a server; return its address."""
    chroot = f"/test-{uuid4().hex}"
    client = KazooClient(connect)
    client.start()
    client.create(chroot)
    client.stop()
    client.close()
    return f"{connect}{chroot}"


def in_parallel(*works: Any) -> list[Any]:  # noqa: ANN401 - whatever they return
    """Run functions of no argument side by side; what they return or raise, in their order."""
    results: list[Any] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = works[index]()
        except Exception as error:  # noqa: BLE001 - handed to the test
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
