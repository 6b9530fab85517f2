"""Output of `surveyor show plan`: a summary of the plan, then all or the selected rows.

The text output sums up many rows, or lists all with --all. The JSON output is streamed and has every row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import R, Warehouse
from jobs.advice.outage import outage_left_by
from jobs.advice.plans import after_review
from jobs.advice.rollback_racks import is_rollback, lists_of, spread_warnings
from jobs.console_output.plan_figures import figure_lines, planned_bytes, rack_warnings, still_held_lines
from jobs.console_output.plan_load import load_lines, load_warnings
from jobs.console_output.plan_text import (
    change_line,
    deletion_lines,
    deletion_warnings,
    evidence_line,
    kind_lines,
    rejection_line,
    summarise,
    warnings,
)
from jobs.core.arrow_rows import Bools, StoredRows, ValueCount
from jobs.core.units import format_bytes
from jobs.preconditions.min_isr import below_min_isr, judged_topics, short_lists
from jobs.preconditions.unread_metadata import unread_warnings
from jobs.repositories.copy_volume import space_warnings
from jobs.repositories.deletion_impact import DeletionImpact, deletion_impact, deletion_impact_of
from jobs.repositories.drained_brokers import brokers_to_mark
from jobs.repositories.log_dirs import usable_bytes
from jobs.repositories.log_sizes import stored_volume
from jobs.repositories.plan_change_counts import affecting_broker, count_changes
from jobs.repositories.plans.assumptions import assumptions_in_newest_snapshot
from jobs.repositories.plans.plans_reader import find_plan
from jobs.repositories.racks import racks_of_snapshot
from jobs.repositories.snapshots import outdated_plan, unread_by
from jobs.repositories.warehouse_status import min_isr_by_topic
from jobs.runtime.console import format_cell, next_in_json, warnings_in_json
from jobs.runtime.output import next_lines, show, stream
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, with_full_commands
from planner.load.load_figures import load_in_json
from planner.placement.plan_figures import figures_in
from schemas.enums import NO_LEADER, Action, OperationKind, PlanKind, RejectionCode
from schemas.operation_data import AlteredConfig, data_of
from schemas.rows import CandidateEvidence, ChangeSummary, Operation, PlanRecord, RejectionRecord, Row
from schemas.text import DRAINED_LEADS, LINES_SHOWN, plan_size, pluralise

GROUPS_SHOWN: Final = 10
"""Waves, topics and brokers in a line of the text summary."""

REVIEW_COLUMNS: Final = list(ChangeSummary.__struct_fields__)
"""Columns of `changes` that lines, summary and warnings need."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Filter of a plan's rows; `everything` disables the limit on lines."""

    topic: str | None = None
    broker: int | None = None
    action: str | None = None
    everything: bool = False

    @property
    def flags(self) -> list[str]:
        given = {"--topic": self.topic, "--broker": self.broker, "--action": self.action}
        return [word for flag, value in given.items() if value is not None for word in (flag, str(value))]

    def filters(self, plan_id: str, action: str = "action") -> list[Filter]:
        given = {"topic": self.topic, action: self.action}
        return [("plan_id", "=", plan_id), *((name, "=", value) for name, value in given.items() if value is not None)]


@dataclass(frozen=True, slots=True)
class PlanSelection:
    """A stored plan, or the selected part of it."""

    warehouse: Warehouse
    row: PlanRecord
    only: RowFilter
    display_name: str = ""
    """The id or name that the user gave."""

    def changes(self, *, whole: bool) -> StoredRows:
        """Read the selected changes, with all columns if `whole`."""
        columns = None if whole else REVIEW_COLUMNS
        filters = self.only.filters(self.plan_id)
        changes = self.warehouse.rows_in_order("changes", ("wave", "topic", "partition"), *filters, columns=columns)
        return changes if self.only.broker is None else affecting_broker(changes, self.only.broker)

    @property
    def plan_id(self) -> str:
        return str(self.row.plan_id)

    def operations(self) -> StoredRows:
        return self.warehouse.rows_in_order("operations", ["sequence"], *self.only.filters(self.plan_id, "kind"))

    def rejections(self) -> StoredRows:
        """Read the selected rejections; none if a broker is selected, because rejections name no broker."""
        filters = self.only.filters(self.plan_id)
        rejections = self.warehouse.rows_in_order("rejections", ("topic", "partition"), *filters)
        return rejections if self.only.broker is None else StoredRows(rejections.table.slice(0, 0))

    def evidence(self) -> StoredRows:
        topic = RowFilter(topic=self.only.topic).filters(self.plan_id)
        of_plan = topic if self.row.traits.has_evidence else [*topic, ("rank", "<", 0)]
        return self.warehouse.rows_in_order("evidence", ("topic", "partition", "rank"), *of_plan)

    def result(self, changes: StoredRows, rate: int | None = None) -> dict[str, Any]:
        """Return the JSON result without the rows."""
        return {
            **self.row.columns(),
            "names": self.row.all_names,
            **load_in_json(self.row),
            "operations": len(self.operations()),
            "summary": {"changes": len(changes), **count_changes(changes).json},
            **warnings_in_json(self.all_warnings(changes)),
            "copies": stored_volume(self.warehouse, changes).json(rate),
            "deleted": [asdict(topic) for topic in self.deleted],
        }

    def rows(self, changes: StoredRows) -> Mapping[str, Iterable[Row]]:
        return {
            "rows": changes,
            "operation_rows": self.operations(),
            "rejection_rows": self.rejections(),
            "evidence_rows": self.evidence(),
        }

    def all_warnings(self, changes: StoredRows) -> list[str]:
        """Return the warnings, including the warning of deletions, which people see below the deleted topics."""
        return [*self.warnings(changes), *deletion_warnings(self.deleted)]

    def warnings(self, changes: StoredRows, *, with_brokers: bool = True) -> Iterator[str]:
        """Return the warnings, computed from the few rows that can cause one.

        `with_brokers`: also what the plan assumed of brokers and the newest snapshot shows differently.
        """
        operations = msgspec.convert(list(self.operations()), list[Operation])
        few = with_warnings(changes, moves_replicas=self.row.traits.moves_replicas)
        if operations and few.size:  # topic configs are compared with replication factors
            few |= changes.first_of_each_length("replicas_after", "topic")
        rejections = self.rejections()
        minimum = min_isr_by_topic(self.warehouse, self.row.snapshot_id, judged_topics(changes))
        doomed = rejections.where(rejections.equal("code", RejectionCode.WOULD_GO_OFFLINE.value))
        yield from warnings(
            msgspec.convert(list(changes.where(few)), list[ChangeSummary]),
            operations,
            msgspec.convert(list(doomed), list[RejectionRecord]),
            below_min_isr(minimum, changes),
            short_lists(minimum, changes),
            moves_replicas=self.row.traits.moves_replicas,
            everything=self.only.everything,
        )
        moving = rejections.where(rejections.equal("code", RejectionCode.REASSIGNMENT_IN_PROGRESS.value))
        if self.row.traits.drains and moving:
            alone = pluralise(len(moving), "partition that moves is", "partitions that move are")
            yield f"{alone} left alone, and the brokers may still lead them: drain again once they have moved"
        if with_brokers:
            yield from assumptions_in_newest_snapshot(self.warehouse, self.row)
        yield from outdated_plan(self.warehouse, self.row)
        yield from loss_warnings(self.warehouse, self.row, operations)
        yield from rack_warnings(self.row.options)
        yield from load_warnings(self.row)
        if is_rollback(self.row):
            racks = racks_of_snapshot(self.warehouse, self.row.snapshot_id)
            yield from spread_warnings(lists_of(changes), *racks)
        yield from unread_warnings(self.row, unread_by(self.warehouse, self.row), everything=self.only.everything)
        copied = stored_volume(self.warehouse, changes)
        yield from space_warnings(copied, usable_bytes(self.warehouse) if copied.received else {})

    def lines(self, settings: Settings) -> Iterator[str]:
        """Return the text output: the summary, a line per row, and the warnings last."""
        changes, operations, rejections = self.changes(whole=False), self.operations(), self.rejections()
        yield (
            f"plan {self.row.title} on snapshot {self.row.snapshot_id}: {self.row.kind}, "
            f"{self.row.status}; {summarise(self.row, len(operations), brokers_to_mark(self.warehouse, self.row))}"
        )
        yield from (f"  {line}" for line in figure_lines(self.row))
        yield from (f"  {line}" for line in load_lines(self.row))
        if self.row.kind == PlanKind.ELECT and not changes and (threshold := self.row.options.get("threshold")):
            yield f"  no broker is above the imbalance threshold {threshold}; --imbalance-threshold 0 considers all"
        volume = stored_volume(self.warehouse, changes)
        planned = None if self.only.flags else planned_bytes(self.row)
        copied = volume.lines(settings.throttle, is_auto=settings.is_throttled_by_load, planned=planned)
        yield from (f"  {with_full_commands(settings, line)}" for line in copied)
        if self.row.traits.undrains:
            brokers = format_cell(self.row.options["brokers"])
            yield f"  brokers {brokers} count as drained until this plan is committed"
            yield "  replicas outside the ISR rejoin it on their own"
        if self.only.flags:
            only = " ".join(self.only.flags)
            yield f"  {only}: {plan_size(len(changes), len(operations))}, {len(rejections)} rejected"
        yield from self._cut(settings, operations, "operations", Operation, change_line)
        yield from self._change_lines(settings, changes)
        yield from self._rejection_lines(settings, rejections)
        evidence = self.evidence()
        yield from self._cut(
            settings, evidence, "lines of evidence", CandidateEvidence, lambda row: f"evidence {evidence_line(row)}"
        )
        if (outage := outage_left_by(self.warehouse, self.row)) and not self.only.flags:
            yield f"  {outage.sentence}"
        yield from (f"  warning: {warning}" for warning in self.warnings(changes))
        yield from deletion_lines(self.deleted, everything=self.only.everything)
        yield from (f"  {line}" for line in still_held_lines(figures_in(self.row.options)))

    @property
    def deleted(self) -> list[DeletionImpact]:
        """Data that the deletion of topics destroys; the brokers are not queried before a commit."""
        return deletion_impact_of(self.warehouse, self.row)

    def _change_lines(self, settings: Settings, changes: StoredRows) -> Iterator[str]:
        """Return a line per change, under its wave if there are several; many changes are summed up."""
        if len(changes) > LINES_SHOWN:
            yield from _summary_lines(changes)
        if self._is_summed_up(changes):
            yield self._shows(settings, f"the {len(changes)} changes")
            return
        sizes = dict(changes.counts("wave"))
        wave = None
        for row in changes:
            change = msgspec.convert(row, ChangeSummary)
            if len(sizes) > 1 and change.wave != wave:
                wave = change.wave
                yield f"  wave {wave}: {pluralise(sizes[wave], 'change')}"
            yield f"  {change_line(change)}"

    def _rejection_lines(self, settings: Settings, rejections: StoredRows) -> Iterator[str]:
        """Return a line per rejection; many rejections are summed up."""
        if len(rejections) > LINES_SHOWN:
            yield f"  rejected: {_grouped(rejections.counts('code'))}"
        if self._is_summed_up(rejections):
            yield from kind_lines(rejections.counts("reason"))
            yield self._shows(settings, f"the {len(rejections)} rejections")
            return
        yield from (f"  {rejection_line(msgspec.convert(row, RejectionRecord))}" for row in rejections)

    def _is_summed_up(self, rows: StoredRows) -> bool:
        return len(rows) > LINES_SHOWN and not self.only.everything

    def _shows(self, settings: Settings, rows: str) -> str:
        plan = self.display_name or self.plan_id
        return f"  {rows}: {command_line(settings, 'show', 'plan', plan, *self.only.flags, '--all')}"

    def _cut(
        self, settings: Settings, rows: StoredRows, noun: str, kind: type[R], line: Callable[[R], str]
    ) -> Iterator[str]:
        shown = rows.first(LINES_SHOWN) if self._is_summed_up(rows) else rows
        yield from (f"  {line(msgspec.convert(row, kind))}" for row in shown)
        if self._is_summed_up(rows):
            yield self._shows(settings, f"... and {len(rows) - LINES_SHOWN} more {noun}")


def plan_lines(settings: Settings, row: PlanRecord, called: str = "") -> Iterator[str]:
    """Return the text output of a whole plan."""
    return PlanSelection(settings.warehouse, row, RowFilter(), called).lines(settings)


def plan_warnings(warehouse: Warehouse, row: PlanRecord) -> list[str]:
    """Return the warnings of a whole plan, as programs get them; people get the same texts."""
    review = PlanSelection(warehouse, row, RowFilter())
    return review.all_warnings(review.changes(whole=False))


def commit_warnings(warehouse: Warehouse, row: PlanRecord, *, everything: bool) -> list[str]:
    """Return the warnings of a whole plan for its commit, which compares the brokers with the live ones."""
    review = PlanSelection(warehouse, row, RowFilter(everything=everything))
    return [*review.warnings(review.changes(whole=False), with_brokers=False)]


def with_warnings(changes: StoredRows, *, moves_replicas: bool) -> Bools:
    """Mark the changes that can cause warnings, and the changes of the same partitions in other waves."""
    few = changes.equal("leader_after", NO_LEADER)
    few |= changes.equal("action", Action.ELECT.value) & changes.gains("isr_after", "isr_before")
    few |= changes.contains("reason", DRAINED_LEADS)
    if moves_replicas:
        few |= changes.gains("replicas_after", "requires_live")
    return changes.with_same_key(few, "topic", "partition") if few.any() else few


_TWO_EFFECTS: Final = {
    "leaders": ("leader_gained", "leader_lost"),
    "replicas": ("replicas_gained", "replicas_lost"),
    "in sync": ("isr_joined", "isr_left"),
}


def _summary_lines(changes: StoredRows) -> Iterator[str]:
    """Return what the changes do, by action, wave, topic, broker and reason."""
    counts = count_changes(changes)
    waves = sorted(changes.counts("wave"))
    yield f"  by action: {_grouped(counts.actions)}"
    if len(waves) > 1:
        yield f"  by wave: {_listed([f'{wave}: {rows}' for wave, rows in waves], len(waves), 'waves')}"
    yield f"  by topic: {_listed([f'{topic} {rows}' for topic, rows in counts.topics], counts.topics_in_all, 'topics')}"
    for noun, (gained, lost) in _TWO_EFFECTS.items():
        rows = [row for row in counts.brokers if row[gained] or row[lost]]
        shown = sorted(rows[:GROUPS_SHOWN], key=lambda row: row["broker_id"])
        if rows and not (noun == "in sync" and all(map(_replicas_and_isr_agree, counts.brokers))):
            yield f"  {noun} by broker: {_listed([_effects(row, gained, lost) for row in shown], len(rows), 'brokers')}"
    yield from kind_lines(changes.counts("reason"))


def _replicas_and_isr_agree(row: Row) -> bool:
    return bool(row["isr_joined"] == row["replicas_gained"] and row["isr_left"] == row["replicas_lost"])


def _effects(row: Row, gained: str, lost: str) -> str:
    """Format a broker's gains and losses.

    >>> _effects({"broker_id": 3, "gained": 5, "lost": 0}, "gained", "lost")
    '3: +5'
    >>> _effects({"broker_id": 3, "gained": 5, "lost": 2}, "gained", "lost")
    '3: +5 -2'
    """
    signed = [f"+{row[gained]}"] * (row[gained] > 0) + [f"-{row[lost]}"] * (row[lost] > 0)
    return f"{row['broker_id']}: {' '.join(signed)}"


def _listed(texts: Sequence[str], count: int, noun: str) -> str:
    """Join the first texts, and count those of `count` that are left out."""
    more = f" and {count - GROUPS_SHOWN} more {noun}" if count > GROUPS_SHOWN else ""
    return f"{', '.join(texts[:GROUPS_SHOWN])}{more}"


def _grouped(counts: Iterable[ValueCount]) -> str:
    return ", ".join(f"{rows} {value}" for value, rows in counts)


def show_review(settings: Settings, plan: str, only: RowFilter) -> None:
    """Show a plan, or the selected rows of it."""
    review = PlanSelection(settings.warehouse, find_plan(settings.warehouse, plan), only, plan)
    due = bool(review.row.changes or len(review.operations()) or brokers_to_mark(settings.warehouse, review.row))
    steps = after_review(settings, review.row, plan, due=due)
    if settings.result_file or not settings.for_people:
        changes = review.changes(whole=True)
        stream(settings, review.result(changes, settings.throttle) | next_in_json(steps), review.rows(changes))
    if settings.for_people:
        lines = review.lines(settings)
        show(next(lines))
        if review.row.command:
            show(f"  command: {review.row.command}")
        for part in chain(lines, next_lines(steps)):
            show(part)


def loss_warnings(warehouse: Warehouse, plan: PlanRecord, operations: Sequence[Operation]) -> Iterator[str]:
    """Yield what altered configs may delete or lose, with the size of the topic as far as it is known."""
    for operation in operations:
        if operation.kind != OperationKind.ALTER_CONFIG:
            continue
        losses = data_of(operation, AlteredConfig).losses
        for topic in deletion_impact(warehouse, plan, [operation.topic] if losses else [], {}):
            count = None if topic.partitions is None else pluralise(topic.partitions, "partition")
            size = (
                None
                if topic.bytes is None
                else f"{format_bytes(topic.bytes)} in {pluralise(topic.replicas or 0, 'replica')}"
            )
            known = ", ".join(filter(None, (count, size)))
            yield from (f"topic {topic.topic}{f' ({known})' if known else ''}: {loss}" for loss in losses)
