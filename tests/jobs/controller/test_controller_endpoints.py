"""Where brokers find the controller, and what is refused because it cannot work."""

import re
import ssl

import pytest
from msgspec.structs import replace

from jobs.adapters.request_server.listen_config import Security
from jobs.controller.client_logins import refuse_other_security
from jobs.controller.controller_endpoints import (
    controller_endpoints,
    controller_node,
    listeners_without_controller,
    served_listeners,
)
from jobs.core.errors import RefusedError
from schemas.rows import Broker, BrokerConfig
from schemas.znode_codecs import Endpoint
from tests.planner.frames import broker_config

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def brokers(host: str, *others: str) -> list[Broker]:
    """Two brokers at the listener PLAINTEXT, and at others for clients."""
    endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", host, 9092)]
    endpoints += [Endpoint(name, name, host, 9192) for name in others]
    return [Broker(broker_id=number, broker_epoch=7, endpoints=endpoints, understood=True) for number in range(2)]


def settings(**values: str) -> list[BrokerConfig]:
    given = {"inter.broker.listener.name": "PLAINTEXT"} | {
        key.replace("_", "."): value for key, value in values.items()
    }
    return [broker_config(number, name, value) for number in range(2) for name, value in given.items()]


def served(host: str) -> list[Endpoint]:
    return [Endpoint(None, "PLAINTEXT", host, 9093)]


def named(host: str) -> list[Endpoint]:
    return [Endpoint("PLAINTEXT", "PLAINTEXT", host, 9093)]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("ours", "theirs", "is_refused"),
    [
        ("127.0.0.1", "10.0.0.7", True),
        ("localhost", "broker1.example", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "localhost", False),
        ("surveyor.example", "10.0.0.7", False),
    ],
)
def test_other_hosts_learn_no_loopback_address(ours: str, theirs: str, *, is_refused: bool) -> None:
    if not is_refused:
        assert controller_endpoints(settings(), brokers(theirs), served(ours)) == named(ours)
        return
    with pytest.raises(RefusedError, match=f"{ours}:9093, a loopback address, and broker 0 is at {theirs}"):
        controller_endpoints(settings(), brokers(theirs), served(ours))


@pytest.mark.unit
def test_clients_of_brokers_with_an_authorizer_do_not_see_the_controller() -> None:
    configs, ours = settings(authorizer_class_name=AUTHORIZER), served("surveyor.example")

    with pytest.raises(RefusedError, match=rf"has no listener but PLAINTEXT, .* authorizer \(.*={AUTHORIZER}\)"):
        controller_endpoints(configs, brokers("10.0.0.7"), ours)

    assert controller_endpoints(configs, brokers("10.0.0.7", "SASL_SSL"), ours) == named("surveyor.example")


CLIENTS = Endpoint("CLIENTS", "PLAINTEXT", "surveyor.example", 9094)


def brokers_with(protocol: str) -> list[Broker]:
    """Brokers whose clients have the listener CLIENTS."""
    clients = Endpoint("CLIENTS", protocol, "10.0.0.7", 9192)
    return [replace(broker, endpoints=[*(broker.endpoints or []), clients]) for broker in brokers("10.0.0.7")]


@pytest.mark.unit
def test_clients_find_the_controller_at_a_listener_of_their_own() -> None:
    theirs, ours = brokers_with("PLAINTEXT"), [*served("surveyor.example"), CLIENTS]

    endpoints = controller_endpoints(settings(), theirs, ours)

    assert endpoints == [*named("surveyor.example"), CLIENTS]
    assert listeners_without_controller(endpoints, theirs) == {}


@pytest.mark.unit
def test_listeners_whose_clients_do_not_find_the_controller_are_named() -> None:
    theirs = brokers_with("SASL_SSL")

    endpoints = controller_endpoints(settings(), theirs, served("surveyor.example"))

    assert listeners_without_controller(endpoints, theirs) == {"CLIENTS": "SASL_SSL"}
    assert listeners_without_controller((), theirs) == {"CLIENTS": "SASL_SSL", "PLAINTEXT": "PLAINTEXT"}


@pytest.mark.unit
def test_a_secured_listener_of_brokers_leaves_clients_theirs() -> None:
    """Brokers speak with each other by TLS, and clients in plain text."""
    theirs = [
        replace(broker, endpoints=[Endpoint("INSIDE", "SSL", "10.0.0.7", 9193), CLIENTS])
        for broker in brokers("10.0.0.7")
    ]
    ours = [Endpoint(None, "SSL", "surveyor.example", 9093), CLIENTS]
    configs = [broker_config(number, "inter.broker.listener.name", "INSIDE") for number in range(2)]

    inside = Endpoint("INSIDE", "SSL", "surveyor.example", 9093)
    assert controller_endpoints(configs, theirs, ours) == [inside, CLIENTS]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("address", "protocol", "authorizer", "message"),
    [
        (CLIENTS, "SASL_SSL", "", r"uses SASL_SSL, .* set listener\.name\.clients\.security\.protocol=SASL_SSL"),
        (replace(CLIENTS, security_protocol="SSL"), "PLAINTEXT", "", "uses PLAINTEXT, and this address SSL"),
        (replace(CLIENTS, listener="CLIENT"), "PLAINTEXT", "", "no broker has this listener; they have CLIENTS, PLAIN"),
        (replace(CLIENTS, listener="PLAINTEXT"), "PLAINTEXT", "", "give its address without the name"),
        (replace(CLIENTS, host="127.0.0.1"), "PLAINTEXT", "", "127.0.0.1:9094, a loopback address"),
    ],
)
def test_clients_that_cannot_be_served_learn_no_address(
    address: Endpoint, protocol: str, authorizer: str, message: str
) -> None:
    configs, ours = settings(authorizer_class_name=authorizer), [*served("surveyor.example"), address]

    with pytest.raises(RefusedError, match=message):
        controller_endpoints(configs, brokers_with(protocol), ours)


@pytest.mark.unit
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
@pytest.mark.parametrize("authorizer", ["", AUTHORIZER])
def test_clients_are_served_or_refused_at_a_listener_with_any_security(protocol: str, authorizer: str) -> None:
    ours = replace(CLIENTS, security_protocol=protocol)
    configs = settings(authorizer_class_name=authorizer)

    endpoints = controller_endpoints(configs, brokers_with(protocol), [*served("surveyor.example"), ours])

    assert endpoints == [*named("surveyor.example"), ours]


TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
OWN_AUTH, OWN_MECHANISMS = "listener.name.users.ssl.client.auth", "listener.name.users.sasl.enabled.mechanisms"
LOGINS: dict[str, tuple[Security, dict[str, str | None], str | None]] = {  # ours, a broker's, part of the refusal
    "the same": (Security(TLS, "required"), {"ssl.client.auth": "required"}, None),
    "its own": (Security(TLS, "none"), {"ssl.client.auth": "required", OWN_AUTH: "NONE"}, None),
    "default": (Security(TLS, "none"), {}, None),
    "weaker": (Security(TLS, "none"), {OWN_AUTH: "required"}, f"set {OWN_AUTH}=required"),
    "stricter": (Security(TLS, "required"), {"ssl.client.auth": "none"}, f"set {OWN_AUTH}=none"),
    "with passwords only its own counts": (
        Security(TLS, "none", ("PLAIN",)),
        {"ssl.client.auth": "required", OWN_MECHANISMS: "PLAIN"},
        None,
    ),
    "fewer mechanisms": (Security(None, "none", ("PLAIN",)), {OWN_MECHANISMS: "GSSAPI, PLAIN"}, None),
    "another mechanism": (Security(None, "none", ("PLAIN",)), {OWN_MECHANISMS: "GSSAPI"}, "leave PLAIN out of"),
    "a mechanism of another listener": (
        Security(None, "none", ("PLAIN",)),
        {OWN_MECHANISMS: "SCRAM-SHA-256", "sasl.enabled.mechanisms": "PLAIN"},
        "broker 1 accepts SCRAM-SHA-256 at its listener USERS",
    ),
    "the default mechanism": (Security(None, "none", ("PLAIN",)), {}, "broker 1 accepts GSSAPI"),
}


@pytest.mark.unit
@pytest.mark.parametrize("case", LOGINS)
def test_clients_log_in_as_at_brokers(case: str) -> None:
    ours, theirs, message = LOGINS[case]
    if message is None:
        refuse_other_security("USERS", ours, {1: theirs})
        return
    with pytest.raises(RefusedError, match=re.escape(message)):
        refuse_other_security("USERS", ours, {1: theirs})


@pytest.mark.unit
def test_no_client_logs_in_where_no_broker_reports_how() -> None:
    with pytest.raises(RefusedError, match="no broker reports how clients log in at its listener USERS"):
        refuse_other_security("USERS", Security(TLS, "required"), {})


OUR_USERS = Endpoint("USERS", "SASL_SSL", "surveyor.example", 9094)
PASSWORDS = Security(TLS, "none", ("PLAIN",))
SECURED: dict[str, tuple[tuple[str, str], tuple[str, str], dict[int, dict[str, str]], set[str | None]]] = {
    # protocols of the two brokers at PLAINTEXT and at USERS, what they report, and whose clients are served
    "the same": (("PLAINTEXT",) * 2, ("SASL_SSL",) * 2, {0: {OWN_MECHANISMS: "PLAIN"}}, {None, "USERS"}),
    "none reports": (("PLAINTEXT",) * 2, ("SASL_SSL",) * 2, {}, {None}),
    "one has another protocol": (
        ("PLAINTEXT",) * 2,
        ("SASL_SSL", "SSL"),
        {0: {OWN_MECHANISMS: "PLAIN"}},
        {None},
    ),
    "one wants a certificate": (
        ("PLAINTEXT",) * 2,
        ("SASL_SSL",) * 2,
        {0: {OWN_MECHANISMS: "PLAIN"}, 1: {OWN_MECHANISMS: "PLAIN", OWN_AUTH: "required"}},
        {None},
    ),
    "one no longer accepts passwords": (
        ("PLAINTEXT",) * 2,
        ("SASL_SSL",) * 2,
        {0: {OWN_MECHANISMS: "PLAIN"}, 1: {OWN_MECHANISMS: "SCRAM-SHA-256"}},
        {None},
    ),
    "one secures the listener of brokers": (
        ("PLAINTEXT", "SSL"),
        ("SASL_SSL",) * 2,
        {0: {OWN_MECHANISMS: "PLAIN"}},
        {"USERS"},
    ),
}


@pytest.mark.unit
@pytest.mark.parametrize("case", SECURED)
def test_clients_are_served_only_where_each_broker_has_our_security(case: str) -> None:
    at_plaintext, at_users, reports, listeners = SECURED[case]
    theirs = [
        Broker(
            broker_id=number,
            broker_epoch=7,
            endpoints=[Endpoint("PLAINTEXT", own, "10.0.0.7", 9092), Endpoint("USERS", users, "10.0.0.7", 9192)],
            understood=True,
        )
        for number, (own, users) in enumerate(zip(at_plaintext, at_users, strict=True))
    ]
    rows = [broker_config(number, name, value) for number, of in reports.items() for name, value in of.items()]
    silent = [broker_config(number, OWN_MECHANISMS, None, assumed=True) for number in {0, 1} - reports.keys()]
    configs, ours = [*settings(), *rows, *silent], [*served("surveyor.example"), OUR_USERS]

    result, reasons = served_listeners(ours, named("surveyor.example"), configs, theirs, {"USERS": PASSWORDS})

    assert result == listeners
    assert len(reasons) == 2 - len(listeners)


@pytest.mark.unit
def test_clients_need_a_listener_that_brokers_have() -> None:
    theirs = [replace(broker, endpoints=[OUR_USERS]) for broker in brokers("10.0.0.7")]
    ours = served("surveyor.example")

    _, [reason] = served_listeners(ours, named("surveyor.example"), settings(), theirs, {})

    assert "no broker has a plain-text listener" in reason


@pytest.mark.unit
@pytest.mark.parametrize(("racks", "rack"), [((None, None), None), (("b", "a"), "a"), ((None, "b"), "b"), ((), None)])
def test_the_controller_has_a_rack_where_brokers_do(racks: tuple[str | None, ...], rack: str | None) -> None:
    """Else a broker creates no topic: some live brokers would have racks, and others none."""
    live = [Broker(broker_id=number, broker_epoch=7, rack=name, understood=True) for number, name in enumerate(racks)]

    node = controller_node(99, named("surveyor.example"), live)

    assert (node.broker_id, node.rack, node.endpoints) == (99, rack, named("surveyor.example"))
