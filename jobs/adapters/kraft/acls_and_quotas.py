"""ACLs, quotas and SCRAM credentials of a KRaft cluster, by requests of the Admin API.

Entries that a broker refuses to list, or cannot list without an authorizer, are unknown. A snapshot keeps only numbers
and digests.
"""

from typing import Any, Final

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType, ScramMechanism
from kafka.protocol.admin import DescribeAclsRequest, DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest

from jobs.adapters.kraft.session import UNSUPPORTED, BrokerSession
from schemas.response_codes import NO_ERROR
from schemas.security_digests import SecurityReading, acl_row, credential_row, quota_row

_ANY: Final = 1
"""`ResourceType.ANY`, `PatternType.ANY`, `AclOperation.ANY` and `AclPermissionType.ANY`."""


def read_security(session: BrokerSession) -> SecurityReading:
    """Read what the broker lists."""
    return SecurityReading(_acls(session), _quotas(session), _credentials(session))


def _acls(session: BrokerSession) -> list[str] | None:
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    response = session.ask(request)
    if response.error_code != NO_ERROR:
        return None
    return [
        acl_row(
            _name(ResourceType, resource.resource_type),
            _name(ACLResourcePatternType, resource.pattern_type),
            resource.resource_name,
            acl.principal,
            acl.host,
            _name(ACLOperation, acl.operation),
            _name(ACLPermissionType, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _name(enum: Any, code: int) -> str:  # noqa: ANN401 - kafka-python is untyped
    """Return the name of a code, or the code if kafka-python does not know it, as of a newer Kafka."""
    try:
        return str(enum(code).name)
    except ValueError:
        return str(code)


def _quotas(session: BrokerSession) -> list[str] | None:
    response: Any = session.ask(DescribeClientQuotasRequest(components=[], strict=False))
    if response.error_code != NO_ERROR:
        return None
    return [
        quota_row({part.entity_type: part.entity_name for part in entry.entity}, quota.key, quota.value)
        for entry in response.entries or []
        for quota in entry.values
    ]


def _credentials(session: BrokerSession) -> list[str] | None:
    """Return credentials; a client without DESCRIBE on the cluster does not ask, as Kafka 3.9 never answers it.

    Brokers before 3.5 have no such request in KRaft.
    """
    if session.may_not_describe_cluster:
        return None
    try:
        response: Any = session.ask(DescribeUserScramCredentialsRequest(users=None))
    except UNSUPPORTED:
        return None
    if response.error_code != NO_ERROR:
        return None
    return [
        credential_row(user.user, _name(ScramMechanism, credential.mechanism).replace("_", "-"), credential.iterations)
        for user in response.results
        for credential in user.credential_infos
    ]
