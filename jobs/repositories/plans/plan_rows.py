"""Builds the rows of `plans`, and derives the next status of a plan from the outcomes of its changes."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from msgspec.structs import replace

from jobs.adapters.delta.warehouse import AnyRow, Warehouse, columns_of, quote_literal
from jobs.repositories.plans import arrow_digest
from schemas.enums import Outcome, PlanKind, PlanStatus
from schemas.plan_digest import plan_header
from schemas.rows import BrokerEpoch, PlanRecord, Row
from schemas.stored_plan import Transition


class PlanRows(Protocol):
    """The rows of a plan without an id yet."""

    def summary(self, header: str) -> Row:
        """Return plan_id, changes, rejected and moves."""

    def write(self, plan_id: str) -> None:
        """Store the rows under the plan's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryRows:
    """Rows computed without Spark."""

    warehouse: Warehouse
    changes: Sequence[AnyRow]
    rejections: Sequence[AnyRow]
    operations: Sequence[AnyRow] = ()

    def summary(self, header: str) -> Row:
        return arrow_digest.summary(
            header, {table: arrow_digest.plan_in_arrow(table, rows) for table, rows in self._tables.items()}
        )

    def write(self, plan_id: str) -> None:
        for table, rows in self.of_plan(plan_id).items():
            self.warehouse.replace(table, rows, plan_condition(plan_id))

    def of_plan(self, plan_id: str) -> dict[str, list[Row]]:
        """Return the rows of each table under the plan's id."""
        owner = {"plan_id": plan_id, "cluster": self.warehouse.cluster}
        return {table: [{**columns_of(row), **owner} for row in rows] for table, rows in self._tables.items()}

    @property
    def _tables(self) -> dict[str, Sequence[AnyRow]]:
        return {"changes": self.changes, "operations": self.operations, "rejections": self.rejections}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """A plan's metadata; `broker_epochs` are the epochs of the live brokers."""

    kind: PlanKind
    parameters: dict[str, Any]
    snapshot_id: int
    cluster_id: str | None
    broker_epochs: Mapping[int, int | None]
    status: PlanStatus = PlanStatus.PLANNED
    command: str | None = None
    """The command line; it is not part of the plan's id, because different command lines can be equivalent."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def plan_row(cluster: str, header: PlanHeader, rows: PlanRows) -> PlanRecord:
    """Build the row of a plan, with its id and counts, which its rows determine."""
    plan = PlanRecord(
        plan_id="",
        cluster=cluster,
        names=[],
        snapshot_id=header.snapshot_id,
        kind=header.kind.value,
        parameters=parameters_json(header.parameters),
        created_at=header.created_at,
        status=header.status.value,
        command=header.command,
        cluster_id=header.cluster_id,
        brokers=[BrokerEpoch(broker_id=id_, broker_epoch=epoch) for id_, epoch in sorted(header.broker_epochs.items())],
    )
    return replace(plan, **rows.summary(plan_header(plan)))


def plan_condition(plan_id: str) -> str:
    """Return the SQL condition that selects a plan's rows."""
    return f"plan_id = {quote_literal(plan_id)}"


def parameters_json(parameters: dict[str, Any]) -> str:
    """Encode a plan's parameters as stored in `plans`."""
    return json.dumps(parameters, sort_keys=True)


def transition_after(outcomes: Collection[Outcome], size: int, *, stale_is_done: bool = False) -> Transition:
    """Return the transition of a plan with `size` changes and tasks after these outcomes.

    A stale change leaves a plan partial, as its goal is not reached, or planned if all changes are stale. A cycle of
    `surveyor control` has no goal beyond its due changes: a stale change is no longer due, and the next cycle decides
    on its partition.

    >>> transition_after([Outcome.APPLIED], 2).name, transition_after([Outcome.APPLIED, Outcome.STALE], 2).name
    ('INTERRUPT', 'INTERRUPT')
    >>> transition_after([Outcome.STALE], 2).name, transition_after([Outcome.STALE, Outcome.SKIPPED], 2).name
    ('FIND_STALE', 'INTERRUPT')
    >>> transition_after([Outcome.APPLIED, Outcome.STALE], 2, stale_is_done=True).name
    'COMPLETE'
    """
    finished = {Outcome.APPLIED, Outcome.STALE} if stale_is_done else {Outcome.APPLIED}
    if len(outcomes) == size and finished.issuperset(outcomes):
        return Transition.COMPLETE
    is_stale = not stale_is_done and {Outcome.STALE}.issuperset(outcomes)
    return Transition.FIND_STALE if is_stale else Transition.INTERRUPT
