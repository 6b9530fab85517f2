"""The counters by which brokers measure their own traffic, read by JMX."""

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import find_java

BYTES_IN, BYTES_OUT, REPLICATION_IN = "BytesInPerSec", "BytesOutPerSec", "ReplicationBytesInPerSec"

_SOURCE: Final = Path(__file__).with_name("BrokerCounters.java")


class Metric(NamedTuple):
    """A metric of `BrokerTopicMetrics`; the topic is empty for the whole broker."""

    broker_id: int
    name: str
    topic: str


class BrokerCounters:
    """The counters of running brokers; a broker that restarts begins at 0 and is not followed."""

    def __init__(self, brokers: Mapping[int, Server], process: "subprocess.Popen[str]") -> None:
        self._broker_of = {str(broker.pid): broker_id for broker_id, broker in brokers.items()}
        self._process = process

    def read(self) -> Counter[Metric]:
        requests, lines = _pipes(self._process)
        requests.write("\n")
        requests.flush()
        counts = Counter[Metric]()
        while fields := lines.readline().rstrip("\n").split("\t"):
            if len(fields) == 1:
                break
            process_id, name, topic, count = fields
            counts[Metric(self._broker_of[process_id], name, topic)] = int(count)
        assert counts, "the brokers report no metrics"
        return counts


@contextmanager
def broker_counters(brokers: Mapping[int, Server]) -> Iterator[BrokerCounters]:
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", str(_SOURCE), *(str(row.pid) for row in brokers.values())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield BrokerCounters(brokers, process)
        finally:
            process.kill()


def _pipes(process: "subprocess.Popen[str]") -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
