"""Samples of simulated brokers: large requests, brokers that refuse, and leaders elsewhere than in the snapshot."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import UnreadableError, UsageError
from jobs.measurement.sample_store import changed_capacity, disk_metrics
from jobs.measurement.sampling import report_sample, sample_repeatedly, take_sample
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import LogDir
from tests.jobs.support.kafka.sampled_brokers import (
    DESCRIBE_LOG_DIRS,
    DISK_BYTES,
    LIST_GROUPS,
    OFFSET_FETCH,
    SampledCluster,
)
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster

Key = tuple[str, int]

TOPIC_AUTHORIZATION_FAILED = 29


def started(**settings: Any) -> SampledCluster:  # noqa: ANN401 - the cluster's
    cluster = SampledCluster(**{"topics": 4, "partitions": 6, "brokers": 3, **settings})
    cluster.start()
    return cluster


def settings_of(cluster: SampledCluster, warehouse: Warehouse) -> Settings:
    return Settings(warehouse.cluster, warehouse.uri, ClusterConf(bootstrap_servers=cluster.bootstrap))


def expected(cluster: SampledCluster) -> dict[Key, tuple[int, ...]]:
    """Leader, first offset, high watermark and bytes of each partition, in plain Python."""
    return {
        (cluster.names[topic], partition): (
            (topic + partition) % cluster.brokers,
            cluster.first(topic, partition),
            cluster.end(topic, partition),
            cluster.size(topic, partition),
        )
        for topic in range(cluster.topics)
        for partition in range(cluster.partitions)
    }


def stored(warehouse: Warehouse) -> dict[Key, tuple[int, ...]]:
    rows = warehouse.rows("partition_offsets")
    columns = ("leader", "log_start", "log_end", "bytes")
    return {(row["topic"], row["partition"]): tuple(row[name] for name in columns) for row in rows}


@pytest.mark.parametrize("is_hashed", [False, True])
@pytest.mark.parametrize("partitions", [6, 21_000])
def test_all_partitions(warehouse: Warehouse, partitions: int, is_hashed: bool) -> None:  # noqa: FBT001 - of the parameters
    """Also if a broker leads more of them than one request has, and in whatever order it answers."""
    cluster = started(topics=2, partitions=partitions, is_hashed=is_hashed, groups=1)
    sample = take_sample(settings_of(cluster, warehouse))
    assert stored(warehouse) == expected(cluster)
    assert (sample.partitions, sample.topics, sample.brokers) == (2 * partitions, 2, 3)
    ids = {row["topic"]: row["topic_id"] for row in warehouse.rows("partition_offsets")}
    assert len(set(ids.values())) == len(ids) == 2
    positions = {(row["topic"], row["partition"]): row["committed"] for row in warehouse.rows("group_offsets")}
    assert positions == {key: row[2] for key, row in expected(cluster).items()}
    assert {row["topic"]: row["topic_id"] for row in warehouse.rows("group_offsets")} == ids


def test_refused_requests_cost_what_rests_on_them(warehouse: Warehouse) -> None:
    cluster = started(groups=2, refused=frozenset({DESCRIBE_LOG_DIRS, LIST_GROUPS}))
    sample = take_sample(settings_of(cluster, warehouse))
    assert stored(warehouse) == {key: (*row[:3], None) for key, row in expected(cluster).items()}
    assert {(row.broker_id, row.subject) for row in sample.refusals} == {
        (broker, subject) for broker in range(3) for subject in ("log dirs", "groups")
    }
    assert (warehouse.rows("group_offsets"), warehouse.rows("broker_metrics")) == ([], [])


def test_a_refused_group_is_named(warehouse: Warehouse) -> None:
    cluster = started(groups=1, refused=frozenset({OFFSET_FETCH}))
    sample = take_sample(settings_of(cluster, warehouse))
    assert {row.group_id for row in sample.missing_groups} == {"group-0-0", "group-1-0", "group-2-0"}
    assert stored(warehouse) == expected(cluster)


def test_partitions_without_an_offset_are_counted_by_reason(warehouse: Warehouse) -> None:
    cluster = started(errors={(0, 0): TOPIC_AUTHORIZATION_FAILED, (0, 1): TOPIC_AUTHORIZATION_FAILED})
    sample = take_sample(settings_of(cluster, warehouse))
    ((partitions, reason),) = [(row.partitions, row.reason) for row in sample.missing]
    assert (partitions, reason) == (2, "TopicAuthorizationFailedError (29)")
    assert stored(warehouse) == {
        key: row for key, row in expected(cluster).items() if key[1] > 1 or key[0] != "topic-00000"
    }


def test_a_second_sample_adds_rows_and_no_capacity(warehouse: Warehouse) -> None:
    cluster = started()
    samples = [take_sample(settings_of(cluster, warehouse)) for _ in range(2)]
    assert {row["stored_at"] for row in warehouse.rows("partition_offsets")} == {row.stored_at for row in samples}
    assert len(warehouse.rows("partition_offsets")) == 2 * 24
    assert [(row["broker_id"], row["capacity"]) for row in warehouse.rows("broker_capacity")] == [
        (broker, DISK_BYTES) for broker in range(3)
    ]


def test_rows_are_no_older_than_their_answers(warehouse: Warehouse) -> None:
    take_sample(settings_of(started(), warehouse))
    for row in warehouse.rows("partition_offsets"):
        assert timedelta(0) <= row["stored_at"] - row["sampled_at"] < timedelta(minutes=1)


class KilledError(BaseException):
    """Ends the process at some point."""


@pytest.mark.parametrize("table", ["broker_metrics", "group_offsets", "partition_offsets"])
def test_killed_before_a_table_is_written(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """What was written before it is whole, and the next sample is like any other."""
    settings = settings_of(started(groups=1), warehouse)
    for name in ("append", "replace_by"):
        with monkeypatch.context() as patched:
            patched.setattr(Warehouse, name, _dying_at(table, getattr(Warehouse, name)))
            if (name == "append") == (table == "broker_metrics"):
                with pytest.raises(KilledError):
                    take_sample(settings)
    assert warehouse.rows("partition_offsets") == []
    assert len(warehouse.rows("group_offsets")) in {0, 24}
    take_sample(settings)
    assert len(warehouse.rows("partition_offsets")) == 24


def _dying_at(table: str, write: Callable[..., Any]) -> Callable[..., Any]:
    def dying(warehouse: Warehouse, name: str, *rest: Any) -> Any:  # noqa: ANN401 - those of the method
        if name == table:
            raise KilledError
        return write(warehouse, name, *rest)

    return dying


def test_killed_while_it_writes(warehouse: Warehouse) -> None:
    """A sample whose process is killed has all of its partitions and positions of groups, or no partition."""
    cluster = started(topics=20, partitions=500, groups=1)
    settings = settings_of(cluster, warehouse)
    take_sample(settings)
    where = ["--cluster", warehouse.cluster, "--warehouse", warehouse.uri, "--bootstrap-server", cluster.bootstrap]
    for table in ("broker_metrics", "group_offsets", "partition_offsets"):
        version = warehouse.version(table)
        command = [sys.executable, "-m", "jobs.entry", "load", "sample", "--every", "1s", *where]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sampler:
            while warehouse.version(table) == version:
                assert sampler.poll() is None
                time.sleep(0.005)
            sampler.kill()
    again = take_sample(settings).stored_at

    written = {table: _rows_by_sample(warehouse, table) for table in ("partition_offsets", "group_offsets")}
    assert set(written["partition_offsets"].values()) == set(written["group_offsets"].values()) == {10_000}
    assert again in written["partition_offsets"]
    assert written["partition_offsets"].keys() <= written["group_offsets"].keys()


def _rows_by_sample(warehouse: Warehouse, table: str) -> Counter[Any]:
    return Counter(warehouse.read(table, columns=["stored_at"])["stored_at"].to_pylist())


def test_samples_at_fixed_times(warehouse: Warehouse) -> None:
    """A sample that fails is a warning, and the next one is taken at its time."""
    cluster = started()
    settings = settings_of(cluster, warehouse)
    unreachable = Settings(warehouse.cluster, warehouse.uri, ClusterConf(bootstrap_servers="127.0.0.1:1"))
    times, pauses = iter([1003.0, 1021.5, 1050.0]), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KilledError

    shown = list[Any]()
    with pytest.raises(KilledError):
        sample_repeatedly(settings, 10, shown.append, clock=times.__next__, sleep=sleep)
    assert pauses == [7.0, 8.5, 10.0]
    assert [result.fields["partitions"] for result in shown] == [24, 24, 24]

    pauses, times = list[float](), iter([0.0, 0.0, 0.0])
    with pytest.raises(KilledError):
        sample_repeatedly(unreachable, 10, shown.append, clock=times.__next__, sleep=sleep)
    assert (len(pauses), len(shown)) == (3, 3)


def test_no_broker_answers(warehouse: Warehouse) -> None:
    with pytest.raises(UnreadableError):
        take_sample(Settings(warehouse.cluster, warehouse.uri, ClusterConf(bootstrap_servers="127.0.0.1:1")))
    assert not warehouse.has("partition_offsets")


def test_a_period_too_short(warehouse: Warehouse) -> None:
    with pytest.raises(UsageError, match="--every"):
        sample_repeatedly(settings_of(started(), warehouse), 0.5, lambda _: None)


def _log_dir(path: str, total: int | None, usable: int | None, broker: int = 1) -> LogDir:
    return LogDir(broker_id=broker, log_dir=path, total_bytes=total, usable_bytes=usable, taken_at=NOW)


@pytest.mark.parametrize(
    ("log_dirs", "used", "size"),
    [
        ([_log_dir("/a", 100, 40)], 60, 100),
        ([_log_dir("/a", 100, 40), _log_dir("/b", 100, 40)], 60, 100),  # on one volume
        ([_log_dir("/a", 100, 40), _log_dir("/b", 100, 10)], 150, 200),
        ([_log_dir("/a", None, None)], 7, None),  # before Kafka 3.3
        ([_log_dir("/a", 100, 40), _log_dir("/b", None, None)], 60, 100),  # /b failed
    ],
)
def test_disks(log_dirs: list[LogDir], used: float, size: float | None) -> None:
    values = {row.metric: row.value for row in disk_metrics(1, log_dirs, 7)}
    assert values == {"disk_used": used} | ({} if size is None else {"disk_total": size})


def test_capacity_is_stored_when_it_changes(warehouse: Warehouse) -> None:
    """That of a log dir that is no longer there is 0, and that of one that failed null; silent brokers keep theirs.

    Of the log dirs on one volume only the first has a capacity.
    """
    warehouse.ensure_tables()
    steps: list[tuple[list[LogDir], list[tuple[str | None, float | None]]]] = [
        ([_log_dir("/a", 100, 1), _log_dir("/b", 50, 1)], [("/a", 100), ("/b", 50)]),
        ([_log_dir("/a", 100, 9), _log_dir("/b", 50, 9)], []),
        ([_log_dir("/a", None, None), _log_dir("/b", 70, 1)], [("/a", None), ("/b", 70)]),
        ([_log_dir("/a", 100, 1)], [("/a", 100), ("/b", 0)]),
        ([_log_dir("/a", 100, 1)], []),
        ([_log_dir("/c", 90, 1), _log_dir("/a", 90, 1), _log_dir("/b", 90, 2)], [("/a", 90), ("/b", 90), ("/c", 0)]),
        ([_log_dir("/c", 90, 3), _log_dir("/b", 90, 2)], [("/a", 0), ("/c", 90)]),
        ([], []),
    ]
    for number, (log_dirs, changes) in enumerate(steps):
        rows = changed_capacity(warehouse, log_dirs, NOW + timedelta(minutes=number))
        assert [(row.log_dir, row.capacity) for row in rows] == changes
        warehouse.append("broker_capacity", rows)


def test_the_first_samples_name_what_a_rollup_needs(warehouse: Warehouse) -> None:
    """A snapshot, and a second sample."""
    settings = settings_of(started(), warehouse)

    def steps() -> list[str]:
        commands = [step.command or "" for step in report_sample(settings).steps or ()]
        return [command.partition(" --bootstrap")[0] for command in commands]

    assert steps() == ["surveyor snapshot", "surveyor load sample --every 5m"]
    assert steps() == ["surveyor snapshot"]
    Cluster(warehouse).snapshot()
    assert steps() == ["surveyor load rollup"]
