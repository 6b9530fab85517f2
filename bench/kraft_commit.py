"""A commit of many moves in one wave to simulated KRaft brokers, against the same requests without any judging.

The commit judges each request right before it, and reads back what was accepted. No move ends, so each request is sent
while more of the wave is moving. What a change costs must not grow with the wave.

    python -m bench.kraft_commit 100000 [PARTITIONS_A_TOPIC]
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.clusters.simulated_kraft import simulated_kraft
from bench.clusters.synthetic import TOPIC_SIZE
from bench.figures import Figure, describe, seconds_of, timed
from bench.report import Report
from jobs.adapters.brokers.admin_client import batches, connected_admin
from jobs.adapters.spark.session import start_session
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from schemas.rows import Key
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.paged_brokers import LISTED, PagedCluster
from tests.jobs.support.rows.input_files import reassignment_json

BROKERS: Final = 4
"""One more than a partition has replicas."""

SMALLER: Final = 10
"""How many times fewer moves the wave has whose cost a change is compared with."""

GROWTH_TARGET: Final = 1.5
"""The commit, in so many times the commit of the smaller wave."""


def bench_commit(moves: int, topic_size: int = TOPIC_SIZE) -> list[Figure]:
    """Commit a wave of so many moves, a smaller one, and send the same requests alone."""
    smaller = commit_seconds(moves // SMALLER, topic_size)
    whole = commit_seconds(moves, topic_size)
    measured = f"commit of {moves:,} moves in one wave, simulated KRaft brokers, {topic_size:,} partitions a topic"
    return [
        Figure(measured, whole, "the same requests, without judging", _request_seconds(moves, topic_size)),
        Figure(measured, whole, f"{SMALLER} times a commit of {moves // SMALLER:,}", SMALLER * smaller, GROWTH_TARGET),
    ]


def commit_seconds(moves: int, topic_size: int) -> float:
    """Plan a wave of so many moves, and commit it; return the seconds of the commit."""
    with _brokers(moves, topic_size) as addresses, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        surveyor = Surveyor(addresses, Path(folder) / "warehouse", "--bootstrap-server")
        targets = Path(folder) / "targets.json"
        rows = [(topic, partition, replicas) for (topic, partition), replicas in _targets(moves, topic_size).items()]
        targets.write_text(json.dumps(reassignment_json(*rows)))
        plan = surveyor.json("plan", "reassign", "--reassignment-json-file", str(targets))
        waves = surveyor.warehouse.read("changes", columns=["wave"])["wave"].unique().to_pylist()
        assert (plan["changes"], len(waves)) == (moves, 1), plan
        with progress(f"committing {moves:,} moves"):
            seconds, done = timed(lambda: surveyor.json("commit", plan["plan_id"], "--apply", "--yes"))
        assert done["applied_now"] == moves, done
        return seconds


def _request_seconds(moves: int, topic_size: int) -> float:
    targets = _targets(moves, topic_size)

    def request(addresses: str) -> None:
        with connected_admin(addresses.split(","), {}) as admin:
            for keys in batches([*targets]):
                assert not any(admin.reassign({key: targets[key] for key in keys}).values())

    with _brokers(moves, topic_size) as addresses:
        return seconds_of(lambda: request(addresses))


@contextmanager
def _brokers(moves: int, topic_size: int) -> Iterator[str]:
    with simulated_kraft(moves, LISTED, brokers=BROKERS, topic_size=topic_size) as addresses:
        yield addresses


def _targets(moves: int, topic_size: int) -> dict[Key, list[int]]:
    """Move the last replica of each partition to the broker that has none."""
    cluster = PagedCluster(moves // topic_size, topic_size, BROKERS)
    targets: dict[Key, list[int]] = {}
    for number, topic in enumerate(cluster.names):
        for partition in range(topic_size):
            replicas = cluster.replicas(number, partition)
            (free,) = {*range(BROKERS)} - {*replicas}
            targets[topic, partition] = [*replicas[:-1], free]
    return targets


def main(moves: int, topic_size: int) -> None:
    spark = start_session("surveyor bench", {"spark.driver.memory": "4g"})
    bench_commit(SMALLER * topic_size, topic_size)  # warm-up
    report = Report(describe(spark, "none", "4g"), bench_commit(moves, topic_size), [])
    report.show()
    log(report.verdict)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else TOPIC_SIZE)
