"""A plan handed in to `surveyor control`: what stands in /surveyor/plans/PLAN, first from the commit, then answered.

While Surveyor is the controller of a cluster, nobody else may be: a commit that would take the controllership over
hands its plan in instead. The znode is the commit's own and goes with its session.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from schemas.lease import LeaseHolder
from schemas.znodes import MalformedZnodeError


class PlanResult(Struct, frozen=True):
    """What came of a plan: what the commit shows, and the code it exits with."""

    exit_code: int
    result: dict[str, Any]
    lines: list[str]
    error: str | None = None
    """Why it was not carried out; None where it was."""


class SubmittedPlan(Struct, frozen=True, kw_only=True):
    """A plan, who hands it in, and within which limits it is to be carried out.

    >>> holder = LeaseHolder("ann", "ops1", 7, "commit", "1f", "2026-11-22T06:00:00+00:00")
    >>> some = SubmittedPlan(holder=holder, max_plan_age=60.0, max_changes=5)
    >>> decode_submitted(encode_submitted(some)) == some
    True
    """

    holder: LeaseHolder
    max_plan_age: float
    max_changes: int
    allow_majority_dead: bool = False
    detailed: bool = False
    """Whether stale rows alone are to be told by the exit code."""
    run: str | None = None
    """The task of Airflow's that hands it in."""
    is_begun: bool = False
    """Whether the controller carries it out: from then on it does so whoever waits."""
    answer: PlanResult | None = None
    version: int = 1


def submission_of(session: int, data: bytes) -> str:
    """Identify a submitted plan: by the session that owns its znode, and by all that the znode says.

    A commit records it in the warehouse, which other clients of ZooKeeper cannot write.

    >>> submission_of(255, b"{}")[:12], submission_of(255, b"{}") == submission_of(255, b"{ }")
    ('ff:44136fa35', False)
    """
    return f"{session:x}:{hashlib.sha256(data).hexdigest()}"


def encode_submitted(handed: SubmittedPlan) -> bytes:
    return msgspec.json.encode(handed)


def decode_submitted(data: bytes | None) -> SubmittedPlan:
    """Read what was handed in; raise MalformedZnodeError where it is something else."""
    try:
        return msgspec.json.decode(data or b"", type=SubmittedPlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedZnodeError(str(error)) from None
