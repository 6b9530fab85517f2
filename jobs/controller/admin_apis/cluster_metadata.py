"""Metadata of just the brokers, which admin clients request from each node to which they connect."""

from collections.abc import Mapping
from typing import Final

from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.controller.admin_apis.requests import AdminApiContext
from jobs.controller.controller_endpoints import controller_node

METADATA: Final = 3
METADATA_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {METADATA: (1, 12)}
"""In version 0 an empty list means all topics."""

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
