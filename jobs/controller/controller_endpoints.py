"""The controller as brokers and clients see it: an entry among the live brokers, to which they send their requests.

Brokers find the controller by its id among the live brokers of the last UpdateMetadata, at the control-plane listener
if there is one and at the inter-broker listener otherwise (`NodeToControllerChannelManager`, `KafkaServer`). They may
assign a replica to any live broker, so `replicas_on_controller` replaces those that name the controller.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from jobs.adapters.request_server.listen_config import PROTOCOL, Security, listener_key
from jobs.controller.client_logins import authorizer_of, logins_of, refuse_other_security
from jobs.core.addresses import is_loopback
from jobs.core.errors import RefusedError
from schemas.broker_config_names import AUTHORIZER, CONTROL_PLANE_LISTENER
from schemas.rows import Broker, BrokerConfig
from schemas.znode_codecs import Endpoint
from schemas.znode_json import PLAINTEXT

INTER_BROKER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"


def controller_node(controller_id: int, endpoints: Sequence[Endpoint], brokers: Iterable[Broker]) -> Broker:
    """Return the controller's entry among the live brokers.

    It has the rack of a broker if any broker has one: a broker creates no topic while some live brokers have racks and
    others have none (`AdminZkClient.getBrokerMetadatas`).
    """
    racks = sorted({broker.rack for broker in brokers if broker.rack is not None})
    return Broker(
        broker_id=controller_id,
        broker_epoch=0,
        endpoints=[*endpoints],
        rack=racks[0] if racks else None,
        understood=True,
    )


def controller_endpoints(
    configs: Collection[BrokerConfig], brokers: Sequence[Broker], served: Sequence[Endpoint]
) -> list[Endpoint]:
    """Return the endpoints under the names of the listeners at which brokers and clients look for the controller.

    `configs`: rows of BROKER_CONFIGS. `served`: the endpoints of our server, those for the clients of a listener with
    its name. Raise RefusedError as `broker_endpoints` and `refuse_client_endpoint` do.
    """
    for_clients = [endpoint for endpoint in served if endpoint.listener is not None]
    endpoints = broker_endpoints(configs, brokers, served)
    for address in for_clients:
        refuse_client_endpoint(address, configs, brokers)
    return [*endpoints, *for_clients]


def broker_endpoints(
    configs: Collection[BrokerConfig], brokers: Sequence[Broker], served: Sequence[Endpoint]
) -> list[Endpoint]:
    """Return the endpoints under the names of the listeners at which brokers look for the controller.

    Raise RefusedError if no served endpoint has the security protocol of such a listener, or if clients would see the
    controller at a listener that cannot serve them.
    """
    protocols = _listener_protocols(brokers)
    for_brokers, endpoints = [endpoint for endpoint in served if endpoint.listener is None], list[Endpoint]()
    for name in sorted(_broker_listeners(configs)):
        protocol = protocols.get(name, name)
        of_protocol = (endpoint for endpoint in for_brokers if endpoint.security_protocol == protocol)
        address = next(of_protocol, None)
        if address is None:
            ours = ", ".join(sorted({endpoint.security_protocol for endpoint in for_brokers}))
            raise RefusedError(
                f"brokers look for the controller at their listener {name}, which uses {protocol}, and --listen serves "
                f"{ours}: set security.protocol={protocol} in the file of --listen-config"
            )
        endpoints.append(Endpoint(name, protocol, address.host, address.port))
    _refuse_shared(endpoints, brokers, authorizer_of(configs))
    _refuse_loopback(endpoints, brokers)
    return endpoints


def refuse_client_endpoint(
    address: Endpoint, configs: Iterable[BrokerConfig], brokers: Sequence[Broker], security: Security | None = None
) -> None:
    """Raise RefusedError if clients of a listener do not connect to our address as to any broker.

    `security` is how they log in here, which is compared with the settings in `configs`; None if it is not compared.
    """
    configs, name = [*configs], str(address.listener)
    _refuse_clients(address, name, _broker_listeners(configs), brokers)
    _refuse_loopback([address], brokers)
    if security is not None:
        refuse_other_security(name, security, logins_of(name, configs))


def served_listeners(
    served: Iterable[Endpoint],
    endpoints: Collection[Endpoint],
    configs: Collection[BrokerConfig],
    brokers: Sequence[Broker],
    logins: Mapping[str, Security],
) -> tuple[frozenset[str | None], list[str]]:
    """Return the listeners whose clients are served, and why others are not.

    A listener of None stands for clients at the plain-text address of brokers. `served`: the endpoints of our server.
    `endpoints`: those announced to brokers. `logins`: how clients log in here, by listener.
    """
    listeners, reasons = set[str | None](), list[str]()
    for address in served:
        if address.listener is None and address.security_protocol != PLAINTEXT:
            continue
        try:
            if address.listener is None:
                refuse_plaintext_clients(endpoints, brokers)
            else:
                refuse_client_endpoint(address, configs, brokers, logins.get(address.listener))
            listeners.add(address.listener)
        except RefusedError as error:
            reasons.append(str(error))
    return frozenset(listeners), reasons


def refuse_plaintext_clients(endpoints: Iterable[Endpoint], brokers: Iterable[Broker]) -> None:
    """Raise RefusedError unless brokers have plain-text listeners at which clients see us without a login.

    `endpoints`: those announced to brokers. A client from which brokers require a login must not be served without one.
    """
    names = {endpoint.listener for endpoint in endpoints if endpoint.security_protocol == PLAINTEXT}
    theirs = {
        (str(endpoint.listener), endpoint.security_protocol): broker.broker_id
        for broker in brokers
        for endpoint in broker.endpoints or ()
        if endpoint.listener in names
    }
    effect = "requests of clients at the address of --listen, in plain text, are refused"
    for (name, protocol), broker in sorted(theirs.items()):
        if protocol != PLAINTEXT:
            raise RefusedError(f"broker {broker} uses {protocol} at its listener {name}: {effect}")
    if not theirs:
        raise RefusedError(f"no broker has a plain-text listener at which it looks for the controller: {effect}")


def listeners_without_controller(endpoints: Iterable[Endpoint], brokers: Iterable[Broker]) -> dict[str, str]:
    """Return the listeners of brokers whose clients do not find the controller, with their security protocols."""
    names = {endpoint.listener for endpoint in endpoints}
    listeners = _listener_protocols(brokers)
    return {name: protocol for name, protocol in sorted(listeners.items()) if name is not None and name not in names}


def _listener_protocols(brokers: Iterable[Broker]) -> dict[str | None, str]:
    return {endpoint.listener: endpoint.security_protocol for broker in brokers for endpoint in broker.endpoints or ()}


def _broker_listeners(configs: Iterable[BrokerConfig]) -> set[str]:
    """Return the listeners at which brokers look for the controller."""
    values = defaultdict[int, dict[str, str | None]](dict)
    for row in configs:
        values[row.broker_id][row.name] = row.value
    return {name for of_broker in values.values() for name in _listener_names(of_broker)}


def _refuse_clients(
    address: Endpoint, name: str, broker_listeners: Collection[str], brokers: Collection[Broker]
) -> None:
    """Raise RefusedError if clients cannot connect to an address as they do at their listener at each broker."""
    protocols = _listener_protocols(brokers)
    if name in broker_listeners:
        raise RefusedError(
            f"brokers look for the controller at their listener {name}: give its address without the name, "
            "--listen HOST:PORT, which serves its clients, too"
        )
    if protocols and name not in protocols:
        listener_names = ", ".join(sorted(map(str, protocols)))
        raise RefusedError(f"--listen {name}://HOST:PORT: no broker has this listener; they have {listener_names}")
    others = {
        endpoint.security_protocol
        for broker in brokers
        for endpoint in broker.endpoints or ()
        if endpoint.listener == name and endpoint.security_protocol != address.security_protocol
    }
    for protocol in sorted(others):
        raise RefusedError(
            f"--listen {name}://HOST:PORT: listener {name} of the brokers uses {protocol}, and this address "
            f"{address.security_protocol}: set {listener_key(name, PROTOCOL)}={protocol} in the file of --listen-config"
        )


def _refuse_loopback(endpoints: Sequence[Endpoint], brokers: Sequence[Broker]) -> None:
    """Raise RefusedError if a loopback address would be advertised to brokers of other hosts, or to their clients."""
    for endpoint in endpoints:
        for broker in brokers if is_loopback(endpoint.host) else ():
            elsewhere = [endpoint.host for endpoint in broker.endpoints or () if not is_loopback(endpoint.host)]
            if elsewhere:
                raise RefusedError(
                    f"brokers would connect to {endpoint.host}:{endpoint.port}, a loopback address, and broker "
                    f"{broker.broker_id} is at {elsewhere[0]}: give --listen or --advertise an address of this host "
                    "that brokers can reach"
                )


def _refuse_shared(endpoints: Sequence[Endpoint], brokers: Sequence[Broker], authorizer: str | None) -> None:
    """Raise RefusedError if clients would see us at a listener from which no request can be relayed to a broker.

    Clients take any broker of their listener for metadata. In plain text a broker responds to them through us; with TLS
    or SASL it would take them for us, and an authorizer would take their addresses for ours.
    """
    names = {endpoint.listener for endpoint in endpoints}
    secured = [endpoint for endpoint in endpoints if endpoint.security_protocol != PLAINTEXT]
    for broker in brokers:
        has_no_other = broker.endpoints and {endpoint.listener for endpoint in broker.endpoints} <= names
        if has_no_other and (secured or authorizer):
            listeners = ", ".join(sorted(map(str, names)))
            reason = (
                f"by {secured[0].security_protocol}"
                if secured
                else f"where brokers have an authorizer ({AUTHORIZER}={authorizer})"
            )
            raise RefusedError(
                f"broker {broker.broker_id} has no listener but {listeners}, so its clients would see "
                f"this process among the brokers, and cannot be served {reason}. Give the "
                f"brokers a listener of their own ({INTER_BROKER}), or keep Kafka's controller and use "
                "`surveyor reconcile`"
            )


def _listener_names(values: Mapping[str, str | None]) -> Iterable[str]:
    """Yield the names of the inter-broker listener and of the control-plane listener of a broker."""
    yield values.get(INTER_BROKER) or values.get(INTER_BROKER_PROTOCOL) or PLAINTEXT
    if control_plane := values.get(CONTROL_PLANE_LISTENER):
        yield control_plane
