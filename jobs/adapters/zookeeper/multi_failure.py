"""The operation of a multi that ZooKeeper refused, with a message for people.

A multi is all or nothing. In its response the operations before the refused one have RolledBackError, those after it
RuntimeInconsistency, and the refused one has the reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization as sent

from jobs.adapters.zookeeper.multi_operations import Create, Op, SetData
from jobs.adapters.zookeeper.znode_reads import forbidden
from schemas.znode_size import ZNODE_LIMIT, ZNODE_LIMIT_REASON

_NOT_THE_CAUSE: Final = (RolledBackError, RuntimeInconsistency)
_VERBS: Final = {
    sent.Create.type: "create",
    sent.Delete.type: "delete",
    sent.SetData.type: "set",
    sent.CheckVersion.type: "check",
}


class TooLargeError(Exception):
    """A znode does not fit into a request; it is not sent, because ZooKeeper would close the connection."""


@dataclass(frozen=True, slots=True)
class MultiFailure:
    """An operation that ZooKeeper refused; without a path, the response to the whole multi was lost."""

    operation: str
    path: str | None
    error: Exception

    @property
    def is_lost(self) -> bool:
        """Whether the outcome of the multi is unknown."""
        return self.path is None

    @property
    def is_forbidden(self) -> bool:
        """Whether an ACL forbids the operation, so a retry is useless."""
        return isinstance(self.error, NoAuthError)

    @property
    def is_final(self) -> bool:
        """Whether a retry would be refused as long as the cluster does not change."""
        return self.is_forbidden or isinstance(self.error, TooLargeError)

    def __str__(self) -> str:
        if self.is_lost:
            return (
                f"lost the ZooKeeper connection on every attempt to send {self.operation}; "
                "check ZooKeeper's log and jute.maxbuffer"
            )
        if self.is_forbidden:
            advice = "if Surveyor may read but not write, run `surveyor commit --mode admin`"
            return f"{forbidden(f'{self.operation} {self.path}')}; {advice}"
        if isinstance(self.error, TooLargeError):
            return f"cannot {self.operation} {self.path}: {self.error}"
        return f"ZooKeeper refused to {self.operation} {self.path} ({type(self.error).__name__})"


def multi_failure(multi: TransactionRequest, results: Sequence[Any]) -> MultiFailure | None:
    """Return the refused operation of a multi, None if it was done."""
    for operation, result in zip(multi.operations, results, strict=False):
        if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
            path = operation.path.removeprefix(multi.client.chroot)
            return MultiFailure(_VERBS[operation.type], path, result)
    return None


def lost_response(multi: TransactionRequest, error: Exception) -> MultiFailure:
    """Return the failure of a multi whose response was lost."""
    return MultiFailure(f"a transaction of {multi_bytes(multi)} bytes", None, error)


def multi_bytes(multi: TransactionRequest) -> int:
    """Return the size of a multi on the wire, in bytes."""
    return len(sent.Transaction(multi.operations).serialize())


def too_large(ops: Iterable[Op]) -> MultiFailure | None:
    """Find a znode whose new content exceeds a request: a moving partition names its replicas three times."""
    for op in ops:
        size_of_data = len(op.data or b"") if isinstance(op, (Create, SetData)) else 0
        if size_of_data > ZNODE_LIMIT:
            verb = "set" if isinstance(op, SetData) else "create"
            reason = (
                f"it would take {size_of_data:,} bytes, more than {ZNODE_LIMIT:,}: "
                f"{ZNODE_LIMIT_REASON}; move fewer at once"
            )
            return MultiFailure(verb, op.path, TooLargeError(reason))
    return None
