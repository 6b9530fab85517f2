"""A synthetic cluster on an embedded ZooKeeper: 100 partitions a topic, three replicas, every ISR full."""

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest

from jobs.adapters.embedded.processes import four_letter_word
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.runtime.progress import progress
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state

BROKER_COUNT: Final = 100
TOPIC_SIZE: Final = 100
MULTI_SIZE: Final = 400
IN_FLIGHT: Final = 8
MILLION: Final = 1_000_000
RESPONSE_SECONDS: Final = 120.0
"""A server with gigabytes of znodes pauses to collect garbage."""

# Registered at closed ports: connections are refused at once, so requests to them are not part of the measurement.
_BROKER: Final = (
    b'{"version":5,"host":"127.0.0.1","port":1,"endpoints":["PLAINTEXT://127.0.0.1:1"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{},"jmx_port":-1,"timestamp":"1"}'
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A filled ZooKeeper, and a session with it."""

    hosts: str
    client: KazooClient
    partitions: int

    @property
    def topics(self) -> int:
        return self.partitions // TOPIC_SIZE

    @property
    def version(self) -> str:
        """The server's, `3.9.4` of `Zookeeper version: 3.9.4-7246445...`."""
        status = four_letter_word(int(self.hosts.rsplit(":", 1)[1]), "srvr")
        return status.partition("version: ")[2].partition("-")[0]

    def state_paths(self) -> Iterator[str]:
        for topic in range(self.topics):
            for partition in range(TOPIC_SIZE):
                yield state_path(topic, partition)

    def listen(self, ports: Sequence[int]) -> None:
        """Register the first brokers at these ports, the others stay where they are."""
        for broker, port in enumerate(ports):
            path = f"/brokers/ids/{broker}"
            data, _ = self.client.get(path)
            address = data.replace(b'"port":1,', b'"port":%d,' % port)
            self.client.set(path, address.replace(b'127.0.0.1:1"', b'127.0.0.1:%d"' % port))

    def change(self, count: int, turn: int) -> None:
        """Shrink the ISR of so many partitions, the same number in each topic; another `turn` changes them again."""
        pending = (self._changes(range(start, min(start + MULTI_SIZE, count)), turn) for start in _starts(count))
        _commit_all(pending)

    def _changes(self, numbers: Iterable[int], turn: int) -> TransactionRequest:
        multi = self.client.transaction()
        for number in numbers:
            topic, nth = number % self.topics, number // self.topics
            # 37 and 100 have no common divisor: up to 100 of a topic, no partition comes twice
            partition = (nth * 37 + topic * 7 + turn) % TOPIC_SIZE
            assigned = replicas(topic + partition)
            changed = State(controller_epoch=1, leader=assigned[0], leader_epoch=turn, isr=assigned[:2])
            multi.set_data(state_path(topic, partition), encode_state(changed))
        return multi


def state_path(topic: int, partition: int) -> str:
    return f"{_topic_path(topic)}/partitions/{partition}/state"


def replicas(number: int) -> list[int]:
    return [(number + j) % BROKER_COUNT for j in range(3)]


def state(assigned: list[int]) -> bytes:
    return encode_state(State(controller_epoch=1, leader=assigned[0], leader_epoch=0, isr=assigned))


Place = Callable[[int, int], list[int]]
"""The replicas of a partition, by the numbers of its topic and of itself."""


@contextmanager
def cluster(
    partitions: int,
    place: Place = lambda topic, partition: replicas(topic + partition),
    brokers: int = BROKER_COUNT,
) -> Iterator[Cluster]:
    """Start a ZooKeeper, fill it, and stop it at the end.

    Its whole heap is there from the start, and the young part is small. Otherwise the server collects garbage whenever
    the old part grows, and does not respond for 15 s and more where that has six gigabytes.
    """
    heap = f"{max(3, -(-3 * partitions // MILLION))}g"
    with (
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
        EmbeddedZooKeeper(Path(folder), heap=heap, jvm_options=(f"-Xms{heap}", "-Xmn512m")) as server,
    ):
        client = KazooClient(server.connect, timeout=60)
        client.start()
        try:
            with progress(f"filling ZooKeeper with {partitions:,} partitions"):
                _fill(client, partitions, place, brokers)
            yield Cluster(server.connect, client, partitions)
        finally:
            client.stop()
            client.close()


def _fill(client: KazooClient, partitions: int, place: Place, brokers: int) -> None:
    for path in ("/brokers/ids", "/brokers/topics", "/config/topics"):
        client.ensure_path(path)
    client.create("/controller_epoch", b"1")
    for broker in range(brokers):
        client.create(f"/brokers/ids/{broker}", _BROKER)
    _commit_all(_creation(client, topic, place) for topic in range(partitions // TOPIC_SIZE))


def _creation(client: KazooClient, topic: int, place: Place) -> TransactionRequest:
    path = _topic_path(topic)
    multi = client.transaction()
    assignment = {partition: place(topic, partition) for partition in range(TOPIC_SIZE)}
    multi.create(path, encode_assignment(Assignment(assignment, {}, {}, None)))
    multi.create(f"{path}/partitions")
    for partition in range(TOPIC_SIZE):
        multi.create(f"{path}/partitions/{partition}")
        multi.create(state_path(topic, partition), state(assignment[partition]))
    return multi


def _commit_all(multis: Iterable[TransactionRequest]) -> None:
    """Commit with a few in flight; one that was refused raises."""
    pending: deque[Any] = deque()
    for multi in multis:
        pending.append(multi.commit_async())
        if len(pending) > IN_FLIGHT:
            _check(pending.popleft().get(timeout=RESPONSE_SECONDS))
    for one in pending:
        _check(one.get(timeout=RESPONSE_SECONDS))


def _check(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


def _starts(count: int) -> range:
    return range(0, count, MULTI_SIZE)


def _topic_path(topic: int) -> str:
    return f"/brokers/topics/topic-{topic:05d}"
