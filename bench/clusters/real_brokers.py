"""Real brokers and many partitions on them, for benchmarks of what happens when one is killed.

When something was written is read from ZooKeeper itself, which notes it in the Stat of each znode to the millisecond:
constant polling would use the processors that are measured.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import BROKER_HEAP
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.runtime.progress import progress
from schemas.znode_codecs import (
    Assignment,
    State,
    TopicPartition,
    decode_controller,
    decode_state,
    encode_assignment,
    encode_partitions,
)

SETTINGS: Final = dict[str, str]()
"""The brokers' own defaults: they ask the controller for ISRs, and before they shut down."""
HEAP: Final = "1500m"
"""12,000 replicas fill 512 MB, and a broker then does little but look for more, for minutes."""
OURS: Final = 2147483647
TOPIC_SIZE: Final = 100
TIMEOUT_SECONDS: Final = 600.0
MILLISECOND: Final = 0.001


@contextmanager
def three_brokers(
    partitions: int, heap: str = BROKER_HEAP
) -> Iterator[tuple[EmbeddedCluster, KazooClient, list[TopicPartition]]]:
    """Start three brokers with so many partitions, all of them in sync; a client of ZooKeeper comes with them."""
    with (
        EmbeddedCluster(3, overrides=SETTINGS, heap=heap) as cluster,
        connected(ZooKeeperEndpoint(cluster.zookeeper_server.connect)) as client,
    ):
        with progress(f"{partitions:,} partitions are made"):
            places = _made(client, partitions)
            healed(client, places)
        yield cluster, client, places


def _made(client: KazooClient, partitions: int) -> list[TopicPartition]:
    """Write topics as brokers do that create them; the controller makes their first leaders."""
    places = []
    for number in range(partitions // TOPIC_SIZE):
        topic = f"topic-{number:03d}"
        replicas = {p: [(p + j) % 3 for j in range(3)] for p in range(TOPIC_SIZE)}
        client.create(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
        client.create(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))
        places += [TopicPartition(topic, partition) for partition in replicas]
    return places


def read_states(client: KazooClient, places: Sequence[TopicPartition]) -> list[Znode]:
    return read_many(client, [f"/brokers/topics/{place.topic}/partitions/{place.partition}/state" for place in places])


def states(client: KazooClient, places: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, State | None]]:
    for place, znode in zip(places, read_states(client, places), strict=True):
        yield place, None if znode.data is None else decode_state(znode.data)


def written_at(znodes: Sequence[Znode]) -> list[float]:
    """When each was written last, in seconds of the wall clock."""
    return [znode.stat.mtime * MILLISECOND for znode in znodes if znode.stat is not None]


def until(holds: Callable[[], bool], pause: float = 0.02) -> float:
    """Wait; return when it was."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {TIMEOUT_SECONDS:g} s")
        time.sleep(pause)
    return time.monotonic()


def healed(client: KazooClient, places: Sequence[TopicPartition]) -> None:
    """Wait until everything is in sync and led by its preferred replica."""

    def whole() -> bool:
        return all(state is not None and len(state.isr) == 3 for _, state in states(client, places))

    until(whole, 1.0)
    astray = [place for place, state in states(client, places) if state and state.leader != place.partition % 3]
    if astray:
        client.create("/admin/preferred_replica_election", encode_partitions(astray))
        until(lambda: client.exists("/admin/preferred_replica_election") is None, 0.5)
        until(lambda: all(s and s.leader == p.partition % 3 for p, s in states(client, places)), 0.5)
    time.sleep(5.0)  # brokers go on telling each other for a moment


def controller(client: KazooClient) -> int | None:
    data = read(client, "/controller").data
    return None if data is None else decode_controller(data).broker_id
