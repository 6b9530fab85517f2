"""The Spark source: znodes as they are, below any path; what it refuses; and a reading that outlives the leader."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.zookeeper import multi_read
from jobs.adapters.zookeeper.connection import commit, connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_operations import Create, add
from jobs.adapters.zookeeper.multi_read import _call, supports_multi_read
from jobs.adapters.zookeeper.spark_data_source import READ, ZNODES, ZNODES_PER_TASK, NameBatch, ZooKeeperDataSource
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.core.errors import UnreadableError, UsageError
from schemas.rows import Row
from tests.jobs.support.zookeeper.ensemble import Ensemble
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


def load(options: Mapping[str, str]) -> list[Row]:
    """What the source gives, as Spark drives it, without Spark."""
    source = ZooKeeperDataSource(dict(options))
    reader = source.reader(source.schema())
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def rows_of(tree: KafkaTree, paths: Sequence[str]) -> list[Row]:
    return [row_of(path, *tree.client.get(path)) for path in paths]


def row_of(path: str, data: bytes | None, stat: ZnodeStat) -> Row:
    return {
        "path": path,
        "data": data,
        "version": stat.version,
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "ephemeral_owner": stat.ephemeralOwner,
        "children": stat.numChildren,
    }


def znodes(spark: SparkSession, tree: KafkaTree, **options: str) -> DataFrame:
    spark.dataSource.register(ZooKeeperDataSource)
    return spark.read.format("zookeeper").options(zookeeper=tree.hosts, **options).load()


TOPICS = [f"/brokers/topics/{name}" for name in ("orders", "payments")]


@pytest.fixture
def tree(tree: KafkaTree) -> KafkaTree:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    tree.add_topic("payments", {0: [1]})
    tree.touch("/brokers/topics/orders")
    return tree


def test_spark_gives_the_znodes_below_a_path_as_they_are(tree: KafkaTree, spark: SparkSession) -> None:
    read = znodes(spark, tree, path="/brokers/topics")

    assert read.schema == ZNODES
    rows = sorted((row.asDict() for row in read.collect()), key=lambda row: row["path"])
    assert rows == rows_of(tree, TOPICS)
    assert [(row["version"], row["mzxid"] > row["czxid"], row["children"]) for row in rows] == [
        (1, True, 1),
        (0, False, 1),
    ]


def test_spark_reads_the_cluster_by_default(tree: KafkaTree, spark: SparkSession) -> None:
    read = znodes(spark, tree)

    assert read.schema == READ
    assert sorted(row.kind for row in read.collect()) == ["partition"] * 3 + ["task"] * 2 + ["topic"] * 2


@pytest.mark.parametrize(
    ("depth", "added"),
    [
        ("1", []),
        ("2", [f"{topic}/partitions" for topic in TOPICS]),
        ("3", [f"{TOPICS[0]}/partitions/0", f"{TOPICS[0]}/partitions/1", f"{TOPICS[1]}/partitions/0"]),
        (
            "9",
            [
                f"{TOPICS[0]}/partitions/0/state",
                f"{TOPICS[0]}/partitions/1/state",
                f"{TOPICS[1]}/partitions/0/state",
            ],
        ),
    ],
)
def test_depth_counts_levels(tree: KafkaTree, depth: str, added: Sequence[str]) -> None:
    rows = load({"zookeeper": tree.hosts, "path": "/brokers/topics", "depth": depth})

    paths = [row["path"] for row in rows]
    assert paths[len(paths) - len(added) :] == added
    assert rows == rows_of(tree, paths)
    assert len(set(paths)) == len(paths) == {"1": 2, "2": 4, "3": 7, "9": 10}[depth]


@pytest.mark.parametrize("path", ["/brokers/topics", "/brokers/topics/", "brokers/topics", "/brokers/topics//"])
def test_slashes_around_a_path_are_optional(tree: KafkaTree, path: str) -> None:
    assert load({"zookeeper": tree.hosts, "path": path}) == rows_of(tree, TOPICS)


@pytest.mark.parametrize("path", ["/", ""])
def test_the_root_is_the_chroot(tree: KafkaTree, path: str) -> None:
    names = sorted(tree.client.get_children("/"))

    assert {"brokers", "config", "controller"} < set(names)
    assert load({"zookeeper": tree.hosts, "path": path}) == rows_of(tree, [f"/{name}" for name in names])


def test_what_a_znode_lacks_is_null(tree: KafkaTree) -> None:
    multi = tree.client.transaction()
    multi.create("/odd", b"")
    add(multi, [Create("/odd/null")])
    multi.create("/odd/empty", b"")
    multi.create("/odd/noise", b"\xff\x00")
    multi.create("/odd/passing", b"1", ephemeral=True)
    commit(multi)

    by_path = {row["path"]: row for row in load({"zookeeper": tree.hosts, "path": "/odd"})}

    assert {path: row["data"] for path, row in by_path.items()} == {
        "/odd/empty": b"",
        "/odd/noise": b"\xff\x00",
        "/odd/null": None,
        "/odd/passing": b"1",
    }
    assert [path for path, row in by_path.items() if row["ephemeral_owner"]] == ["/odd/passing"]
    assert by_path["/odd/passing"]["ephemeral_owner"] == tree.client.client_id[0]


def test_nothing_below_is_no_row(tree: KafkaTree) -> None:
    assert load({"zookeeper": tree.hosts, "path": "/controller", "depth": "2"}) == []


def test_more_znodes_than_a_task_reads_are_all_read(tree: KafkaTree) -> None:
    names = [f"{number:04}" for number in range(2 * ZNODES_PER_TASK + 1)]
    for name in names:
        tree.write(f"/many/{name}", b"")
    source = ZooKeeperDataSource({"zookeeper": tree.hosts, "path": "/many"})

    tasks = source.reader(ZNODES).partitions()

    assert [len(task.names) for task in tasks if isinstance(task, NameBatch)] == [ZNODES_PER_TASK, ZNODES_PER_TASK, 1]
    assert [row["path"] for row in load(source.options)] == [f"/many/{name}" for name in names]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"path": "/gone"}, UnreadableError, r"^/gone does not exist at .*; check the chroot"),
        ({"path": "/brokers/gone/"}, UnreadableError, r"^/brokers/gone does not exist at"),
        ({"path": "/", "below": "/absent"}, UnreadableError, r"^/ does not exist at .*/absent; check"),
        ({"path": "/brokers", "depth": "0"}, UsageError, r"depth.*'0'.*1 or more"),
        ({"path": "/brokers", "depth": "all"}, UsageError, r"depth.*'all'.*1 or more"),
    ],
)
def test_what_cannot_be_read_is_said(tree: KafkaTree, options: Row, error: type[Exception], message: str) -> None:
    options = {**options, "zookeeper": tree.hosts + options.get("below", "")}

    with pytest.raises(error, match=message):
        load(options)


def test_no_zookeeper_is_said() -> None:
    with pytest.raises(UnreadableError, match=r'no ZooKeeper given: \.option\("zookeeper", "HOST:PORT'):
        load({"path": "/brokers"})


def test_spark_passes_on_what_is_wrong(tree: KafkaTree, spark: SparkSession) -> None:
    spark.dataSource.register(ZooKeeperDataSource)

    with pytest.raises(PySparkException, match="/gone does not exist at"):
        znodes(spark, tree, path="/gone").collect()
    with pytest.raises(PySparkException, match="no ZooKeeper given"):
        spark.read.format("zookeeper").load().collect()


PARTITIONS = 100
TOPICS_OF_ENSEMBLE = 30


@contextmanager
def filled(ensemble: Ensemble) -> Iterator[KafkaTree]:
    """A few thousand states under a chroot of their own."""
    chroot = f"/test-{uuid4().hex}"
    with connected(ZooKeeperEndpoint(ensemble.connect)) as client:
        client.create(chroot)
    with connected(ZooKeeperEndpoint(ensemble.connect + chroot)) as client:
        tree = KafkaTree(ensemble.connect + chroot, client)
        tree.lay_out()
        for number in range(TOPICS_OF_ENSEMBLE):
            tree.add_topic(f"topic-{number:02}", {partition: [0, 1] for partition in range(PARTITIONS)})
        yield tree


def server_of(client: KazooClient) -> int:
    """The port of the server that a client is connected to."""
    return int(client._connection._socket.getpeername()[1])  # noqa: SLF001 - kazoo does not report it


def test_readers_begin_at_different_servers(ensemble: Ensemble) -> None:
    ports = []
    for first in range(6):
        with connected(ZooKeeperEndpoint(ensemble.connect), first_server=first) as client:
            ports.append(server_of(client))

    assert ports == [server.port for server in ensemble.servers.values()] * 2


class LeaderDies:
    """The leader freezes before the `nth` request is sent to it, and is killed then: its answer never comes."""

    def __init__(self, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
        self.leader = ensemble.leader()
        self.left = nth
        self.ask = _call
        monkeypatch.setattr(multi_read, "_call", self.call)

    def call(self, client: KazooClient, request: Any) -> Any:  # noqa: ANN401 - as kazoo takes requests and gives results
        self.left -= 1
        if self.left:
            return self.ask(client, request)
        assert server_of(client) == self.leader.port
        assert self.leader.pid
        os.kill(self.leader.pid, signal.SIGSTOP)
        pending = self.ask(client, request)
        self.leader.kill()
        return pending


@pytest.mark.parametrize("nth", [1, 2, 12])
def test_a_read_outlives_the_leader(ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    with filled(ensemble) as tree:
        names = [f"topic-{number:02}" for number in range(TOPICS_OF_ENSEMBLE)]
        leader = ensemble.leader()
        first = list(ensemble.servers.values()).index(leader)
        with connected(tree.endpoint, first_server=first) as client:
            assert supports_multi_read(client)
            LeaderDies(ensemble, monkeypatch, nth)
            try:
                readings = list(read_topic_rows(client, names, 5 * PARTITIONS))
                survivor = server_of(client)
            finally:
                leader.restart()
                ensemble.leader()

    assert survivor != leader.port
    assert [row.topic for reading in readings for row in reading.topics] == names
    states = [
        (row.topic, row.partition, row.leader, row.isr, row.state_version)
        for reading in readings
        for row in reading.partitions
    ]
    assert states == [(name, partition, 0, [0, 1], 0) for name in names for partition in range(PARTITIONS)]
    assert [reading.quarantine + reading.torn for reading in readings if reading.quarantine or reading.torn] == []
