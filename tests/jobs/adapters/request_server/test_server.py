"""The request server in plain text: what it answers, and that no client harms another."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from struct import pack, unpack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.adapters.request_server import connection
from jobs.adapters.request_server.connection_quotas import RESERVED_FILES
from jobs.adapters.request_server.limits import ServerLimits
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.request_server.messages import encode_response, item_count, response_entity
from jobs.adapters.request_server.server import RequestServer
from jobs.core.errors import UsageError
from tests.jobs.adapters.request_server.clients import (
    PRODUCER_IDS,
    ProducerIdHandler,
    RawClient,
    api_versions_request,
    connected_to,
    framed,
    producer_ids,
    producer_ids_request,
    running,
)
from tests.jobs.support.kafka.real_cluster import eventually

PLAIN = ListenConfig.of(["127.0.0.1:0"], [], None)


@pytest.fixture
def handler() -> ProducerIdHandler:
    return ProducerIdHandler()


@pytest.fixture
def limits() -> ServerLimits:
    return ServerLimits()


@pytest.fixture
def port(handler: ProducerIdHandler, limits: ServerLimits) -> Iterator[int]:
    with running(RequestServer(PLAIN, handler, limits=limits)) as server:
        yield server.endpoints[0].port
    assert "request-server" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_are_returned(port: int, version: int) -> None:
    with connected_to(port) as client:
        assert client.api_versions(version) == (0, {18: (0, 4), PRODUCER_IDS: (0, 0)})


def test_a_later_version_of_api_versions_is_answered_as_version_0(port: int) -> None:
    with connected_to(port) as client:
        client.send(framed(pack(">hhih", 18, 99, 5, 4) + b"later body"))
        answer = client.receive()

        assert unpack(">ih", answer[:6]) == (5, 35)
        assert client.producer_ids(3) == 3  # the connection is still good


def test_requests_of_one_connection_are_answered_in_order(port: int, handler: ProducerIdHandler) -> None:
    handler.held = {1}
    with connected_to(port) as client:
        client.send(b"".join(producer_ids_request(broker) for broker in (0, 1, 2)))
        assert client.received_start() == 0
        while not handler.waiting:
            pass
        assert [caller.client_id for caller in handler.callers] == ["test", "test"]  # the third is not read yet
        handler.answer_held()
        assert [client.received_start(), client.received_start()] == [1, 2]


def test_a_client_that_waits_delays_no_other(port: int, handler: ProducerIdHandler) -> None:
    handler.held = {1}
    with connected_to(port) as slow, connected_to(port) as other:
        slow.send(producer_ids_request(1))

        assert [other.producer_ids(broker) for broker in range(2, 20)] == [*range(2, 20)]
        handler.answer_held()
        assert slow.received_start() == 1


@pytest.mark.parametrize(("limit", "is_server_thread"), [(0, True), (-1, False)])
def test_a_large_response_is_encoded_in_another_thread(
    port: int, monkeypatch: pytest.MonkeyPatch, limits: ServerLimits, limit: int, *, is_server_thread: bool
) -> None:
    """The server's thread answers other clients in the meantime."""
    names = list[str]()

    def recorded(*arguments: Any) -> bytes:  # noqa: ANN401 - those of `encode_response`
        names.append(threading.current_thread().name)
        return encode_response(*arguments)

    limits.max_items_in_loop = limit
    monkeypatch.setattr(connection, "encode_response", recorded)
    with connected_to(port) as client:
        assert client.producer_ids(3) == 3
    assert [name == "request-server" for name in names] == [is_server_thread]


def test_the_topics_and_partitions_of_a_response_are_counted() -> None:
    elections = import_module("kio.schema.elect_leaders.v2.response")
    results = [elections.PartitionResult(partition_id=number, error_code=0, error_message=None) for number in range(3)]
    topics = [elections.ReplicaElectionResult(topic=name, partition_result=tuple(results)) for name in ("a", "b")]

    assert item_count(producer_ids(1)) == 0
    fields = {"replica_election_results": tuple(topics), "error_code": 0}
    assert item_count(response_entity(43, 2, "ElectLeadersResponse", **fields)) == 2 + 6


@pytest.mark.parametrize(
    "data",
    [
        framed(pack(">hhih", 3, 12, 1, 4) + b"test" + b"\0\0"),  # Metadata
        framed(pack(">hhih", PRODUCER_IDS, 9, 1, 4) + b"test"),
        framed(b"\0"),
        framed(pack(">hhih", PRODUCER_IDS, 0, 1, 500) + b"test"),
        framed(pack(">hhih", PRODUCER_IDS, 0, 1, 4) + b"test" + b"\xff\xff\xff\xff\xff\xff"),
        framed(producer_ids_request(1)[4:-1]),
        framed(producer_ids_request(1)[4:] + b"more"),
        pack(">i", -5),
        pack(">i", 2**31 - 1),
        b"\x16\x03\x01\x02\x00\x01\x00",  # the beginning of TLS
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_cannot_be_answered_ends_the_connection(port: int, data: bytes) -> None:
    with connected_to(port) as client:
        client.send(data)
        assert client.is_closed
    with connected_to(port) as client:
        assert client.producer_ids(3) == 3


def test_a_handler_that_fails_ends_the_connection(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with connected_to(port) as client:
        client.send(producer_ids_request(-1))
        assert client.is_closed
    assert "a broker with a negative id" in capsys.readouterr().err


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), st.booleans())
def test_random_bytes_do_no_harm(port: int, parts: list[bytes], is_framed: bool) -> None:  # noqa: FBT001
    with connected_to(port) as client, connected_to(port) as other:
        for part in parts:
            try:
                client.send(framed(part) if is_framed else part)
            except ConnectionError:
                break
        assert other.producer_ids(5) == 5


def test_a_request_that_trickles_in_ends_the_connection(port: int, limits: ServerLimits) -> None:
    limits.transfer_seconds = 0.2
    with connected_to(port) as client, connected_to(port) as other:
        client.send(api_versions_request(0)[:6])

        assert other.producer_ids(5) == 5
        assert client.is_closed


def test_a_silent_connection_ends(port: int, limits: ServerLimits) -> None:
    limits.idle_seconds = 0.2
    with connected_to(port) as client:
        assert client.is_closed


@pytest.mark.parametrize("limit", ["max_connections_per_address", "max_connections"])
def test_of_too_many_connections_the_most_silent_makes_way(port: int, limits: ServerLimits, limit: str) -> None:
    setattr(limits, limit, 5)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected_to(port)) for _ in range(5)]
        assert [client.producer_ids(1) for client in (*clients[1:], clients[0])] == [1] * 5

        assert stack.enter_context(connected_to(port)).producer_ids(2) == 2
        assert clients[1].is_closed
        assert [client.producer_ids(1) for client in (clients[0], *clients[2:])] == [1] * 4


def test_a_request_in_flight_is_not_dropped_for_another_connection(
    port: int, handler: ProducerIdHandler, limits: ServerLimits
) -> None:
    limits.max_connections_per_address = 1
    handler.held = {1}
    with connected_to(port) as client:
        client.send(producer_ids_request(1))
        assert eventually(lambda: bool(handler.waiting))

        with connected_to(port) as other:
            assert other.is_closed
        handler.answer_held()
        assert client.receive()


def test_relays_leave_open_files_to_the_process(handler: ProducerIdHandler, capsys: pytest.CaptureFixture[str]) -> None:
    """Each connection of a client may open one to a broker; a limit of open files that leaves few is reported."""
    few_files = RequestServer(PLAIN, handler, raise_max_files=lambda _: RESERVED_FILES + 4)
    with running(few_files) as server, ExitStack() as stack:
        assert "warning: brokers can have 2 connections open at the same time" in capsys.readouterr().err
        clients = [stack.enter_context(connected_to(server.endpoints[0].port)) for _ in range(2)]
        assert [client.producer_ids(1) for client in clients] == [1, 1]
        assert stack.enter_context(connected_to(server.endpoints[0].port)).producer_ids(2) == 2
        assert clients[0].is_closed


@pytest.fixture
def two_listeners(handler: ProducerIdHandler, limits: ServerLimits) -> Iterator[tuple[int, int]]:
    """The ports for brokers and for clients of a server that takes four connections."""
    limits.max_connections = 4
    config = ListenConfig.of(["127.0.0.1:0", "CLIENTS://127.0.0.1:0"], [], None)
    with running(RequestServer(config, handler, limits=limits)) as server:
        for_brokers, for_clients = (endpoint.port for endpoint in server.endpoints)
        yield for_brokers, for_clients


def test_clients_with_a_listener_take_no_connections_from_brokers(two_listeners: tuple[int, int]) -> None:
    """All are of one address here, and those of brokers have been idle longest."""
    for_brokers, for_clients = two_listeners
    with ExitStack() as stack:
        brokers = [stack.enter_context(connected_to(for_brokers)) for _ in range(2)]
        assert [broker.producer_ids(1) for broker in brokers] == [1, 1]
        clients = list[RawClient]()
        for _ in range(3):
            clients.append(stack.enter_context(connected_to(for_clients)))
            assert clients[-1].producer_ids(2) == 2

        assert clients[0].is_closed
        assert [broker.producer_ids(1) for broker in brokers] == [1, 1]


def test_clients_with_a_listener_take_no_time_from_brokers(
    two_listeners: tuple[int, int], limits: ServerLimits
) -> None:
    for_brokers, for_clients = two_listeners
    limits.max_share = 1e-6
    limits.burst_seconds = 0.0
    with connected_to(for_brokers) as broker, connected_to(for_clients) as client:
        assert client.producer_ids(2) == 2
        assert broker.producer_ids(1) == 1


def test_halves_of_requests_of_one_address_make_way_for_another(port: int, limits: ServerLimits) -> None:
    limits.max_connections = 5
    with ExitStack() as stack:
        halves = [stack.enter_context(connected_to(port, source="127.0.0.2")) for _ in range(5)]
        for client in halves:
            assert client.producer_ids(1) == 1
            client.send(producer_ids_request(1)[:8])

        assert stack.enter_context(connected_to(port)).producer_ids(2) == 2
        assert halves[0].is_closed


def test_large_requests_of_one_address_wait_for_each_other(port: int, limits: ServerLimits) -> None:
    """Otherwise a thousand halves of requests would take the memory of the controller."""
    limits.large_request_bytes = 10
    request = api_versions_request(3)
    with connected_to(port) as first, connected_to(port) as second, connected_to(port) as third:
        for client in (first, second):
            client.send(request[:8])
        assert not _is_readable(second, 0.3)
        third.send(request)
        assert not _is_readable(third, 0.3)

        first.send(request[8:])
        assert first.receive()
        assert third.receive()


def test_requests_that_take_long_delay_their_own_address_only(port: int, limits: ServerLimits) -> None:
    limits.max_share = 1e-6
    limits.burst_seconds = 0.0
    with connected_to(port) as flood, connected_to(port) as neighbour, connected_to(port, source="127.0.0.2") as other:
        assert flood.producer_ids(1) == 1
        for client in (flood, neighbour):
            client.send(producer_ids_request(1))

        assert other.producer_ids(2) == 2
        assert not _is_readable(flood, 0.3)
        assert not _is_readable(neighbour, 0)


def test_an_address_that_has_waited_is_answered_again(port: int, limits: ServerLimits) -> None:
    limits.max_share = 0.02
    limits.burst_seconds = 0.0
    with ExitStack() as stack:
        clients = [stack.enter_context(connected_to(port)) for _ in range(5)]
        for client in clients:
            client.send(producer_ids_request(1) * 4)
        assert [client.received_start() for client in clients for _ in range(4)] == [1] * 20


def _is_readable(client: RawClient, seconds: float) -> bool:
    readable, _, _ = select.select([client.connection], [], [], seconds)
    return bool(readable)


def test_a_client_that_reads_no_responses_delays_no_other(port: int) -> None:
    with connected_to(port) as greedy, connected_to(port) as other:
        greedy.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connection.setblocking(False)
        requests = api_versions_request(0) * 20_000
        sent = greedy.connection.send(requests)

        assert sent > 0
        assert [other.producer_ids(broker) for broker in range(50)] == [*range(50)]


def test_what_is_not_served_is_relayed(handler: ProducerIdHandler) -> None:
    """Byte for byte, in both directions; versions of what is served here take the place of the broker's."""
    broker_handler = ProducerIdHandler()
    with running(RequestServer(PLAIN, broker_handler)) as broker:
        handler.relay = "127.0.0.1", broker.endpoints[0].port
        with running(RequestServer(PLAIN, handler)) as server, connected_to(server.endpoints[0].port) as client:
            assert client.api_versions(3) == (0, {18: (0, 4), PRODUCER_IDS: (0, 0)})
            assert client.producer_ids(4) == 4
            assert (len(handler.callers), len(broker_handler.callers)) == (1, 0)
            client.send(framed(pack(">hhih", 3, 12, 1, 4) + b"test" + b"\0\0"))  # the broker closes it
            assert client.is_closed


def test_an_address_in_use_is_refused(port: int, handler: ProducerIdHandler) -> None:
    server = RequestServer(ListenConfig.of([f"127.0.0.1:{port}"], [], None), handler)

    with pytest.raises(
        UsageError, match=f"cannot listen at 127.0.0.1:{port} .*address already in use.*give --listen another port"
    ):
        server.start()
