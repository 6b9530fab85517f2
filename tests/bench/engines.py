"""The embedded engine against Spark, and against Kafka's own tool: whole processes, by turns, one command each."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.runtime.progress import progress
from tests.bench.clusters.synthetic import cluster
from tests.bench.figures import Figure, median_of, timed
from tests.jobs.support.kafka.kafka_tools import MOVES, Tools
from tests.spark_settings import JVM_OPTIONS

TARGETS: Final = {400: 0.35, 100_000: 0.35, 1_000_000: 0.65}
"""What the embedded engine may take at most of Spark's time, by partitions."""

PLANS: Final = {
    "plan reassign": ("--remove-brokers", "1"),
    "plan elect": ("--preferred",),
    "plan assign": ("--topic", "new", "--partitions", "12", "--replication-factor", "3"),
}

TOPICS: Final = 37
PARTITIONS: Final = 10
"""The cluster of Kafka's tool, of real brokers."""

GENERATE: Final = 1.5
"""What a plan, with the snapshot that precedes it, may take of the time of kafka-reassign-partitions --generate."""


def bench_engines(sizes: Sequence[int], rounds: int) -> Iterator[Figure]:
    """Measure snapshots and plans on each engine; of each the round with the median ratio."""
    for partitions in sizes:
        with cluster(partitions) as synthetic, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
            turns = []
            for number in range(1 if partitions > min(TARGETS) else rounds):
                places = {
                    engine: ("--zookeeper", synthetic.hosts, "--warehouse", f"{folder}/{engine}-{number}")
                    for engine in ("embedded", "spark")
                }
                turns.append([*_turn(partitions, places)])
        for figures in zip(*turns, strict=True):
            yield median_of(figures, attrgetter("ratio"))


def _turn(partitions: int, places: Mapping[str, Sequence[str]]) -> Iterator[Figure]:
    works: dict[str, tuple[str, ...]] = {"first snapshot": ("snapshot",), "unchanged snapshot": ("snapshot",)}
    works |= {plan: (*plan.split(), *options, "--no-refresh") for plan, options in PLANS.items()}
    for work, command in works.items():
        measured = {}
        for engine, place in places.items():
            with progress(f"{work}, {partitions:,} partitions, {engine}"):
                measured[engine] = timed(lambda: _peak_bytes(*command, *place, "--engine", engine))  # noqa: B023
        (seconds, peak), (baseline_seconds, _) = measured["embedded"], measured["spark"]
        yield Figure(
            measured=f"{work}, {partitions:,} partitions, a whole process of {peak / 1e6:.0f} MB",
            seconds=seconds,
            baseline="the same with --engine spark",
            baseline_seconds=baseline_seconds,
            target=TARGETS.get(partitions),
        )


def _peak_bytes(*arguments: str) -> int:
    """Run a command; return the most memory that its process had, without a JVM."""
    env = {name: value for name, value in os.environ.items() if name != JVM_OPTIONS}
    command = [sys.executable, "-m", "jobs.entry", *arguments, "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_maxrss * 1024


def bench_generate(rounds: int) -> Figure:
    """Measure a plan to remove a broker, with its snapshot, against the same question to Kafka's tool."""
    with EmbeddedCluster(3) as running, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        names = [f"topic-{number}" for number in range(TOPICS)]
        created = AdminClient({"bootstrap.servers": running.bootstrap}).create_topics(
            [NewTopic(name, num_partitions=PARTITIONS, replication_factor=2) for name in names]
        )
        for future in created.values():
            future.result()
        topics = Path(folder, "topics.json")
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name} for name in names]}))
        question = ("--topics-to-move-json-file", str(topics), "--broker-list", "0,1")
        place = ("--zookeeper", running.zookeeper_server.connect, "--warehouse", f"{folder}/warehouse")
        tools = Tools(running.bootstrap)
        _peak_bytes("snapshot", *place)
        figures = [
            Figure(
                measured=f"surveyor plan reassign, {TOPICS * PARTITIONS} partitions, with its snapshot",
                seconds=timed(lambda: _peak_bytes("plan", "reassign", *question, *place))[0],
                baseline="kafka-reassign-partitions --generate",
                baseline_seconds=timed(lambda: tools.shown(MOVES, *question, "--generate"))[0],
                target=GENERATE,
            )
            for _ in range(rounds)
        ]
    return median_of(figures, attrgetter("ratio"))
