"""How long a broker that starts answers clients without its topics, under Kafka's controller and `surveyor control`.

    python -m bench.startup [PARTITIONS] [STARTS]

Of three real brokers one is killed and started again, some times under each controller, in one run. Measured is the
time from its first answer to ApiVersions until its first answer to Metadata that lists all topics: what a client sees
that connects at once, and takes UNKNOWN_TOPIC_OR_PARTITION for final.
"""

import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from bench.clusters.real_brokers import TOPIC_SIZE, states, three_brokers, until
from bench.failover import VICTIM, let_another_control, running_controller
from bench.figures import Figure
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.runtime.console import log
from schemas.znode_codecs import TopicPartition

PARTITIONS: Final = 600
STARTS: Final = 6
TARGET: Final = 1.5
"""Share of the time under Kafka's controller."""

SETTLE_SECONDS: Final = 3.0
"""After a failure, in which others come to lead."""

LOOK_SECONDS: Final = 0.002
"""Between two questions."""

_API_VERSIONS, _METADATA = 18, 3


def bench_startup(partitions: int = PARTITIONS, starts: int = STARTS) -> Iterator[Figure]:
    """Start a broker again and again, under Kafka's controller and then under ours."""
    with three_brokers(partitions) as (cluster, client, places):
        let_another_control(client)
        kafkas = _starts("Kafka's controller", cluster, client, places, starts)
        with tempfile.TemporaryDirectory() as folder, running_controller(cluster, Path(folder)):
            ours = _starts("surveyor control", cluster, client, places, starts)
    of = f"a broker starts, {partitions:,} partitions: seconds without its topics"
    for statistic, middle in (("median", statistics.median), ("longest", max)):
        yield Figure(f"{of}, {statistic} of {starts}", middle(ours), "Kafka's controller", middle(kafkas), TARGET)


def _starts(
    controller: str, cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition], starts: int
) -> list[float]:
    broker, seconds = cluster.brokers[VICTIM], []
    for _ in range(starts):
        broker.kill()
        broker.expire()
        until(lambda: client.exists(f"/brokers/ids/{VICTIM}") is None)
        time.sleep(SETTLE_SECONDS)
        broker.start()
        seconds.append(_without_topics(broker.address, len(places) // TOPIC_SIZE))
        broker.wait_ready()
        until(lambda: all(state is not None and len(state.isr) == 3 for _, state in states(client, places)), 0.5)
    log(f"  {controller}: {', '.join(f'{duration:.3f}' for duration in seconds)} s")
    return seconds


def _without_topics(address: str, topics: int) -> float:
    """Seconds from the first answer to ApiVersions until Metadata lists all topics."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 120.0
    while True:
        try:
            with socket.create_connection((host, int(port)), 5.0) as connection:
                _asked(connection, _API_VERSIONS, 0, b"")
                first = time.monotonic()
                while _topics_in(_asked(connection, _METADATA, 1, struct.pack(">i", -1))) < topics:
                    time.sleep(LOOK_SECONDS)
                return time.monotonic() - first
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def _asked(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 7, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _received(connection, 4))
    return _received(connection, size)


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = connection.recv(size - len(data))
        if not some:
            raise ConnectionResetError
        data += some
    return data


def _topics_in(answer: bytes) -> int:
    """The number of topics in a response to Metadata, version 1."""
    (brokers,) = struct.unpack_from(">i", answer, 4)
    at = 8
    for _ in range(brokers):
        at += 4
        at += 2 + struct.unpack_from(">h", answer, at)[0]  # host
        at += 4
        at += 2 + max(0, struct.unpack_from(">h", answer, at)[0])  # rack, -1 for none
    return int(struct.unpack_from(">i", answer, at + 4)[0])


def main(arguments: Sequence[str]) -> None:
    for figure in bench_startup(*map(int, arguments)):
        print(f"{figure.measured}: {figure.seconds:.3f}; {figure.baseline}: {figure.baseline_seconds:.3f}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
