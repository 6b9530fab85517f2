"""Samples of offsets, sizes and groups against an unchanged snapshot of the same simulated brokers.

    python -m bench.sampling 1000000 [ROUNDS]

There are a hundred brokers. They encode an answer once, and hold no data, so the ratio is what Surveyor needs. Each
topic has a partition on every broker. One group of each broker has read all that this broker leads.
"""

import sys
import tempfile
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from bench.clusters.simulated_kraft import simulated_brokers
from bench.clusters.synthetic import BROKER_COUNT, MILLION, TOPIC_SIZE
from bench.figures import Cost, Figure, median_of, timed
from bench.snapshots import Sample
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.session import start_session
from jobs.measurement.sampling import take_sample
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.snapshot import take_snapshot

TARGET: Final = 0.3
"""A sample, in unchanged snapshots of the same size."""

GROUPS: Final = 1
"""Groups of each broker; together they have an offset in each partition."""

MODULE: Final = "tests.jobs.support.kafka.sampled_brokers"


def bench_sampling(partitions: int, rounds: int, engine: Engine = Engine.AUTO) -> Sample:
    """Take samples and unchanged snapshots by turns; return the turn with the median ratio."""
    sizes = [str(partitions // TOPIC_SIZE), str(TOPIC_SIZE), str(BROKER_COUNT), str(GROUPS)]
    with (
        simulated_brokers(MODULE, sizes, BROKER_COUNT) as addresses,
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
    ):
        settings = Settings("bench", folder, ClusterConf(bootstrap_servers=addresses), engine=engine)
        with progress(f"first snapshot and sample of {partitions:,} partitions"):
            take_snapshot(settings)
            take_sample(settings)  # for which the brokers encode their answers
        return median_of(list(_turns(settings, partitions, rounds)), attrgetter("figure.ratio"))


def _turns(settings: Settings, partitions: int, rounds: int) -> Iterator[Sample]:
    for _ in range(rounds):
        snapshot_seconds, taken = timed(lambda: take_snapshot(settings).row)
        before = _bytes_of(settings)
        seconds, stored = timed(lambda: take_sample(settings))
        assert taken.partitions == stored.partitions == partitions, (taken, stored)
        assert [*stored.missing, *stored.silent, *stored.missing_groups, *stored.refusals] == [], stored
        assert stored.group_offsets == GROUPS * partitions, stored
        figure = Figure(
            measured=f"sample of {BROKER_COUNT} simulated brokers, {partitions:,} partitions",
            seconds=seconds,
            baseline="unchanged snapshot of the same",
            baseline_seconds=snapshot_seconds,
            target=TARGET if partitions >= MILLION else None,
        )
        added = _bytes_of(settings) - before
        yield Sample(figure, Cost("sample", partitions, seconds, added, jvm_bytes=None, python_bytes=None))


def _bytes_of(settings: Settings) -> int:
    return sum(path.stat().st_size for path in Path(settings.warehouse_uri).rglob("*") if path.is_file())


if __name__ == "__main__":
    start_session("surveyor bench", place=Place(Engine.EMBEDDED))
    measured = bench_sampling(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, Engine.EMBEDDED)
    for row in (measured.figure.row, measured.cost.row if measured.cost else {}):
        print(row)  # noqa: T201 - the result
