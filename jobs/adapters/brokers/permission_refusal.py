"""Refusals of brokers with an authorizer, and the permission that a client lacks."""

from typing import Final

from jobs.adapters.brokers.admin_client import error_name

NEEDS: Final = "this client needs the permission"
"""Beginning of messages about a missing permission; its name follows."""

NOT_PERMITTED: Final = frozenset({29, 31})
"""TOPIC_AUTHORIZATION_FAILED and CLUSTER_AUTHORIZATION_FAILED."""


def refusal(code: int, resource: str, operation: str = "DESCRIBE") -> str:
    """Describe a broker's error code; for a missing permission, name the one that is needed.

    >>> refusal(31, "cluster")
    'ClusterAuthorizationFailedError (31): this client needs the permission DESCRIBE on the cluster'
    """
    needs = f": {NEEDS} {operation} on the {resource}" if code in NOT_PERMITTED else ""
    return f"{error_name(code)}{needs}"
