"""The operations of a multi as values (check, create, set and delete), and their translation to kazoo's operations.

Code that decides what to write returns these values and needs no server, so it can be tested separately. Paths are
relative to the chroot.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from kazoo.client import TransactionRequest
from kazoo.protocol import serialization
from kazoo.security import ACL, OPEN_ACL_UNSAFE

ANY_VERSION: Final = -1

_EPHEMERAL: Final = 1
_SEQUENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Check:
    """Require that the znode exists at this version; with ANY_VERSION, at any version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode that must not exist; without data it is null, as Kafka creates parents."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Set the data of a znode that must exist at this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode that must exist at this version."""

    path: str
    version: int = ANY_VERSION


Op = Check | Create | SetData | Delete


def create_or_set(path: str, data: bytes, version: int | None) -> Create | SetData:
    """Return the operation that writes a znode: at this version, or with None one that must not exist."""
    return Create(path, data) if version is None else SetData(path, data, version)


def add(multi: TransactionRequest, ops: Iterable[Op]) -> None:
    """Add operations to a multi; created znodes get the client's default ACL.

    kazoo's own methods are not used, because joining paths in them takes longer than everything else, and they refuse
    null data.
    """
    chroot, acl = multi.client.chroot, multi.client.default_acl or OPEN_ACL_UNSAFE
    for op in ops:
        multi._add(_kazoo_operation(op, chroot + op.path, acl), None)  # noqa: SLF001 - kazoo has no public way


def _kazoo_operation(op: Op, path: str, acl: list[ACL]) -> object:
    match op:
        case SetData():
            return serialization.SetData(path, op.data, op.version)
        case Check():
            return serialization.CheckVersion(path, op.version)
        case Create():
            flags = _EPHEMERAL * op.ephemeral | _SEQUENCE * op.sequence
            return serialization.Create(path, op.data, acl, flags)
        case Delete():
            return serialization.Delete(path, op.version)
        case _:
            assert_never(op)
