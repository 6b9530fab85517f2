"""`surveyor show`: the tables as people read them, now or as of a snapshot. No JVM."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from jobs.adapters.delta.lake import Row
from jobs.adapters.delta.reads import Filter
from jobs.basics.errors import UnreadableError, UsageError
from jobs.execution.admin.throttles import throttle_rows
from jobs.records.plan_names import names_of
from jobs.records.plans import find_plan
from jobs.records.snapshots import as_of, find_snapshot
from jobs.records.stored_rows import StoredRows
from jobs.runtime.console import finish, show, stream, table
from jobs.runtime.options import All, command
from jobs.runtime.settings import Settings
from jobs.survey.diff import COLUMNS, differences
from jobs.views.plan_review import Only, Review
from jobs.views.sizes import sizes
from schemas.tables import EVIDENCE

AsOf = Annotated[int | None, typer.Option("--as-of", help="As this snapshot left it [default: the newest].")]
Topic = Annotated[str | None, typer.Option(help="Only this topic.")]
PlanId = Annotated[str, typer.Argument(help="Id or alias of the plan.")]

ROWS_SHOWN: Final = 200

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Show the tables, now or as of a snapshot.",
)
app.command()(sizes)


def _give(settings: Settings, title: str, columns: Sequence[str], rows: Sequence[Row], **said: Any) -> None:  # noqa: ANN401
    finish(settings, {**said, "rows": list(rows)}, *_laid_out(title, columns, rows))


def _laid_out(title: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Table | str]:
    more = [f"... and {len(rows) - ROWS_SHOWN} more; --json gives all"] if len(rows) > ROWS_SHOWN else []
    return [table(title, columns, rows[:ROWS_SHOWN]), *more]


def _at_snapshot(
    settings: Settings,
    snapshot_id: int | None,
    name: str,
    columns: Sequence[str],
    key: Sequence[str],
    *filters: Filter,
) -> None:
    """Show a table as a snapshot left it."""
    snapshot = find_snapshot(settings.lake, snapshot_id)
    rows = sorted(as_of(settings.lake, snapshot, name, *filters), key=itemgetter(*key))
    found = snapshot["snapshot_id"]
    _give(settings, f"{name} of {settings.cluster}, snapshot {found}", columns, rows, snapshot_id=found)


@app.command()
@command
def brokers(settings: Settings, *, as_of: AsOf = None) -> None:
    """Registered brokers."""
    columns = ("broker_id", "broker_epoch", "host", "port", "rack", "understood")
    _at_snapshot(settings, as_of, "brokers", columns, ["broker_id"])


@app.command()
@command
def configs(settings: Settings, *, as_of: AsOf = None) -> None:
    """What brokers say of themselves: their settings and the versions they speak."""
    columns = ("broker_id", "name", "value", "assumed")
    _at_snapshot(settings, as_of, "broker_configs", columns, ["broker_id", "name"])


@app.command()
@command
def topics(settings: Settings, *, as_of: AsOf = None) -> None:
    """Topics and their configs."""
    columns = ("topic", "topic_id", "config", "deletion_requested", "understood")
    _at_snapshot(settings, as_of, "topics", columns, ["topic"])


@app.command()
@command
def partitions(settings: Settings, *, topic: Topic = None, as_of: AsOf = None) -> None:
    """Partitions: who leads, who is in sync."""
    columns = ("topic", "partition", "replicas", "leader", "isr", "leader_epoch", "partition_state", "offline_replicas")
    _known_topic(settings, topic, as_of)
    filters = [] if topic is None else [("topic", "=", topic)]
    _at_snapshot(settings, as_of, "partitions", columns, ["topic", "partition"], *filters)


@app.command()
@command
def imbalance(settings: Settings, *, as_of: AsOf = None) -> None:
    """How far leadership is from the preferred replicas, by broker."""
    columns = ("broker_id", "preferred_partitions", "not_led", "ratio", "exceeds")
    snapshot = find_snapshot(settings.lake, as_of)["snapshot_id"]
    rows = settings.lake.rows("imbalance", ("snapshot_id", "=", snapshot))
    rows.sort(key=itemgetter("broker_id"))
    _give(settings, f"imbalance of {settings.cluster}, snapshot {snapshot}", columns, rows, snapshot_id=snapshot)


@app.command()
@command
def requests(settings: Settings, *, as_of: AsOf = None) -> None:
    """What stands in /admin and the notification znodes."""
    _at_snapshot(settings, as_of, "requests", ("kind", "topic", "partition", "replicas", "broker_id", "path"), ["path"])


@app.command()
@command
def quarantine(settings: Settings, *, as_of: AsOf = None) -> None:
    """Znodes that could not be understood, and why."""
    _at_snapshot(settings, as_of, "quarantine", ("path", "reason", "data"), ["path"])


@app.command()
@command
def events(
    settings: Settings,
    *,
    as_of: Annotated[int | None, typer.Option("--as-of", help="Up to this snapshot [default: the newest].")] = None,
) -> None:
    """What happened between snapshots, the newest last."""
    snapshot = find_snapshot(settings.lake, as_of)["snapshot_id"]
    rows = settings.lake.rows("events", ("snapshot_id", "<=", snapshot))
    rows.sort(key=itemgetter("snapshot_id", "subject", "kind"))
    columns = ("snapshot_id", "kind", "subject", "before", "after")
    _give(settings, f"events of {settings.cluster}, up to snapshot {snapshot}", columns, rows, snapshot_id=snapshot)


@app.command()
@command
def history(
    settings: Settings,
    *,
    topic: Annotated[str, typer.Option(help="Topic.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
) -> None:
    """Who led when: each snapshot in which a partition changed."""
    _known_topic(settings, topic, None, ever=True)
    filters: list[Filter] = [("topic", "=", topic)]
    if partition is not None:
        filters.append(("partition", "=", partition))
    taken = {row["snapshot_id"]: row["taken_at"] for row in settings.lake.rows("snapshots")}
    filters.append(("snapshot_id", "<=", max(taken)))  # a snapshot that crashed may have written more
    rows = [
        {**row, "taken_at": taken.get(row["snapshot_id"])}  # none: vacuum dropped the snapshot, its row still holds
        for row in settings.lake.rows("partition_history", *filters)
    ]
    if not rows:
        raise UsageError(f"no snapshot has seen {topic if partition is None else f'{topic}-{partition}'}")
    rows.sort(key=itemgetter("partition", "snapshot_id"))
    columns = ("snapshot_id", "taken_at", "partition", "leader", "isr", "leader_epoch", "replicas", "partition_state")
    _give(settings, f"history of {topic}", columns, rows)


@app.command()
@command
def diff(
    settings: Settings,
    *,
    before: Annotated[int, typer.Argument(metavar="A", help="A snapshot.")],
    after: Annotated[int, typer.Argument(metavar="B", help="Another; an older one shows the way back.")],
) -> None:
    """What differs between two snapshots."""
    rows = differences(settings.lake, find_snapshot(settings.lake, before), find_snapshot(settings.lake, after))
    if rows or settings.as_json:
        _give(settings, f"{settings.cluster}, snapshot {before} to {after}", COLUMNS, rows, before=before, after=after)
    else:
        finish(
            settings, {"before": before, "after": after, "rows": []}, f"snapshots {before} and {after} do not differ"
        )


def _known_topic(settings: Settings, topic: str | None, snapshot_id: int | None, *, ever: bool = False) -> None:
    if topic is None:
        return
    snapshot = find_snapshot(settings.lake, snapshot_id)
    wanted = ("topic", "=", topic)
    if as_of(settings.lake, snapshot, "topics", wanted) or (ever and settings.lake.rows("partition_history", wanted)):
        return
    raise UsageError(
        f"no topic {topic!r} in snapshot {snapshot['snapshot_id']} of {settings.cluster}; "
        "`surveyor show topics` lists them",
    )


@app.command()
@command
def snapshots(settings: Settings) -> None:
    """Snapshots taken."""
    find_snapshot(settings.lake)
    rows = sorted(settings.lake.rows("snapshots"), key=itemgetter("snapshot_id"))
    columns = (
        "snapshot_id",
        "taken_at",
        "controller_id",
        "controller_epoch",
        "brokers",
        "topics",
        "partitions",
        "quarantined",
        "seconds",
    )
    _give(settings, f"snapshots of {settings.cluster}", columns, rows)


@app.command()
@command
def plans(settings: Settings) -> None:
    """Plans made, the newest last."""
    find_snapshot(settings.lake)
    operations = Counter(settings.lake.read("operations", columns=["plan_id"])["plan_id"].to_pylist())
    rows = [
        {**row, "names": names_of(row), "operations": operations[row["plan_id"]]} for row in settings.lake.rows("plans")
    ]
    rows.sort(key=itemgetter("created_at"))
    lines = [{**row, "names": ", ".join(row["names"])} for row in rows]
    counts = ("changes", "operations", "rejected", "moves")
    columns = ("plan_id", "names", "snapshot_id", "kind", "status", *counts, "created_at")
    finish(settings, {"rows": rows}, *_laid_out(f"plans of {settings.cluster}", columns, lines))


@app.command()
@command
def plan(
    settings: Settings,
    *,
    plan: PlanId,
    topic: Topic = None,
    broker: Annotated[int | None, typer.Option(help="Only changes that mean something for this broker.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, as elect or reassign.")] = None,
    everything: All = False,
) -> None:
    """One plan: what it comes to, then a line a change, then what was rejected; --json has every row."""
    row = find_plan(settings.lake, plan)
    review = Review(settings.lake, row, Only(topic, broker, action, everything))
    if settings.as_json or settings.result_file:
        changes = review.changes(whole=True)
        stream(settings, review.result(changes), review.rows(changes))
    for part in () if settings.as_json else review.lines():
        show(part)


def _of_plan(
    settings: Settings, plan: str, name: str, columns: Sequence[str], order: Sequence[str], *, everything: bool
) -> None:
    row = find_plan(settings.lake, plan)
    rows = StoredRows.read(settings.lake, name, order, ("plan_id", "=", row["plan_id"]))
    stream(settings, {"plan_id": row["plan_id"]}, {"rows": rows})
    if not settings.as_json:
        listed = list(rows) if everything else rows.first(ROWS_SHOWN)
        show(table(f"{name} of plan {plan}", columns, listed))
        if len(listed) < len(rows):
            show(f"... and {len(rows) - ROWS_SHOWN} more: `surveyor show {name} {plan} --all` shows them")


@app.command()
@command
def rejections(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """What a plan left out, and why."""
    columns = ("topic", "partition", "action", "code", "reason")
    _of_plan(settings, plan, "rejections", columns, ("topic", "partition"), everything=everything)


@app.command()
@command
def evidence(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """What history says of the candidates of `plan recover`, the best first."""
    columns = ("topic", "partition", "rank", "broker_id", *EVIDENCE.names[6:])
    _of_plan(settings, plan, "evidence", columns, ("topic", "partition", "rank"), everything=everything)


@app.command()
@command
def drained(settings: Settings) -> None:
    """Brokers that are drained, how, and by which plan."""
    find_snapshot(settings.lake)
    rows = sorted(settings.lake.rows("drained"), key=itemgetter("broker_id"))
    _give(settings, f"drained brokers of {settings.cluster}", ("broker_id", "mode", "plan_id", "since"), rows)


@app.command()
@command
def throttles(settings: Settings) -> None:
    """Throttles that commits have set and not taken away yet, and what stood before."""
    if not settings.lake.exists():
        raise UnreadableError(f"no warehouse at {settings.warehouse}; check --warehouse")
    columns = ("plan_id", "kind", "resource", "name", "before", "set_to", "set_at")
    _give(settings, f"throttles of {settings.cluster}", columns, throttle_rows(settings.lake))


@app.command()
@command
def commits(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """What became of a plan, attempt by attempt."""
    columns = ("attempt", "action", "topic", "partition", "outcome", "state_version_after", "committed_at", "message")
    _of_plan(settings, plan, "commits", columns, ("attempt", "committed_at"), everything=everything)


if __name__ == "__main__":
    app()
