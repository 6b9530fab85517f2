"""Numbers of ACLs, quotas and SCRAM credentials of a KRaft cluster, by requests of the Admin API.

What a broker refuses to list, or has no authorizer to list, is unknown. Nothing but the numbers is kept.
"""

from typing import Any, Final

from kafka.protocol.admin import DescribeAclsRequest, DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest

from jobs.adapters.brokers.admin import NONE
from jobs.adapters.kraft.session import Session
from schemas.rows import SecurityCounts

_ANY: Final = 1
"""`ResourceType.ANY`, `PatternType.ANY`, `AclOperation.ANY` and `AclPermissionType.ANY`."""


def read_security_counts(session: Session) -> SecurityCounts:
    """Count what the broker lists."""
    return SecurityCounts(acls=_acls(session), quotas=_quotas(session), scram_credentials=_credentials(session))


def _acls(session: Session) -> int | None:
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
    return None if response.error_code != NONE else sum(len(resource.acls) for resource in response.resources)


def _quotas(session: Session) -> int | None:
    response: Any = session.ask(DescribeClientQuotasRequest(components=[], strict=False))
    return None if response.error_code != NONE else sum(len(entry.values) for entry in response.entries or [])


def _credentials(session: Session) -> int | None:
    """Count credentials; a client without DESCRIBE on the cluster does not ask, as Kafka 3.9 never answers it."""
    if session.may_not_describe_cluster:
        return None
    response: Any = session.ask(DescribeUserScramCredentialsRequest(users=None))
    if response.error_code != NONE:
        return None
    return sum(len(user.credential_infos) for user in response.results)
