"""Digests of ACLs, client quotas and SCRAM credentials; ZooKeeper and KRaft give the same digest for the same content.

A snapshot keeps digests and no content: one of all rows of a kind, and one for each resource, entity or user. The
functions for rows take the values of one, as both sources report them; `digest` takes many rows, in any order.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.enums import SecurityKind
from schemas.rows import Row, SecurityEntry


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


@dataclass(frozen=True, slots=True)
class SecurityReading:
    """All rows of each kind; None for a kind that could not be read."""

    acls: Sequence[str] | None
    quotas: Sequence[str] | None
    credentials: Sequence[str] | None

    @property
    def counts(self) -> Row:
        """The numbers and digests of all rows, as columns of SNAPSHOTS: what a migration is proved to keep."""
        acls, quotas, credentials = self.acls, self.quotas, self.credentials
        return {
            "acls": _count(acls),
            "quotas": _count(quotas),
            "scram_credentials": _count(credentials),
            "acls_digest": _digest(acls),
            "quotas_digest": _digest(quotas),
            "scram_digest": _digest(credentials),
        }

    @property
    def entries(self) -> list[SecurityEntry]:
        """The rows of SECURITY."""
        kinds = {SecurityKind.ACL: self.acls, SecurityKind.QUOTA: self.quotas, SecurityKind.SCRAM: self.credentials}
        return [entry for kind, rows in kinds.items() for entry in entries_of(kind, rows or ())]


def _count(rows: Sequence[str] | None) -> int | None:
    return None if rows is None else len(rows)


def _digest(rows: Sequence[str] | None) -> str | None:
    return None if rows is None else digest(rows)


def entries_of(kind: SecurityKind, rows: Iterable[str]) -> list[SecurityEntry]:
    """Return one entry for each resource pattern, quota entity or user.

    >>> rows = [acl_row("Topic", "Literal", "t", user, "*", "Read", "Allow") for user in ("User:a", "User:b")]
    >>> [(entry.subject, entry.entries) for entry in entries_of(SecurityKind.ACL, rows)]
    [('TOPIC t (LITERAL)', 2)]
    >>> rows = [quota_row({"user": "a", "client-id": None}, "producer_byte_rate", 2048)]
    >>> [entry.subject for entry in entries_of(SecurityKind.QUOTA, rows)]
    ['client-id <default>, user a']
    """
    rows_by_subject: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        rows_by_subject[_subject(kind, json.loads(row))].append(row)
    return [
        SecurityEntry(kind=kind.value, subject=subject, entries=len(some), digest=digest(some))
        for subject, some in sorted(rows_by_subject.items())
    ]


def _subject(kind: SecurityKind, values: Sequence[Any]) -> str:
    match kind:
        case SecurityKind.ACL:
            resource_type, pattern, resource, *_ = values
            return f"{resource_type} {resource} ({pattern})"
        case SecurityKind.QUOTA:
            parts = (f"{part} {DEFAULT_ENTITY if name is None else name}" for part, name in values[0].items())
            return ", ".join(parts)
        case SecurityKind.SCRAM:
            return str(values[0])
