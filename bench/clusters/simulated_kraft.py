"""A KRaft cluster of simulated brokers in a process of its own, of the size of a synthetic cluster in ZooKeeper."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.clusters.synthetic import TOPIC_SIZE
from tests.jobs.support.kafka.paged_brokers import LOOPBACK

BROKERS = 3


@contextmanager
def simulated_kraft(
    partitions: int, newest: str, *, brokers: int = BROKERS, topic_size: int = TOPIC_SIZE
) -> Iterator[str]:
    """Start the brokers, and return their addresses; `newest` is the newest request for topics that they answer."""
    sizes = [str(partitions // topic_size), str(topic_size), str(brokers), newest]
    with simulated_brokers("tests.jobs.support.kafka.paged_brokers", sizes, brokers) as addresses:
        yield addresses


@contextmanager
def simulated_brokers(module: str, arguments: Sequence[str], brokers: int) -> Iterator[str]:
    """Start a module of simulated brokers, and return their addresses."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield ",".join(f"{LOOPBACK}:{process.stdout.readline().strip()}" for _ in range(brokers))
        finally:
            process.communicate("")
