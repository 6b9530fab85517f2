"""`surveyor plan reassign`: one command for all questions about where replicas should live.

Corresponds to kafka-reassign-partitions. Targets come from a file as they are, or from the optimiser; either way they
pass the lint, and a plan that fails it is stored as refused with its faults as rejections.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.errors import ExitCode, RefusedError, UsageError
from jobs.inputs import read_reassignment
from jobs.options import DetailedExitcode, command
from jobs.placing import placed
from jobs.planning import Name, Planned, Planner, SnapshotId, report_plan
from jobs.questions import Asked, Limits, ask
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables
from jobs.to_snapshot import former
from planner.lint import placement_faults
from planner.reassignment import reassignment_changes, reassignment_faults, reassignment_rejections
from planner.rejections import as_rejections
from schemas.names import Action, LintCode, PlanKind

FAULTS_SHOWN: Final = 10
BY_FILE: Final = "--reassignment-json-file"
BY_TOPICS: Final = "--topics-to-move-json-file"
BACK: Final = "--to-snapshot"


@command
def reassign(
    settings: Settings,
    *,
    reassignment_json_file: Annotated[
        Path | None,
        typer.Option(help="Targets, as kafka-reassign-partitions reads them; taken as they are."),
    ] = None,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(help="Topics to spread evenly over --broker-list, as kafka-reassign-partitions reads them."),
    ] = None,
    broker_list: Annotated[str | None, typer.Option(help="Broker ids, by comma: all that may hold them.")] = None,
    add_brokers: Annotated[str | None, typer.Option(help="New brokers, by comma, to get their even share.")] = None,
    remove_brokers: Annotated[str | None, typer.Option(help="Brokers, by comma, dead ones too, to empty.")] = None,
    replace: Annotated[str | None, typer.Option(help="7=107[,...]: what 7 holds goes to 107 where it can.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="Replicas of each partition.")] = None,
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Make replicas and leaders even.")] = False,
    fix_racks: Annotated[
        bool, typer.Option("--fix-racks", help="Spread replicas over as many racks as can be.")
    ] = False,
    to_snapshot: Annotated[int | None, typer.Option(help="Back to the replicas that this snapshot shows.")] = None,
    topics: Annotated[str | None, typer.Option(help="Only topics whose whole name matches this regex.")] = None,
    exclude: Annotated[str | None, typer.Option(help="But not those whose whole name matches this one.")] = None,
    max_moves: Annotated[int | None, typer.Option(min=0, help="Copy at most this many replicas.")] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    snapshot: SnapshotId = None,
    name: Name = None,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan where replicas live, by exactly one question: a file, brokers, a replication factor, evenness, racks, ..."""
    option, value = _only_one(
        {
            BY_FILE: reassignment_json_file,
            BY_TOPICS: topics_to_move_json_file,
            "--add-brokers": add_brokers,
            "--remove-brokers": remove_brokers,
            "--replace": replace,
            "--replication-factor": replication_factor,
            "--rebalance": rebalance or None,
            "--fix-racks": fix_racks or None,
            BACK: to_snapshot,
        },
    )
    if (option == BY_TOPICS) != (broker_list is not None):
        raise UsageError(f"{BY_TOPICS} and --broker-list go together")
    limits = Limits(
        topics=topics,
        exclude=exclude,
        max_moves=max_moves,
        rack_aware=not disable_rack_aware,
        brokers=broker_list,
    )
    if option == BACK:
        planner = _back(value, limits)
    else:
        planner = _foreign(value, limits) if option == BY_FILE else _optimised(ask(option, value, limits))
    return report_plan(settings, snapshot, name, planner, detailed=detailed_exitcode)


def _only_one(asked: Mapping[str, Any]) -> tuple[str, Any]:
    given = {option: value for option, value in asked.items() if value is not None}
    if len(given) != 1:
        found = f"not {' and '.join(given)}" if given else "none was given"
        raise UsageError(f"say exactly one of {', '.join(asked)}: {found}")
    return next(iter(given.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    """Targets and what is to be known of them before they are a plan."""

    rows: DataFrame
    parameters: dict[str, Any]
    factor_may_change: bool
    rack_aware: bool
    held: DataFrame | None = None

    def planned(self, at: SnapshotTables) -> Planned:
        """Plan the targets; refused if the lint finds a fault in one that would be a change."""
        known = self.rows, at["partitions"], at["topics"], at["brokers"]
        changes = reassignment_changes(*known).localCheckpoint()
        faults = self._faults(at, changes).localCheckpoint()
        rejections = reassignment_rejections(*known)
        for more in (self.held, _as_rejections(faults)):
            rejections = rejections if more is None else rejections.unionByName(more)
        first = faults.limit(FAULTS_SHOWN + 1).collect()
        named = [f"{row.topic}-{row.partition}: {row.fault}" for row in first]
        refused = _listed("the lint finds faults", named) if named else None
        return Planned(PlanKind.REASSIGN, self.parameters, changes, rejections, refused=refused)

    def _faults(self, at: SnapshotTables, changes: DataFrame) -> DataFrame:
        key = ["topic", "partition"]
        asked = self.rows.join(changes.select(*key), key, "left_semi")
        tables = (at[name] for name in ("partitions", "topics", "brokers", "broker_configs"))
        faults = placement_faults(asked, *tables, factor_may_change=self.factor_may_change)
        return faults if self.rack_aware else faults.where(F.col("code") != LintCode.RACKS_LOST.value)


def _optimised(asked: Asked) -> Planner:
    def planner(at: SnapshotTables) -> Planned:
        asked.refuse_unable(at)
        answer = placed(at, asked.wanted)
        return _Targets(
            rows=answer.targets,
            parameters={**asked.parameters, "figures": answer.figures},
            factor_may_change=asked.wanted.question.replication_factor is not None,
            rack_aware=asked.wanted.rack_aware,
            held=answer.held,
        ).planned(at)

    return planner


def _foreign(path: Path, limits: Limits) -> Planner:
    """Plan a file as it is: it says how many replicas there are to be."""
    if limits != Limits(rack_aware=limits.rack_aware):
        raise UsageError(f"{BY_FILE} is taken as it is: leave out --topics, --exclude and --max-moves")
    wanted = read_reassignment(path)

    def planner(at: SnapshotTables) -> Planned:
        targets = at.targets(wanted)
        known = targets, at["partitions"], at["topics"], at["brokers"]
        faults = [f"{row.topic}-{row.partition}: {row.fault}" for row in reassignment_faults(*known).collect()]
        if faults:
            raise RefusedError(_listed(f"{path} cannot be planned; mend these and plan again", faults))
        parameters = {"targets": wanted} if limits.rack_aware else {"targets": wanted, "rack_aware": False}
        return _Targets(
            rows=targets,
            parameters=parameters,
            factor_may_change=True,
            rack_aware=limits.rack_aware,
        ).planned(at)

    return planner


def _back(snapshot_id: int, limits: Limits) -> Planner:
    """Plan what an earlier snapshot shows, taken as it is: it says how many replicas there are to be."""
    if limits.max_moves is not None:
        raise UsageError(f"{BACK} is taken as it is: leave out --max-moves; --topics and --exclude make it smaller")
    stated = {"to_snapshot": snapshot_id, **limits.stated}
    scope = limits.scope()

    def planner(at: SnapshotTables) -> Planned:
        found = former(at, snapshot_id, scope)
        return _Targets(
            rows=found.targets,
            parameters=stated,
            factor_may_change=True,
            rack_aware=limits.rack_aware,
            held=found.held,
        ).planned(at)

    return planner


def _as_rejections(faults: DataFrame) -> DataFrame:
    return faults.withColumnRenamed("fault", "reason").transform(as_rejections, Action.REASSIGN)


def _listed(what: str, faults: Sequence[str]) -> str:
    more = "\n  and more" if len(faults) > FAULTS_SHOWN else ""
    listed = "\n  ".join(faults[:FAULTS_SHOWN])
    return f"{what}:\n  {listed}{more}"
