"""Clients for which nothing is carried out: brokers have rules that only they can check, or the listener is theirs."""

import socket
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from jobs.adapters.brokers.control_encoding import as_uuid
from jobs.adapters.request_server.api_handler import Caller, ServerListener
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.request_server.server import RequestServer
from jobs.controller.admin_apis.admin_handlers import COMMANDS, refusal_of
from jobs.controller.admin_apis.requests import AdminError
from jobs.controller.request_handler import RequestHandler
from jobs.core.addresses import LOOPBACK
from tests.jobs.controller.admin_apis.clients import AdminClient
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
CREATE_NOTHING = pack(">hhihc", 19, 5, 7, 1, b"x") + b"\0" + b"\1" + pack(">i", 1000) + b"\0\0"
"""A CreateTopics request of version 5 without topics."""
CREATION = {"name": "new", "partitions": 1, "factor": 1}

REQUESTS: dict[str, Callable[[AdminClient], Any]] = {
    "plan assign": lambda admin: admin.create(CREATION)["new"],
    "plan delete": lambda admin: admin.delete("orders")["orders"],
    "plan expand": lambda admin: admin.extend("orders", 5),
    "plan elect": lambda admin: admin.elect(0, [("orders", 0)])["orders", 0],
    "plan reassign": lambda admin: admin.reassign({("orders", 0): [2, 1]})["orders", 0],
}


def configure(admin: AdminClient, **values: str | None) -> None:
    """Let the brokers report other settings; one that is None is not reported."""
    rows = [row for row in admin.controller.engine.broker_configs if row.name.replace(".", "_") not in values]
    rows += [
        broker_config(broker, name.replace("_", "."), value, assumed=value is None)
        for broker in range(3)
        for name, value in values.items()
    ]
    admin.controller.engine.set_broker_configs(rows)


def caller(protocol: str, clients_of: str | None = None) -> Caller:
    return Caller(protocol, "User:ANONYMOUS", "127.0.0.1", "admin", clients_of)


REFUSED = {  # the client, the authorizer of the brokers, and a part of the message
    "an authorizer": (caller("PLAINTEXT"), AUTHORIZER, f"(authorizer.class.name={AUTHORIZER})"),
    "perhaps an authorizer": (caller("PLAINTEXT"), None, "no broker has reported whether it has one"),
    "a listener of brokers": (caller("SASL_SSL"), "", "at a listener with SASL_SSL it serves brokers only"),
    "an authorizer for users": (caller("SASL_SSL", "USERS"), AUTHORIZER, "it cannot ask the brokers' authorizer"),
    "perhaps one for users": (caller("SASL_SSL", "USERS"), None, "no broker has reported whether it has one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_written_for_them_and_they_learn_only_what_they_name(
    tree: KafkaTree, admin: AdminClient, case: str
) -> None:
    """A million partitions would be an answer of 150 MB, and topics are known by their ids to permitted clients."""
    client, authorizer, part = REFUSED[case]
    configure(admin, authorizer_class_name=authorizer)
    topic_id = admin.controller.context.topic_id("orders")
    admin.sender = client
    before = {path: tree.client.get_children(path) for path in ("/brokers/topics", "/admin", "/admin/delete_topics")}

    for command, ask in REQUESTS.items():
        error, message = ask(admin)
        assert (error, part in message, f"use `surveyor {command}`" in message) == (44, True, True), command
    assert {path: tree.client.get_children(path) for path in before} == before

    elections = [admin.election(kind, None) for kind in (0, 1)]

    assert [(response.error_code, response.replica_election_results) for response in elections] == [(44, ())] * 2
    assert admin.election(0, None, version=0).replica_election_results == ()
    assert admin.delete_by_id(as_uuid(topic_id)) == (None, 44)
    assert admin.reassignments() == {}
    assert tree.client.exists("/admin/preferred_replica_election") is None


def test_a_listener_at_which_brokers_have_another_security(tree: KafkaTree, admin: AdminClient) -> None:
    admin.controller.endpoints.served_listeners = frozenset({"CLIENTS"})
    for command, ask in REQUESTS.items():
        error, message = ask(admin)
        assert (error, f"use `surveyor {command}`" in message) == (44, True)
        assert "it serves no clients at this address now" in message
    assert tree.client.get_children("/admin/delete_topics") == []
    assert admin.request_handler.relay_to(ServerListener("PLAINTEXT")) is None


@pytest.mark.parametrize("command", REQUESTS)
def test_all_others_are_served(admin: AdminClient, command: str) -> None:
    admin.controller.endpoints.served_listeners = frozenset({None, "CLIENTS", "USERS"})
    for admin.sender in (caller("PLAINTEXT"), caller("PLAINTEXT", "CLIENTS"), caller("SASL_SSL", "USERS")):
        assert "Surveyor is the controller" not in str(REQUESTS[command](admin))


def test_a_policy_that_only_brokers_can_ask(tree: KafkaTree, admin: AdminClient) -> None:
    configure(admin, create_topic_policy_class_name="org.example.Names")

    assert admin.create(CREATION)["new"] == (
        44,
        "create.topic.policy.class.name is org.example.Names, which only brokers can ask: use `surveyor plan assign`",
    )
    assert "new" not in tree.client.get_children("/brokers/topics")


def test_a_broker_that_has_an_authorizer_is_relayed_nothing(admin: AdminClient) -> None:
    handler = admin.request_handler
    assert isinstance(handler, RequestHandler)
    assert handler.relay_to(ServerListener("PLAINTEXT")) is not None
    configure(admin, authorizer_class_name=AUTHORIZER)
    assert handler.relay_to(ServerListener("PLAINTEXT")) is None


def test_a_process_that_is_not_the_controller_closes_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """As a client that knows the former controller finds it; this is no fault of the process, and not logged as one."""
    server = RequestServer(ListenConfig.of([f"{LOOPBACK}:0"], [], None), RequestHandler())
    server.start()
    try:
        with socket.create_connection((LOOPBACK, server.endpoints[0].port), 10) as client:
            client.sendall(pack(">i", len(CREATE_NOTHING)) + CREATE_NOTHING)
            assert client.recv(1) == b""
    finally:
        server.stop()
    assert capsys.readouterr().err == ""


def test_every_request_of_people_has_a_command() -> None:
    assert {*COMMANDS.values()} >= REQUESTS.keys()
    assert refusal_of(16, caller("SASL_SSL"), AUTHORIZER) is None


def test_a_topic_is_described_without_its_reassignments() -> None:
    """`kafka-topics --describe` ends with any other error."""
    refusal = refusal_of(46, caller("SASL_SSL", "USERS"), AUTHORIZER)
    assert refusal is not None
    assert refusal.error is AdminError.CLUSTER_AUTHORIZATION_FAILED
    assert "use `surveyor status` or `surveyor plan reassign`" in (refusal.message or "")
