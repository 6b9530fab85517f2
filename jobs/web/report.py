"""`surveyor report`: writes a page to a file atomically."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jobs.core.errors import ExitCode, UsageError
from jobs.core.units import format_bytes
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.fleet_health import FIGURES_SHOWN, WORST_BY
from jobs.snapshots.migration_proof import COUNTS, MigrationProof, prove
from jobs.web.charts import format_number
from jobs.web.cluster_page import cluster_page
from jobs.web.fleet_page import FleetRow, HealthAtSnapshot, fleet_page, newest_health
from jobs.web.plan_page import PlanTables, plan_page
from jobs.web.render import Fact, alarming, render, shown_time
from jobs.web.snapshot_views import summaries
from schemas.rows import Row, Snapshot
from schemas.text import pluralise

DIFFERENCES_SHOWN: Final = 5_000
"""Maximum number of differences on the page; `surveyor migration prove --json` has all."""

_SIDES: Final = ("brokers", "topics", "partitions", *COUNTS)


def write_report(settings: Settings, out: Path | None, plan: str | None, snapshot_id: int | None) -> CommandResult:
    """Write the report of a plan, or of the cluster; raise UsageError if the file cannot be written."""
    now = datetime.now(UTC)
    if plan is not None and snapshot_id is not None:
        raise UsageError(
            "--snapshot applies to the report of a cluster, and a plan has its own snapshot; give only one of the two"
        )
    if out is not None:
        refuse_unwritable(out)
    result: Row
    with progress("reading the tables and rendering the page"):
        if plan is None:
            chosen = find_snapshot(settings.warehouse, snapshot_id)
            html = cluster_page(settings, summaries(settings.warehouse, chosen), now)
            path = out or Path("report.html")
            result = {"snapshot_id": chosen.snapshot_id}
        else:
            tables = PlanTables.read(settings.warehouse, plan)
            html = plan_page(settings, tables, now)
            path = out or Path(f"plan-{tables.row.plan_id}.html")
            result = {"snapshot_id": tables.row.snapshot_id, "plan_id": tables.row.plan_id}
    written = replace_file(path, html)
    result |= {"path": str(path), "bytes": written}
    about = f"plan {result['plan_id']}" if plan else f"{settings.cluster}, snapshot {result['snapshot_id']}"
    return CommandResult(result, f"report of {about}: {path} ({format_bytes(written)})")


def write_migration_report(
    settings: Settings, out: Path | None, ids: str, *, is_rolled_back: bool = False
) -> CommandResult:
    """Write the proof of a migration; the exit code is CHANGES unless everything is still there."""
    now, path = datetime.now(UTC), out or Path("migration.html")
    try:
        old, new = map(int, ids.split(","))
    except ValueError:
        raise UsageError(f"--migration {ids}: expected the ids of two snapshots, as 41,57") from None
    refuse_unwritable(path)
    warehouse = settings.warehouse
    before, after = find_snapshot(warehouse, old), find_snapshot(warehouse, new)
    with progress("reading the tables and rendering the page"):
        proof = prove(warehouse, before, after, is_rolled_back=is_rolled_back)
        written = replace_file(path, _migration_page(settings.cluster, before, after, proof, now))
    result: Row = {"before": old, "after": new, "proved": proof.is_proved, "path": str(path), "bytes": written}
    verdict = "proved" if proof.is_proved else "not proved"
    about = "rolled-back migration" if is_rolled_back else "migration"
    title = f"report of the {about} of {settings.cluster}, {verdict}: {path} ({format_bytes(written)})"
    return CommandResult(result, title, exit_code=ExitCode.DONE if proof.is_proved else ExitCode.CHANGES)


def _migration_page(cluster: str, before: Snapshot, after: Snapshot, proof: MigrationProof, now: datetime) -> str:
    """Return the page for an auditor: what was compared, and what differs.

    If the migration was rolled back, `after` is from ZooKeeper, too.
    """
    differences = [[_text(value) for value in difference] for difference in proof.differences[:DIFFERENCES_SHOWN]]
    return render(
        "migration.html",
        cluster=cluster,
        cluster_id=after.cluster_id,
        proved=proof.is_proved,
        is_rolled_back=not after.is_of_kraft,
        facts_of_proof=[
            Fact("verdict", "proved" if proof.is_proved else "not proved", "good" if proof.is_proved else "bad"),
            *([alarming("faults", len(proof.faults), "bad")] if proof.faults else []),
            alarming("differences", len(proof.differences), "bad"),
            alarming("unknown", len(proof.unknown), "bad"),
        ],
        sides=[_side("before", before), _side("after", after)],
        names=[COUNTS.get(name, name) for name in _SIDES],
        differences=differences,
        more=max(0, len(proof.differences) - DIFFERENCES_SHOWN),
        faults=proof.faults,
        unknown=proof.unknown,
        deleted_topics=proof.deleted_topics,
        made_at=shown_time(now),
    )


def _side(title: str, snapshot: Snapshot) -> Row:
    return {
        "title": f"{title}, from {'KRaft' if snapshot.is_of_kraft else 'ZooKeeper'}",
        "snapshot": snapshot.snapshot_id,
        "taken_at": shown_time(snapshot.taken_at),
        "counts": [_text(getattr(snapshot, name)) for name in _SIDES],
    }


def _text(value: object) -> str:
    """Format a value.

    >>> _text(1200), _text(None), _text([1, 2])
    ('1,200', 'none', '[1, 2]')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return format_number(value)
    return "none" if value is None else str(value)


def write_fleet_report(settings: Settings, out: Path | None, parallel: int | None) -> CommandResult:
    """Write the report of each cluster, and the page that lists them; raise UsageError for an invalid folder."""
    folder, now = out or Path("fleet"), datetime.now(UTC)
    pages = folder / "clusters"
    try:
        pages.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be the folder of the pages: {error.strerror}") from None
    index = folder / "index.html"
    refuse_unwritable(index)
    healths = dict[str, HealthAtSnapshot]()

    def write(member: Settings) -> CommandResult:
        warehouse = member.warehouse
        chosen = find_snapshot(warehouse)
        path = pages / _page_of(member.cluster)
        written = replace_file(path, cluster_page(member, summaries(warehouse, chosen), now))
        health = healths[member.cluster] = newest_health(warehouse, chosen, member.conf.imbalance_threshold)
        return CommandResult({"path": str(path), "bytes": written, "health": health.json})

    result = run_on_fleet(settings, parallel, write, REPORT_SUMMARY)
    rows = [
        FleetRow(line["cluster"], healths.get(line["cluster"]), line["reason"]) for line in result.fields["summary"]
    ]
    html = fleet_page(
        rows,
        now,
        lambda cluster: f"clusters/{quote(_page_of(cluster), safe='')}" if cluster in healths else None,
    )
    written = replace_file(index, html)
    shown = (
        f"reports of {len(healths)} of {pluralise(len(settings.fleet), 'cluster')}: {index} ({format_bytes(written)})"
    )
    fields = result.fields | {"path": str(index), "bytes": written}
    return CommandResult(fields, *result.lines, shown, steps=result.steps, exit_code=result.exit_code)


def _page_of(cluster: str) -> str:
    return f"{quote(cluster, safe='')}.html"


REPORT_SUMMARY: Final = FleetSummary(
    title="report", figures=lambda page: page["health"], shown=("snapshot_id", *FIGURES_SHOWN), worst_by=WORST_BY
)
