"""The holder of a cluster's lease in /surveyor/commit, or of the resident controllership in /surveyor/control.

The lease is a znode or a row of the warehouse; the messages about it are the same and stand here.
"""

import msgspec
from msgspec import Struct

from schemas.znode_codecs import MalformedZnodeError


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


def decode_holder(data: bytes | str | None) -> LeaseHolder:
    """Decode a lease holder; raise MalformedZnodeError for anything else."""
    try:
        return msgspec.json.decode(data or b"", type=LeaseHolder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedZnodeError(str(error)) from None


def known_holder(data: bytes | str | None) -> LeaseHolder | None:
    """Decode a lease holder; return None if there is none, or if it is of another version."""
    try:
        return decode_holder(data)
    except MalformedZnodeError:
        return None


def holder_text(data: bytes | str | None) -> str:
    """Describe the holder of a lease."""
    return str(known_holder(data) or f"a process of another version ({data!r:.200})")


def holder_now(data: bytes | str | None) -> str:
    """Return the sentence on the present holder of a lost lease; `data` is None if it has none."""
    return "it has no holder now" if data is None else f"{holder_text(data)} has it now"


def waiting_text(holder: str, timeout_seconds: float, until: str = "") -> str:
    """Return the line that a wait for the lease begins with; `until` is empty or " until " and a time."""
    return (
        f"surveyor: {holder} has the lease of this cluster{until}; waiting for it, {timeout_seconds:g} s at most: the "
        "lease of a killed process ends within this time"
    )


def held_text(holder: str, place: str, advice: str, until: str = "") -> str:
    """Return why the lease, a znode or table called `place`, cannot be taken; `until` as in `waiting_text`."""
    return f"{holder} has the lease of this cluster ({place}){until}, and only one process may at a time: {advice}"


def held_advice(own: LeaseHolder, data: bytes | str | None) -> str:
    """Return what helps against another holder than this process. Only its own user is advised to interrupt it.

    >>> ann, bob = (LeaseHolder(user, "ops1", 7, "commit", "1f", "2026-11-22T06:00:00Z") for user in ("ann", "bob"))
    >>> held_advice(bob, encode_holder(ann))
    'wait until it is done (`surveyor verify 1f` shows how far it is), or ask ann@ops1, then run this again'
    >>> held_advice(ann, encode_holder(ann))
    'interrupt it and run this again: the requested moves continue, and this commit resumes from there'
    """
    other = known_holder(data)
    if other is None:
        return "wait until it is done, then run this again"
    is_ours = (other.user, other.host) == (own.user, own.host)
    if is_ours and own.plan and own.plan == other.plan:
        return "interrupt it and run this again: the requested moves continue, and this commit resumes from there"
    progress = f" (`surveyor verify {other.plan}` shows how far it is)" if other.plan else ""
    other_way = "interrupt it" if is_ours else f"ask {other.user}@{other.host}"
    return f"wait until it is done{progress}, or {other_way}, then run this again"


def held_now_text(own: LeaseHolder, holder: LeaseHolder) -> str:
    """Return why a write of this process would be refused now, and what helps."""
    return f"{holder} has the lease of this cluster: {held_advice(own, encode_holder(holder))}"


def lost_text(lease: str, reason: str) -> str:
    return (
        f"the {lease} was lost ({reason}). Nothing more is written; the requested moves continue in the cluster. Run "
        "the same command again to resume"
    )
