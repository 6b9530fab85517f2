"""The holder of a cluster's lease in /surveyor/commit, or of the resident controllership in /surveyor/control."""

import msgspec
from msgspec import Struct

from schemas.znodes import MalformedZnodeError


class LeaseHolder(Struct, frozen=True):
    """`{"version":1,"user":"u","host":"h","pid":7,"command":"commit","plan":"1f…","since":"2026-11-22T06:00:00+00:00"}`.

    >>> holder = LeaseHolder("ann", "ops1", 7, "commit", "1f", "2026-11-22T06:00:00+00:00")
    >>> decode_holder(encode_holder(holder)) == holder
    True
    >>> print(holder)
    ann@ops1 (process 7) since 2026-11-22T06:00:00+00:00, for `surveyor commit 1f`
    """

    user: str
    host: str
    pid: int
    command: str
    plan: str
    since: str
    version: int = 1

    def __str__(self) -> str:
        user = f"{self.user}@{self.host} (process {self.pid})"
        return f"{user} since {self.since}, for `surveyor {self.command}{' ' * bool(self.plan)}{self.plan}`"


def encode_holder(holder: LeaseHolder) -> bytes:
    return msgspec.json.encode(holder)


def decode_holder(data: bytes | None) -> LeaseHolder:
    """Decode a lease holder; raise MalformedZnodeError for anything else."""
    try:
        return msgspec.json.decode(data or b"", type=LeaseHolder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedZnodeError(str(error)) from None
