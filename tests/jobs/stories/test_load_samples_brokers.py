"""Samples of real brokers, in ZooKeeper and in KRaft: what was produced and read is what is stored.

Leaders change and topics come and go between the snapshot and the sample, and a broker does not respond.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import TopicPartition as KeyOfKafkaPython
from kafka.admin import KafkaAdminClient

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.servers import KafkaServer
from jobs.adapters.java.jars import NEWER_KAFKA, tiered_storage_jars
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import create_topics, delete_topic, eventually

ZOOKEEPER, KRAFT = "Kafka 3.9 in ZooKeeper", f"Kafka {NEWER_KAFKA} in KRaft"

RACKS = ("a", "b", "c")
RECORD = bytes(1_000)

_numbers = count()


@dataclass(frozen=True, slots=True)
class Sampled:
    """A cluster of three brokers, and commands with a warehouse of its own."""

    servers: Mapping[int, KafkaServer]
    surveyor: Surveyor
    is_kraft: bool

    @property
    def bootstrap(self) -> str:
        return ",".join(server.address for server in self.servers.values())

    @property
    def ids(self) -> list[int]:
        return [*self.servers]

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, replicas: list[list[int]], name: str = "", **config: str) -> str:
        """Create a topic, by default with a name of its own, and wait until its leaders lead."""
        topic = name or f"topic-{next(_numbers)}"

        def leads() -> bool:
            # again, as a topic of that name may just be deleted
            create_topics(self.admin, NewTopic(topic, len(replicas), replica_assignment=replicas, config=config))
            return self.leaders(topic) == [row[0] for row in replicas]

        assert eventually(leads)
        return topic

    def leaders(self, topic: str) -> list[int]:
        """The leaders by partition; a question about one topic would create it."""
        topics = self.admin.list_topics(timeout=60).topics
        known = topics[topic].partitions if topic in topics else {}
        return [known[number].leader for number in sorted(known)]

    def produce(self, topic: str, *counts: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for partition, records in enumerate(counts):
            for _ in range(records):
                producer.produce(topic, RECORD, partition=partition)
        assert producer.flush(60) == 0

    def sample(self, *, is_complete: bool = True) -> Row:
        result: Row = self.surveyor.json("load", "sample")
        if is_complete:
            assert [result[name] for name in ("missing", "missing_groups", "silent", "refusals")] == [[]] * 4
        return result

    def rows(self, table: str, topic: str, *columns: str) -> list[tuple[Any, ...]]:
        """The topic's rows in the newest sample, these columns, by partition."""
        rows = self.surveyor.warehouse.rows(table, ("topic", "=", topic))
        newest = max((row["stored_at"] for row in self.surveyor.warehouse.rows(table)), default=None)
        of_sample = sorted((row for row in rows if row["stored_at"] == newest), key=lambda row: row["partition"])
        return [tuple(row[column] for column in columns) for row in of_sample]

    def size(self, broker: int, topic: str, partition: int) -> int:
        """The bytes of a log on the disk of a broker."""
        return sum(
            path.stat().st_size
            for path in Path(self.servers[broker].folder, "data", f"{topic}-{partition}").glob("*.log")
        )


@pytest.fixture(scope="module", params=[ZOOKEEPER, KRAFT])
def sampled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    folder = tmp_path_factory.mktemp("sampled") / "warehouse"
    with ExitStack() as stack:
        if request.param == ZOOKEEPER:
            racks, tiered = dict(enumerate(RACKS)), _tiered_storage(tmp_path_factory.mktemp("remote"))
            cluster = stack.enter_context(EmbeddedCluster(3, racks=racks, heap="320m", overrides=tiered))
            yield Sampled(cluster.brokers, Surveyor(cluster.zookeeper_server.connect, folder), is_kraft=False)
        else:
            racks = dict(enumerate(RACKS, start=1))
            kraft = stack.enter_context(EmbeddedKRaftCluster(3, racks=racks, heap="320m", kafka_version=NEWER_KAFKA))
            surveyor = Surveyor(kraft.bootstrap, folder, "--bootstrap-server")
            yield Sampled(kraft.nodes, surveyor, is_kraft=True)


def _tiered_storage(folder: Path) -> dict[str, str]:
    """Settings with which brokers keep older records of some topics in a folder, soon after they were written."""
    (jar,) = tiered_storage_jars()
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_offsets_and_sizes(sampled: Sampled, with_snapshot: bool) -> None:  # noqa: FBT001 - of the parameters
    """Also of a topic whose first records were deleted, and of one with transactions, which add markers."""
    first, second, third = sampled.ids
    topic = sampled.create([[first, second], [second, third], [third, first], [first, third]])
    cut = sampled.create([[second, first]])
    transactional = sampled.create([[first]])
    sampled.produce(topic, 0, 100, 20, 3)
    sampled.produce(cut, 50)
    admin = sampled.admin  # its futures end with it
    admin.delete_records([TopicPartition(cut, 0, 30)])[TopicPartition(cut, 0)].result(60)
    _transact(sampled.bootstrap, transactional, commits=True)
    _transact(sampled.bootstrap, transactional, commits=False)
    if with_snapshot:
        sampled.surveyor.json("snapshot")

    result = sampled.sample()

    known = sampled.admin.list_topics(timeout=60).topics
    assert result["partitions"] == sum(len(row.partitions) for row in known.values())
    assert (result["topics"], result["brokers"]) == (len(known), 3)
    columns = ("leader", "log_start", "log_end", "bytes", "local_start")
    assert sampled.rows("partition_offsets", topic, *columns) == [
        (leader, 0, end, sampled.size(leader, topic, partition), None)
        for partition, (leader, end) in enumerate([(first, 0), (second, 100), (third, 20), (first, 3)])
    ]
    assert sampled.rows("partition_offsets", cut, *columns) == [(second, 30, 50, sampled.size(second, cut, 0), None)]
    assert sampled.rows("partition_offsets", transactional, *columns[:3]) == [(first, 0, 3 + 1 + 3 + 1)]
    assert all(row[0] for row in sampled.rows("partition_offsets", topic, "topic_id"))


def _transact(bootstrap: str, topic: str, *, commits: bool) -> None:
    """Write three records in a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, RECORD, partition=0)
    producer.flush(60)
    (producer.commit_transaction if commits else producer.abort_transaction)(60)


def test_a_topic_with_tiered_storage(sampled: Sampled) -> None:
    """Its log begins in the remote storage, and later on the leader's disk."""
    if sampled.is_kraft:
        pytest.skip(f"the brokers of {ZOOKEEPER} have a remote storage")
    tiered = {"remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "1"}
    leader = sampled.ids[0]
    topic = sampled.create([[leader]], **tiered)
    for _ in range(6):
        sampled.produce(topic, 10)

    def first_on_disk() -> int:
        """The first offset of the segments that the leader still has."""
        return min(int(path.stem) for path in Path(sampled.servers[leader].folder, "data", f"{topic}-0").glob("*.log"))

    def is_sampled() -> bool:
        sampled.sample()
        columns = ("log_start", "local_start", "log_end", "bytes")
        expected = (0, first_on_disk(), 60, sampled.size(leader, topic, 0))
        return sampled.rows("partition_offsets", topic, *columns) == [expected]

    assert eventually(lambda: first_on_disk() > 0)
    assert eventually(is_sampled, 60)


def test_disks_and_their_capacity(sampled: Sampled) -> None:
    """The capacity is stored once, as long as it does not change."""
    for _ in range(2):
        sampled.sample()
    warehouse = sampled.surveyor.warehouse
    metrics = {(row["broker_id"], row["metric"]): row["value"] for row in warehouse.rows("broker_metrics")}
    capacity = {row["broker_id"]: (row["log_dir"], row["capacity"]) for row in warehouse.rows("broker_capacity")}
    assert len(warehouse.rows("broker_capacity")) == 3
    for broker, server in sampled.servers.items():
        total = metrics[broker, "disk_total"]
        assert 0 < metrics[broker, "disk_used"] < total
        assert capacity[broker] == (str(Path(server.folder, "data")), total)


def test_groups_and_the_racks_of_their_members(sampled: Sampled) -> None:
    topic = sampled.create([[broker] for broker in sampled.ids])
    sampled.produce(topic, 30, 20, 10)
    protocols = {"classic": {}, "consumer": {"group.protocol": "consumer"}} if sampled.is_kraft else {"classic": {}}
    with ExitStack() as stack:
        for group_type, protocol in protocols.items():
            for rack in ("b", None):
                group = f"{topic}-{group_type}-{rack}"
                consumer = _consumer(sampled.bootstrap, group, rack, protocol)
                stack.callback(consumer.close)
                _read_all(consumer, topic, 60)
        consumer = _consumer(sampled.bootstrap, f"{topic}-left", "c", {})
        _read_all(consumer, topic, 60)
        consumer.close()

        sampled.sample()

    committed = {
        (group, group_type): sorted(rows)
        for group, group_type, *_ in sampled.rows("group_offsets", topic, "group_id", "group_type")
        for rows in [
            [
                row[1:]
                for row in sampled.rows("group_offsets", topic, "group_id", "partition", "committed", "member_rack")
                if row[0] == group
            ]
        ]
    }
    read = [30, 20, 10]
    assert committed == {
        (f"{topic}-{group_type}-{rack}", group_type): [(partition, end, rack) for partition, end in enumerate(read)]
        for group_type in protocols
        for rack in ("b", None)
    } | {(f"{topic}-left", "classic"): [(partition, end, None) for partition, end in enumerate(read)]}
    assert {row[0] for row in sampled.rows("group_offsets", topic, "topic_id")} == {
        sampled.rows("partition_offsets", topic, "topic_id")[0][0]
    }


def _consumer(bootstrap: str, group: str, rack: str | None, protocol: Mapping[str, str]) -> Consumer:
    racks = {} if rack is None else {"client.rack": rack}
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings, **racks, **protocol})


def _read_all(consumer: Consumer, topic: str, records: int) -> None:
    """Read so many records, and commit."""
    consumer.subscribe([topic])
    read = list[Any]()

    def has_read_all() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message)
        return len(read) == records

    assert eventually(has_read_all)
    consumer.commit(asynchronous=False)


def test_a_share_group(sampled: Sampled) -> None:
    """Its position is the start offset, before which all records were acknowledged."""
    if not sampled.is_kraft:
        pytest.skip("Kafka 3.9 has no share groups")
    topic = sampled.create([[sampled.ids[0]]])
    group = f"{topic}-share"
    settings = {"bootstrap.servers": sampled.bootstrap, "group.id": group, "client.rack": "c", "log_level": 0}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])

        def has_read() -> bool:
            sampled.produce(topic, 5)  # a new share group begins at the end
            messages = consumer.poll(1.0)
            consumer.commit_sync(10)
            return bool(messages)

        assert eventually(has_read)

        def is_sampled() -> bool:
            sampled.sample()
            rows = sampled.rows("group_offsets", topic, "group_id", "group_type", "member_rack", "committed")
            return [row[:3] for row in rows] == [(group, "share", "c")] and rows[0][3] > 0

        assert eventually(is_sampled, 60)
    ((end,),) = sampled.rows("partition_offsets", topic, "log_end")
    assert sampled.rows("group_offsets", topic, "committed")[0][0] <= end


@pytest.mark.usefixtures("spark")
def test_what_changes_after_the_snapshot(sampled: Sampled) -> None:
    """A leader, new partitions, and topics that are deleted, created, and created again."""
    first, second, third = sampled.ids
    moved = sampled.create([[first, second], [second, first]])
    deleted = sampled.create([[first], [second]])
    recreated = sampled.create([[first], [second]])
    grown = sampled.create([[third]])
    sampled.produce(moved, 7, 8)
    sampled.produce(recreated, 9, 9)
    sampled.surveyor.json("snapshot")
    sampled.sample()
    ((old_id,), _) = sampled.rows("partition_offsets", recreated, "topic_id")

    _lead(sampled, moved, [second, first])
    delete_topic(sampled.admin, deleted)
    delete_topic(sampled.admin, recreated)
    assert eventually(lambda: {deleted, recreated}.isdisjoint(sampled.admin.list_topics(timeout=60).topics))
    sampled.create([[second], [third]], recreated)
    sampled.produce(recreated, 4, 5)
    created = sampled.create([[third, first]])
    sampled.produce(created, 6)
    admin = KafkaAdminClient(bootstrap_servers=sampled.bootstrap.split(","))
    admin.create_partitions({grown: {"count": 2, "assignments": [[first]]}})
    admin.close()
    assert eventually(lambda: sampled.leaders(grown) == [third, first])

    sampled.sample()

    columns = ("partition", "leader", "log_end")
    assert sampled.rows("partition_offsets", moved, *columns) == [(0, second, 7), (1, second, 8)]
    assert sampled.rows("partition_offsets", deleted, *columns) == []
    assert sampled.rows("partition_offsets", recreated, *columns) == [(0, second, 4), (1, third, 5)]
    assert sampled.rows("partition_offsets", created, *columns, "bytes") == [
        (0, third, 6, sampled.size(third, created, 0))
    ]
    assert sampled.rows("partition_offsets", grown, *columns) == [(0, third, 0), (1, first, 0)]
    ids = {row[0] for topic in (recreated, created) for row in sampled.rows("partition_offsets", topic, "topic_id")}
    assert len(ids) == 2
    assert not {None, old_id} & ids


def _lead(sampled: Sampled, topic: str, replicas: list[int]) -> None:
    """Let the first of these brokers lead partition 0."""
    admin = KafkaAdminClient(bootstrap_servers=sampled.bootstrap.split(","))

    def leads() -> bool:
        with suppress(Exception):
            admin.alter_partition_reassignments({KeyOfKafkaPython(topic, 0): replicas})
            admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
        return sampled.leaders(topic)[0] == replicas[0]

    assert eventually(leads)
    admin.close()


@pytest.mark.usefixtures("spark")
def test_a_broker_that_does_not_respond(sampled: Sampled) -> None:
    """It costs the partitions that it alone has; what others lead instead is found, although the snapshot is older."""
    dead, other, _ = (sampled.ids[-1], sampled.ids[0], None)
    shared, alone = sampled.create([[dead, other]]), sampled.create([[dead], [other]])
    sampled.produce(shared, 11)
    sampled.produce(alone, 1, 2)
    sampled.surveyor.json("snapshot")
    server = sampled.servers[dead]
    server.kill()
    try:
        if sampled.is_kraft:
            assert eventually(lambda: sampled.leaders(shared) == [other])
        result = sampled.sample(is_complete=False)
        alone_now = sampled.rows("partition_offsets", alone, "partition", "leader", "log_end")
        shared_now = sampled.rows("partition_offsets", shared, "leader", "log_end")
    finally:
        server.start()
        server.wait_ready()
    assert eventually(lambda: sampled.leaders(alone) == [dead, other])
    assert alone_now == [(1, other, 2)]
    assert shared_now in ([], [(other, 11)])
    assert sum(row["partitions"] for row in result["missing"]) >= 1
    if sampled.is_kraft:  # a fenced broker is not asked
        assert (shared_now, result["silent"]) == ([(other, 11)], [])
    else:  # its session has not expired
        assert [row["broker_id"] for row in result["silent"]] == [dead]


SKEWED = (900, 700, 500, 20, 20, 20, 20, 20, 20)
"""Records of partitions in turn of three brokers, so that replicas and leaders are even."""


@pytest.mark.usefixtures("spark")
def test_skewed_load_is_balanced_under_a_throttle(sampled: Sampled, tmp_path: Path) -> None:
    """Measured, planned, committed, and measured again: the plan has predicted the most loaded broker, within 10 %."""
    first, second, third = sampled.ids
    lists = [[first, second], [first, third], [first, second], *[[second, third], [third, first]] * 3]
    topic = sampled.create(lists)
    own = replace(sampled, surveyor=Surveyor(sampled.surveyor.hosts, tmp_path, sampled.surveyor.address_option))
    own.surveyor.json("snapshot")
    before = _measured(own, topic)
    own.surveyor.json("load", "rollup")

    by_load = ("--rebalance", "--by-load", "--topics", topic, "--name", "even")
    planned = own.surveyor.json("plan", "reassign", *by_load)
    done = own.surveyor.json("commit", "even", "--apply", "--yes", "--wait", "--throttle", "50MB/s")
    own.surveyor.json("snapshot")
    after = _measured(own, topic)

    figures = planned["load"]
    assert done["status"] == "committed"
    predicted = [figures["worst_before"], figures["worst_after"]]
    assert [before["worst"], after["worst"]] == pytest.approx(predicted, rel=0.1)
    assert after["worst"] < 0.8 * before["worst"]
    assert {name for name, multiple in after.items() if multiple > max(before[name], 1.1)} == set()
    assert own.surveyor.warehouse.rows("throttles") == []


def _measured(sampled: Sampled, topic: str) -> dict[str, float]:
    """Produce between two samples; return the highest multiple of the mean by resource, and of all resources."""
    sampled.sample()
    sampled.produce(topic, *SKEWED)
    sampled.sample()
    stored = sampled.surveyor.warehouse.rows("partition_offsets")
    earlier, newest = sorted({row["stored_at"] for row in stored})[-2:]
    size = {(row["topic"], row["partition"], row["stored_at"]): row["bytes"] or 0 for row in stored}
    used = {name: dict.fromkeys(sampled.ids, 0.0) for name in ("disk", "in", "out")}
    for name, known in sampled.admin.list_topics(timeout=60).topics.items():
        for number, partition in known.partitions.items():
            bytes_now = size.get((name, number, newest), 0)
            written = bytes_now - size.get((name, number, earlier), 0)
            for broker in partition.replicas:
                used["disk"][broker] += bytes_now
                used["in"][broker] += written
            used["out"][partition.leader] += written * (len(partition.replicas) - 1)
    most = {name: max(of.values()) * len(of) / sum(of.values()) for name, of in used.items()}
    return most | {"worst": max(most.values())}
