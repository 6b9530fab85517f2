"""Topics and partitions as read: torn readings once more, what is not understood in quarantine, the rest untouched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.zookeeper import topics
from jobs.adapters.zookeeper.connection import commit
from jobs.adapters.zookeeper.multi_operations import Create, add
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.adapters.zookeeper.znode_reads import Znode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import QuarantinedZnode
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

NOISE = b"\xff\x00" * 450_000
CONFIGS = "/config/topics/"
STATES = "/state"


@dataclass(frozen=True, slots=True)
class Read:
    """All that `read_topic_rows` gave, in order."""

    topics: list[TopicInfo] = field(default_factory=list)
    partitions: list[PartitionInfo] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)

    def of_topics(self, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(getattr(row, column) for column in columns) for row in self.topics]

    def of_partitions(self, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(getattr(row, column) for column in columns) for row in self.partitions]

    def of_quarantine(self) -> list[tuple[Any, ...]]:
        return [(row.path, row.data, row.reason) for row in self.quarantine]


def read(tree: KafkaTree, *names: str) -> Read:
    """Read these topics, or all."""
    whole = Read()
    for reading in read_topic_rows(tree.client, names or sorted(tree.client.get_children("/brokers/topics"))):
        whole.topics.extend(reading.topics)
        whole.partitions.extend(reading.partitions)
        whole.quarantine.extend(reading.quarantine)
    return whole


class InterleavedChanges:
    """Runs the next of `changes` before znodes of a kind are read, and keeps what topics were read each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = STATES
        self.changes: list[Callable[[], object]] = []
        self.read: list[list[str]] = []
        monkeypatch.setattr(topics, "read_permitted", self._read_permitted)

    def _read_permitted(self, client: KazooClient, paths: Sequence[str], *, resume: bool) -> list[Znode]:
        if any(self.before in path for path in paths) and self.changes:
            self.changes.pop(0)()
        if any(CONFIGS in path for path in paths):
            self.read.append([path.removeprefix(CONFIGS) for path in paths])
        return read_permitted(client, paths, resume=resume)


@pytest.fixture
def interleaved(monkeypatch: pytest.MonkeyPatch) -> InterleavedChanges:
    return InterleavedChanges(monkeypatch)


@pytest.fixture
def orders(tree: KafkaTree) -> KafkaTree:
    """Topic `orders` with two partitions, and `payments` and `zebras` with one each."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    tree.add_topic("payments", {0: [2, 0]})
    tree.add_topic("zebras", {0: [1, 0]})
    return tree


ORDERS = [("orders", 0, [0, 1], 0, [0, 1]), ("orders", 1, [1, 2], 1, [1, 2])]
NEIGHBOURS = [("payments", 0, [2, 0], 2, [2, 0]), ("zebras", 0, [1, 0], 1, [1, 0])]
COLUMNS = ("topic", "partition", "replicas", "leader", "isr")


def assign(tree: KafkaTree, topic: str, partitions: dict[int, list[int]]) -> None:
    tree.write(f"/brokers/topics/{topic}", encode_assignment(Assignment(partitions, {}, {}, TOPIC_ID)))


def lead(tree: KafkaTree, topic: str, partition: int, leader: int, isr: list[int]) -> None:
    state = State(controller_epoch=1, leader=leader, leader_epoch=6, isr=isr)
    tree.write(state_path(topic, partition), encode_state(state))


def move(tree: KafkaTree) -> None:
    """As a reassignment of orders-1 from 1,2 to 3,4 ends."""
    assign(tree, "orders", {0: [0, 1], 1: [3, 4]})
    lead(tree, "orders", 1, 3, [3, 4])


def test_what_is_of_one_moment_is_read_once(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    rows = read(orders)

    assert rows.of_partitions(*COLUMNS) == ORDERS + NEIGHBOURS
    assert rows.of_topics("topic", "topic_version", "understood", "topic_id", "config") == [
        (name, 0, True, TOPIC_ID, {}) for name in ("orders", "payments", "zebras")
    ]
    assert (rows.quarantine, interleaved.read) == ([], [["orders", "payments", "zebras"]])


def test_a_topic_moved_during_the_read_is_read_again(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    interleaved.changes = [lambda: move(orders)]

    rows = read(orders)

    assert rows.of_partitions(*COLUMNS, "leader_epoch", "topic_version", "state_version") == [
        ("payments", 0, [2, 0], 2, [2, 0], 5, 0, 0),
        ("zebras", 0, [1, 0], 1, [1, 0], 5, 0, 0),
        ("orders", 0, [0, 1], 0, [0, 1], 5, 1, 0),
        ("orders", 1, [3, 4], 3, [3, 4], 6, 1, 1),
    ]
    assert rows.of_topics("topic", "topic_version") == [("payments", 0), ("zebras", 0), ("orders", 1)]
    assert (rows.quarantine, interleaved.read) == ([], [["orders", "payments", "zebras"], ["orders"]])


def test_an_isr_newer_than_its_replicas_is_torn(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    def grow() -> None:
        assign(orders, "orders", {0: [0, 1, 2], 1: [1, 2]})
        lead(orders, "orders", 0, 0, [0, 1, 2])

    interleaved.changes = [grow]

    assert read(orders, "orders").of_partitions("partition", "replicas", "leader", "isr") == [
        (0, [0, 1, 2], 0, [0, 1, 2]),
        (1, [1, 2], 1, [1, 2]),
    ]


def test_a_topic_that_vanishes_meanwhile_is_no_row(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    interleaved.changes = [lambda: orders.client.delete("/brokers/topics/orders", recursive=True)]

    rows = read(orders)

    assert rows.of_partitions(*COLUMNS) == NEIGHBOURS
    assert rows.of_topics("topic") == [("payments",), ("zebras",)]
    assert rows.quarantine == []


def test_a_topic_that_vanished_before_is_no_row(orders: KafkaTree) -> None:
    assert read(orders, "gone", "zebras").of_partitions(*COLUMNS) == NEIGHBOURS[1:]
    assert read(orders, "gone") == Read()


def test_a_topic_recreated_during_the_read_is_the_new_one(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    def make_again() -> None:
        orders.client.delete("/brokers/topics/orders", recursive=True)
        orders.client.delete("/config/topics/orders")
        orders.add_topic("orders", {0: [2]}, "A" * 22)

    interleaved.changes = [make_again]

    rows = read(orders, "orders")

    assert rows.of_partitions(*COLUMNS) == [("orders", 0, [2], 2, [2])]
    assert rows.of_topics("topic", "topic_id") == [("orders", "A" * 22)]


def test_a_partition_added_during_the_read_is_left_out(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    interleaved.changes = [lambda: add_partition(orders)]

    rows = read(orders, "orders")

    assert (rows.of_partitions(*COLUMNS), rows.quarantine, len(interleaved.read)) == (ORDERS, [], 1)


def test_a_partition_seen_before_its_assignment_is_read_once_more(
    orders: KafkaTree, interleaved: InterleavedChanges
) -> None:
    interleaved.before = CONFIGS
    interleaved.changes = [lambda: add_partition(orders)]

    rows = read(orders, "orders")

    assert (rows.of_partitions(*COLUMNS), rows.quarantine) == ([*ORDERS, ("orders", 2, [2, 0], 2, [2, 0])], [])


def add_partition(tree: KafkaTree) -> None:
    assign(tree, "orders", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    lead(tree, "orders", 2, 2, [2, 0])


def test_the_second_reading_counts_even_if_torn(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    interleaved.changes = [lambda: move(orders), lambda: lead(orders, "orders", 1, 5, [5])]

    rows = read(orders, "orders")

    assert rows.of_partitions("partition", "replicas", "leader") == [(0, [0, 1], 0), (1, [3, 4], 5)]
    assert len(interleaved.read) == 2


def test_a_leader_that_is_no_replica_stays_as_read(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    lead(orders, "orders", 1, 7, [7, 2])

    rows = read(orders)

    assert rows.of_partitions(*COLUMNS, "understood") == [
        *((*row, True) for row in NEIGHBOURS),
        ("orders", 0, [0, 1], 0, [0, 1], True),
        ("orders", 1, [1, 2], 7, [7, 2], True),
    ]
    assert (rows.quarantine, len(interleaved.read)) == ([], 2)


def test_a_partition_without_a_state_has_no_leader(orders: KafkaTree) -> None:
    orders.client.delete(state_path("orders", 1))

    assert read(orders, "orders").of_partitions(*COLUMNS, "understood", "state_version") == [
        ("orders", 0, [0, 1], 0, [0, 1], True, 0),
        ("orders", 1, [1, 2], None, None, True, None),
    ]


def test_no_leader_is_no_stranger(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    lead(orders, "orders", 1, -1, [2])

    assert read(orders, "orders").of_partitions("leader") == [(0,), (-1,)]
    assert len(interleaved.read) == 1


def test_a_state_without_an_assignment_is_quarantined(orders: KafkaTree) -> None:
    lead(orders, "orders", 9, 1, [1])
    orders.write("/brokers/topics/orders/partitions/x/state", b"what")
    orders.client.ensure_path("/brokers/topics/orders/partitions/8")  # as Kafka leaves it for a moment

    rows = read(orders)

    reason = "a state without a topic: /brokers/topics/orders assigns no partition "
    state = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":6,"isr":[1]}'
    assert rows.of_quarantine() == [
        ("/brokers/topics/orders/partitions/9/state", state, reason + "9"),
        ("/brokers/topics/orders/partitions/x/state", "what", reason + "x"),
    ]
    assert sorted(rows.of_partitions(*COLUMNS)) == ORDERS + NEIGHBOURS


@pytest.mark.parametrize("null", [True, False])
def test_a_topic_without_data_is_quarantined_and_keeps_its_partitions(orders: KafkaTree, null: bool) -> None:  # noqa: FBT001
    multi = orders.client.transaction()
    if null:
        add(multi, [Create("/brokers/topics/empty")])
    else:
        multi.create("/brokers/topics/empty", b"")
    commit(multi)
    lead(orders, "empty", 0, 1, [1])

    rows = read(orders)

    assert rows.of_quarantine() == [
        ("/brokers/topics/empty", None if null else "", "empty, expected JSON"),
    ]
    assert ("empty", False) in rows.of_topics("topic", "understood")
    assert sorted(rows.of_partitions(*COLUMNS, "understood")) == [
        ("empty", 0, [], 1, [1], False),
        *((*row, True) for row in ORDERS + NEIGHBOURS),
    ]


# the topic's znode, and of orders-0 and orders-1 the replicas and whether they are understood
UNREAD_TOPICS: Final[dict[str, tuple[str, list[tuple[list[int], bool]]]]] = {
    "no JSON": ("hello", [([], False), ([], False)]),
    "cut off": ('{"partitions":{"0":[0,1],"1":[1,2', [([], False), ([], False)]),
    "partitions null": ('{"partitions":null}', [([], False), ([], False)]),
    "a key that is no number": ('{"partitions":{"0":[0,1],"one":[1,2]}}', [([0, 1], True), ([], False)]),
    "adding null": ('{"partitions":{"0":[0,1],"1":[1,2]},"adding_replicas":null}', [([0, 1], False), ([1, 2], False)]),
    "removing a text": (
        '{"partitions":{"0":[0,1],"1":[1,2]},"removing_replicas":"x"}',
        [([0, 1], False), ([1, 2], False)],
    ),
    "id null": ('{"partitions":{"0":[0,1],"1":[1,2]},"topic_id":null}', [([0, 1], True), ([1, 2], True)]),
    "id a number": ('{"partitions":{"0":[0,1],"1":[1,2]},"topic_id":5}', [([0, 1], True), ([1, 2], True)]),
}


@pytest.mark.parametrize(("data", "expected"), UNREAD_TOPICS.values(), ids=UNREAD_TOPICS)
def test_partitions_of_a_topic_that_is_not_understood_are_seen(
    orders: KafkaTree, data: str, expected: list[tuple[list[int], bool]]
) -> None:
    orders.write("/brokers/topics/orders", data.encode())

    rows = read(orders, "orders")

    assert rows.of_partitions("partition", "replicas", "understood", "leader", "isr") == [
        (partition, *expected[partition], leader, isr) for _, partition, _, leader, isr in ORDERS
    ]
    assert rows.of_topics("topic_id", "understood", "assignment_understood") == [(None, False, False)]
    assert [row.path for row in rows.quarantine] == ["/brokers/topics/orders"]


def test_a_config_that_is_not_understood_leaves_the_rows(orders: KafkaTree) -> None:
    data = '{"version":1,"config":{"retention.ms":1,"min.insync.replicas":"2"}}'
    orders.write("/config/topics/orders", data.encode())
    orders.write("/config/topics/payments", b'{"version":1}')

    rows = read(orders)

    assert rows.of_topics("topic", "understood", "assignment_understood", "config") == [
        ("orders", False, True, {"retention.ms": None, "min.insync.replicas": "2"}),
        ("payments", False, True, None),
        ("zebras", True, True, {}),
    ]
    assert rows.of_partitions(*COLUMNS, "understood") == [(*row, True) for row in ORDERS + NEIGHBOURS]
    assert rows.of_quarantine() == [
        ("/config/topics/orders", data, "retention.ms: Expected `str`, got `int`"),
        ("/config/topics/payments", '{"version":1}', "Object missing required field `config`"),
    ]


@pytest.mark.parametrize("name", ["a:b", "n" * 250, "é", "a b"])
def test_a_name_that_kafka_forbids_is_in_quarantine(orders: KafkaTree, name: str) -> None:
    assign(orders, name, {0: [0, 1]})
    data = orders.client.get(f"/brokers/topics/{name}")[0].decode()

    rows = read(orders)

    reason = f"{name!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not . or .."
    assert rows.of_quarantine() == [(f"/brokers/topics/{name}", data, reason)]
    assert rows.of_partitions(*COLUMNS) == ORDERS + NEIGHBOURS
    assert (name, False) in rows.of_topics("topic", "understood")


BAD_TOPICS = {
    "not UTF-8": (b'{"partitions":{"0":[1]},"x":"\xff"}', "'utf-8' codec can't decode byte 0xff"),
    "not JSON": (b'{"partitions":', "Input data was truncated"),
    "negative partition": (b'{"partitions":{"-1":[1,2]}}', "'-1', expected a partition number, 2147483647 at most"),
    "duplicate replica": (b'{"partitions":{"0":[1,1]}}', "partition 0 names a broker twice: [1, 1]"),
    "no replicas": (b'{"partitions":{"0":[]}}', "partition 0 has no replicas"),
    "null": (b"null", "Expected `object`, got `null`"),
    "adding a stranger": (
        b'{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}',
        "adding_replicas of partition 0 names [2], no replicas of it",
    ),
    "empty": (b"", "empty, expected JSON"),
    "noise": (NOISE, "'utf-8' codec can't decode byte 0xff"),
    "deep": (b'{"x":' + b"[" * 900_000, "maximum recursion depth exceeded while deserializing an object"),
}

OF_ONE_PARTITION = ("duplicate replica", "no replicas", "adding a stranger")
"""What is wrong in these is the entry of partition 0 alone."""

BAD_STATES = {
    "not UTF-8": (b'{"leader":"\xff"}', "'utf-8' codec can't decode byte 0xff"),
    "not JSON": (b"leader=1", "JSON is malformed: invalid character (byte 0)"),
    "another shape": (b"[1]", "Expected `object`, got `array`"),
    "no leader": (b'{"controller_epoch":1,"leader_epoch":0,"isr":[1]}', "Object missing required field `leader`"),
    "duplicate in the ISR": (
        b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,1]}',
        "the ISR names a broker twice: [1, 1]",
    ),
    "null": (b"null", "Expected `object`, got `null`"),
    "empty": (b"", "empty, expected JSON"),
    "noise": (NOISE, "'utf-8' codec can't decode byte 0xff"),
}

BAD_CONFIGS = {
    "not UTF-8": (b'{"version":1,"config":{"a":"\xff"}}', "'utf-8' codec can't decode byte 0xff"),
    "not JSON": (b"a=b", "JSON is malformed: invalid character (byte 0)"),
    "another shape": (b'{"version":1,"config":[]}', "Expected `object`, got `array` - at `$.config`"),
    "null": (b"null", "Expected `object`, got `null`"),
    "noise": (NOISE, "'utf-8' codec can't decode byte 0xff"),
}


def cut(data: bytes) -> str:
    """As the quarantine shows it: its first 1000 bytes, those that are no text escaped."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in data[:1000])


def assert_quarantined(reading: Read, expected: Sequence[tuple[str, str, str]]) -> None:
    rows = reading.of_quarantine()
    assert [row[:2] for row in rows] == [row[:2] for row in expected]
    reasons = [(row[2], reason) for row, (_, _, reason) in zip(rows, expected, strict=True)]
    assert [pair for pair in reasons if pair[1] not in pair[0]] == []  # msgspec's words may get longer


def test_bad_topics_are_in_quarantine_and_their_neighbours_are_read(orders: KafkaTree) -> None:
    expected = []
    for number, (data, reason) in enumerate(BAD_TOPICS.values()):
        path = f"/brokers/topics/p-{number:02}"
        orders.write(path, data)
        expected.append((path, cut(data), reason))

    rows = read(orders)

    again = {f"/brokers/topics/p-{number:02}" for number, case in enumerate(BAD_TOPICS) if case in OF_ONE_PARTITION}
    assert_quarantined(rows, sorted(expected, key=lambda row: row[0] in again))
    opaque = [f"p-{number:02}" for number, case in enumerate(BAD_TOPICS) if case in OF_ONE_PARTITION]
    assert sorted(rows.of_partitions(*COLUMNS, "understood")) == sorted(
        [
            *((*row, True) for row in ORDERS + NEIGHBOURS),
            *((topic, 0, [], None, None, False) for topic in opaque),
        ]
    )
    for column in ("understood", "assignment_understood"):
        assert [understood for _, understood in sorted(rows.of_topics("topic", column))] == (
            [True] + [False] * len(BAD_TOPICS) + [True] * 2
        )


def test_one_bad_partition_leaves_the_others_of_its_topic(orders: KafkaTree) -> None:
    """Kafka reads replicas that stand there three times; two partitions of the znode are as they always were."""
    orders.add_topic("clicks", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    partitions = b'{"0":[0,1],"1":[65633,65633,65633],"2":[2,0],"x":[1]}'
    data = b'{"version":3,"partitions":%s,"adding_replicas":{"7":[1]}}' % partitions
    orders.write("/brokers/topics/clicks", data)

    rows = read(orders, "clicks")

    assert rows.of_partitions(*COLUMNS, "understood") == [
        ("clicks", 0, [0, 1], 0, [0, 1], True),
        ("clicks", 1, [], 1, [1, 2], False),
        ("clicks", 2, [2, 0], 2, [2, 0], True),
    ]
    reasons = (
        "partition 1 names a broker twice: [65633, 65633, 65633]; 'x', expected a partition number, 2147483647 at "
        "most; adding_replicas of partition 7 names [1], no replicas of it"
    )
    assert rows.of_quarantine() == [("/brokers/topics/clicks", data.decode(), reasons)]


def test_an_empty_isr_is_read(orders: KafkaTree) -> None:
    lead(orders, "orders", 1, -1, [])

    assert read(orders, "orders").of_partitions(*COLUMNS, "understood")[1] == ("orders", 1, [1, 2], -1, [], True)


def test_bad_states_are_in_quarantine_and_their_neighbours_are_read(orders: KafkaTree) -> None:
    orders.add_topic("p", {partition: [1, 2] for partition in range(2 * len(BAD_STATES))})
    expected = []
    for number, (data, reason) in enumerate(BAD_STATES.values()):
        path = state_path("p", 2 * number + 1)
        orders.write(path, data)
        expected.append((path, cut(data), reason))

    rows = read(orders)

    assert_quarantined(rows, expected)
    good, bad = ([1, 2], 1, [1, 2], 0, True), ([1, 2], None, None, 1, False)
    assert [
        row
        for row in rows.of_partitions("topic", "partition", "replicas", "leader", "isr", "state_version", "understood")
        if row[0] == "p"
    ] == [("p", partition, *(bad if partition % 2 else good)) for partition in range(2 * len(BAD_STATES))]
    assert [row for row in rows.of_partitions(*COLUMNS) if row[0] != "p"] == ORDERS + NEIGHBOURS


def test_a_config_without_data_overrides_nothing(orders: KafkaTree) -> None:
    multi = orders.client.transaction()
    for path in ("/config", "/config/topics", "/config/topics/orders"):
        add(multi, [Create(path)])
    commit(multi)

    assert read(orders).of_topics("topic", "config", "understood")[0] == ("orders", {}, True)


def test_bad_configs_are_in_quarantine_and_their_topics_are_read(orders: KafkaTree) -> None:
    expected = []
    for number, (data, reason) in enumerate(BAD_CONFIGS.values()):
        orders.add_topic(f"p{number}", {0: [1, 2]})
        orders.write(f"/config/topics/p{number}", data)
        expected.append((f"/config/topics/p{number}", cut(data), reason))

    rows = read(orders)

    assert_quarantined(rows, expected)
    assert rows.of_partitions(*COLUMNS) == [
        *ORDERS,
        *((f"p{number}", 0, [1, 2], 1, [1, 2]) for number in range(len(BAD_CONFIGS))),
        *NEIGHBOURS,
    ]


def test_states_are_read_in_chunks(orders: KafkaTree, interleaved: InterleavedChanges) -> None:
    interleaved.changes = [lambda: None, lambda: move(orders)]
    names = sorted(orders.client.get_children("/brokers/topics"))

    given = [[row.topic for row in reading.partitions] for reading in read_topic_rows(orders.client, names, 2)]

    assert given == [[], ["orders", "orders"], ["payments", "zebras"], []]
