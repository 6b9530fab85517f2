"""A broker that accepts connections and stays silent, as a stopped process does, holds up no request to another."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.adapters.brokers.admin_client import AdminUnavailableError, bootstrap, connected_admin
from jobs.adapters.brokers.fanout import ask_brokers
from jobs.adapters.brokers.first_answers import HEAD_START_SECONDS, first_answers
from jobs.adapters.brokers.kafka_python_client import connected_broker, negotiate
from jobs.adapters.kraft.fresh_reads import FreshReads
from jobs.adapters.kraft.session import CONNECT_SECONDS, read_from_broker
from jobs.adapters.kraft.topics import list_topics
from jobs.core.errors import UnreadableError
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.paged_brokers import PagedCluster

LOOPBACK = "127.0.0.1"
REFUSING = f"{LOOPBACK}:1"
"""No server listens there."""


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Addresses that accept connections and never answer."""
    servers = [socket.create_server((LOOPBACK, 0)) for _ in range(2)]
    yield [f"{LOOPBACK}:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()


@pytest.fixture
def cluster() -> PagedCluster:
    made = PagedCluster(topics=1, partitions=1)
    made.start()
    return made


def answers_after(seconds: float | None) -> str:
    if seconds is None:
        raise ConnectionError
    time.sleep(seconds)
    return "answer"


@pytest.mark.parametrize(
    ("delays", "taken", "answered", "failed"),
    [
        ({"a": 0.0, "b": 0.0}, 1, ["a"], []),
        ({"a": 0.2, "b": 0.0}, 1, ["a"], []),  # within its head start
        ({"a": None, "b": 0.0}, 1, ["b"], ["a"]),
        ({"a": 4.0, "b": 4.0, "c": 0.0}, 1, ["c"], []),
        ({"a": 0.0, "b": 4.0, "c": 0.1}, 2, ["a", "c"], []),  # the caller needs another one
        ({"a": 4.0, "b": None, "c": 4.0}, 1, [], ["a", "b", "c"]),
        ({"a": 4.0}, 1, [], ["a"]),
        ({}, 1, [], []),
    ],
)
def test_the_first_answers(delays: dict[str, float | None], taken: int, answered: list[str], failed: list[str]) -> None:
    errors = dict[str, Exception]()
    started = time.monotonic()

    answers = first_answers([*delays], lambda address: answers_after(delays[address]), 0.5, errors)
    found = [address for address, _ in islice(answers, taken)]

    assert (found, sorted(errors)) == (answered, failed)
    assert time.monotonic() - started < HEAD_START_SECONDS + 1.5


def reassignments(addresses: list[str], bootstrap_seconds: float = 10.0) -> object:
    with connected_admin(addresses, {}, bootstrap_seconds=bootstrap_seconds) as admin:
        return admin.reassignments()


def topics(addresses: list[str]) -> object:
    return read_from_broker(addresses, {}, list_topics)[0]


def answer_of_one(addresses: list[str]) -> object:
    """Ask one broker that has endpoints at all of these addresses."""
    endpoints = [Endpoint("L", "PLAINTEXT", LOOPBACK, int(address.rpartition(":")[2])) for address in addresses]
    broker = Broker(broker_id=3, endpoints=endpoints, understood=True)
    return ask_brokers([broker], {}, 20.0, lambda ask, _: ask(ApiVersionsRequest()).error_code)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [(reassignments, {}), (topics, ["topic-00000"]), (answer_of_one, ({3: 0}, {}))],
    ids=["Admin API", "reads", "one broker"],
)
@pytest.mark.parametrize("first", ["silent", "refusing"])
def test_another_address_answers(
    cluster: PagedCluster, silent: list[str], ask: Callable[[list[str]], object], expected: object, first: str
) -> None:
    started = time.monotonic()
    assert ask([*(silent if first == "silent" else [REFUSING]), *cluster.bootstrap.split(",")]) == expected
    assert time.monotonic() - started < HEAD_START_SECONDS + 2


def test_requests_go_to_the_broker_that_answered(cluster: PagedCluster, silent: list[str]) -> None:
    """Of five registered brokers two are silent; kafka-python itself would ask one of the five by chance."""
    cluster.ports.extend(int(address.rpartition(":")[2]) for address in silent)
    answering = cluster.bootstrap.split(",")[1]
    started = time.monotonic()
    for _ in range(10):
        assert reassignments([answering]) == {}
    assert time.monotonic() - started < 5


def test_a_broker_in_use_that_falls_silent_is_replaced(cluster: PagedCluster, silent: list[str]) -> None:
    endpoint = Endpoint(None, "PLAINTEXT", LOOPBACK, int(silent[0].rpartition(":")[2]))
    reads = FreshReads(
        cluster.bootstrap.split(","), {}, broker=Broker(broker_id=9, endpoints=[endpoint], understood=True)
    )
    assert reads.read(list_topics)[0] == ["topic-00000"]
    assert reads.broker is not None
    assert reads.broker.broker_id in {0, 1, 2}


class StallingCluster(PagedCluster):
    """A broker that sends the length of its third answer, and no more; kafka-python makes a first request itself."""

    def _serve(self, connection: socket.socket, port: int) -> None:
        with connection:
            for is_last in (False, False, True):
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
                request = connection.recv(size, socket.MSG_WAITALL)
                answer = request[4:8] + self._answer(port, 18, int.from_bytes(request[2:4]), b"")
                connection.sendall(len(answer).to_bytes(4) + (b"" if is_last else answer))
            connection.recv(1)


def address(cluster: PagedCluster) -> str:
    return cluster.bootstrap.partition(",")[0]


def test_a_connection_with_a_part_of_an_answer_lets_others_receive(cluster: PagedCluster) -> None:
    stalling = StallingCluster(topics=1, partitions=1)
    stalling.start()
    with connected_broker(address(stalling), {}) as stalled, connected_broker(address(cluster), {}) as ask:
        negotiate(stalled, 5)
        negotiate(ask, 5)
        with pytest.raises(KafkaTimeoutError):
            negotiate(stalled, 0.3)
        negotiate(ask, 5)


def test_an_idle_connection_lets_others_receive(cluster: PagedCluster) -> None:
    with connected_broker(address(cluster), {}) as ask, connected_broker(address(cluster), {}) as other:
        for request in (ask, ask, other, other, ask):
            negotiate(request, 5)


def test_the_error_names_what_was_tried_and_what_it_answered(silent: list[str]) -> None:
    addresses = [silent[0], REFUSING]

    with pytest.raises(AdminUnavailableError) as of_admin:
        reassignments(addresses, bootstrap_seconds=1.0)
    with pytest.raises(UnreadableError) as of_reads:
        topics(addresses)

    for message, seconds in ((str(of_admin.value), 1.0), (str(of_reads.value), CONNECT_SECONDS)):
        assert "ECONNREFUSED" in message.partition(REFUSING)[2], message
        assert re.search(f"within {seconds:g} s|timed out", message.partition(silent[0])[2]), message


@pytest.mark.parametrize(
    ("listener", "ports"),
    [(None, [1, 2]), ("INSIDE", [1]), ("OUTSIDE", [2]), ("SECURE", []), ("inside", [])],
)
def test_the_named_listener_is_used(listener: str | None, ports: list[int]) -> None:
    endpoints = [
        Endpoint(name, protocol, LOOPBACK, port)
        for port, (name, protocol) in enumerate(
            [("INSIDE", "PLAINTEXT"), ("OUTSIDE", "PLAINTEXT"), ("SECURE", "SSL")], start=1
        )
    ]
    broker = Broker(broker_id=1, endpoints=endpoints, understood=True)
    assert bootstrap([broker], {}, listener) == [f"{LOOPBACK}:{port}" for port in ports]


def test_brokers_of_a_kraft_cluster_name_no_listener() -> None:
    broker = Broker(broker_id=1, endpoints=[Endpoint(None, "PLAINTEXT", LOOPBACK, 1)], understood=True)
    assert bootstrap([broker], {}, "INSIDE") == [f"{LOOPBACK}:1"]
