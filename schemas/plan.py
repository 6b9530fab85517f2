"""A stored plan with all its rows, and the outcome of a row once a commit has judged or written it."""

from dataclasses import dataclass
from typing import Final

from schemas.enums import Outcome, PlanStatus
from schemas.rows import Change, Operation, PlanRecord, PlanRow, RejectionRecord

CLOSED: Final = frozenset({PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK})
"""Final statuses; a commit that is still running does not overwrite them."""


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
    def tasks(self) -> list[Operation]:
        """The operations without a change; they are judged and recorded like changes."""
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
