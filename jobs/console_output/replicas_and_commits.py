"""Output of `surveyor show replicas` and `surveyor show commits`, from views.

Importing DuckDB takes longer than most of `surveyor show`, which does not import this module.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import asdict

from jobs.console_output.stored_tables import (
    ROWS_SHOWN,
    age_line,
    displayed_columns,
    latest_of,
    of_snapshot,
    refuse_unknown_topic,
    show_rows,
    snapshot_shown,
    table_parts,
    warn_of_unread_topics,
    with_short_message,
    without_secret,
)
from jobs.core.arrow_rows import StoredRows
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import CommandResult, table, warnings_in_json
from jobs.runtime.output import emit, show, stream
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries
from jobs.sql_views.views import CommitSummary
from schemas.rows import Row, Snapshot
from schemas.text import pluralise

REPLICA_STATE_COLUMNS: Final = ("topic", "partition", "broker_id", "state", "preferred", "leads", "in_sync")

NOT_UNDERSTOOD: Final = "not understood"
"""The state in the view of a replica whose partition or broker is not understood."""


@dataclass(frozen=True, slots=True)
class ReplicaFilter:
    """Filter of replicas; all given conditions must hold."""

    topic: str | None = None
    broker: int | None = None
    state: str | None = None

    @property
    def sql(self) -> str:
        """The query over the view; the topic is filtered where the table is read."""
        conditions = [] if self.broker is None else [f"broker_id = {self.broker:d}"]
        conditions += [] if self.state is None else [f"state = '{self.state}'"]
        return f"SELECT * FROM replicas{' WHERE ' * bool(conditions)}{' AND '.join(conditions)}"  # noqa: S608 - a number and a choice


def show_replicas(settings: Settings, selection: ReplicaFilter, snapshot_id: int | None) -> None:
    """Show the selected replicas of a snapshot, with what brokers have answered since."""
    snapshot = snapshot_shown(settings, snapshot_id)
    refuse_unknown_topic(settings, selection.topic, snapshot)
    only = {} if selection.topic is None else {"partitions": ("topic", "=", selection.topic)}
    views = Summaries(settings.warehouse, snapshot, only)
    rows = StoredRows(views.query(selection.sql, "replicas"))
    warn_of_unread_topics(settings.warehouse, selection.topic, snapshot, "replicas")
    stream(settings, of_snapshot(snapshot) | warnings_in_json(), {"rows": rows})
    if settings.for_people:
        title = f"replicas of {settings.cluster}, snapshot {snapshot.snapshot_id}"
        for part in table_parts(settings, title, REPLICA_STATE_COLUMNS, rows.first(ROWS_SHOWN), of=len(rows)):
            show(part)
        if selection.state is not None:
            unknown = views.query(replace(selection, state=NOT_UNDERSTOOD).sql, "replicas").num_rows
            if unknown:
                show(f"not understood, so of unknown state: {pluralise(unknown, 'replica')}")
        show(age_line(snapshot.taken_at, len(rows)))


ROW_COLUMNS: Final = ("attempt", "action", "topic", "partition", "outcome", "committed_at", "message")
LOG_COLUMNS: Final = ("plan_id", "names", "attempt", "kind", "outcome", "applied", "ended_at")

NO_SNAPSHOT: Final = Snapshot(snapshot_id=0, taken_at=datetime.fromtimestamp(0, UTC))
"""Placeholder for views of commits only, which belong to no snapshot."""


def show_commits(settings: Settings, plan: str | None, *, everything: bool) -> None:
    """Show the outcome of each row of a plan by attempt; without a plan, all commits and cancellations."""
    if plan is None:
        _show_all(settings, everything=everything)
        return

    def rows_of(plan_id: str) -> StoredRows:
        at = Summaries(settings.warehouse, NO_SNAPSHOT, {"commits": ("plan_id", "=", plan_id)})
        return StoredRows(at.table("commit_rows"))

    show_rows(settings, plan, "commits", ROW_COLUMNS, rows_of, everything=everything, newest_last=True)


def _show_all(settings: Settings, *, everything: bool) -> None:
    at = Summaries(settings.warehouse, find_snapshot(settings.warehouse))
    commits = at.typed_rows(CommitSummary)[::-1]
    rows = [without_secret(asdict(commit)) for commit in commits]
    first = 0 if everything else max(len(rows) - ROWS_SHOWN, 0)
    latest = zip(commits[first:], rows[first:], strict=True)
    listed = [with_short_message(row) | _display_row(commit) for commit, row in latest]
    more = [latest_of(len(rows), "--all shows all")] if len(listed) < len(rows) else []
    title = f"commits of {settings.cluster}"
    emit(
        settings,
        CommandResult({"rows": rows}, table(title, displayed_columns(settings, LOG_COLUMNS, listed), listed), *more),
    )


def _display_row(commit: CommitSummary) -> Row:
    """Return display texts for columns of a commit."""
    kind = f"{commit.kind} of {commit.plan_kind}" if commit.plan_kind else commit.kind
    applied = f"{commit.applied}" if commit.changes is None else f"{commit.applied} of {commit.changes}"
    return {"names": ", ".join(commit.names or ()), "kind": kind, "applied": applied}
