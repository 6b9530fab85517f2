"""Clients with a listener of their own: they see the controller there, and may ask it for less than brokers may."""

import json
import socket
from collections.abc import Iterator
from importlib import import_module
from struct import pack, unpack
from typing import Any

import pytest
from msgspec.structs import replace as with_values

from jobs.adapters.request_server.api_handler import Caller, ServerListener
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.request_server.server import RequestServer
from jobs.controller.admin_apis.cluster_metadata import METADATA
from jobs.controller.broker_apis.controller_api_messages import ALTER_PARTITION
from jobs.controller.broker_apis.controller_api_messages import VERSIONS as BROKER_APIS
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from jobs.core.addresses import LOOPBACK
from schemas.broker_config_names import AUTHORIZER
from schemas.response_codes import STALE_CONTROLLER_EPOCH
from schemas.znode_codecs import Endpoint
from tests.jobs.controller.admin_apis.clients import milliseconds
from tests.jobs.controller.admin_apis.conftest import SETTINGS
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import initialize, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration
from tests.planner.frames import broker_config

OURS = 2147483647
CALLER = Caller("SASL_SSL", "User:alice", "127.0.0.1", "admin", "CLIENTS")
OF_BROKERS, OF_CLIENTS = ServerListener("PLAINTEXT"), ServerListener("PLAINTEXT", "CLIENTS")
CLIENT_PORTS = {19_000, 19_001, 19_002}
SHUTDOWN = pack(">hhihc", 7, 1, 7, 1, b"x") + pack(">i", 2)
"""A ControlledShutdown request of version 1, for broker 2."""


def with_clients(port: int, client_port: int, protocol: str = "PLAINTEXT") -> bytes:
    """A registration with the listeners PLAINTEXT, of brokers, and CLIENTS."""
    fields = json.loads(registration(port))
    fields["endpoints"].append(f"CLIENTS://{LOOPBACK}:{client_port}")
    fields["listener_security_protocol_map"]["CLIENTS"] = protocol
    return json.dumps(fields).encode()


@pytest.fixture
def authorizer() -> str:
    return ""


@pytest.fixture
def handler(tree: KafkaTree, controller: ResidentController, authorizer: str) -> Iterator[RequestHandler]:
    """The handler of a controller with an address for brokers and one for clients."""
    assert tree.brokers is not None
    for broker, client_port in enumerate(sorted(CLIENT_PORTS)):
        tree.client.set(f"/brokers/ids/{broker}", with_clients(tree.brokers[broker].port, client_port))
    handler = RequestHandler()
    controller.request_handler = handler
    controller.endpoints.served = [
        Endpoint(None, "PLAINTEXT", LOOPBACK, 9998),
        Endpoint("CLIENTS", "PLAINTEXT", LOOPBACK, 9999),
    ]
    settings: dict[str, str | None] = {**SETTINGS, "inter.broker.listener.name": None, AUTHORIZER: authorizer}
    rows = [broker_config(broker, name, value) for broker in range(3) for name, value in settings.items()]
    controller.engine.set_broker_configs(rows)
    initialize(controller)
    yield handler
    handler.stop()


def addresses_of_controller(tree: KafkaTree) -> list[tuple[str, int]]:
    """Listeners and ports of the controller, as broker 0 was last sent them."""
    assert tree.brokers is not None
    live_brokers = tree.brokers[0].of("update_metadata")[-1].request.live_brokers
    [ours] = [live for live in live_brokers if live.id_ not in {0, 1, 2}]
    return [(endpoint.listener, endpoint.port) for endpoint in ours.endpoints]


@pytest.mark.usefixtures("handler")
def test_brokers_are_sent_the_address_for_clients(tree: KafkaTree) -> None:
    assert addresses_of_controller(tree) == [("PLAINTEXT", 9998), ("CLIENTS", 9999)]


@pytest.mark.parametrize("authorizer", ["kafka.security.authorizer.AclAuthorizer"])
def test_nothing_is_relayed_to_brokers_with_an_authorizer(tree: KafkaTree, handler: RequestHandler) -> None:
    """Clients still see the controller, which refuses their requests at once."""
    assert addresses_of_controller(tree) == [("PLAINTEXT", 9998), ("CLIENTS", 9999)]
    assert handler.relay_to(OF_CLIENTS) is None
    assert METADATA in handler.conditional_apis(OF_CLIENTS)


def served(handler: RequestHandler) -> tuple[bool, bool, bool]:
    """Whether a client of CLIENTS may list reassignments and brokers, and whether its other requests are relayed."""
    request = import_module("kio.schema.list_partition_reassignments.v0.request")
    timeout = milliseconds(1000)
    listing = request.ListPartitionReassignmentsRequest(timeout=timeout, topics=None)
    answer = handler.submit(CALLER, 46, 0, listing).result(10)
    try:
        nodes = handler.submit(CALLER, METADATA, 12, metadata_request(12, ())).result(10).brokers
    except ConnectionAbortedError:
        nodes = ()
    return answer.error_code == 0, bool(nodes), handler.relay_to(OF_CLIENTS) is not None


def test_clients_are_not_served_once_a_broker_has_another_security(
    tree: KafkaTree, controller: ResidentController, handler: RequestHandler, log: RecordedLog
) -> None:
    """As a rolling restart secures their listener: the address stays open, and is the former one."""
    assert tree.brokers is not None
    assert served(handler) == (True, True, True)
    ports = tree.brokers[1].port, sorted(CLIENT_PORTS)[1]
    tree.client.set("/brokers/ids/1", with_clients(*ports, "SASL_SSL"))
    run_until_quiet(controller)

    assert served(handler) == (False, False, False)
    assert addresses_of_controller(tree) == [("PLAINTEXT", 9998)]
    assert [line for line in log if "listener CLIENTS of the brokers uses SASL_SSL" in line] != []
    assert handler.relay_to(OF_BROKERS) is not None

    tree.client.set("/brokers/ids/1", with_clients(*ports))
    run_until_quiet(controller)

    assert served(handler) == (True, True, True)
    assert addresses_of_controller(tree) == [("PLAINTEXT", 9998), ("CLIENTS", 9999)]
    assert [line for line in log if "clients of listener CLIENTS are served again" in line] != []


@pytest.mark.parametrize(("protocols", "is_served"), [(("SSL", "PLAINTEXT"), True), (("SSL", "SASL_SSL"), False)])
def test_secured_brokers_are_not_served_in_plain_text(
    controller: ResidentController, handler: RequestHandler, protocols: tuple[str, str], *, is_served: bool
) -> None:
    """Their address stays open, too."""
    for number, row in [*controller.context.brokers.items()]:
        endpoints = [Endpoint(protocol, protocol, LOOPBACK, 9092) for protocol in protocols]
        controller.context.brokers[number] = with_values(row, endpoints=endpoints)
    epoch = controller.context.brokers[0].broker_epoch
    request = import_module("kio.schema.allocate_producer_ids.v0.request").AllocateProducerIdsRequest
    asked = request(broker_id=0, broker_epoch=epoch)
    errors = [
        int(handler.submit(Caller(protocol, "User:kafka", LOOPBACK, "0"), 67, 0, asked).result(10).error_code)
        for protocol in ("PLAINTEXT", "SSL")
    ]
    assert errors == [0 if is_served else 41, 0]


def metadata_request(version: int, topics: tuple[str, ...] | None) -> Any:  # noqa: ANN401 - of kio
    module = import_module(f"kio.schema.metadata.v{version}.request")
    names = None if topics is None else tuple(module.MetadataRequestTopic(name=name) for name in topics)
    return module.MetadataRequest(
        topics=names, **({} if version < 12 else {"include_topic_authorized_operations": False})
    )


@pytest.mark.parametrize("authorizer", ["", "kafka.security.authorizer.AclAuthorizer"])
def test_brokers_are_named_to_clients_whose_requests_are_not_relayed(tree: KafkaTree, handler: RequestHandler) -> None:
    """An admin client asks each node for them as soon as it is connected."""
    request = metadata_request(12, ())
    response = handler.submit(CALLER, METADATA, 12, request).result(10)

    assert {(node.node_id, node.host, node.port) for node in response.brokers} == {
        (OURS, LOOPBACK, 9999),
        *((broker, LOOPBACK, port) for broker, port in enumerate(sorted(CLIENT_PORTS))),
    }
    assert (response.controller_id, response.topics) == (OURS, ())
    assert {node.rack for node in response.brokers} == {None}
    assert tree.client.exists("/brokers/topics") is not None


@pytest.mark.parametrize(("topics", "is_answered"), [((), True), (None, False), (("orders",), False)])
def test_brokers_answer_requests_for_topics(
    handler: RequestHandler, topics: tuple[str, ...] | None, *, is_answered: bool
) -> None:
    assert handler.handles(METADATA, metadata_request(1, topics)) is is_answered


def test_what_clients_ask_any_broker_is_listed_where_clients_connect(handler: RequestHandler) -> None:
    """A client that finds an API missing fails, and asks no other broker; brokers ask for nothing of it."""
    for listener in (OF_CLIENTS, ServerListener("SASL_SSL", "USERS")):
        listed = handler.redirected_apis(listener)
        assert {1, 3, 10, 29, 60} <= listed.keys()
        assert listed.keys().isdisjoint({*BROKER_APIS, *handler.versions(listener)})
    assert handler.redirected_apis(ServerListener("SASL_SSL")) == {}
    assert handler.conditional_apis(ServerListener("SASL_SSL")) == {}


def test_a_request_is_relayed_to_its_own_listener(tree: KafkaTree, handler: RequestHandler) -> None:
    """A broker answers a request for metadata with the addresses of the listener at which it is asked."""
    assert tree.brokers is not None
    broker_ports = {tree.brokers[broker].port for broker in range(3)}

    assert {handler.relay_to(OF_CLIENTS) for _ in range(9)} == {(LOOPBACK, port) for port in CLIENT_PORTS}
    assert {handler.relay_to(OF_BROKERS) for _ in range(9)} == {(LOOPBACK, port) for port in broker_ports}


def test_clients_cannot_ask_as_brokers_do() -> None:
    handler = RequestHandler()
    try:
        assert handler.versions(OF_CLIENTS) == {
            api: versions for api, versions in handler.versions(OF_BROKERS).items() if api not in BROKER_APIS
        }
        assert ALTER_PARTITION in BROKER_APIS
    finally:
        handler.stop()


def test_a_broker_cannot_be_shut_down_at_the_address_for_clients() -> None:
    config = ListenConfig.of([f"{LOOPBACK}:0", f"CLIENTS://{LOOPBACK}:0"], [], None)
    server = RequestServer(config, RequestHandler())
    server.start()
    try:
        assert [endpoint.listener for endpoint in server.endpoints] == [None, "CLIENTS"]
        for_brokers, for_clients = (endpoint.port for endpoint in server.endpoints)
        with socket.create_connection((LOOPBACK, for_brokers), 10) as broker:
            broker.sendall(pack(">i", len(SHUTDOWN)) + SHUTDOWN)
            assert unpack(">iih", broker.recv(10))[1:] == (7, STALE_CONTROLLER_EPOCH)
        with socket.create_connection((LOOPBACK, for_clients), 10) as client:
            client.sendall(pack(">i", len(SHUTDOWN)) + SHUTDOWN)
            assert client.recv(1) == b""
    finally:
        server.stop()
