"""Output of `surveyor show`: tables as text and JSON."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from rich.table import Table

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.arrow_rows import StoredRows, values_of
from jobs.core.errors import UsageError
from jobs.core.masking import HIDDEN, is_sensitive, masked_text
from jobs.core.units import format_age
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.plans.plans_reader import find_plan
from jobs.repositories.snapshots import as_of, find_snapshot, later_commit, rows_as_of, unread_in, with_age
from jobs.runtime.cli_enums import Output
from jobs.runtime.console import CommandResult, log, table, warn
from jobs.runtime.output import emit, show, stream
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from jobs.snapshots.diff import Difference, differences
from schemas.enums import EventKind, PlanStatus
from schemas.rows import BrokerConfig, PlanRecord, QuarantinedZnode, Row, Snapshot, ThrottledConfig
from schemas.text import join_ids, partition_name, plan_size, pluralise

ROWS_SHOWN: Final = 200

MAX_MESSAGE_LENGTH: Final = 400
"""Characters of a message in a text table."""

STALE_SECONDS: Final = 600.0
"""Age of a snapshot above which a warning is printed that the cluster may have changed."""

_FULL_MESSAGE_HINT: Final = "--json has the full text"


def write_table(
    settings: Settings,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    newest_last: bool = False,
    **extra: Any,  # noqa: ANN401
) -> None:
    """Print rows; the text output has these columns, or all columns with `-o wide`."""
    shown = table_parts(settings, title, columns, rows, newest_last=newest_last)
    emit(settings, CommandResult({**extra, "rows": list(rows)}, *shown))


def write_as_of(
    settings: Settings,
    snapshot: Snapshot,
    name: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    for_people: Sequence[Row] | None = None,
) -> None:
    """Print rows of a snapshot; `for_people` are the rows for the text output, if they differ.

    The text output also has the age of the snapshot, because the cluster may have changed since.
    """
    number = snapshot.snapshot_id
    shown = rows if for_people is None else for_people
    table = table_parts(settings, f"{name} of {settings.cluster}, snapshot {number}", columns, shown)
    emit(
        settings,
        CommandResult(of_snapshot(snapshot) | {"rows": list(rows)}, *table, age_line(snapshot.taken_at, len(rows))),
    )


def snapshot_shown(settings: Settings, snapshot_id: int | None, *, now: str = "") -> Snapshot:
    """Return the given or the newest snapshot; warn on stderr if the newest is old, or older than a commit.

    `now` is the command that shows the live cluster instead. JSON results have `taken_at` and no warning.
    """
    snapshot = find_snapshot(settings.warehouse, snapshot_id)
    is_read = settings.for_people and sys.__stdout__ is not None  # None if stdout is closed
    if snapshot_id is None and is_read:
        is_old = (datetime.now(UTC) - snapshot.taken_at).total_seconds() > STALE_SECONDS
        old = later_commit(settings.warehouse, snapshot) or (with_age(snapshot) if is_old else None)
        if old:
            command = command_line(settings, *(now or "snapshot").split())
            newer = f"`{command}` reads the cluster" if now else f"take a `{command}`"
            log(f"surveyor: {old}; for the current state: {newer}")
    return snapshot


def warn_of_unread_topics(warehouse: Warehouse, topic: str | None, snapshot: Snapshot, missing: str) -> None:
    """Name the topics, or the one shown, whose assignment cannot be decoded: no snapshot may know their partitions."""
    unread = unread_in(warehouse, snapshot)
    unread = replace(unread, topics=[name for name in unread.topics if topic in {None, name}], partitions=())
    if unread:
        them = "it" if unread.is_one else "them"
        warn(f"{unread.sentence()}: {missing} of {them} may be missing here; {QUARANTINE_COMMAND}")


def of_snapshot(snapshot: Snapshot) -> Row:
    """Return the snapshot id and time for the JSON result."""
    return {"snapshot_id": snapshot.snapshot_id, "taken_at": snapshot.taken_at}


def age_line(taken_at: datetime, rows: int) -> str:
    """Format the number of rows and the age of the snapshot."""
    return f"{pluralise(rows, 'row')}, as of {taken_at:%Y-%m-%d %H:%M:%S} UTC, {format_age(taken_at)} ago"


def table_parts(
    settings: Settings,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    of: int | None = None,
    newest_last: bool = False,
) -> list[Table | str]:
    """Return the text table of the first rows, or of the latest; `of` is the total, if only those were converted."""
    columns = displayed_columns(settings, columns, rows)
    total = len(rows) if of is None else of
    cut = latest_of(total) if newest_last else f"... and {total - ROWS_SHOWN} more; --json gives all"
    shown = rows[-ROWS_SHOWN:] if newest_last else rows[:ROWS_SHOWN]
    return [table(title, columns, shown), *([cut] if total > ROWS_SHOWN else [])]


def latest_of(total: int, remedy: str = "--json gives all") -> str:
    """Return the line below a table that has only the latest rows.

    >>> latest_of(1706)
    'the latest 200 of 1,706; --json gives all'
    """
    return f"the latest {ROWS_SHOWN} of {total:,}; {remedy}"


def displayed_columns(settings: Settings, columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the text columns; `-o wide` adds all others except `cluster`, which is the same in all rows."""
    others = rows[0].keys() if rows and settings.output is Output.WIDE else ()
    return [*columns, *(name for name in others if name not in {*columns, "cluster"})]


def show_as_of(
    settings: Settings, snapshot_id: int | None, name: str, columns: Sequence[str], key: Sequence[str]
) -> None:
    """Show a table at a snapshot."""
    snapshot = snapshot_shown(settings, snapshot_id)
    rows = sorted(as_of(settings.warehouse, snapshot, name), key=itemgetter(*key))
    write_as_of(settings, snapshot, name, columns, rows)


def show_configs(settings: Settings, snapshot_id: int | None, broker: int | None, *, differing: bool) -> None:
    """Show the broker configs of a snapshot: all, one broker's configs, or settings that differ between brokers."""
    snapshot = snapshot_shown(settings, snapshot_id)
    configs = rows_as_of(settings.warehouse, snapshot, BrokerConfig)
    brokers = sorted({row.broker_id for row in configs})
    if broker is not None and broker not in brokers:
        has = join_ids(brokers) or "none"
        raise UsageError(
            f"broker {broker} has no configs in snapshot {snapshot.snapshot_id}; brokers with configs: {has}"
        )
    selected = [row for row in configs if broker in {None, row.broker_id}]
    if differing:
        names = None if broker is None else {row.name for row in selected}
        values = [value for value in differing_configs(configs) if names is None or value.name in names]
        rows = [value._asdict() for value in values]
        write_as_of(settings, snapshot, "settings that differ between brokers", ConfigValue._fields, rows)
        return
    rows = [row.columns() for row in sorted(selected, key=attrgetter("broker_id", "name"))]
    write_as_of(settings, snapshot, "configs", ("broker_id", "name", "value", "assumed"), rows)


class ConfigValue(NamedTuple):
    """A value of a setting, and the brokers that have it."""

    name: str
    value: str | None
    brokers: list[int]


def differing_configs(configs: Sequence[BrokerConfig]) -> list[ConfigValue]:
    """Return each value of settings that differ between brokers; assumed values are ignored.

    >>> rows = [BrokerConfig(broker_id=broker, name="min.insync.replicas", value=value, assumed=broker == 3)
    ...     for broker, value in ((1, "1"), (2, "2"), (3, "9"), (4, "1"))]
    >>> [(value.value, value.brokers) for value in differing_configs(rows)]
    [('1', [1, 4]), ('2', [2])]
    >>> differing_configs(rows[::2])
    []
    """
    reported = [row for row in configs if not row.assumed]
    brokers = sorted({row.broker_id for row in reported})
    values: dict[str, dict[int, str | None]] = {row.name: dict.fromkeys(brokers) for row in reported}
    for row in reported:
        values[row.name][row.broker_id] = row.value
    return [
        ConfigValue(name, value, [broker for broker in brokers if of_broker[broker] == value])
        for name, of_broker in sorted(values.items())
        if len(set(of_broker.values())) > 1
        for value in dict.fromkeys(of_broker.values())
    ]


def show_quarantine(settings: Settings, snapshot_id: int | None) -> None:
    """Show znodes that could not be decoded; configs with a sensitive setting are hidden."""
    snapshot = snapshot_shown(settings, snapshot_id)
    znodes = sorted(rows_as_of(settings.warehouse, snapshot, QuarantinedZnode), key=attrgetter("path"))
    rows = [znode.columns() | ({"data": HIDDEN} if _is_secret(znode) else {}) for znode in znodes]
    write_as_of(settings, snapshot, "quarantine", ("path", "blocks", "reason", "data"), rows)


def _is_secret(znode: QuarantinedZnode) -> bool:
    return znode.path.startswith("/config/") and is_sensitive(znode.data or "")


def show_imbalance(settings: Settings, snapshot_id: int | None) -> None:
    """Show how many partitions each broker does not lead although it is their preferred replica."""
    columns = ("broker_id", "preferred_partitions", "not_led", "ratio", "exceeds")
    snapshot = snapshot_shown(settings, snapshot_id)
    rows = settings.warehouse.rows("imbalance", ("snapshot_id", "=", snapshot.snapshot_id))
    rows.sort(key=itemgetter("broker_id"))
    write_as_of(settings, snapshot, "partitions not led by their preferred replica", columns, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Events to show; all given conditions must hold."""

    kind: str | None = None
    topic: str | None = None
    broker: int | None = None
    since: datetime | None = None

    def matches(self, event: Row) -> bool:
        """Return whether an event, with the time of its snapshot, is to be shown."""
        return (
            self.kind in {None, event["kind"]}
            and (self.topic is None or self.topic == _topic_of(event))
            and (self.broker is None or self.broker in _brokers_of(event))
            and (self.since is None or (event["taken_at"] is not None and event["taken_at"] >= self.since))
        )


_OF_TOPICS: Final = {
    *(EventKind.TOPIC_CREATED, EventKind.TOPIC_VANISHED, EventKind.TOPIC_RECREATED, EventKind.TOPIC_ID_ASSIGNED),
    *(EventKind.TOPIC_ID_LOST, EventKind.PARTITIONS_ADDED, EventKind.DELETION_REQUESTED),
}
"""Events whose subject is a topic, whose name may end as the name of a partition does."""

_BETWEEN_BROKERS: Final = {
    *(EventKind.LEADER_CHANGED, EventKind.ISR_SHRUNK, EventKind.ISR_EXPANDED),
    *(EventKind.CONTROLLER_MOVED, EventKind.REASSIGNMENT_REQUESTED),
}
"""Events that have ids of brokers before and after."""


def _topic_of(event: Row) -> str | None:
    """Return the topic of an event of a topic or of one of its partitions.

    >>> _topic_of({"kind": "LeaderChanged", "subject": "a-1"}), _topic_of({"kind": "TopicCreated", "subject": "a-1"})
    ('a', 'a-1')
    """
    subject: str = event["subject"]
    return subject if event["kind"] in _OF_TOPICS else subject.rpartition("-")[0]


def _brokers_of(event: Row) -> set[int]:
    """Return the broker of an event, or the brokers that it has on one side only.

    >>> _brokers_of({"kind": "IsrShrunk", "subject": "a-1", "before": "[1, 2, 3]", "after": "[3, 1]"})
    {2}
    >>> _brokers_of({"kind": "BrokerFailed", "subject": "broker 4", "before": "77", "after": None})
    {4}
    """
    if event["kind"] in _BETWEEN_BROKERS:
        before, after = ({*map(int, _NUMBER.findall(event[side] or ""))} for side in ("before", "after"))
        return before ^ after
    name, _, number = event["subject"].partition(" ")
    return {int(number)} if name == "broker" else set()


_NUMBER: Final = re.compile(r"\d+")


def show_events(settings: Settings, snapshot_id: int | None, events: EventFilter) -> None:
    """Show the events up to a snapshot."""
    snapshot = find_snapshot(settings.warehouse, snapshot_id)
    refuse_unknown_topic(settings, events.topic, snapshot, ever=True)
    until = snapshot.snapshot_id
    found = _with_times(settings.warehouse, settings.warehouse.rows("events", ("snapshot_id", "<=", until)))
    rows = sorted(filter(events.matches, found), key=itemgetter("snapshot_id", "subject", "kind"))
    columns = ("taken_at", "snapshot_id", "kind", "subject", "before", "after")
    title = f"events of {settings.cluster}, up to snapshot {until}"
    write_table(settings, title, columns, rows, newest_last=True, snapshot_id=until)


def _with_times(warehouse: Warehouse, rows: Sequence[Row]) -> list[Row]:
    """Add the time of its snapshot to each row, None if vacuum deleted the snapshot; the row is still valid."""
    named = ("snapshot_id", "in", sorted({row["snapshot_id"] for row in rows}))
    snapshots = warehouse.read("snapshots", named, columns=["snapshot_id", "taken_at"])
    taken = dict(values_of(snapshots, "snapshot_id", "taken_at"))
    return [{**row, "taken_at": taken.get(row["snapshot_id"])} for row in rows]


def show_history(settings: Settings, topic: str, partition: int | None, snapshot_id: int | None = None) -> None:
    """Show each snapshot in which a partition changed, up to a snapshot."""
    last = find_snapshot(settings.warehouse, snapshot_id)
    refuse_unknown_topic(settings, topic, last, ever=True)
    until = ("snapshot_id", "<=", last.snapshot_id)  # an incomplete snapshot may have written later rows
    only = [] if partition is None else [("partition", "=", partition)]
    found = settings.warehouse.rows("partition_history", ("topic", "=", topic), *only, until)
    rows = _with_times(settings.warehouse, found)
    if not rows:
        name = topic if partition is None else partition_name(topic, partition)
        raise UsageError(f"no snapshot up to {last.snapshot_id} contains {name}")
    by_partition = itemgetter("partition", "snapshot_id")
    latest = sorted(sorted(rows, key=itemgetter("snapshot_id"))[-ROWS_SHOWN:], key=by_partition)
    columns = ("snapshot_id", "taken_at", "partition", "leader", "isr", "replicas", "partition_state")
    shown = table_parts(settings, f"history of {topic}", columns, latest, of=len(rows), newest_last=True)
    emit(settings, CommandResult({"rows": sorted(rows, key=by_partition)}, *shown))


def show_differences(settings: Settings, before: int, after: int) -> None:
    """Show the differences between two snapshots."""
    warehouse = settings.warehouse
    found = differences(warehouse, find_snapshot(warehouse, before), find_snapshot(warehouse, after))
    rows = [difference._asdict() for difference in found]
    if rows or settings.as_json:
        title = f"{settings.cluster}, snapshot {before} to {after}"
        write_table(settings, title, Difference._fields, rows, before=before, after=after)
    else:
        emit(
            settings,
            CommandResult(
                {"before": before, "after": after, "rows": []}, f"snapshots {before} and {after} do not differ"
            ),
        )


def refuse_unknown_topic(settings: Settings, topic: str | None, snapshot: Snapshot, *, ever: bool = False) -> None:
    """Raise UsageError if a topic is not in a snapshot, or with `ever`, not in any snapshot."""
    if topic is None:
        return
    by_name = ("topic", "=", topic)
    if as_of(settings.warehouse, snapshot, "topics", by_name) or (
        ever and settings.warehouse.rows("partition_history", by_name)
    ):
        return
    raise UsageError(
        f"no topic {topic!r} in snapshot {snapshot.snapshot_id} of {settings.cluster}; "
        "`surveyor show topics` lists them",
    )


def show_snapshots(settings: Settings) -> None:
    """Show the snapshots."""
    find_snapshot(settings.warehouse)
    rows = sorted(settings.warehouse.rows("snapshots"), key=itemgetter("snapshot_id"))
    columns = ("snapshot_id", "taken_at", "brokers", "topics", "partitions", "quarantined", "seconds")
    write_table(settings, f"snapshots of {settings.cluster}", columns, rows, newest_last=True)


def show_plans(settings: Settings) -> None:
    """Show the plans, the newest last."""
    find_snapshot(settings.warehouse)
    operations = Counter(settings.warehouse.read("operations", columns=["plan_id"])["plan_id"].to_pylist())
    plans = sorted(settings.warehouse.typed_rows(PlanRecord), key=attrgetter("created_at"))
    sizes = [plan_size(plan.changes, operations[plan.plan_id]) for plan in plans]
    rows = [
        plan.columns()
        | {"names": plan.all_names, "operations": operations[plan.plan_id], "complete": is_complete(plan)}
        for plan in plans
    ]
    lines = [
        {**row, "names": ", ".join(plan.all_names), "status": plan.state, "what": size}
        for plan, row, size in zip(plans, rows, sizes, strict=True)
    ]
    columns = ("plan_id", "names", "kind", "status", "complete", "what", "created_at")
    shown = table_parts(settings, f"plans of {settings.cluster}", columns, lines, newest_last=True)
    emit(settings, CommandResult({"rows": rows}, *shown))


def is_complete(plan: PlanRecord) -> bool:
    """Return whether `surveyor verify` found a plan complete, and it was not cancelled or rolled back since."""
    undone = {PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK}
    return plan.verified_at is not None and plan.status not in undone


def show_of_plan(
    settings: Settings, plan: str, name: str, columns: Sequence[str], order: Sequence[str], *, everything: bool
) -> None:
    """Show the rows of a plan in a table."""

    def rows_of(plan_id: str) -> StoredRows:
        return settings.warehouse.rows_in_order(name, order, ("plan_id", "=", plan_id))

    show_rows(settings, plan, name, columns, rows_of, everything=everything)


def show_rows(
    settings: Settings,
    plan: str,
    name: str,
    columns: Sequence[str],
    rows_of: Callable[[str], StoredRows],
    *,
    everything: bool,
    newest_last: bool = False,
) -> None:
    """Show rows of a plan; `rows_of` reads them by plan id."""
    plan_id = find_plan(settings.warehouse, plan).plan_id
    rows = rows_of(plan_id)
    stream(settings, {"plan_id": plan_id}, {"rows": map(without_secret, rows)})
    if settings.for_people:
        some = rows.last(ROWS_SHOWN) if newest_last else rows.first(ROWS_SHOWN)
        listed = [with_short_message(without_secret(row)) for row in (rows if everything else some)]
        show(table(f"{name} of plan {plan}", displayed_columns(settings, columns, listed), listed))
        if len(listed) < len(rows):
            more = command_line(settings, "show", name, plan, "--all")
            shown = f"`{more}` shows all"
            more_rows = f"... and {len(rows) - ROWS_SHOWN} more: `{more}` shows them"
            show(latest_of(len(rows), shown) if newest_last else more_rows)


def without_secret(row: Row) -> Row:
    """Mask secrets in a commit's message, which may contain values of configs."""
    return {**row, "message": masked_text(row["message"])} if row.get("message") else row


def with_short_message(row: Row) -> Row:
    """Shorten a long message, such as the throttled replicas of a topic."""
    message = row.get("message") or ""
    return (
        row
        if len(message) <= MAX_MESSAGE_LENGTH
        else {**row, "message": f"{message[:MAX_MESSAGE_LENGTH]}... ({_FULL_MESSAGE_HINT})"}
    )


def show_evidence(settings: Settings, plan: str, *, everything: bool) -> None:
    """Show the history of the candidates of a plan."""
    columns = ("topic", "partition", "rank", "broker_id", "chosen", "last_in_isr_at", "log_size")
    show_of_plan(settings, plan, "evidence", columns, ("topic", "partition", "rank"), everything=everything)


def show_drained(settings: Settings) -> None:
    """Show the drained brokers."""
    find_snapshot(settings.warehouse)
    rows = sorted(settings.warehouse.rows("drained"), key=itemgetter("broker_id"))
    write_table(settings, f"drained brokers of {settings.cluster}", ("broker_id", "mode", "plan_id", "since"), rows)


def show_throttles(settings: Settings, throttle_rows: Callable[[Warehouse], list[ThrottledConfig]]) -> None:
    """Show the throttles that commits have set."""
    if not settings.warehouse.exists():
        raise no_warehouse(settings.warehouse_uri)
    columns = ("plan_id", "kind", "resource", "name", "before", "set_to")
    write_table(
        settings,
        f"throttles of {settings.cluster}",
        columns,
        [row.columns() for row in throttle_rows(settings.warehouse)],
    )
