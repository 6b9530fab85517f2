"""From targets to a plan: the lint checks them, and a plan with a fault is stored as refused, with all its faults.

Targets are rows from a file, a snapshot or the optimiser. Partitions with a fault get no change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from jobs.planning.internal_topic_permission import ALLOW_INTERNAL, InternalTopics
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.planning_tables import PlanningTables, partitions_with_requests
from jobs.repositories.snapshot_tables import SnapshotTables
from planner.columns.change_rows import as_rejections
from planner.leadership.preferred_election import changes_of, preferred_verdicts
from planner.reassignment.lint import RackRules, intermediate_faults, placement_faults
from planner.reassignment.targets import elections_after_moves, reassignment_changes, reassignment_rejections
from schemas.enums import Action, LintCode, PlanKind
from schemas.internal_topics import pattern_of_internal
from schemas.tables import PARTITION_KEY

MAX_FAULTS_NAMED: Final = 10
NEVER_CHANGED: Final = (LintCode.DELETION_REQUESTED, LintCode.NOT_UNDERSTOOD, LintCode.REASSIGNMENT_IN_PROGRESS)
"""Faults of partitions that the optimiser never changes; it lists them only to reject them."""


OVERRIDE_OPTIONS: Final = {
    LintCode.RACKS_LOST: "--disable-rack-aware",
    LintCode.RACK_CROWDED: "--disable-rack-aware",
    LintCode.MIN_ISR_UNREACHABLE: "--allow-below-min-isr",
    LintCode.INTERNAL_TOPIC: ALLOW_INTERNAL,
}
"""Options that accept a fault. The other faults lose data, or Kafka itself refuses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """The checks that the options of a plan waive.

    `leaves_out`: partitions that must not change are not faults of the plan. `below_min_isr`: lists may become shorter
    than min.insync.replicas. `internal`: topics that may not get fewer replicas. `given_up`: racks that the plan
    empties. `may_hold`: the brokers that may be given replicas, None for all that a plan may choose from.
    """

    factor_may_change: bool
    rack_aware: bool
    leaves_out: bool
    below_min_isr: bool
    internal: InternalTopics
    given_up: frozenset[str] = frozenset()
    may_hold: frozenset[int] | None = None

    def faults(self, tables: SnapshotTables, targets: DataFrame) -> DataFrame:
        """Return the faults of final and intermediate lists: topic, partition, code, fault."""
        frames = [partitions_with_requests(tables), *(tables[name] for name in ("topics", "brokers", "broker_configs"))]
        ends, ways = targets, None
        if "earlier" in targets.columns:
            last = F.size("earlier") + 1 == F.col("steps")
            ends, ways = targets.where(last), targets.where(~last)
        last_seen = tables["brokers_last_seen"]
        rules = RackRules(given_up=self.given_up, may_hold=self.may_hold, last_seen=last_seen)
        max_bytes = tables.snapshot.names.max_assignment_bytes
        faults = placement_faults(
            ends,
            *frames,
            factor_may_change=self.factor_may_change,
            rules=rules,
            internal=pattern_of_internal(self.internal.declared),
            max_bytes=max_bytes,
        )
        faults = faults if ways is None else faults.unionByName(intermediate_faults(ways, *frames, rules=rules))
        return faults.where(~F.col("code").isin(*self._waived())).distinct()

    def _waived(self) -> list[str]:
        racks = [] if self.rack_aware else [LintCode.RACKS_LOST, LintCode.RACK_CROWDED]
        short = [LintCode.MIN_ISR_UNREACHABLE] if self.below_min_isr else []
        internal = [LintCode.INTERNAL_TOPIC] if self.internal.allowed else []
        return [code.value for code in (*racks, *short, *internal, *(NEVER_CHANGED if self.leaves_out else ()))]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTargets:
    """Targets, the plan's parameters, and rejections of partitions that were not considered."""

    rows: DataFrame
    parameters: dict[str, Any]
    held: DataFrame | None = None
    skip_unsafe: bool = False
    """Leave out targets with faults and plan the rest."""
    election_wave: int | None = None
    """The wave in which preferred replicas are elected after the moves, None for no elections."""
    elected: DataFrame | None = None
    """Partitions without a target whose preferred replicas are elected in that wave too; None for none."""

    def draft(self, tables: PlanningTables, faults: DataFrame) -> PlanDraft:
        """Draft a plan of the targets without faults; refused if there is any fault, unless faults may be left out."""
        first = faults.orderBy(*PARTITION_KEY, "code", "fault").limit(MAX_FAULTS_NAMED + 1).collect()
        sound = self.rows.join(faults.select(*PARTITION_KEY), [*PARTITION_KEY], "left_anti") if first else self.rows
        frames = sound, partitions_with_requests(tables), tables["topics"], tables["brokers"]
        rejections = reassignment_rejections(*frames)
        for more in (self.held, _as_rejections(faults) if first else None):
            rejections = rejections if more is None else rejections.unionByName(more)
        fault_lines = [] if self.skip_unsafe else [f"{row.topic}-{row.partition}: {row.fault}" for row in first]
        advice = _override_advice(first)
        if {row.code for row in first} & {LintCode.BROKER_NOT_ALIVE, LintCode.UNKNOWN_PARTITION}:
            advice = f"{advice} ({tables.age_hint})"
        refused = _refusal(f"the lint found faults; fix them and plan again, or {advice}", fault_lines)
        changes = reassignment_changes(*frames)
        if self.election_wave is not None:
            changes = changes.unionByName(elections_after_moves(*frames, wave=self.election_wave))
        if self.elected is not None and self.election_wave is not None:
            verdicts = preferred_verdicts(tables["partitions"], tables["topics"], tables["brokers"], self.elected)
            elections = changes_of(verdicts).withColumns({"wave": F.lit(self.election_wave)})
            changes = changes.unionByName(elections)
        parameters = self.parameters | (tables.racks.parameter if self.parameters.get("rack_aware", True) else {})
        return PlanDraft(PlanKind.REASSIGN, parameters, changes, rejections, refused=refused)


def _as_rejections(faults: DataFrame) -> DataFrame:
    return faults.withColumnRenamed("fault", "reason").transform(as_rejections, Action.REASSIGN)


def _override_advice(faults: Sequence[Row]) -> str:
    """Return the advice on options that plan anyway."""
    codes = {row.code for row in faults}
    options = dict.fromkeys(option for code, option in OVERRIDE_OPTIONS.items() if code in codes)
    ways = [f"allow these with {option}" for option in options]
    return " or ".join([*ways, "leave these partitions out with --skip-unsafe"])


def _refusal(subject: str, faults: Sequence[str]) -> str | None:
    if not faults:
        return None
    more = "\n  and more: `surveyor show rejections` lists them" if len(faults) > MAX_FAULTS_NAMED else ""
    listed = "\n  ".join(faults[:MAX_FAULTS_NAMED])
    return f"{subject}:\n  {listed}{more}"
