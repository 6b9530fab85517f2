"""What became of each row of a plan: intents written before the cluster is touched, outcomes after.

Rows of `commits` are only ever appended. An attempt that was killed leaves its intents pending; the next attempt reads
the cluster, not the ledger, to see what was done.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.warehouse import Row, Warehouse, quoted, schema_of
from jobs.core.errors import RefusedError, SurveyorError
from jobs.repositories.actor import Actor, this_actor
from jobs.repositories.drained_brokers import add, remove
from jobs.repositories.plans.repository import Plan
from jobs.runtime.console import log
from schemas.enums import Outcome, PlanKind, PlanStatus, Step
from schemas.rows import PlanRow

_NAMED: Final = ("wave", "topic", "partition", "action")
"""The columns of `commits` that name a change."""

CLOSED: Final = frozenset({PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK})
"""What a plan stays, whoever was committing it meanwhile."""


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What became of one change."""

    change: PlanRow
    outcome: Outcome
    message: str
    state_version_after: int | None = None
    is_running: bool = False
    """Whether Kafka's controller still carries out what was asked of it earlier."""
    is_found: bool = False
    """Whether it stood so when it was read: by a multi whose answer was lost, or by who was the controller before."""


@dataclass(slots=True)
class CommitLog:
    """One attempt at a plan."""

    warehouse: Warehouse
    plan: Plan
    author: Actor
    outcomes: list[RowOutcome] = field(default_factory=list)
    already_decided: int = 0
    """How many of them were found applied before anything was done."""
    controller_epoch: int | None = None
    """Under which we are the controller and stay it, None while we are not."""
    broker_epochs: dict[int, int] = field(default_factory=dict)
    """Of the brokers that are registered as the attempt begins."""
    written_under: int | None = None
    """Under which we are, or were, the controller for this attempt; None where Kafka's is asked."""
    intents_written: bool = False
    unfinished: bool = False
    """What was asked for still runs, and the plan has something to do once it is complete."""
    unanswered: bool = False
    """What was written was accepted by none of the brokers it was told to."""
    _attempt: int | None = None

    @property
    def attempt(self) -> int:
        """The number of this attempt, taken once there is something to record: of two at once each has its own."""
        if self._attempt is None:
            self._attempt = next_attempt(self.warehouse, self.plan.plan_id)
        return self._attempt

    @classmethod
    def open(cls, lake: Warehouse, plan: Plan, author: Actor | None = None) -> "CommitLog":
        """Begin an attempt in the name of an author, else of this process."""
        for table in ("commits", "plans"):
            lake.ensure_columns(table)
        return cls(lake, plan, author or this_actor())

    def append_intents(self, changes: Sequence[PlanRow]) -> None:
        """Record what is about to be written, and that the plan is being committed; refused if it was closed."""
        self.refuse_closed()
        self.intents_written = True
        self.warehouse.append_all("commits", self._pending(changes))
        add(self.warehouse, self.plan.row, self.controller_epoch, self.broker_epochs)
        self._status(PlanStatus.COMMITTING)

    def refuse_closed(self) -> None:
        """Raise RefusedError if the plan was cancelled or rolled back since it was read."""
        (row,) = self.warehouse.rows("plans", ("plan_id", "=", self.plan.plan_id))
        if row["status"] in CLOSED:
            raise RefusedError(
                f"plan {self.plan.title} {closed_line(self.warehouse, row)}: nothing more of it is asked for; "
                "plan again"
            )

    @property
    def is_closed(self) -> bool:
        """Whether the plan was cancelled or rolled back since it was read."""
        (row,) = self.warehouse.rows("plans", ("plan_id", "=", self.plan.plan_id))
        return row["status"] in CLOSED

    def append_now(self, verdicts: Iterable[RowOutcome]) -> None:
        """Record at once what is no outcome of the plan's own changes, such as what a cancellation does."""
        self._append(self._row(v.change, v.outcome, v.message) for v in verdicts)

    def step(self, step: Step, outcome: Outcome, message: str) -> None:
        """Record what is done with no partition: a take-over, a hand-back, a cancellation."""
        self._append([self._common(outcome, message) | {"action": step.value}])

    def set_preflight_outcomes(self, settled: Sequence[RowOutcome]) -> None:
        """Take note of the changes that nothing is to be done about, in place of what was noted before."""
        self.outcomes = [*settled]
        self.already_decided = len(self.of(Outcome.APPLIED))

    def begin_again(self, settled: Sequence[RowOutcome]) -> None:
        """Become the attempt after whatever was committed meanwhile, of which nothing was judged but this."""
        self._attempt = None
        self.set_preflight_outcomes(settled)

    def judge(self, verdicts: Iterable[RowOutcome]) -> None:
        """Take note of what became of changes; `close` writes it down."""
        self.outcomes += verdicts

    def replace_outcomes(self, verdicts: Iterable[RowOutcome]) -> None:
        """Take back what was said of the same changes: what was accepted has come to nothing."""
        newer = {verdict.change.place: verdict for verdict in verdicts}
        self.outcomes = [newer.get(verdict.change.place, verdict) for verdict in self.outcomes]

    def close(self) -> None:
        """Record the outcomes, and what the plan now is; an attempt refused before it began leaves no trace."""
        done = all(verdict.outcome is Outcome.APPLIED for verdict in self.outcomes)
        whole = len(self.outcomes) == self.plan.size
        drains = done and whole and self._drained()
        if not (self.intents_written or self.outcomes or drains):
            return
        rows = (self._row(v.change, v.outcome, v.message, v.state_version_after) for v in self.outcomes)
        self._append(rows)
        self._status(PlanStatus.COMMITTED if done and whole and not self.unfinished else PlanStatus.PARTIAL)

    def _drained(self) -> bool:
        """Record who is drained from now on, or no more; return whether the plan is about that."""
        drains = add(self.warehouse, self.plan.row, self.controller_epoch, self.broker_epochs)
        return drains or remove(self.warehouse, self.plan.row)

    def counts(self) -> dict[str, int]:
        """Count the outcomes."""
        counted = Counter(verdict.outcome.value for verdict in self.outcomes)
        return {outcome.value: counted[outcome.value] for outcome in Outcome if outcome is not Outcome.PENDING}

    def of(self, outcome: Outcome) -> list[RowOutcome]:
        return [verdict for verdict in self.outcomes if verdict.outcome is outcome]

    def _row(self, change: PlanRow, outcome: Outcome, message: str, version: int | None = None) -> Row:
        named = {name: getattr(change, name) for name in _NAMED}
        return self._common(outcome, message) | named | {"state_version_after": version}

    def _common(self, outcome: Outcome, message: str) -> Row:
        return {
            "plan_id": self.plan.plan_id,
            "attempt": self.attempt,
            "outcome": outcome.value,
            "committed_at": datetime.now(UTC),
            "message": message,
            "controller_epoch": self.written_under,
            **self.author.columns,
        }

    def _pending(self, changes: Sequence[PlanRow]) -> pa.Table:
        """Make the rows of intents by columns: the controllership is held meanwhile."""
        schema = schema_of("commits")
        alike = self._common(Outcome.PENDING, "") | {"cluster": self.warehouse.cluster, "state_version_after": None}
        named = {name: [getattr(change, name) for change in changes] for name in _NAMED}
        columns = {name: named[name] if name in named else [alike[name]] * len(changes) for name in schema.names}
        return pa.table(columns, schema=schema)

    def _append(self, rows: Iterable[Row]) -> None:
        self.warehouse.append("commits", rows)

    def _status(self, status: PlanStatus) -> None:
        closed = ", ".join(quoted(status.value) for status in sorted(CLOSED))
        mine = f"plan_id = {quoted(self.plan.plan_id)} AND status NOT IN ({closed})"
        self.warehouse.update("plans", mine, status=quoted(status.value))


def next_attempt(lake: Warehouse, plan_id: str) -> int:
    """Return the number of a commit of a plan that begins now: of two that begin at once each has its own."""
    begun = lake.read("commits", ("plan_id", "=", plan_id), columns=["attempt"])["attempt"].to_pylist()
    number = [max(begun, default=0) + 1]

    def counted(plans: pa.Table) -> pa.Table:
        before = plans["last_attempt"].to_pylist() if plans.num_rows else []
        number[:] = [max([number[0], *(last + 1 for last in before if last is not None)])]
        column = pa.array([number[0]] * plans.num_rows, schema_of("plans").field("last_attempt").type)
        return (
            plans.set_column(plans.schema.get_field_index("last_attempt"), "last_attempt", column) if before else plans
        )

    lake.transform_rows("plans", ("plan_id", "=", plan_id), counted)
    return number[0]


def closed_line(lake: Warehouse, plan: Row) -> str:
    """Say by whom, as recorded, and when a plan was cancelled or rolled back."""
    if plan["status"] == PlanStatus.ROLLED_BACK:
        ways = lake.rows("plans", ("kind", "=", PlanKind.REASSIGN.value))
        back = [row for row in ways if json.loads(row["parameters"] or "{}").get("rollback_of") == plan["plan_id"]]
        of_it = [row for way in back for row in lake.rows("commits", ("plan_id", "=", way["plan_id"]))]
        return f"was rolled back{_recorded(of_it)}"
    steps = lake.rows("commits", ("plan_id", "=", plan["plan_id"]))
    return f"was cancelled{_recorded([row for row in steps if row['action'] == Step.CANCEL])}"


def _recorded(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    last = max(rows, key=itemgetter("committed_at"))
    run = f" ({last['run']})" if last.get("run") else ""
    return f" by {last['who']}{run} at {last['committed_at']:%Y-%m-%d %H:%M:%S} UTC"


def requested_changes(lake: Warehouse, plan_id: str) -> set[tuple[int, str, int]]:
    """Wave, topic and partition of what commits of a plan asked for, or may have before they crashed.

    What a commit found applied already when it began, set aside as stale or never came to is not among it.
    """
    outcomes: dict[tuple[int, int, str, int], set[str]] = {}
    for row in lake.rows("commits", ("plan_id", "=", plan_id)):
        if row["partition"] is not None:
            key = (row["attempt"], row["wave"], row["topic"], row["partition"])
            outcomes.setdefault(key, set()).add(row["outcome"])
    never = {Outcome.STALE.value, Outcome.SKIPPED.value}
    return {key[1:] for key, seen in outcomes.items() if Outcome.PENDING.value in seen and not seen & never}


def close_plan(lake: Warehouse, plan_id: str, status: PlanStatus) -> None:
    """Make a plan cancelled or rolled back: no commit goes on with it, and none that runs changes that."""
    lake.update("plans", f"plan_id = {quoted(plan_id)}", status=quoted(status.value))


def note_verified(lake: Warehouse, plan: Plan) -> None:
    """Record when a plan was first found complete; a warehouse that cannot be written is left as it is."""
    if plan.size and plan.row.get("verified_at") is None:
        try:
            lake.ensure_columns("plans")
            now = f"CAST({quoted(datetime.now(UTC).isoformat())} AS TIMESTAMP)"
            lake.update("plans", f"plan_id = {quoted(plan.plan_id)} AND verified_at IS NULL", verified_at=now)
        except (SurveyorError, OSError) as error:
            log(f"surveyor: that plan {plan.title} is complete was not recorded: {error}")
