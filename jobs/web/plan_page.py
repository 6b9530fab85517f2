"""The report of a plan for its approval: warnings, the figures before and after by broker, and every change.

The rows are verified against the plan's id, as a commit does, so the id that is approved stands for exactly the rows on
the page. The result is rendered by the template `plan.html`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from shlex import quote
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.outage import outage_left_by
from jobs.console_output.plan_figures import Span, broker_spans, byte_spans, notes, planned_bytes, rack_spans
from jobs.console_output.plan_load import load_notes, load_spans
from jobs.console_output.plan_review import PlanSelection, RowFilter
from jobs.console_output.plan_text import deletion_texts, deletion_warnings, shown_data, without_topic_ids
from jobs.core.arrow_rows import StoredRows
from jobs.core.errors import RefusedError, UsageError
from jobs.core.masking import masked_json, masked_text
from jobs.core.units import format_age, format_bytes, format_duration
from jobs.preconditions.limits import UNCOMMITTABLE
from jobs.repositories.copy_volume import Volume
from jobs.repositories.log_sizes import stored_volume
from jobs.repositories.plan_change_counts import ChangeCounts, count_changes
from jobs.repositories.plans import arrow_digest
from jobs.repositories.plans.plans_reader import find_plan
from jobs.repositories.snapshots import find_snapshot, last_snapshot
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries, structs_of
from jobs.web.charts import Chart, Group, bars, format_number, lines
from jobs.web.cluster_page import BROKERS_DRAWN, broker_name, by_rack, commits
from jobs.web.embedded_table import EmbeddedTable, masked_column
from jobs.web.render import Fact, alarming, fact, render, shown_time, snapshot_header
from planner.load.load_figures import SHARES
from planner.placement.plan_figures import BalanceFigures, PlanFigures, figures_in
from schemas.enums import PlanStatus
from schemas.plan_digest import plan_header
from schemas.rows import PlanRecord, Snapshot

REASONS_SHOWN: Final = 20

_NOT_ASKED: Final = ("figures", "rack_warnings")
"""Parameters of a plan that its planner found."""

_SIDES: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A plan's rows in Arrow, and the cluster at its snapshot."""

    row: PlanRecord
    changes: StoredRows
    summaries: Summaries
    snapshot: Snapshot
    is_whole: bool
    """Whether the snapshot still exists; if not, the cluster is derived from the plan's rows."""
    review: PlanSelection

    @classmethod
    def read(cls, warehouse: Warehouse, id_or_name: str) -> "PlanTables":
        """Read a plan; raise UsageError if it does not exist, RefusedError if its stored rows were changed."""
        row = find_plan(warehouse, id_or_name)
        of_plan = ("plan_id", "=", row.plan_id)
        rows = {table: warehouse.read(table, of_plan) for table in ("changes", "operations", "rejections")}
        _refuse_edited(row, rows)
        in_order = [(name, "ascending") for name in ("wave", "topic", "partition")]
        changes = StoredRows(rows["changes"].sort_by(in_order).combine_chunks())
        try:
            snapshot, is_whole = find_snapshot(warehouse, row.snapshot_id), True
        except UsageError:
            snapshot = Snapshot(snapshot_id=row.snapshot_id, cluster_id=row.cluster_id, taken_at=row.created_at)
            is_whole = False
        summaries = Summaries(warehouse, snapshot, {"commits": of_plan})
        summaries.add("plan_changes", changes.table)
        summaries.add("plan_operations", rows["operations"])
        summaries.add("plan_rejections", rows["rejections"])
        if not is_whole:
            _add_what_the_plan_knows(summaries, row)
        review = PlanSelection(warehouse, row, RowFilter())
        summaries.add("plan_evidence", review.evidence().table)
        return cls(row, changes, summaries, snapshot, is_whole, review)


def _refuse_edited(row: PlanRecord, rows: dict[str, pa.Table]) -> None:
    hashed = arrow_digest.summary(plan_header(row), rows)["plan_id"]
    if hashed != row.plan_id:
        raise RefusedError(
            f"plan {row.title} is not what was planned: its rows hash to {hashed}; its stored rows were "
            "changed or deleted, so no report is written; plan again"
        )


def _add_what_the_plan_knows(summaries: Summaries, row: PlanRecord) -> None:
    """Add tables in place of a deleted snapshot: the brokers that were live, and the partitions that change."""
    brokers = [broker.broker_id for broker in row.brokers]
    nothing = pa.nulls(len(brokers), pa.string())
    known = pa.table({"broker_id": pa.array(brokers, pa.int32()), "host": nothing, "rack": nothing})
    summaries.add("brokers", known)
    summaries.add("brokers_last_seen", known.slice(0, 0))
    partitions = summaries.query(
        "SELECT topic, partition, arg_min(replicas_before, wave) AS replicas, "
        "arg_min(leader_before, wave) AS leader, arg_min(isr_before, wave) AS isr "
        "FROM plan_changes GROUP BY topic, partition"
    )
    unknown = {field.name: pa.nulls(partitions.num_rows, field.type) for field in schema_of("partitions")}
    summaries.add("partitions", pa.table(unknown | {name: partitions[name] for name in partitions.column_names}))
    summaries.add("topics", schema_of("topics").empty_table())


def plan_page(settings: Settings, plan: PlanTables, now: datetime) -> str:
    """Return the page as HTML, with a warning if the plan is too old for a commit."""
    row = plan.row
    copied = stored_volume(plan.summaries.warehouse, plan.changes)
    counts = count_changes(plan.changes)
    return render(
        "plan.html",
        about=snapshot_header(plan.summaries.warehouse.cluster, plan.snapshot, now, is_deleted=not plan.is_whole),
        plan={
            "title": row.title,
            "kind": row.kind,
            "status": row.status,
            "created_at": shown_time(row.created_at),
            "age": format_age(row.created_at, now),
            "more_reasons": max(counts.reasons_in_all - REASONS_SHOWN, 0),
            "parameters": parameters_text(row.parameters),
            "command": row.command,
        },
        warnings=list(warnings_of(plan, now, settings.conf.limits.max_plan_age_hours)),
        sums=sums_of(plan, counts, copied, settings.throttle),
        figures=figures_of_page(row, copied, settings.throttle),
        reasons=counts.reasons[:REASONS_SHOWN],
        brokers=brokers_section(plan),
        changes=changes_table(plan),
        operations=operations_table(plan),
        rejections=rejections_table(plan),
        evidence=_evidence(plan),
        commits=commits(plan.summaries),
        commands=[f"surveyor {command}" for command in commands_of(row, settings.given_options.get("throttle", ()))],
    )


@dataclass(frozen=True, slots=True)
class PageFigures:
    """Figures of a plan: numbers before and after, waves, and notes."""

    spans: list[Span]
    waves: list[dict[str, str]]
    """One mapping per wave from column name to text; all have the same columns."""
    notes: list[str]


def figures_of_page(row: PlanRecord, copied: Volume, rate: int | None) -> PageFigures:
    """Return the figures of a plan; `rate` is the throttle in bytes per second, None without one."""
    figures = figures_in(row.options) or PlanFigures()
    spans = [*broker_spans(figures), *byte_spans(figures), *load_spans(row), *rack_spans(figures)]
    sentences = [*notes(row), *load_notes(row), *list(copied.lines(rate, planned=planned_bytes(row)))[:1]]
    if len(copied.waves) <= 1:
        return PageFigures(spans, [], sentences)
    columns = dict[str, list[int]]()
    if planned := figures.waves:
        sentences.append(f"waves {planned.count} (at least {planned.fewest})")
        columns = {"most into a broker": planned.most_in, "most out of one": planned.most_out}
    waves = []
    for number, wave in enumerate(copied.waves):
        cells = {"wave": str(wave.wave), "replicas copied": format_number(wave.replicas)}
        cells |= {
            name: format_number(counts[number]) for name, counts in columns.items() if len(counts) == len(copied.waves)
        }
        if copied.is_known:
            cells["bytes"] = format_bytes(wave.bytes)
        if copied.is_known and rate:
            cells["at least"] = format_duration(wave.seconds(rate))
        waves.append(cells)
    return PageFigures(spans, waves, sentences)


def commands_of(row: PlanRecord, throttle: Sequence[str] = ()) -> Iterator[str]:
    """Return the commands that commit and verify a plan; none if the plan cannot be committed."""
    if row.status in UNCOMMITTABLE or row.is_cycle:
        return
    named = f"{row.plan_id} --cluster {quote(row.cluster)}"
    bounded = " ".join([named, *throttle])
    yield f"commit {bounded}"
    yield f"commit {bounded} --apply"
    yield f"verify {named}"


def warnings_of(plan: PlanTables, now: datetime, max_age_hours: float) -> Iterator[str]:
    """Return the warnings: first of age and status, then of deletions, then of the rows."""
    yield from _commit_obstacles(plan, now, max_age_hours)
    yield from (*deletion_texts(plan.review.deleted), *deletion_warnings(plan.review.deleted))
    if outage := outage_left_by(plan.summaries.warehouse, plan.row):
        yield outage.sentence
    yield from map(masked_text, plan.review.warnings(plan.changes))


def _commit_obstacles(plan: PlanTables, now: datetime, max_age_hours: float) -> Iterator[str]:
    """Return warnings if the plan cannot be committed in its current state, or if its snapshot is outdated."""
    row = plan.row
    if row.status in UNCOMMITTABLE:
        yield f"this plan is {row.state} and cannot be committed; plan again"
    elif row.is_cycle:
        yield "this plan records a completed cycle of `surveyor control` and cannot be committed"
        return
    elif row.status != PlanStatus.PLANNED:
        yield f"this plan is {row.status}: a commit has already started; its commits are listed below"
    if now - row.created_at > timedelta(hours=max_age_hours):
        age = format_age(row.created_at, now)
        yield f"this plan is {age} old, and a commit refuses plans older than {max_age_hours:g} h; plan again"
    newest = last_snapshot(plan.summaries.warehouse)
    if newest is not None and newest.snapshot_id > row.snapshot_id:
        yield (
            f"this plan is on snapshot {row.snapshot_id}, and the newest is {newest.snapshot_id}: "
            "a commit skips partitions that have changed since"
        )


def parameters_text(parameters: str | None) -> str:
    """Return the plan's parameters without figures and without topic ids, which Kafka's controller generates."""
    shown = without_topic_ids(json.loads(parameters or "{}"))
    return masked_json(json.dumps({key: value for key, value in shown.items() if key not in _NOT_ASKED}))


def sums_of(plan: PlanTables, counts: ChangeCounts, copied: Volume, rate: int | None) -> list[Fact]:
    row = plan.row
    known = [Fact("bytes copied", format_bytes(copied.bytes))] if copied.is_known else []
    if copied.is_known and rate:
        known.append(Fact("time at the throttle, at least", format_duration(copied.seconds(rate))))
    actions = [fact(action, rows) for action, rows in counts.actions] if len(counts.actions) > 1 else []
    return [
        fact("changes", row.changes),
        *actions,
        fact("operations on topics", plan.summaries.query("SELECT * FROM plan_operations").num_rows),
        fact("replicas copied", row.moves),
        *known,
        alarming("rejected", row.rejected, "warn"),
        fact("topics with changes", counts.topics_in_all),
        fact("brokers affected", len(counts.brokers)),
        fact("waves", len(plan.changes.counts("wave"))),
    ]


_BEFORE_AND_AFTER: Final = """
WITH ends AS (
    SELECT
        topic, partition,
        arg_max(replicas_after, wave) AS replicas_after, arg_max(leader_after, wave) AS leader_after
    FROM plan_changes GROUP BY topic, partition
),
after AS (
    SELECT coalesce(replicas_after, replicas) AS replicas, coalesce(leader_after, leader) AS leader
    FROM partitions FULL JOIN ends USING (topic, partition)
    WHERE topic NOT IN (SELECT topic FROM plan_operations WHERE kind = 'delete_topic')
),
led AS (SELECT leader AS broker_id, count(*) AS leaders_after FROM after WHERE leader >= 0 GROUP BY leader),
placed AS (SELECT unnest(replicas) AS broker_id FROM after),
held AS (SELECT broker_id, count(*) AS replicas_after FROM placed GROUP BY broker_id)
SELECT
    broker_id, rack, coalesce(registered, false) AS registered,
    coalesce(leaders, 0) AS leaders_before, coalesce(led.leaders_after, 0) AS leaders_after,
    coalesce(replicas, 0) AS replicas_before, coalesce(held.replicas_after, 0) AS replicas_after,
    coalesce(led.leaders_after, 0) - leaders_before AS leaders_gained,
    coalesce(held.replicas_after, 0) - replicas_before AS replicas_gained
FROM leadership FULL JOIN led USING (broker_id) FULL JOIN held USING (broker_id)
ORDER BY broker_id
"""
"""SQL of the leaders and replicas of each broker, at the plan's snapshot and after the plan."""

_BROKER_COUNTS: Final = (
    *("leaders_before", "leaders_after", "replicas_before", "replicas_after"),
    *("leaders_gained", "replicas_gained"),
)


class BrokerChange(Struct, frozen=True, kw_only=True):
    """The leaders and replicas of a broker before and after a plan."""

    broker_id: int
    rack: str | None
    registered: bool
    leaders_before: int
    leaders_after: int
    leaders_gained: int
    """Negative if it loses leaders."""
    replicas_before: int
    replicas_after: int
    replicas_gained: int
    """Negative if it loses replicas."""

    @property
    def leaders(self) -> tuple[int, int]:
        """Before and after."""
        return self.leaders_before, self.leaders_after

    @property
    def replicas(self) -> tuple[int, int]:
        """Before and after."""
        return self.replicas_before, self.replicas_after


def before_and_after(plan: PlanTables) -> list[BrokerChange]:
    """Return the leaders and replicas of each broker before and after."""
    return structs_of(BrokerChange, plan.summaries.query(_BEFORE_AND_AFTER, "leadership"))


def brokers_section(plan: PlanTables) -> dict[str, Any]:
    """Return the charts and the table of the leaders and replicas of brokers and racks before and after."""
    rows = before_and_after(plan)
    figures = figures_in(plan.row.options) or PlanFigures()
    bytes_held = {int(name): span for name, span in figures.bytes_by_broker.items()}
    most = sorted(rows, key=lambda row: -abs(row.leaders_gained) - abs(row.replicas_gained))[:BROKERS_DRAWN]
    drawn = sorted(most, key=attrgetter("broker_id"))
    notes = []
    if not plan.is_whole:
        notes.append("The plan's snapshot was dropped by `surveyor vacuum`: only partitions that change are counted.")
    if len(drawn) < len(rows):
        notes.append(f"The charts show the {len(drawn)} brokers that change most; the table has all.")
    charts = [
        bars("Partitions led, by broker", _SIDES, [Group(broker_name(row), row.leaders) for row in drawn]),
        bars("Replicas held, by broker", _SIDES, [Group(broker_name(row), row.replicas) for row in drawn]),
        bars("Partitions led, by rack", _SIDES, by_rack(rows, attrgetter("leaders"))),
        bars("Replicas held, by rack", _SIDES, by_rack(rows, attrgetter("replicas"))),
    ]
    if bytes_held:
        held = [Group(f"broker {broker}", span) for broker, span in sorted(bytes_held.items())][:BROKERS_DRAWN]
        charts.append(bars("Bytes held, by broker", _SIDES, held, format_bytes))
    if balance := figures.load_balance:
        charts.append(front_chart(balance))
    table = {"broker": [str(row.broker_id) for row in rows], "rack": [row.rack or "" for row in rows]}
    table |= {name: [getattr(row, name) for row in rows] for name in _BROKER_COUNTS}
    island = EmbeddedTable("brokers", "Brokers before and after", pa.table(table), ("broker",), ("rack",))
    return {"notes": notes, "charts": charts, "table": island}


def front_chart(balance: BalanceFigures) -> Chart:
    """Draw the most loaded broker, as a multiple of the mean, by the bytes that the steps of the search copy."""
    steps = {size: worst for size, _, _, worst in balance.front if size < balance.bytes}
    steps[balance.bytes] = balance.worst_after.multiple
    sizes, worst = zip(*sorted(steps.items()), strict=True)
    series: dict[str, Sequence[float]] = {f"most loaded broker, of {SHARES[balance.by_capacity]}": worst}
    if balance.worst_bound is not None:
        series["at best, a lower bound"] = [balance.worst_bound] * len(sizes)
    return lines("Most loaded broker by bytes copied", [*map(format_bytes, sizes)], series, at=sizes)


def changes_table(plan: PlanTables) -> EmbeddedTable:
    """Return all changes, in commit order."""
    rows = plan.summaries.query(
        """
        SELECT
            named(topic, partition) AS partition, action, wave,
            moved(leader_before, leader_after, led_by(leader_before), led_by(leader_after)) AS leader,
            moved(replicas_before, replicas_after, listed(replicas_before), listed(replicas_after)) AS replicas,
            moved(isr_before, isr_after, listed(isr_before), listed(isr_after)) AS isr,
            reason
        FROM plan_changes
        """,
    )
    more = f"`surveyor show plan {plan.row.plan_id} --all` shows all"
    return EmbeddedTable("changes", "Changes", rows, ("leader", "replicas", "isr"), ("action",), more)


def operations_table(plan: PlanTables) -> EmbeddedTable:
    rows = plan.summaries.query("SELECT sequence, kind, topic, data FROM plan_operations ORDER BY sequence")
    texts = zip(rows["kind"].to_pylist(), rows["data"].to_pylist(), strict=True)
    data = pa.array([masked_json(shown_data(kind, text)) for kind, text in texts], pa.string())
    return EmbeddedTable("operations", "Operations", rows.set_column(3, "data", data), choices=("kind",))


def rejections_table(plan: PlanTables) -> EmbeddedTable:
    rows = plan.summaries.query(
        """
        SELECT named(topic, partition) AS partition, action, code, reason
        FROM plan_rejections ORDER BY topic, plan_rejections.partition
        """,
    )
    more = f"`surveyor show rejections {plan.row.plan_id} --all` shows all"
    return EmbeddedTable("rejections", "Rejections", masked_column(rows, "reason"), (), ("action", "code"), more)


def _evidence(plan: PlanTables) -> EmbeddedTable:
    rows = plan.summaries.query(
        """
        SELECT
            named(topic, partition) AS partition, rank, broker_id::VARCHAR AS broker, last_in_isr_snapshot,
            at_second(last_in_isr_at) AS last_in_isr_at, epochs_since, log_size
        FROM plan_evidence
        """,
    )
    return EmbeddedTable("evidence", "Evidence for candidates, the best first", rows, ("broker",))
