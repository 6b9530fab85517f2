"""Which operation of a multi ZooKeeper refused, and why, in words for people.

A multi is all or nothing. In its answer the operations before the refused one say RolledBackError, those after it
RuntimeInconsistency; the one between them carries the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData, Transaction

from jobs.adapters.zookeeper.connection import forbidden

_NOT_THE_CAUSE: Final = (RolledBackError, RuntimeInconsistency)
_VERBS: Final = {Create.type: "create", Delete.type: "delete", SetData.type: "set", CheckVersion.type: "check"}


class TooLargeError(Exception):
    """A znode would not fit into a request; it is not sent, as ZooKeeper would close the connection over it."""


@dataclass(frozen=True, slots=True)
class MultiFailure:
    """An operation that ZooKeeper refused; without a path: the answer to the whole multi was lost."""

    operation: str
    path: str | None
    error: Exception

    @property
    def is_lost(self) -> bool:
        """Whether nobody heard what became of the multi."""
        return self.path is None

    @property
    def forbidden(self) -> bool:
        """Whether trying again is of no use: an ACL is in the way."""
        return isinstance(self.error, NoAuthError)

    @property
    def is_final(self) -> bool:
        """Whether it would be refused each time as long as nobody changes what there is."""
        return self.forbidden or isinstance(self.error, TooLargeError)

    def __str__(self) -> str:
        if self.is_lost:
            return (
                f"the connection was lost over {self.operation}, each time it was tried; ZooKeeper's log says why "
                "(it closes connections over requests larger than its jute.maxbuffer)"
            )
        if self.forbidden:
            return forbidden(f"{self.operation} {self.path}")
        if isinstance(self.error, TooLargeError):
            return f"cannot {self.operation} {self.path}: {self.error}"
        return f"ZooKeeper refused to {self.operation} {self.path} ({type(self.error).__name__})"


def multi_failure(multi: TransactionRequest, results: Sequence[Any]) -> MultiFailure | None:
    """Return what was refused of a multi, None where it was done."""
    for operation, result in zip(multi.operations, results, strict=False):
        if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
            path = operation.path.removeprefix(multi.client.chroot)
            return MultiFailure(_VERBS[operation.type], path, result)
    return None


def lost(multi: TransactionRequest, error: Exception) -> MultiFailure:
    """Say that the answer to a multi was lost."""
    return MultiFailure(f"a multi of {multi_bytes(multi)} bytes", None, error)


def multi_bytes(multi: TransactionRequest) -> int:
    """Bytes of a multi on the wire."""
    return len(Transaction(multi.operations).serialize())
