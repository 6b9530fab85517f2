"""`plan elect`: elections of preferred replicas, of given partitions or of brokers above the imbalance threshold.

Only elections that find a leader are planned; the other partitions are rejections with a reason.
"""

from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame

from jobs.adapters.delta.spark_warehouse import cache_and_count
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.recover import partition_parameters
from jobs.repositories.snapshot_tables import SnapshotTables
from planner.leadership import preferred_election
from planner.leadership.imbalance import imbalance
from planner.leadership.preferred_election_deferral import (
    broker_ages,
    defer_over_cap,
    defer_recent_brokers,
    defer_unstable,
)
from schemas.enums import PlanKind
from schemas.rows import Key, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredRequest:
    """Elections of preferred replicas, for given partitions or for brokers above the threshold."""

    partitions: list[Key] | None
    threshold: float
    max_elections: int | None
    stable_for: int | None
    settle_seconds: float | None

    def plan(self, tables: SnapshotTables) -> PlanDraft:
        """Plan on a snapshot, and rewrite its imbalance with this threshold."""
        partitions, topics, brokers = tables["partitions"], tables["topics"], tables["brokers"]
        snapshot_id = tables.snapshot.snapshot_id
        skew = imbalance(partitions, topics, snapshot_id, self.threshold).localCheckpoint()
        rows = [row.asDict() for row in skew.collect()]
        tables.warehouse.replace("imbalance", rows, f"snapshot_id = {snapshot_id}")
        candidates = None if self.partitions is None else tables.requested(self.partitions)
        if candidates is None:
            candidates = preferred_election.candidates_by_imbalance(partitions, skew)
        considered = candidates.localCheckpoint()  # computed once, as it is joined twice
        verdicts = preferred_election.preferred_verdicts(partitions, topics, brokers, considered).localCheckpoint()
        guarded, judged = cache_and_count(self._with_guards(tables, verdicts, skew))
        changes, rejections = preferred_election.changes_of(guarded), preferred_election.rejections_of(guarded)
        parameters = {"election": "preferred", **asdict(self), "partitions": _stated(self.partitions)}
        return PlanDraft(PlanKind.ELECT, parameters, changes, rejections, at_most=judged)

    def _with_guards(self, tables: SnapshotTables, verdicts: DataFrame, skew: DataFrame) -> DataFrame:
        """Apply the guards; the cap comes last, so that it only counts elections that are not deferred."""
        snapshot_id = tables.snapshot.snapshot_id
        if self.stable_for is not None:
            first = _first_snapshot_of(tables, self.stable_for)
            history = tables.spark_warehouse.read("partition_history")
            verdicts = defer_unstable(verdicts, history, first, snapshot_id, self.stable_for)
        if self.settle_seconds is not None:
            ages = broker_ages(
                tables["brokers"],
                tables.spark_warehouse.read("events"),
                tables.spark_warehouse.read("snapshots"),
                snapshot_id,
            )
            verdicts = defer_recent_brokers(verdicts, ages, self.settle_seconds)
        if self.max_elections is not None:
            verdicts = defer_over_cap(verdicts.localCheckpoint(), skew, self.max_elections)
        return verdicts


def _stated(partitions: list[Key] | None) -> list[Row] | None:
    """Return the partitions as the plan's parameters state them."""
    return None if partitions is None else partition_parameters(partitions)


def _first_snapshot_of(tables: SnapshotTables, count: int) -> int | None:
    """Return the id of the first of the last `count` snapshots, None if there are fewer."""
    until = ("snapshot_id", "<=", tables.snapshot.snapshot_id)
    ids = sorted(tables.warehouse.read("snapshots", until, columns=["snapshot_id"])["snapshot_id"].to_pylist())
    return ids[-count] if len(ids) >= count else None
