"""The commit log: intents are recorded before the cluster is changed, outcomes after it.

Rows of `commits` are only appended. An attempt that was killed leaves its intents pending. The next attempt reads the
cluster, not the log, to determine what was done.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.core.arrow_rows import values_of
from jobs.core.errors import RefusedError, SurveyorError
from jobs.repositories.actor import Actor, this_actor
from jobs.repositories.drained_brokers import add, remove
from jobs.repositories.plans.commit_rows import CHANGE_COLUMNS, AuditEntry, CommitRows, next_attempt
from jobs.repositories.plans.plan_rows import transition_after
from jobs.repositories.plans.plans_writer import apply_transition, record_verified
from jobs.runtime.console import log
from schemas.enums import Outcome, PlanKind, PlanStatus, Step
from schemas.rows import CommitRecord, PlanRecord, PlanRow
from schemas.stored_plan import CLOSED, Plan, RowOutcome, Transition

STOPPED: Final = "the commit stopped before it"
"""Why changes have no outcome of their own."""


@dataclass(slots=True)
class CommitLog:
    """The log of one attempt to commit a plan."""

    warehouse: Warehouse
    plan: Plan
    author: Actor
    outcomes: list[RowOutcome] = field(default_factory=list)
    already_decided: int = 0
    """Number of outcomes that were already applied before this attempt wrote anything."""
    controller_epoch: int | None = None
    """Epoch of this process while it is and remains the controller, else None."""
    broker_epochs: Mapping[int, int | None] = field(default_factory=dict)
    """Broker epochs of the brokers registered when the attempt starts."""
    written_under: int | None = None
    """Epoch under which this attempt writes or wrote as controller; None if it submits to Kafka's controller."""
    intents_written: bool = False
    blocked: str = ""
    """What keeps requested reassignments from proceeding, as a broker that is not live; empty if it is not known."""
    unfinished: bool = False
    """Whether a request still runs, after which the plan has more to do."""
    unanswered: bool = False
    """Whether none of the notified brokers accepted what was written."""
    throttle_left: bool = False
    """Whether the throttle of the plan could not be removed, though none of its replicas move."""
    _attempt: int | None = None
    _has_drained: bool = False
    """Whether this attempt has marked brokers as drained."""

    @property
    def attempt(self) -> int:
        """Number of this attempt, assigned at the first record; concurrent attempts get different numbers."""
        if self._attempt is None:
            self._attempt = next_attempt(self.warehouse, self.plan.plan_id)
        return self._attempt

    @classmethod
    def open(cls, warehouse: Warehouse, plan: Plan, author: Actor | None = None) -> "CommitLog":
        """Start an attempt on behalf of an author; the default is the user of this process."""
        for table in ("commits", "plans"):
            warehouse.ensure_columns(table)
        return cls(warehouse, plan, author or this_actor())

    def append_intents(self, changes: Sequence[PlanRow]) -> None:
        """Record the intents and the status `committing`; raise RefusedError if the plan was closed."""
        self.refuse_closed()
        self.intents_written = True
        self._rows.append_intents(changes)
        self._has_drained = add(self.warehouse, self.plan.row, self.controller_epoch, self.broker_epochs)
        apply_transition(self.warehouse, self.plan.plan_id, Transition.BEGIN)

    def refuse_closed(self) -> None:
        """Raise RefusedError if the plan was cancelled or rolled back since it was read."""
        (row,) = self.warehouse.typed_rows(PlanRecord, ("plan_id", "=", self.plan.plan_id))
        if row.status in CLOSED:
            raise RefusedError(
                f"plan {self.plan.title} {closed_line(self.warehouse, row)}: nothing more of it is submitted; "
                "plan again"
            )

    @property
    def is_closed(self) -> bool:
        """Whether the plan was cancelled or rolled back since it was read."""
        (row,) = self.warehouse.typed_rows(PlanRecord, ("plan_id", "=", self.plan.plan_id))
        return row.status in CLOSED

    def step(self, step: Step, outcome: Outcome, message: str) -> None:
        """Append a step without a partition: a take-over or release of the controllership, or a cancellation."""
        self._rows.append([AuditEntry(step, message, outcome=outcome)])

    def set_preflight_outcomes(self, settled: Sequence[RowOutcome]) -> None:
        """Replace the outcomes by the outcomes of changes that need no write."""
        self.outcomes = [*settled]
        self.already_decided = len(self.of(Outcome.APPLIED))

    def begin_again(self, settled: Sequence[RowOutcome]) -> None:
        """Restart as a new attempt, after commits that happened in the meantime, with only these outcomes."""
        self._attempt = None
        self.set_preflight_outcomes(settled)

    def add_outcomes(self, outcomes: Iterable[RowOutcome]) -> None:
        """Add outcomes of changes; `close` writes them."""
        self.outcomes += outcomes

    def undecided(self, pending: Iterable[PlanRow]) -> list[PlanRow]:
        """Return the rows without an outcome."""
        decided = {outcome.change.place for outcome in self.outcomes}
        return [row for row in pending if row.place not in decided]

    def skip_undecided(self, pending: Iterable[PlanRow], reason: str = STOPPED) -> None:
        """Add outcomes for the rows that have none, because the commit ends before processing them."""
        self.add_outcomes([RowOutcome(row, Outcome.SKIPPED, reason) for row in self.undecided(pending)])

    def replace_outcomes(self, outcomes: Iterable[RowOutcome]) -> None:
        """Replace the outcomes of the same changes, such as accepted requests that failed later."""
        newer = {outcome.change.place: outcome for outcome in outcomes}
        if newer:
            self.outcomes = [newer.get(outcome.change.place, outcome) for outcome in self.outcomes]

    def close(self) -> None:
        """Write the outcomes and the plan's new status; an attempt refused before it started writes nothing."""
        transition = transition_after(
            [outcome.outcome for outcome in self.outcomes],
            self.plan.size,
            stale_is_done=self.plan.row.kind == PlanKind.CANCEL,
        )
        drains = transition is Transition.COMPLETE and self._drained()
        if not (self.intents_written or self.outcomes or drains):
            return
        self._rows.append(self.outcomes)
        if transition is Transition.FIND_STALE:
            is_begun = self._has_drained or has_begun(self.warehouse, self.plan.plan_id)
            transition = Transition.INTERRUPT if is_begun else transition
        elif self.unfinished:
            transition = Transition.INTERRUPT
        apply_transition(self.warehouse, self.plan.plan_id, transition)

    def _drained(self) -> bool:
        """Mark or unmark drained brokers; return whether the plan is a drain or an undrain."""
        drains = add(self.warehouse, self.plan.row, self.controller_epoch, self.broker_epochs)
        return drains or remove(self.warehouse, self.plan.row)

    def counts(self) -> dict[str, int]:
        """Count the outcomes."""
        return count_outcomes(self.outcomes)

    def of(self, outcome: Outcome) -> list[RowOutcome]:
        return [row for row in self.outcomes if row.outcome is outcome]

    @property
    def _rows(self) -> CommitRows:
        return CommitRows(self.warehouse, self.plan.plan_id, self.attempt, self.author, self.written_under)


def count_outcomes(outcomes: Sequence[RowOutcome]) -> dict[str, int]:
    """Count rows by outcome, including outcomes that did not occur."""
    counted = Counter(row.outcome for row in outcomes)
    return {outcome.value: counted[outcome] for outcome in Outcome if outcome is not Outcome.PENDING}


def closed_line(warehouse: Warehouse, plan: PlanRecord) -> str:
    """Return when and by which user a plan was cancelled or rolled back, as recorded."""
    if plan.status == PlanStatus.ROLLED_BACK:
        reassignments = warehouse.typed_rows(PlanRecord, ("kind", "=", PlanKind.REASSIGN.value))
        rollbacks = [row for row in reassignments if row.options.get("rollback_of") == plan.plan_id]
        commits = [
            row for plan in rollbacks for row in warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id))
        ]
        return f"was rolled back{_recorded(commits)}"
    if plan.status_reason is not None:
        return f"is {plan.state}"
    steps = warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id))
    return f"was cancelled{_recorded([row for row in steps if row.action == Step.CANCEL])}"


def _recorded(rows: Sequence[CommitRecord]) -> str:
    if not rows:
        return ""
    last = max(rows, key=attrgetter("committed_at"))
    run = f" ({last.run})" if last.run else ""
    return f" by {last.who}{run} at {last.committed_at:%Y-%m-%d %H:%M:%S} UTC"


_NOTHING_DONE: Final = frozenset({Outcome.STALE.value, Outcome.SKIPPED.value})
"""Outcomes of changes that were not requested, even if there is an intent."""


def requested_changes(warehouse: Warehouse, plan_id: str) -> set[tuple[int, str, int]]:
    """Return wave, topic and partition of changes that commits of a plan requested, or may have before a crash.

    Changes that were already applied when a commit started, that were stale or that it never reached are excluded.
    """
    outcomes: dict[tuple[int, tuple[int, str, int]], set[str]] = {}
    for row in warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan_id)):
        if row.change is not None:
            outcomes.setdefault((row.attempt, row.change), set()).add(row.outcome)
    return {
        change
        for (_, change), recorded in outcomes.items()
        if Outcome.PENDING.value in recorded and not recorded & _NOTHING_DONE
    }


def has_begun(warehouse: Warehouse, plan_id: str) -> bool:
    """Return whether a commit of a plan has done more, or may have before a crash, than find changes stale."""
    rows = warehouse.read("commits", ("plan_id", "=", plan_id), columns=[*_KEY, "outcome"])
    outcomes: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for *key, outcome in values_of(rows, *_KEY, "outcome"):
        outcomes[tuple(key)].add(outcome)
    of_changes = [recorded for (*_, action), recorded in outcomes.items() if action not in {*Step}]
    return any(recorded.isdisjoint(_NOTHING_DONE) for recorded in of_changes)


def record_completion(warehouse: Warehouse, plan: Plan) -> None:
    """Record when a plan was first found complete; only log a warning if the warehouse cannot be written."""
    if plan.size and plan.row.verified_at is None:
        try:
            record_verified(warehouse, plan.plan_id)
        except (SurveyorError, OSError) as error:
            log(f"surveyor: could not record that plan {plan.title} is complete: {error}", logging.WARNING)


_KEY: Final = ("plan_id", "attempt", *CHANGE_COLUMNS)
_PLAN_COLUMNS: Final = ("plan_id", "snapshot_id", "kind", "parameters", "created_at", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Counts by status and outcome, including zeros."""

    plans: dict[str, int]
    """Plans by status, without the cycles of `surveyor control`, which are not committed."""
    rows: dict[str, int]
    """Rows of `commits` by outcome; `pending` counts intents without an outcome."""
    last_commit_at: datetime | None
    """Time of the last row of `commits`, UTC."""


def read_outcomes(warehouse: Warehouse) -> Outcomes:
    """Count plans and rows of commits; raise UnreadableError if the tables do not exist.

    An intent without an outcome belongs to an attempt that was killed or still runs. Steps, such as a take-over of the
    controllership, are not counted because they are not rows of a plan.
    """
    plans = decode_rows(PlanRecord, warehouse.read("plans", columns=_PLAN_COLUMNS))
    statuses = Counter(plan.status for plan in plans if not plan.is_cycle)
    commits = warehouse.read("commits", columns=[*_KEY, "outcome", "committed_at"])
    steps = pa.array([step.value for step in Step])
    of_plans = commits.filter(pc.invert(pc.is_in(commits["action"].cast(pa.string()), steps)))
    is_intent = pc.equal(of_plans["outcome"].cast(pa.string()), Outcome.PENDING.value)
    done = of_plans.filter(pc.invert(is_intent))
    counted = Counter(done["outcome"].to_pylist())
    counted[Outcome.PENDING.value] = _distinct_keys(of_plans) - _distinct_keys(done)
    return Outcomes(
        plans={status.value: statuses[status.value] for status in PlanStatus},
        rows={outcome.value: counted[outcome.value] for outcome in Outcome},
        last_commit_at=pc.max(commits["committed_at"]).as_py(),
    )


def _distinct_keys(rows: pa.Table) -> int:
    return int(rows.select(list(_KEY)).group_by(list(_KEY)).aggregate([]).num_rows)
