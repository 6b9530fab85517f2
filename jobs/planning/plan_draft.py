"""Common parts of all plans: the snapshot they are computed from, and storing them.

A plan's rows are written first and its row in `plans` last, all under its id, which is a hash of its content. So a
crash leaves no partial plan, and planning again writes or finds the same plan. A snapshot is taken first
where the cluster's address is given, in the same process and Spark session.

Few rows are collected once as Arrow, and the driver computes the id and writes them. Many rows stay on Spark, which
does the same in several jobs.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.adapters.clusters.interface import Cluster, ClusterMetadata
from jobs.adapters.delta.spark_warehouse import MAX_DRIVER_ROWS, SparkWarehouse, cache_and_count
from jobs.adapters.delta.warehouse import AnyRow, Warehouse, columns_of
from jobs.adapters.spark.session import default_parallelism, start_session, with_settings
from jobs.adapters.spark.spark_settings import BROADCASTING, ONE_TASK
from jobs.advice.outage import in_json, outage_left_by
from jobs.advice.plans import after_planning
from jobs.advice.reassignments import steps_of_moving_plans
from jobs.console_output.plan_review import plan_lines, plan_warnings
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UnreadableError
from jobs.core.migration_refusal import migration_refusal, refuse_migration
from jobs.measurement.load_summary import summed_capacities
from jobs.planning.plan_load import load_before_and_after
from jobs.planning.planning_tables import PlanningTables, Registered
from jobs.repositories.capacities import broker_capacities
from jobs.repositories.deletion_impact import deletion_impact_of
from jobs.repositories.drained_brokers import brokers_to_mark
from jobs.repositories.plans import arrow_digest
from jobs.repositories.plans.begun_plans import begun_plan
from jobs.repositories.plans.names import (
    Alias,
    give_name,
    plan_named,
    refuse_older,
    refuse_other_parameters,
    refuse_refresh,
)
from jobs.repositories.plans.plan_goal import goal_of, reads_file
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader, parameters_json, plan_condition
from jobs.repositories.plans.plans_reader import find_plan
from jobs.repositories.plans.store import result_of, store
from jobs.repositories.racks import racks_as_of
from jobs.repositories.snapshots import find_snapshot, last_snapshot, live_brokers_as_of, refresh_hint, with_age
from jobs.repositories.vanished_topics import vanished_by
from jobs.runtime.console import CommandResult, Result, log, warn_once
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.snapshot import snapshot_line, take_snapshot, take_snapshot_of
from planner.load.load_figures import LoadFigures, load_in_json
from planner.load.resources import DISK
from planner.placement.plan_figures import stored_figures
from schemas.enums import PlanKind, PlanStatus
from schemas.plan_digest import NULL
from schemas.rows import Operation, PlanRecord, RejectionRecord, Row, Snapshot
from schemas.stored_plan import BEGUN, OPEN
from schemas.tables import SPARK_SCHEMAS

PLANNING_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.codegen.splitConsumeFuncByOperator": "false",
}
"""Spark settings for planning.

The tables that plans read have few, known shapes, so re-planning a query after each stage (AQE) costs more than it
gains. Generated methods would be too long for the JVM to compile and would be interpreted. If they were split by
operator, they would read every column of a row before checking whether the row is needed.
"""

OPERATIONS: Final = "operations"


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan's content before it has an id."""

    kind: PlanKind
    parameters: dict[str, Any]
    changes: DataFrame | None
    """None if the plan only has operations, which need no Spark."""
    rejections: DataFrame | None = None
    operations: list[Operation] = field(default_factory=list)
    rejected_operations: list[RejectionRecord] = field(default_factory=list)
    """Rejections of a plan that only has operations."""
    evidence: DataFrame | None = None
    at_most: int | None = None
    """Upper bound on changes plus rejections, if it is known and the rows are cheap to compute."""
    refused: str | None = None
    """Reason why the plan must not be committed; it is stored anyway, for review."""


Planner = Callable[[PlanningTables], PlanDraft]


def report_plan(settings: Settings, options: PlanOptions, planner: Planner) -> CommandResult:
    """Make a plan, and return what shows it; the exit code is CHANGES only if the detailed one was requested."""
    result = make_plan(settings, options, planner)
    warehouse = settings.warehouse
    result["operations"] = len(warehouse.rows("operations", ("plan_id", "=", result["plan_id"])))
    row = find_plan(warehouse, result["plan_id"])
    result["marked_brokers"] = brokers_to_mark(warehouse, row)
    due = bool(result["changes"] or result["operations"] or result["marked_brokers"])
    if deleted := deletion_impact_of(warehouse, row):
        result["deleted"] = [asdict(impact) for impact in deleted]
    result |= in_json(outage_left_by(warehouse, row))
    name = options.name or row.plan_id
    steps = after_planning(settings, row, name, due=due)
    steps += steps_of_moving_plans(settings, row)
    lines = plan_lines(settings, row, name) if settings.for_people else ()
    code = ExitCode.CHANGES if options.detailed and due else ExitCode.DONE
    return CommandResult(result, *lines, steps=steps, warnings=plan_warnings(warehouse, row), exit_code=code)


def make_plan(settings: Settings, options: PlanOptions, planner: Planner, cluster: Cluster | None = None) -> Result:
    """Plan on a snapshot and store the plan; if the name is taken, return that plan or refuse.

    The snapshot is taken first, from `cluster` if the caller has opened one, unless another is chosen, the cluster's
    address is not given, or a plan has the name already: the same plan is on the same snapshot.
    """
    warehouse, alias = settings.warehouse, Alias(options.name, options.replace_name)
    given, begun = options, _to_continue(settings, alias, options)
    if begun is not None:
        if begun.status in BEGUN and _has_same_goal(begun, options) and not reads_file(options.command):
            is_named = alias.name is None or alias.name in begun.all_names
            return _result(begun if is_named else give_name(warehouse, begun.plan_id, alias), alias)
        options = replace(given, snapshot_id=begun.snapshot_id, refresh=False)
    snapshot_id = options.snapshot_id
    is_new = _takes_snapshot(settings, options, alias)
    snapshot = find_snapshot(warehouse, _refreshed(settings, cluster) if is_new else snapshot_id)
    existing = None if alias.replaces else plan_named(warehouse, alias.name)
    if existing and alias.name and snapshot_id is None:
        refuse_older(existing, alias.name, snapshot.snapshot_id)
    _refuse_migration(snapshot)
    if not is_new:  # a new snapshot has reported what vanished
        if not existing and begun is None:  # else the plan that is continued has been named
            log(f"surveyor: {refresh_hint(snapshot, is_new=is_new)}")
        if vanished := vanished_by(warehouse, snapshot):
            log(f"surveyor: {vanished.sentence}", logging.WARNING)
    planning_tables, session = _planning_tables(settings, snapshot, is_new=is_new)
    with progress("planning", lambda: session.doing):
        planned = planner(planning_tables)
        if existing and alias.name:
            refuse_other_parameters(existing, alias.name, planned.kind, planned.parameters, snapshot_id)
            log(f"surveyor: {alias.name} is this plan already; {with_age(snapshot)}, and no new one was taken")
            return _result(existing, alias)
        if begun and (begun.kind, begun.parameters) != (planned.kind.value, parameters_json(planned.parameters)):
            log(f"surveyor: plan {begun.title} has other parameters, such as those of a file: a new plan is made")
            return make_plan(settings, replace(given, apply=False), planner, cluster)
        # a refused plan takes no name, so that the next attempt can have it
        result = _store(settings, planning_tables, Alias() if planned.refused else alias, planned, options.command)
    if planned.refused:
        untaken = (
            ""
            if alias.name is None
            else f" (it is stored without the name {alias.name!r}, which the next attempt can use)"
        )
        moved = steps_of_moving_plans(settings, find_plan(warehouse, result["plan_id"]))
        owners = "".join(f"\n  {step.what}: `{step.command}`" for step in moved)
        raise RefusedError(f"plan {result['plan_id']} is refused{untaken}: {planned.refused}{owners}", result)
    return result


def look(settings: Settings, options: PlanOptions, read: Callable[[PlanningTables], CommandResult]) -> CommandResult:
    """Return what `read` computes on the snapshot that a plan would be made on; no plan is stored."""
    is_new = _takes_snapshot(settings, options, Alias())
    snapshot = find_snapshot(settings.warehouse, _refreshed(settings, None) if is_new else options.snapshot_id)
    _refuse_migration(snapshot)
    planning_tables, session = _planning_tables(settings, snapshot, is_new=is_new)
    with progress("planning", lambda: session.doing):
        return read(planning_tables)


def _disk_limits(settings: Settings, brokers: Collection[int]) -> dict[int, float]:
    counting = broker_capacities(settings, brokers)
    for note in counting.notes:
        warn_once(note)
    capacities = summed_capacities(counting.rows)
    return {
        broker: known[DISK].amount * known[DISK].limit_share for broker, known in capacities.items() if DISK in known
    }


def _planning_tables(settings: Settings, snapshot: Snapshot, *, is_new: bool) -> "tuple[PlanningTables, _LazySession]":
    """Return the tables of a snapshot, and the session that reads them once it is needed."""
    warehouse = settings.warehouse
    warehouse.ensure_tables()
    tiny = snapshot.partitions is not None and snapshot.partitions <= settings.pace.small_cluster
    session = _LazySession(settings, tiny=tiny, one_task=tiny and _is_small(warehouse, "partition_history"))
    tables = PlanningTables(
        SparkWarehouse(session, warehouse, one_task=session.one_task),
        snapshot,
        is_new=is_new,
        racks=racks_as_of(warehouse, snapshot),
        registered_now=partial(_registered_now, settings),
        disk_limits=partial(_disk_limits, settings),
    )
    return tables, session


def _to_continue(settings: Settings, alias: Alias, options: PlanOptions) -> PlanRecord | None:
    """With --apply, return the plan of this name or goal that is not finished, whose commit is to be continued."""
    warehouse = settings.warehouse
    if not options.apply or alias.replaces or options.snapshot_id is not None or not warehouse.exists():
        return None
    existing = plan_named(warehouse, alias.name) or _begun_with_same_goal(settings, options)
    return existing if existing and existing.status in OPEN else None


def _begun_with_same_goal(settings: Settings, options: PlanOptions) -> PlanRecord | None:
    """Return the newest plan of the same goal whose commit can go on.

    Commands that differ in the plan's name or the throttle have the same goal.
    """
    max_age = settings.conf.limits.max_plan_age_hours * 3600
    newest = begun_plan(settings.warehouse, max_age, lambda plan: _has_same_goal(plan, options))
    if newest is not None:
        log(f"surveyor: plan {newest.title} of the same goal is {newest.status}, and is continued")
    return newest


def _has_same_goal(plan: PlanRecord, options: PlanOptions) -> bool:
    return goal_of(plan.command) == goal_of(options.command)


def _registered_now(settings: Settings) -> Registered | None:
    try:
        with settings.connect(settings.pace.live) as cluster:
            _, brokers = cluster.read_brokers()
            return Registered(cluster.medium, frozenset(row.broker_id for row in brokers if row.is_live))
    except SurveyorError:  # without an address, or without an answer
        return None


def _takes_snapshot(settings: Settings, options: PlanOptions, alias: Alias) -> bool:
    """Return whether a plan takes a snapshot first; raise RefusedError if that is requested under a name that is taken.

    The snapshot would be newer than the snapshot of the plan with the name.
    """
    if options.refresh is False or options.snapshot_id is not None:
        return False
    if options.refresh is None and not settings.has_address:
        return False
    existing = None if alias.replaces or not settings.warehouse.exists() else plan_named(settings.warehouse, alias.name)
    if existing and alias.name and options.refresh:
        refuse_refresh(existing, alias.name)
    return existing is None


def _refreshed(settings: Settings, cluster: Cluster | None) -> int:
    """Take a snapshot and return its id; an error of the snapshot also fails the plan."""
    try:
        taken = (
            take_snapshot(settings, _refuse_migrating)
            if cluster is None
            else take_snapshot_of(settings, cluster, _refuse_migrating)
        )
    except UnreadableError as error:
        last = last_snapshot(settings.warehouse) if cluster is None and settings.warehouse.exists() else None
        if last is not None:
            error.args = (f"{error}; or plan with --no-refresh: {with_age(last)}",)
        raise
    log(f"surveyor: {snapshot_line(settings.cluster, taken)}")
    return taken.row.snapshot_id


class _LazySession:
    """A Spark session started on first use, so that errors found before are reported at once."""

    def __init__(self, settings: Settings, *, tiny: bool, one_task: bool) -> None:
        self.settings, self.tiny, self.one_task, self.doing = settings, tiny, one_task, ""
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._session is None:
            self.doing = "starting the engine"
            self._session = _session(self.settings, tiny=self.tiny, one_task=self.one_task)
            self.doing = ""
        return self._session


def _is_small(warehouse: Warehouse, table: str) -> bool:
    """Return whether one task may sort a table; history grows with each change even on a small cluster."""
    count = warehouse.count(table)
    return count is not None and count <= MAX_DRIVER_ROWS


def _session(settings: Settings, *, tiny: bool, one_task: bool) -> SparkSession:
    """Return a session with the settings for plans, for a tiny cluster or any other."""
    session = start_session("surveyor plan", place=settings.place)
    if tiny:
        return with_settings(session, PLANNING_SETTINGS | (ONE_TASK if one_task else BROADCASTING))
    # tasks compile their code themselves if a rule is too long for a stage, so no more tasks than run at once
    tasks = {"spark.sql.shuffle.partitions": str(default_parallelism(session))}
    return with_settings(session, PLANNING_SETTINGS | tasks)


def _refuse_migrating(metadata: ClusterMetadata) -> None:
    """Refuse before a snapshot is taken on which nothing may be planned."""
    refuse_migration(metadata.migration)


def _refuse_migration(snapshot: Snapshot) -> None:
    if snapshot.migration:
        raise RefusedError(f"snapshot {snapshot.snapshot_id}: {migration_refusal(snapshot.migration)}")


def _store(settings: Settings, tables: PlanningTables, alias: Alias, planned: PlanDraft, command: str | None) -> Result:
    warehouse, snapshot = tables.warehouse, tables.snapshot
    content = PlanHeader(
        kind=planned.kind,
        parameters=planned.parameters,
        snapshot_id=snapshot.snapshot_id,
        cluster_id=snapshot.cluster_id,
        broker_epochs={row.broker_id: row.broker_epoch for row in live_brokers_as_of(warehouse, snapshot)},
        status=PlanStatus.REFUSED if planned.refused else PlanStatus.PLANNED,
        command=command,
    )
    rows = _rows(tables.spark_warehouse, planned)
    return _result(store(warehouse, alias, content, rows, partial(_load, settings, tables, planned, rows)), alias)


def _load(
    settings: Settings, tables: PlanningTables, planned: PlanDraft, rows: "InMemoryRows | _ArrowRows | _SparkRows"
) -> LoadFigures | None:
    """Return the load before and after a plan; None if it has no changes and moves no replicas."""
    if isinstance(rows, InMemoryRows) or not (planned.kind.traits.moves_replicas or rows.has_changes):
        return None
    return load_before_and_after(settings, tables, planned.kind, planned.parameters, rows.changes)


def _rows(tables: SparkWarehouse, planned: PlanDraft) -> "InMemoryRows | _ArrowRows | _SparkRows":
    if planned.changes is None:
        rejected = planned.rejected_operations
        return InMemoryRows(warehouse=tables.warehouse, changes=[], rejections=rejected, operations=planned.operations)
    frames = {"changes": planned.changes}
    if planned.rejections is not None:
        frames["rejections"] = planned.rejections
    return plan_rows(tables, frames, PlanParts(planned.operations, planned.evidence), planned.at_most)


def _result(plan: PlanRecord, alias: Alias) -> Result:
    """Return the JSON result; `name` is the one that was requested, if any."""
    return result_of(plan) | {"name": alias.name or plan.name} | stored_figures(plan) | load_in_json(plan)


@dataclass(frozen=True, slots=True)
class PlanParts:
    """The rows of a plan in addition to changes and rejections, which are few or none."""

    operations: Sequence[AnyRow] = ()
    evidence: DataFrame | None = None

    def write(self, tables: SparkWarehouse, plan_id: str) -> None:
        tables.warehouse.replace(
            OPERATIONS, [{**columns_of(row), "plan_id": plan_id} for row in self.operations], plan_condition(plan_id)
        )
        if self.evidence is not None:
            tables.replace("evidence", _owned(self.evidence, tables, plan_id), plan_condition(plan_id))


def plan_rows(
    tables: SparkWarehouse, rows: Mapping[str, DataFrame], extra: PlanParts, at_most: int | None
) -> "_ArrowRows | _SparkRows":
    """Collect a plan's rows if they are few, else leave them on Spark; `at_most` is an upper bound if known."""
    if at_most is None or at_most > tables.driver_rows:
        computed = {table: cache_and_count(frame) for table, frame in rows.items()}
        if sum(count for _, count in computed.values()) > tables.driver_rows:
            return _SparkRows(tables, computed, extra)
        rows = {table: frame for table, (frame, _) in computed.items()}
    return _ArrowRows(tables, {table: frame.toArrow() for table, frame in rows.items()}, extra)


@dataclass(frozen=True, slots=True)
class _ArrowRows:
    tables: SparkWarehouse
    rows: Mapping[str, pa.Table]
    extra: PlanParts

    @property
    def has_changes(self) -> bool:
        return bool(self.rows["changes"].num_rows)

    @property
    def changes(self) -> DataFrame:
        return self.tables.arrow(self.rows["changes"], SPARK_SCHEMAS["changes"])

    def summary(self, header: str) -> Row:
        return arrow_digest.summary(
            header, {**self.rows, OPERATIONS: arrow_digest.plan_in_arrow(OPERATIONS, self.extra.operations)}
        )

    def write(self, plan_id: str) -> None:
        warehouse = self.tables.warehouse
        owner = {"plan_id": plan_id, "cluster": warehouse.cluster}
        for table, rows in self.rows.items():
            if rows.num_rows:
                names = SPARK_SCHEMAS[table].names
                columns = [
                    pa.repeat(pa.scalar(owner[name]), rows.num_rows) if name in owner else rows[name] for name in names
                ]
                warehouse.replace_by(table, pa.table(columns, names=names), plan_condition(plan_id))
        self.extra.write(self.tables, plan_id)


@dataclass(frozen=True, slots=True)
class _SparkRows:
    tables: SparkWarehouse
    rows: Mapping[str, tuple[DataFrame, int]]
    """The rows of each table, computed, and their count."""
    extra: PlanParts

    @property
    def has_changes(self) -> bool:
        return bool(self.rows["changes"][1])

    @property
    def changes(self) -> DataFrame:
        return self.rows["changes"][0]

    def summary(self, header: str) -> Row:
        topic = F.coalesce("topic", F.lit(NULL))  # the digest hashes the rows of a topic together
        parts: dict[str, Iterable[pa.Table]] = {
            table: self.tables.collect_parts(table, _owned(rows, self.tables, ""), count, topic)
            for table, (rows, count) in self.rows.items()
        }
        operations = arrow_digest.plan_in_arrow(OPERATIONS, self.extra.operations)
        return arrow_digest.summary_of_parts(header, {**parts, OPERATIONS: [operations]})

    def write(self, plan_id: str) -> None:
        for table, (rows, _) in self.rows.items():
            owned = _owned(rows, self.tables, plan_id).select(*SPARK_SCHEMAS[table].names)
            self.tables.replace(table, owned, plan_condition(plan_id))
        self.extra.write(self.tables, plan_id)


def _owned(rows: DataFrame, tables: SparkWarehouse, plan_id: str) -> DataFrame:
    return rows.withColumns({"plan_id": F.lit(plan_id), "cluster": F.lit(tables.warehouse.cluster)})
