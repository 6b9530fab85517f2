"""Requests that any broker can answer, from clients whose requests cannot be relayed to a broker.

With TLS, SASL or an authorizer a broker would take the client for this process. Such a request ends the connection, and
the client asks another broker: an error in a response would be the result, and an API that is missing would end the
client (`KafkaAdminClient.Call.fail`, `NetworkClient.handleServerDisconnect`).
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.index import api_key_map, schema_name_map

from jobs.controller.admin_apis.cluster_metadata import METADATA, METADATA_VERSIONS

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
