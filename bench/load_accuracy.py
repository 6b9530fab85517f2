"""Load as Surveyor measures it, against the brokers' own counters and the batches on their disks.

    python -m bench.load_accuracy SECONDS [--every SECONDS] [--zookeeper]

Two real brokers in two racks, and producers and readers of every kind: batches and single records, no compression, lz4
and zstd, skewed keys, transactions, deleted and compacted logs, groups, a reader without commits, and readers that are
served by followers. `load sample` runs at intervals meanwhile, `load rollup` afterwards. Bytes in and out by topic are
compared with BytesInPerSec and BytesOutPerSec (JMX), and bytes in by partition with the batches in the log.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.servers import KafkaServer
from jobs.runtime.console import log
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.broker_counters import (
    BYTES_IN,
    BYTES_OUT,
    REPLICATION_IN,
    BrokerCounters,
    Metric,
    broker_counters,
)
from tests.jobs.support.kafka.load_traffic import BROKERS, FAR, NEAR, READERS, TOPICS, LoadTraffic, batch_sizes

RACKS: Final = {1: NEAR, 2: FAR}
WARM_UP_SECONDS: Final = 3.0
HEAP: Final = "320m"

INACCURATE: Final = ("recompressed", "compacted")
"""Topics whose stored bytes are not those that producers send; of these the second has no followers."""


@dataclass(frozen=True, slots=True)
class MeasuredCluster:
    """Two brokers, and Surveyor for them."""

    bootstrap: str
    brokers: Mapping[int, KafkaServer]
    surveyor: Surveyor

    def log_of(self, topic: str, partition: int) -> Path:
        """Return the folder of a partition on the broker that leads it."""
        leader = 1 if partition % 2 == 0 else 2
        return self.brokers[leader].folder / "data" / f"{topic}-{partition}"


@contextmanager
def measured_cluster(folder: Path, *, with_zookeeper: bool) -> Iterator[MeasuredCluster]:
    if with_zookeeper:
        with EmbeddedCluster(2, first_id=1, racks=RACKS, overrides=BROKERS, heap=HEAP) as cluster:
            surveyor = Surveyor(cluster.zookeeper_server.connect, folder / "warehouse")
            yield MeasuredCluster(cluster.bootstrap, cluster.brokers, surveyor)
    else:
        with EmbeddedKRaftCluster(1, racks=RACKS, overrides=BROKERS, heap=HEAP) as kraft:
            kraft.add_broker(2)
            surveyor = Surveyor(kraft.bootstrap, folder / "warehouse", "--bootstrap-server")
            yield MeasuredCluster(kraft.bootstrap, kraft.nodes, surveyor)


@dataclass(frozen=True, slots=True)
class Compared:
    """Bytes of the same traffic, as the brokers count them and as Surveyor computes them."""

    brokers: float
    surveyor: float

    @property
    def error(self) -> float | None:
        """The difference as a share of what the brokers count; none without traffic."""
        return self.surveyor / self.brokers - 1 if self.brokers else None


@dataclass(frozen=True, slots=True)
class TopicAccuracy:
    """One topic; rates are bytes of the whole run."""

    topic: str
    bytes_in: Compared
    bytes_out: Compared
    worst_partition: float | None
    """The largest error of a partition's bytes in, against the batches in its log; none if some were deleted, or differ
    from those that were sent."""
    records: Mapping[int, tuple[int, float]]
    """Records that were acknowledged, and that Surveyor counts, by partition."""
    methods: Sequence[str]
    flags: Sequence[str]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The comparison of all topics and brokers."""

    topics: Mapping[str, TopicAccuracy]
    brokers: Mapping[tuple[int, str], Compared]
    """By broker and column of BROKER_LOAD, without what INACCURATE topics bring in, and readers that do not commit."""


def measure(cluster: MeasuredCluster, seconds: float, every: float) -> Accuracy:
    """Let producers and readers run for some seconds, sample them, and compare."""
    traffic = LoadTraffic(cluster.bootstrap)
    traffic.create()
    cluster.surveyor.json("snapshot")
    with broker_counters(cluster.brokers) as counters, traffic.readers() as readers:
        with traffic.flowing():
            time.sleep(WARM_UP_SECONDS)
        readers.await_committed()
        before, acknowledged = counters.read(), traffic.acknowledged.copy()
        starts = _sampled_ends(cluster)
        with traffic.flowing():
            _sample_for(cluster.surveyor, seconds, every)
        readers.await_committed()
        ends = _sampled_ends(cluster)
        counted, sent = _grown(counters, before), traffic.acknowledged - acknowledged
    cluster.surveyor.json("load", "rollup")
    return _compared(cluster, counted, sent, starts, ends)


def _sample_for(surveyor: Surveyor, seconds: float, every: float) -> None:
    begun = time.monotonic()
    while (left := begun + seconds - time.monotonic()) > 0:
        time.sleep(min(every, left))
        surveyor.json("load", "sample")


def _sampled_ends(cluster: MeasuredCluster) -> dict[tuple[str, int], int]:
    """Take a sample, and return the ends of logs in it."""
    cluster.surveyor.json("load", "sample")
    rows = cluster.surveyor.warehouse.rows("partition_offsets")
    return {(row["topic"], row["partition"]): row["log_end"] for row in sorted(rows, key=lambda row: row["sampled_at"])}


def _grown(counters: BrokerCounters, before: Counter[Metric]) -> Counter[Metric]:
    return Counter({metric: count - before[metric] for metric, count in counters.read().items()})


def _compared(
    cluster: MeasuredCluster,
    counted: Counter[Metric],
    sent: Counter[tuple[str, int]],
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
) -> Accuracy:
    loads: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in cluster.surveyor.warehouse.rows("partition_load"):
        loads[row["topic"]].append(row)
    topics = {}
    for topic in (topic.name for topic in TOPICS):
        partitions = _by_partition(loads[topic])
        errors = []
        for number, rows in partitions.items():
            sizes = batch_sizes(cluster.log_of(topic, number))
            start, end = starts[topic, number], ends[topic, number]
            if topic not in INACCURATE and min(sizes) <= start:
                written = sum(size for offset, size in sizes.items() if start <= offset < end)
                errors.append(abs(total(rows, "bytes_in") / written - 1))
        topics[topic] = TopicAccuracy(
            topic=topic,
            bytes_in=Compared(_of_topic(counted, BYTES_IN, topic), total(loads[topic], "bytes_in")),
            bytes_out=Compared(_of_topic(counted, BYTES_OUT, topic), total(loads[topic], "bytes_out")),
            worst_partition=max(errors) if len(errors) == len(partitions) else None,
            records={number: (sent[topic, number], total(rows, "records_in")) for number, rows in partitions.items()},
            methods=sorted({row["method"] for row in loads[topic]}),
            flags=sorted({flag for row in loads[topic] for flag in row["flags"] or ()} - {"partial"}),
        )
    return Accuracy(topics, _brokers(cluster, counted, loads))


def _by_partition(rows: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    partitions: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        partitions[row["partition"]].append(row)
    return partitions


def total(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    """Return what a rate adds up to."""
    return float(sum((row[column] or 0.0) * row["covered_seconds"] for row in rows))


def _of_topic(counted: Counter[Metric], name: str, topic: str) -> float:
    return sum(count for metric, count in counted.items() if (metric.name, metric.topic) == (name, topic))


def _brokers(
    cluster: MeasuredCluster, counted: Counter[Metric], loads: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[tuple[int, str], Compared]:
    covered: dict[Any, float] = defaultdict(float)
    for row in (row for rows in loads.values() for row in rows):
        covered[row["hour"]] = max(covered[row["hour"]], row["covered_seconds"])
    by_commit = {topic for topics, _ in READERS.values() for topic in topics}
    result = {}
    for broker in RACKS:
        rows = [row for row in cluster.surveyor.warehouse.rows("broker_load") if row["broker_id"] == broker]
        inaccurate = [row for topic in INACCURATE for row in loads[topic] if row["leader"] == broker]
        of_broker = Counter({metric: count for metric, count in counted.items() if metric.broker_id == broker})
        counts = {
            "bytes_in": of_broker[Metric(broker, BYTES_IN, "")]
            - sum(_of_topic(of_broker, BYTES_IN, row) for row in INACCURATE),
            "replication_in": of_broker[Metric(broker, REPLICATION_IN, "")],
            "bytes_out": sum(_of_topic(of_broker, BYTES_OUT, topic) for topic in by_commit),
        }
        for column, count in counts.items():
            measured = sum(row[column] * covered[row["hour"]] for row in rows)
            if column == "bytes_in":
                measured -= total(inaccurate, column)
            result[broker, column] = Compared(count, measured)
    return result


def markdown(accuracy: Accuracy, seconds: float) -> str:
    """Return the tables of errors."""
    lines = [
        "| topic | bytes in per second | error | worst partition | bytes out per second | error | method | flags |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for row in accuracy.topics.values():
        cells = [
            row.topic,
            _rate(row.bytes_in.brokers, seconds),
            _percent(row.bytes_in.error),
            _percent(row.worst_partition).lstrip("+"),
            _rate(row.bytes_out.brokers, seconds),
            _percent(row.bytes_out.error),
            ", ".join(row.methods),
            ", ".join(row.flags),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| broker | quantity | bytes per second | error |", "|---|---|---:|---:|"]
    for (broker, column), compared in accuracy.brokers.items():
        lines.append(f"| {broker} | {column} | {_rate(compared.brokers, seconds)} | {_percent(compared.error)} |")
    return "\n".join(lines)


def _rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.2f} %"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load_accuracy", description=__doc__)
    parser.add_argument("seconds", type=float, help="duration of the traffic")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="between two samples; 60")
    parser.add_argument("--zookeeper", action="store_true", help="a cluster with ZooKeeper instead of KRaft")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        log("starting two brokers")
        with measured_cluster(Path(folder), with_zookeeper=options.zookeeper) as cluster:
            accuracy = measure(cluster, options.seconds, options.every)
    sys.stdout.write(markdown(accuracy, options.seconds) + "\n")
    for row in accuracy.topics.values():
        log(f"{row.topic}: {row.records}")


if __name__ == "__main__":
    main(sys.argv[1:])
