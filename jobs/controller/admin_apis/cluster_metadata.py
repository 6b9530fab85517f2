"""Requests that any broker can answer, from clients whose requests cannot be relayed to a broker.

With TLS, SASL or an authorizer a broker would take the client for this process. Only a request for just the brokers
is handled here; admin clients send it to each node to which they connect. The others end the connection, and the client
asks another broker: an error in a response would be the result, and an API that is missing would end the client
(`KafkaAdminClient.Call.fail`, `NetworkClient.handleServerDisconnect`).
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.index import api_key_map, schema_name_map

from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.controller.admin_apis.requests import AdminApiContext
from jobs.controller.controller_endpoints import controller_node

METADATA: Final = 3
METADATA_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {METADATA: (1, 12)}
"""In version 0 an empty list means all topics."""

_OF_ANY_BROKER: Final = (
    *(0, 1, 2, METADATA),  # produce, fetch, offsets
    *range(8, 16),  # groups
    *range(21, 27),  # records, producers, transactions
    *range(28, 32),  # transactions, ACLs
    34,  # log dirs
    *range(38, 43),  # delegation tokens, groups
    *range(47, 51),  # groups, quotas, users
    *(60, 61, 65),  # the cluster, producers, transactions
)
"""The APIs of brokers of Kafka 2.4 to 3.9 in a ZooKeeper cluster that clients send to any broker or to a leader."""

REDIRECTED_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    **{api: (min(known), max(known)) for api in _OF_ANY_BROKER for known in [schema_name_map[api_key_map[api]]]},
    **METADATA_VERSIONS,
}


_NOT_REQUESTED: Final = -(2**31)
"""`MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED`."""


def asks_for_brokers(request: ApiMessage) -> bool:
    """Return whether a Metadata request, version 1 or later, names no topics; None means all of them."""
    return request.topics is not None and not request.topics


def brokers_metadata(api_context: AdminApiContext, version: int, _request: ApiMessage) -> ApiMessage:
    """Return the brokers of the client's listener, and this process as the controller among them."""
    live, controller_id = [*api_context.context.brokers.copy().values()], api_context.control.controller_id
    ours = controller_node(controller_id, api_context.endpoints, live)
    brokers = [
        response_entity(
            METADATA,
            version,
            "MetadataResponseBroker",
            node_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
        )
        for broker in (*live, ours)
        for endpoint in broker.endpoints or ()
        if broker.understood and endpoint.listener == api_context.listener
    ]
    return response_entity(
        METADATA,
        version,
        "MetadataResponse",
        brokers=tuple(brokers),
        cluster_id=api_context.cluster_id,
        controller_id=controller_id,
        topics=(),
        cluster_authorized_operations=_NOT_REQUESTED,
    )
