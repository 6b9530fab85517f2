"""Where brokers are told to find the controller, and what is refused because it cannot work."""

import pytest

from jobs.controller.controller_node import controller_endpoints
from jobs.core.errors import RefusedError
from schemas.rows import Broker, BrokerConfig
from schemas.znodes import Endpoint
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
def test_other_hosts_are_told_no_loopback_address(ours: str, theirs: str, *, is_refused: bool) -> None:
    if not is_refused:
        assert controller_endpoints(settings(), brokers(theirs), served(ours)) == served(ours)
        return
    with pytest.raises(RefusedError, match=f"{ours}:9093, a loopback address, and broker 0 is at {theirs}"):
        controller_endpoints(settings(), brokers(theirs), served(ours))


@pytest.mark.unit
def test_clients_of_brokers_with_an_authorizer_do_not_see_the_controller() -> None:
    configs, ours = settings(authorizer_class_name=AUTHORIZER), served("surveyor.example")

    with pytest.raises(RefusedError, match=rf"has no listener but PLAINTEXT, .* authorizer \(.*={AUTHORIZER}\)"):
        controller_endpoints(configs, brokers("10.0.0.7"), ours)

    assert controller_endpoints(configs, brokers("10.0.0.7", "SASL_SSL"), ours) == ours
