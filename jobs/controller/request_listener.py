"""Services of a `surveyor control` process: requests of brokers and clients at --listen, and warnings about that."""

import logging
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from jobs.adapters.request_server.listen_config import PROTOCOL, ListenConfig, Security, listener_key
from jobs.adapters.request_server.sasl_mechanisms import SCRAM, Credentials, RefusedCredentialsError, ScramCredential
from jobs.adapters.request_server.server import RequestServer
from jobs.adapters.zookeeper.connection import LOST, ZooKeeperSession
from jobs.adapters.zookeeper.scram_users import scram_credential
from jobs.controller.client_logins import authorizer_of, logins_of, mechanisms_of, refuse_other_security
from jobs.controller.controller_endpoints import controller_endpoints, listeners_without_controller
from jobs.controller.metrics import ControllerMetrics
from jobs.controller.request_handler import RequestHandler
from jobs.core.errors import SurveyorError
from jobs.runtime.console import log
from schemas.broker_config_names import AUTHORIZER
from schemas.rows import Broker, BrokerConfig
from schemas.znode_codecs import Endpoint
from schemas.znode_json import PLAINTEXT

REACH_SECONDS: Final = 2.0
"""Seconds for a connection to our own advertised address."""

_UNREACHABLE_EFFECT: Final = {"brokers": "no replica joins an ISR", "clients": "Kafka's tools time out"}


@dataclass(frozen=True, slots=True)
class Services:
    """Services of this process, shared by all its controllerships."""

    metrics: ControllerMetrics
    request_handler: RequestHandler | None = None
    """Handles brokers' requests; None if they are not served."""
    served: Sequence[Endpoint] = ()
    """The endpoints that receive them."""
    logins: Mapping[str, Security] = field(default_factory=dict)
    """How the clients of listeners log in there, by listener."""


@contextmanager
def running_services(
    zookeeper: ZooKeeperSession,
    listen: ListenConfig | None,
    registered: Mapping[int, Broker],
    configs: Sequence[BrokerConfig],
    metrics: ControllerMetrics,
) -> Iterator[Services]:
    """Yield the services of this process; brokers' requests are received only with `--listen`.

    Until this process is the controller, it responds with NOT_CONTROLLER.
    """
    brokers = [*registered.values()]
    if listen is None:
        _warn_of_time_outs(listeners_without_controller((), brokers), is_listening=False)
        yield Services(metrics)
        return
    request_handler = RequestHandler()
    with _credentials(zookeeper, listen) as credentials:
        server = RequestServer(listen, request_handler, credentials)
        server.start()
        try:
            # what the brokers' listeners need is refused before the take-over
            endpoints = controller_endpoints(configs, brokers, server.endpoints)
            _refuse_other_logins(listen, configs)
            client_listeners = {endpoint.listener for endpoint in server.endpoints}
            for endpoint in endpoints:
                senders = "clients" if endpoint.listener in client_listeners else "brokers"
                address = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                log(f"surveyor: {senders}' requests are received at {address}")
                _warn_if_unreachable(endpoint, senders)
            _log_refused_tools(configs, client_listeners)
            _warn_of_time_outs(listeners_without_controller(endpoints, brokers), is_listening=True)
            yield Services(metrics, request_handler, server.endpoints, listen.logins)
        finally:
            request_handler.stop()
            server.stop()


def _warn_of_time_outs(listeners: Mapping[str, str], *, is_listening: bool) -> None:
    """Warn of listeners whose clients do not find the controller: Kafka's tools wait there, and then time out.

    `listeners`: their security protocols by name.
    """
    if not listeners:
        return
    names = ", ".join(listeners)
    name, protocol = next(iter(listeners.items()))
    option = f"--listen {name}://HOST:PORT, too" if is_listening else "--listen HOST:PORT"
    if is_listening and protocol != PLAINTEXT:
        option += f" (with {listener_key(name, PROTOCOL)}={protocol} in the file of --listen-config)"
    log(
        f"surveyor: warning: clients of listener {names} do not find the controller: kafka-topics, "
        f"kafka-reassign-partitions, kafka-leader-election and admin clients time out there. Give {option}, or use "
        "`surveyor plan` and `surveyor commit`",
        logging.WARNING,
    )


def _refuse_other_logins(config: ListenConfig, configs: Sequence[BrokerConfig]) -> None:
    """Raise RefusedError if clients log in differently at our address than at the brokers' addresses.

    Warn of clients that cannot log in here: they can still use the brokers, but their admin clients time out.
    """
    for name, security in config.logins.items():
        theirs = logins_of(name, configs)
        refuse_other_security(name, security, theirs)
        accepted = {mechanism for values in theirs.values() for mechanism in mechanisms_of(name, values)}
        if security.mechanisms and (others := sorted(accepted - {*security.mechanisms})):
            log(
                f"surveyor: warning: clients of listener {name} that log in by {', '.join(others)} do not reach the "
                "controller: kafka-topics, kafka-reassign-partitions, kafka-leader-election and admin clients time out "
                "there. Use `surveyor plan` and `surveyor commit`",
                logging.WARNING,
            )


def _log_refused_tools(configs: Sequence[BrokerConfig], listeners: Collection[str | None]) -> None:
    """Log that Kafka's tools get errors at the listeners of clients, if brokers have an authorizer."""
    authorizer, names = authorizer_of(configs), sorted(name for name in listeners if name)
    if names and authorizer != "":
        state = f"brokers have {AUTHORIZER}={authorizer}" if authorizer else f"no broker reports its {AUTHORIZER}"
        log(
            f"surveyor: {state}: requests of Kafka's tools at {', '.join(names)} are refused; the error names the "
            "command to use"
        )


def _warn_if_unreachable(endpoint: Endpoint, senders: str) -> None:
    """Warn if an advertised address cannot be reached from this host; `senders` on other hosts may still reach it."""
    try:
        socket.create_connection((endpoint.host, endpoint.port), REACH_SECONDS).close()
    except OSError as error:
        log(
            f"surveyor: warning: cannot connect from here to {endpoint.host}:{endpoint.port}, the address for "
            f"{senders} ({error.strerror or error}): if {senders} cannot either, {_UNREACHABLE_EFFECT[senders]}. "
            "Give --advertise HOST:PORT",
            logging.WARNING,
        )


@contextmanager
def _credentials(zookeeper: ZooKeeperSession, config: ListenConfig) -> Iterator[Credentials]:
    """Yield how SCRAM credentials are read: by the session of the process, in a term as well as before it."""
    if not any(mechanism in SCRAM for binding in config.bindings for mechanism in binding.security.mechanisms):
        yield lambda _user, _mechanism: None
        return
    with zookeeper.connected():

        def read(user: str, mechanism: str) -> ScramCredential | None:
            try:
                with zookeeper.connected() as client:
                    return scram_credential(client, user, mechanism)
            except (SurveyorError, *LOST) as error:
                log(f"surveyor: SCRAM credentials cannot be read: {error}", logging.WARNING)
                raise RefusedCredentialsError from None

        yield read
