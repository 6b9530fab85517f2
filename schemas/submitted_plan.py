"""A plan submitted to `surveyor control`: the data of /surveyor/plans/PLAN, written by the commit and then answered.

While Surveyor is the controller of a cluster, no other process may be. A commit that would take over the controllership
submits its plan instead. The znode is an ephemeral of the commit's session.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from schemas.lease_holder import LeaseHolder
from schemas.znode_codecs import MalformedZnodeError


class PlanResult(Struct, frozen=True):
    """The result of a plan: what the commit shows, and its exit code."""

    exit_code: int
    result: dict[str, Any]
    lines: list[str]
    error: str | None = None
    """Reason why it was not executed; None if it was."""


class SubmittedPlan(Struct, frozen=True, kw_only=True):
    """A plan, the submitter, and the limits within which it may be executed.

    >>> holder = LeaseHolder("ann", "ops1", 7, "commit", "1f", "2026-11-22T06:00:00+00:00")
    >>> plan = SubmittedPlan(holder=holder, max_plan_age=60.0, max_changes=5)
    >>> decode_submitted(encode_submitted(plan)) == plan
    True
    """

    holder: LeaseHolder
    max_plan_age: float
    max_changes: int
    allow_majority_dead: bool = False
    detailed: bool = False
    """Whether stale rows by themselves affect the exit code."""
    run: str | None = None
    """The Airflow task that submits it."""
    is_begun: bool = False
    """Whether the controller has started it; from then on it continues even if the submitter is gone."""
    answer: PlanResult | None = None
    version: int = 1


def submission_of(session: int, data: bytes) -> str:
    """Identify a submitted plan by the session that owns its znode and by the znode's whole data.

    A commit records it in the warehouse, which other clients of ZooKeeper cannot write.

    >>> submission_of(255, b"{}")[:12], submission_of(255, b"{}") == submission_of(255, b"{ }")
    ('ff:44136fa35', False)
    """
    return f"{session:x}:{hashlib.sha256(data).hexdigest()}"


def encode_submitted(handed: SubmittedPlan) -> bytes:
    return msgspec.json.encode(handed)


def decode_submitted(data: bytes | None) -> SubmittedPlan:
    """Decode a submitted plan; raise MalformedZnodeError for anything else."""
    try:
        return msgspec.json.decode(data or b"", type=SubmittedPlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedZnodeError(str(error)) from None
