"""Fenced writes as tests make them: under a controllership of their own, with all that came out of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.protocol.serialization import CheckVersion

from jobs.adapters.zookeeper import connection as zookeeper
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.core.errors import FencedError
from jobs.execution.batch.fenced_writer import FencedWriter
from schemas.enums import Outcome
from schemas.rows import Change
from schemas.stored_plan import Plan, RowOutcome

OURS = 2147483647


@dataclass
class Written:
    """What came out of a writer, and how it ended."""

    rows: list[RowOutcome] = field(default_factory=list)
    error: Exception | None = None

    @property
    def outcomes(self) -> dict[int, Outcome]:
        assert len({row.change.partition for row in self.rows}) == len(self.rows)
        return {row.change.key[1]: row.outcome for row in self.rows}

    def message(self, partition: int) -> str:
        return next(row.message for row in self.rows if row.change.partition == partition)


def write(
    control: Controllership,
    plan: Plan,
    changes: list[Change] | None = None,
    then: Callable[[], object] | None = None,
    batch_changes: int = 1000,
) -> Written:
    """Write a plan, or some of it; `then` happens once the first batch is written."""
    written = Written()
    writer = FencedWriter(control, max_hold=30, plan=plan, batch_changes=batch_changes)
    try:
        for outcomes in writer.write(plan.changes if changes is None else changes, plan.broker_epochs):
            written.rows += outcomes
            if then is not None:
                then()
                then = None
    except (FencedError, SessionLostError) as error:
        written.error = error
    return written


@dataclass(slots=True)
class Multis:
    """Sends the multis of all controllerships, by a function that a test may replace."""

    commit: Callable[[TransactionRequest], Any] = zookeeper.commit

    def send(self, multi: TransactionRequest) -> Any:  # noqa: ANN401 - as the original
        return self.commit(multi)

    def before(self, *happenings: Callable[[], object]) -> None:
        """Let something happen right before each of the next multis, when all that is read has been read."""
        pending = list(happenings)

        def commit(multi: TransactionRequest) -> Sequence[Any]:
            if pending and is_fenced(multi):
                pending.pop(0)()
            return zookeeper.commit(multi)

        self.commit = commit


def is_fenced(multi: TransactionRequest) -> bool:
    """Whether a multi is written under the controllership, and not its take-over."""
    return isinstance(multi.operations[0], CheckVersion)
