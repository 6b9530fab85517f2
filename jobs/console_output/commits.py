"""Output of `surveyor show commits`: the final outcome of each row in each attempt.

It is a separate module because it uses DuckDB views, and importing DuckDB takes longer than most of `surveyor show`.
"""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import asdict

from jobs.console_output.stored_tables import (
    ROWS_SHOWN,
    displayed_columns,
    latest_of,
    show_rows,
    with_short_message,
    without_secret,
)
from jobs.core.arrow_rows import StoredRows
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import CommandResult, table
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries
from jobs.sql_views.views import CommitSummary
from schemas.rows import Row, Snapshot

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
