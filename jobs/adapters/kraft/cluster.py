"""Brokers, features, running reassignments and dynamic broker configs of a KRaft cluster, from one of its brokers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeClusterRequest, DescribeConfigsRequest, ListPartitionReassignmentsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.adapters.brokers.fanout import Ask
from jobs.adapters.brokers.permission_refusal import NOT_PERMITTED, refusal
from jobs.adapters.kraft.session import BrokerSession
from schemas.enums import RequestKind
from schemas.replica_assignment import ReplicaAssignment
from schemas.response_codes import NO_ERROR
from schemas.rows import Broker, Key, ZnodeRequest
from schemas.znode_codecs import Endpoint

REASSIGNMENTS: Final = "ListPartitionReassignments"
"""The request that lists running reassignments; in `requests` and `quarantine` it stands for their znode."""

Reassignments = Mapping[Key, ReplicaAssignment]
"""Running reassignments by topic and partition."""

METADATA_VERSION: Final = "metadata.version"

FENCED_SINCE: Final = 2
"""Version of DescribeCluster that lists fenced brokers and marks them (Kafka 4.0); earlier ones leave them out."""

_CONTROLLER_TIMEOUT_MS: Final = 20_000
_DYNAMIC_DEFAULT: Final = 3
"""`config_source` of a dynamic setting of all brokers (DYNAMIC_DEFAULT_BROKER_CONFIG)."""


class RefusedReadError(Exception):
    """A broker refused a request; the message has the reason."""


class NotPermittedError(RefusedReadError):
    """A broker refused a request because this client lacks a permission."""


def refused(code: int, resource: str, operation: str = "DESCRIBE") -> RefusedReadError:
    """Return the error for a broker's error code."""
    kind = NotPermittedError if code in NOT_PERMITTED else RefusedReadError
    return kind(refusal(code, resource, operation))


def read_cluster(session: BrokerSession, protocol: str) -> tuple[str | None, list[Broker]]:
    """Return the cluster's id and its brokers, with their endpoints on the listener of this connection.

    `protocol` is the security protocol of that listener, whose name no response has.
    """
    response = session.ask(DescribeClusterRequest(include_fenced_brokers=True))
    if response.error_code != NO_ERROR:
        raise refused(response.error_code, "cluster")
    marks_fenced = response.API_VERSION >= FENCED_SINCE
    brokers = [
        Broker(
            broker_id=row.broker_id,
            host=row.host,
            port=row.port,
            endpoints=[Endpoint(None, protocol, row.host, row.port)],
            rack=row.rack,
            understood=True,
            fenced=bool(row.is_fenced) if marks_fenced else None,
        )
        for row in sorted(response.brokers, key=lambda row: int(row.broker_id))
    ]
    return response.cluster_id or None, brokers


def read_last_applied(ask: Ask) -> int:
    """Return the offset of the last record of the metadata log that a broker has applied, -1 if it reports none."""
    return int(ask(_features()).finalized_features_epoch)


def _features() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="surveyor", client_software_version="1", min_version=3)


def read_metadata_version(session: BrokerSession) -> int | None:
    """Return the finalized level of metadata.version, None if the broker does not report it."""
    features = session.ask(_features()).finalized_features or []
    return next((int(row.max_version_level) for row in features if row.name == METADATA_VERSION), None)


def read_moves(session: BrokerSession, keys: Iterable[Key] | None = None) -> Reassignments:
    """Return the running reassignments by partition, for all or some partitions.

    Raise RefusedReadError if they are not listed.
    """
    if not session.has_controller:
        raise RefusedReadError(str(session.quorum_fault))
    topics = None if keys is None else _topics_of(keys)
    response = session.ask(ListPartitionReassignmentsRequest(timeout_ms=_CONTROLLER_TIMEOUT_MS, topics=topics))
    if response.error_code != NO_ERROR:
        raise refused(response.error_code, "cluster")
    return {
        (topic.name, row.partition_index): ReplicaAssignment(
            list(row.replicas), list(row.adding_replicas), list(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }


def _topics_of(keys: Iterable[Key]) -> list[Any]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in keys:
        numbers[topic].append(partition)
    row = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    return [row(name=topic, partition_indexes=partitions) for topic, partitions in numbers.items()]


def request_rows(moves: Reassignments) -> list[ZnodeRequest]:
    """Return running reassignments as rows of REQUESTS, with their targets."""
    return [
        ZnodeRequest(
            kind=RequestKind.REASSIGN.value,
            topic=topic,
            partition=partition,
            replicas=move.target,
            path=f"{REASSIGNMENTS}/{topic}/{partition}",
        )
        for (topic, partition), move in sorted(moves.items())
    ]


def read_default_settings(session: BrokerSession, names: list[str]) -> dict[str, str | None]:
    """Return the dynamic settings of all brokers among `names`; raise RefusedReadError if they are not readable."""
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.BROKER, "", names)])
    (result,) = session.ask(request).results
    if result.error_code != NO_ERROR:
        raise refused(result.error_code, "cluster", "DESCRIBE_CONFIGS")
    defaults = (row for row in result.configs if int(row.config_source) == _DYNAMIC_DEFAULT)
    return {row.name: row.value for row in defaults if row.name in names}
