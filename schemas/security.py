"""Digests of ACLs, client quotas and SCRAM credentials: equal if the same are read from ZooKeeper and from KRaft.

A snapshot keeps a digest and no content. Each function takes the values of one row, as both sources report them, and
returns the row in one form; `digest` takes all rows, in any order.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping


def acl_row(*values: str) -> str:
    """Return an ACL: resource type, pattern, resource, principal, host, operation, permission.

    Names of enums are written in two ways: DescribeConfigs in ZooKeeper, DESCRIBE_CONFIGS in the Admin API.

    >>> acl_row("TransactionalId", "Literal", "t_1", "User:a", "*", "DescribeConfigs", "Allow")
    '["TRANSACTIONALID", "LITERAL", "t_1", "User:a", "*", "DESCRIBECONFIGS", "ALLOW"]'
    """
    resource_type, pattern, resource, principal, host, operation, permission = values
    enums = (name.replace("_", "").upper() for name in (resource_type, pattern, operation, permission))
    kind, matched_by, allowed, effect = enums
    return json.dumps([kind, matched_by, resource, principal, host, allowed, effect])


def quota_row(entity: Mapping[str, str | None], name: str, value: float) -> str:
    """Return a quota of an entity, by the types of its parts; the name of a default entity is None.

    >>> quota_row({"user": "a", "client-id": None}, "producer_byte_rate", 2048)
    '[{"client-id": null, "user": "a"}, "producer_byte_rate", 2048.0]'
    """
    return json.dumps([dict(entity), name, float(value)], sort_keys=True)


def credential_row(user: str, mechanism: str, iterations: int) -> str:
    """Return a SCRAM credential without its secret, which the Admin API does not report.

    >>> credential_row("a", "SCRAM-SHA-256", 4096)
    '["a", "SCRAM-SHA-256", 4096]'
    """
    return json.dumps([user, mechanism, iterations])


def digest(rows: Iterable[str]) -> str:
    """Return the SHA-256 of all rows, in hexadecimal digits; their order and repetitions do not count.

    >>> digest(["b", "a"]) == digest(["a", "b", "b"])
    True
    """
    return hashlib.sha256("\n".join(sorted(set(rows))).encode()).hexdigest()
