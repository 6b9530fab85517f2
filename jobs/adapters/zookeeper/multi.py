"""What a multi does, as values: checked, created, set and deleted znodes, and the one place that makes kazoo's of them.

Whoever decides what to write returns these and touches no server, so that it can be read and tested as it stands.
Paths are those below the chroot.
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
    """The znode exists, at this version; ANY_VERSION: at whichever."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The znode does not exist, and is made; without data it is null, as Kafka makes parents."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """The znode exists at this version, and gets other data."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """The znode exists at this version, and goes."""

    path: str
    version: int = ANY_VERSION


Op = Check | Create | SetData | Delete


def add(multi: TransactionRequest, ops: Iterable[Op]) -> None:
    """Add operations to a multi.

    What is created has the ACL that the client was told to give. Not by its own methods: their joining of paths takes
    longer than all the rest, and they refuse null data.
    """
    chroot, acl = multi.client.chroot, multi.client.default_acl or OPEN_ACL_UNSAFE
    for op in ops:
        multi._add(_kazoo_operation(op, chroot + op.path, acl), None)  # noqa: SLF001 - kazoo has no other door


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
