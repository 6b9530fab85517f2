"""Output of `surveyor show commits`: the final outcome of each row in each attempt. It needs no JVM.

It is a module of its own because it uses DuckDB views, and importing DuckDB takes longer than most of `surveyor show`.
"""

from datetime import UTC, datetime
from typing import Final

from jobs.console_output.tables import ROWS_SHOWN, displayed_columns, show_rows, with_short_message, without_secret
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.stored_rows import StoredRows
from jobs.runtime.console import CommandResult, table
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries
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

    show_rows(settings, plan, "commits", ROW_COLUMNS, rows_of, everything=everything)


def _show_all(settings: Settings, *, everything: bool) -> None:
    at = Summaries(settings.warehouse, find_snapshot(settings.warehouse))
    rows = [without_secret(row) for row in reversed(at.rows("commit_log"))]
    latest = rows if everything else rows[-ROWS_SHOWN:]
    listed = [with_short_message(row) | _display_row(row) for row in latest]
    more = [f"the latest {len(latest)} of {len(rows)}; --all shows all"] if len(latest) < len(rows) else []
    title = f"commits of {settings.cluster}"
    emit(
        settings,
        CommandResult({"rows": rows}, table(title, displayed_columns(settings, LOG_COLUMNS, listed), listed), *more),
    )


def _display_row(row: Row) -> Row:
    """Return display texts for columns of a commit.

    >>> _display_row({"names": ["grow"], "kind": "cancel", "plan_kind": "reassign", "applied": 5, "changes": 8})
    {'names': 'grow', 'kind': 'cancel of reassign', 'applied': '5 of 8'}
    """
    kind = f"{row['kind']} of {row['plan_kind']}" if row["plan_kind"] else row["kind"]
    of = "" if row["changes"] is None else f" of {row['changes']}"
    return {"names": ", ".join(row["names"]), "kind": kind, "applied": f"{row['applied']}{of}"}
