"""The embedded engine against Spark, and against Kafka's own tool: whole processes, by turns, one command each."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.clusters.synthetic import cluster
from bench.figures import Figure, median_of, timed
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.runtime.progress import progress
from tests.jobs.support.kafka.kafka_tools import AS_SHIPPED, MOVES, Tools
from tests.jobs.support.kafka.real_cluster import eventually
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


@contextmanager
def _kafka(brokers: int) -> Iterator[tuple[EmbeddedCluster, tuple[str, ...]]]:
    """Real brokers with topics of two replicas on the first three; yield the options of a command, too."""
    with EmbeddedCluster(brokers) as running, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        pairs = [[number % 3, (number + 1) % 3] for number in range(PARTITIONS)]
        topics = [NewTopic(f"topic-{number}", PARTITIONS, replica_assignment=pairs) for number in range(TOPICS)]
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for created in admin.create_topics(topics).values():
            created.result()
        yield running, ("--zookeeper", running.zookeeper_server.connect, "--warehouse", f"{folder}/warehouse")


def bench_generate(rounds: int) -> Figure:
    """Measure a plan to remove a broker, with its snapshot, against the same question to Kafka's tool."""
    with _kafka(3) as (running, place), tempfile.NamedTemporaryFile("w", suffix=".json") as topics:
        names = [{"topic": f"topic-{number}"} for number in range(TOPICS)]
        json.dump({"version": 1, "topics": names}, topics)
        topics.flush()
        question = ("--topics-to-move-json-file", topics.name, "--broker-list", "0,1")
        tools = Tools(running.bootstrap, options=AS_SHIPPED)
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


JOBS: Final = {
    "add a broker": "reassign --add-brokers 3",
    "more replicas, by pattern": "reassign --replication-factor 3 --topics topic-1.*",
    "a new topic": "assign --topic {} --partitions 12 --replication-factor 3",
    "before maintenance": "drain --brokers 2",
    "after maintenance": "undrain --brokers 2",
    "preferred leaders": "elect --preferred",
    "fewer replicas, by pattern": "reassign --replication-factor 2 --topics topic-1.*",
    "decommission a broker": "reassign --remove-brokers 3",
}
"""Everyday jobs, which lead back to the beginning together, but for the new topic."""

STEPS: Final = ("commit {}", "commit {} --apply --wait", "verify {}")
"""The commands that carry out a plan in steps."""


def bench_jobs() -> Iterator[Figure]:
    """Measure each everyday job in one command, against the commands of its steps on Spark."""
    with _kafka(4) as (running, place):
        in_steps = {job: _seconds(running, _steps(place, job, plan)) for job, plan in JOBS.items()}
        for job, plan in JOBS.items():
            whole = ("plan", *plan.format("in-one").split(), "--apply", "--yes", *place, "--engine", "embedded")
            yield Figure(
                measured=f"{job}, {TOPICS * PARTITIONS} partitions without records: one command",
                seconds=_seconds(running, [whole]),
                baseline="snapshot, plan, commit, commit --apply --wait, verify with --engine spark",
                baseline_seconds=in_steps[job],
            )


def _steps(place: Sequence[str], job: str, plan: str) -> Iterator[tuple[str, ...]]:
    name = job.replace(" ", "-").replace(",", "")
    yield "snapshot", *place, "--engine", "spark"
    yield "plan", *plan.format("in-steps").split(), "--name", name, "--no-refresh", *place, "--engine", "spark"
    yield from ((*step.format(name).split(), *place) for step in STEPS)


def _seconds(running: EmbeddedCluster, commands: Iterable[Sequence[str]]) -> float:
    """Run commands one after another, each a process; a broker leads nothing, so that leaders can be elected."""
    commands = list(commands)
    if "--preferred" in str(commands):
        running.brokers[1].restart()
        admin = AdminClient({"bootstrap.servers": running.brokers[0].address})
        assert eventually(lambda: _is_in_sync(admin))
    return timed(lambda: [_peak_bytes(*command) for command in commands])[0]


def _is_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics().topics.values()
    return all(len(row.isrs) == len(row.replicas) for topic in topics for row in topic.partitions.values())
