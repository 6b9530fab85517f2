"""`surveyor plan elect`: elections asked for, of preferred replicas or where no leader is alive.

Only elections that find a leader are planned; whatever finds none is a rejection that says why.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame

from jobs.adapters.delta.lake import Row
from jobs.adapters.delta.spark_tables import counted
from jobs.assessment.limits import seconds
from jobs.basics.errors import ExitCode, UsageError
from jobs.planning.plan import Planned, Planning, question, report_plan
from jobs.records.snapshots import SnapshotTables
from jobs.runtime.inputs import read_election
from jobs.runtime.settings import Settings
from planner.leadership import offline, preferred
from planner.leadership.careful import broker_ages, with_cap, with_settled_brokers, with_stability
from planner.leadership.imbalance import imbalance
from planner.rows.requested import asked_for
from schemas.names import PlanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredRequest:
    """Leadership back to preferred replicas: of the partitions named, or of brokers above the threshold."""

    partitions: list[Row] | None
    threshold: float
    max_elections: int | None
    stable_for: int | None
    settle_seconds: float | None

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan on a snapshot, and rewrite its imbalance with this threshold."""
        partitions, topics, brokers = at["partitions"], at["topics"], at["brokers"]
        snapshot_id = at.snapshot["snapshot_id"]
        skew = imbalance(partitions, topics, snapshot_id, self.threshold).localCheckpoint()
        rows = [row.asDict() for row in skew.collect()]
        at.tables.lake.replace("imbalance", rows, f"snapshot_id = {snapshot_id}")
        wanted = _wanted(at, self.partitions)
        if wanted is None:
            wanted = preferred.wanted_by_imbalance(partitions, skew)
        asked = wanted.localCheckpoint()  # found once: it is joined twice
        verdicts = preferred.preferred_verdicts(partitions, topics, brokers, asked).localCheckpoint()
        careful, judged = counted(self._careful(at, verdicts, skew))
        changes, rejections = preferred.changes_of(careful), preferred.rejections_of(careful)
        parameters = {"election": "preferred", **asdict(self)}
        return Planned(PlanKind.ELECT, parameters, changes, rejections, at_most=judged)

    def _careful(self, at: SnapshotTables, verdicts: DataFrame, skew: DataFrame) -> DataFrame:
        """Set aside what had better wait; the cap comes last, so that it counts only what would go on."""
        snapshot_id = at.snapshot["snapshot_id"]
        if self.stable_for is not None:
            first = _first_of(at, self.stable_for)
            history = at["partition_history"]
            verdicts = with_stability(verdicts, history, first, snapshot_id, self.stable_for)
        if self.settle_seconds is not None:
            ages = broker_ages(at["brokers"], at["events"], at.tables.read("snapshots"), snapshot_id)
            verdicts = with_settled_brokers(verdicts, ages, self.settle_seconds)
        if self.max_elections is not None:
            verdicts = with_cap(verdicts.localCheckpoint(), skew, self.max_elections)
        return verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRequest:
    """Leaders for the partitions named, or for all that have none alive."""

    partitions: list[Row] | None
    unclean: bool

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan on a snapshot."""
        partitions, topics, brokers = at["partitions"], at["topics"], at["brokers"]
        wanted = _wanted(at, self.partitions)
        if wanted is None:
            wanted = offline.wanted_without_leader(partitions, brokers)
        asked = asked_for(wanted.localCheckpoint(), partitions, topics, brokers)
        verdicts, judged = counted(offline.offline_verdicts(asked, at["broker_configs"], unclean=self.unclean))
        changes, rejections = offline.changes_of(verdicts), offline.rejections_of(verdicts)
        parameters = {"election": "unclean" if self.unclean else "offline", "partitions": self.partitions}
        return Planned(PlanKind.ELECT, parameters, changes, rejections, at_most=judged)


def _wanted(at: SnapshotTables, partitions: list[Row] | None) -> DataFrame | None:
    return None if partitions is None else at.targets(partitions).select("topic", "partition")


def _first_of(at: SnapshotTables, count: int) -> int | None:
    """Return the id of the first of the last `count` snapshots, None if fewer are known."""
    until = ("snapshot_id", "<=", at.snapshot["snapshot_id"])
    ids = sorted(at.tables.lake.read("snapshots", until, columns=["snapshot_id"])["snapshot_id"].to_pylist())
    return ids[-count] if len(ids) >= count else None


@question
def elect(
    settings: Settings,
    *,
    preferred: Annotated[bool, typer.Option("--preferred", help="Give leadership back to preferred replicas.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Replace leaders that are not alive, as reconcile would.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="The same; where no ISR member is alive, by an election that may lose data."),
    ] = False,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            help="Only these partitions, as kafka-leader-election reads them "
            "[default: those of brokers above the threshold; those without a live leader].",
        ),
    ] = None,
    imbalance_threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Preferred: for brokers whose ratio is strictly above [default: 0.1]."),
    ] = None,
    max_elections: Annotated[
        int | None,
        typer.Option(min=1, help="Preferred: plan so many at most, those for the worst brokers first."),
    ] = None,
    stable_for: Annotated[
        int | None,
        typer.Option(min=1, help="Preferred: only where the replica has been in the ISR in the last K snapshots."),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(help="Preferred: not onto brokers that joined less than this before the snapshot: 10m, 2h."),
    ] = None,
    planning: Planning,
) -> ExitCode:
    """Plan elections that find a leader; the others are rejections."""
    _refuse_unclear({"--preferred": preferred, "--offline": offline, "--unclean": unclean})
    limits = {"--max-elections": max_elections, "--stable-for": stable_for, "--settle": settle}
    if not preferred:
        _refuse_for_others({"--imbalance-threshold": imbalance_threshold, **limits})
    partitions = None if path_to_json_file is None else read_election(path_to_json_file)
    asked: PreferredRequest | OfflineRequest
    if preferred:
        asked = PreferredRequest(
            partitions=partitions,
            threshold=settings.conf.imbalance_threshold if imbalance_threshold is None else imbalance_threshold,
            max_elections=max_elections,
            stable_for=stable_for,
            settle_seconds=None if settle is None else seconds(settle),
        )
    else:
        asked = OfflineRequest(partitions=partitions, unclean=unclean)
    return report_plan(settings, planning, asked.plan)


def _refuse_unclear(elections: dict[str, bool]) -> None:
    said = [flag for flag, given in elections.items() if given]
    if len(said) != 1:
        found = f", not {' and '.join(said)}" if said else ""
        raise UsageError(f"say which election, exactly one of {', '.join(elections)}{found}")


def _refuse_for_others(flags: dict[str, object]) -> None:
    said = [flag for flag, value in flags.items() if value is not None]
    if said:
        raise UsageError(f"{', '.join(said)}: only with --preferred; leave out what the other elections do not ask")
