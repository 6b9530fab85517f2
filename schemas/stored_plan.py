"""A stored plan with all its rows, and the outcome of a row once a commit has checked or written it."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from schemas.enums import Outcome, PlanStatus
from schemas.rows import Change, Operation, PlanRecord, PlanRow, RejectionRecord

BEGUN: Final = frozenset({PlanStatus.COMMITTING, PlanStatus.PARTIAL})
"""The statuses of a plan whose commit has begun and is not complete."""

OPEN: Final = BEGUN | {PlanStatus.PLANNED}
"""Statuses of plans of which rows may still be committed."""

CLOSED: Final = frozenset({PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK})
"""Final statuses; a commit that is still running does not overwrite them."""

_COMMITTABLE: Final = OPEN | {PlanStatus.COMMITTED}


class Transition(Enum):
    """A change of a plan's status: the status after it, and those before it from which it is allowed.

    A new plan is planned, or refused by the lint. That of a cycle of `surveyor control` has the status after its last
    transition when it is stored.
    """

    BEGIN = PlanStatus.COMMITTING, _COMMITTABLE
    """A commit records its intents, before it changes the cluster."""
    COMPLETE = PlanStatus.COMMITTED, _COMMITTABLE
    """A commit has ended, and every change is applied."""
    INTERRUPT = PlanStatus.PARTIAL, _COMMITTABLE
    """A commit has ended, and some change is not applied, or a request still runs."""
    FIND_STALE = PlanStatus.PLANNED, OPEN
    """A commit has ended, and every change that it checked is stale: no commit of the plan has applied anything."""
    FIND_COMPLETE = PlanStatus.COMMITTED, frozenset({PlanStatus.PARTIAL})
    """No commit runs, and the cluster shows every change."""
    OVERTAKE = PlanStatus.CANCELLED, frozenset({PlanStatus.PARTIAL})
    """No commit runs, and nothing of the plan can be carried out: later plans changed its partitions, or topics are
    gone."""
    CANCEL = PlanStatus.CANCELLED, _COMMITTABLE | {PlanStatus.CANCELLED}
    """A cancellation closes the plan, before it cancels what runs of it."""
    ROLL_BACK = PlanStatus.ROLLED_BACK, CLOSED | {PlanStatus.COMMITTED}
    """Every partition of the plan has its former assignment again."""

    def __init__(self, after: PlanStatus, before: frozenset[PlanStatus]) -> None:
        self.after = after
        self.before = before


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan and its rows, in commit order."""

    row: PlanRecord
    changes: list[Change]
    operations: list[Operation]
    rejections: list[RejectionRecord]
    given_name: str = ""
    """The id or name that the user gave."""

    @property
    def called(self) -> str:
        """The id or name that the user gave, else the id."""
        return self.given_name or self.plan_id

    @property
    def plan_id(self) -> str:
        return self.row.plan_id

    @property
    def title(self) -> str:
        return self.row.title

    @property
    def broker_epochs(self) -> dict[int, int | None]:
        """The broker epochs of the snapshot that the plan was made from, by broker."""
        return {broker.broker_id: broker.broker_epoch for broker in self.row.brokers}

    @property
    def tasks(self) -> list[Operation]:
        """The operations without a change; they are checked and recorded like changes."""
        return [operation for operation in self.operations if operation.is_standalone]

    @property
    def size(self) -> int:
        """Number of changes and standalone operations that a commit executes."""
        return len(self.changes) + len(self.tasks)


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of one change."""

    change: PlanRow
    outcome: Outcome
    message: str
    state_version_after: int | None = None
    """Version of the state znode after the write."""
    is_running: bool = False
    """Whether Kafka's controller still executes an earlier request for this change."""
    is_found: bool = False
    """Whether it was already applied when read, by a multi whose response was lost or by the previous controller."""
