"""Plans that drain brokers, for example before a shutdown, and plans that undrain them."""

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError
from jobs.planning.placement.partition_arrays import lists_of
from jobs.planning.plan_draft import PlanDraft, Planner
from jobs.planning.planning_tables import PlanningTables, partitions_with_requests, since_snapshot
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import live_brokers_as_of, refuse_empty, refuse_unversioned, table_as_of
from jobs.runtime.console import log
from planner.leadership.drain_changes import NEXT_LEADER, drain_changes, drain_rejections, drained_leaders
from planner.leadership.undrain_changes import (
    not_drained,
    restart_changes,
    restart_rejections,
    undrain_changes,
    undrain_rejections,
    undrain_targets,
)
from planner.placement.plan_figures import Figures, spread_figures
from planner.placement.solve import spread_leaders
from planner.placement.types import NO_BROKER
from schemas.enums import NO_LEADER, Action, DrainMode, Outcome, PlanKind, RejectionCode
from schemas.rows import Broker, DrainedBroker, PlanRecord
from schemas.text import MAX_PARTITIONS_NAMED, join_ids


def drain_planner(requested: list[int], mode: DrainMode, *, allow_offline: bool) -> Planner:
    """Plan that brokers lead no partition; refused if partitions would go offline, unless that is allowed."""

    def planner(tables: PlanningTables) -> PlanDraft:
        refuse_empty(tables.snapshot)
        if mode is DrainMode.RESIDENT:
            refuse_unversioned(tables.snapshot, "plan drain --mode resident", "omit --mode")
        brokers = live_brokers_as_of(tables.warehouse, tables.snapshot)
        ids = _drainable(requested, brokers, tables)
        able = _able_to_lead(ids, brokers, drained_brokers(tables.warehouse), tables.snapshot.snapshot_id)
        frames = partitions_with_requests(tables), tables["topics"], tables["brokers"]
        rejections = drain_rejections(*frames, ids, mode).localCheckpoint()
        leaders, figures = _spread(tables, drained_leaders(*frames, ids, mode), able)
        partitions = frames[0].join(F.broadcast(leaders), ["topic", "partition"], "left")
        return PlanDraft(
            PlanKind.DRAIN,
            {"brokers": ids, "mode": mode.value, "allow_offline": allow_offline, "figures": figures},
            drain_changes(partitions, *frames[1:], ids, mode),
            rejections,
            refused=None if allow_offline else _offline_refusal(rejections),
        )

    return planner


def undrain_planner(requested: list[int]) -> Planner:
    """Plan that drained brokers may lead again."""

    def planner(tables: PlanningTables) -> PlanDraft:
        drained = {row.broker_id: row for row in tables.warehouse.typed_rows(DrainedBroker)}
        ids = _drained_among(requested, drained, tables)
        frames = partitions_with_requests(tables), tables["topics"], not_drained(tables["brokers"], ids)
        if _mode_of(ids, drained) is DrainMode.RESIDENT:
            changes, rejections = restart_changes(*frames, ids), restart_rejections(*frames, ids)
        else:
            targets = undrain_targets(_applied_reorders(tables), ids, sorted(drained.keys() - ids)).localCheckpoint()
            changes, rejections = undrain_changes(targets, *frames), undrain_rejections(targets, *frames)
        return PlanDraft(PlanKind.UNDRAIN, {"brokers": ids}, changes, rejections)

    return planner


def _drainable(ids: Sequence[int], brokers: Sequence[Broker], tables: PlanningTables) -> list[int]:
    """Return the brokers that can be drained. Dead brokers lead nothing: raise an error only if all are dead."""
    understood = {row.broker_id: row.understood for row in brokers}
    gone = [broker for broker in ids if broker not in understood]
    live = join_ids(sorted(understood)) or "none"
    reason = (
        f"--brokers: {join_ids(gone)} not live in snapshot {tables.snapshot.snapshot_id}; live are {live}. "
        f"For dead brokers, run `surveyor status`; {since_snapshot(tables, gone) if gone else ''}"
    )
    ids = _keep_concerned(ids, understood, reason)
    not_understood = [str(broker) for broker in ids if not understood[broker]]
    if not_understood:
        raise RefusedError(
            f"--brokers: /brokers/ids/{not_understood[0]} cannot be decoded, so the broker cannot be notified; "
            "`surveyor show quarantine` shows why",
        )
    return ids


def _keep_concerned(ids: Sequence[int], concerned: Container[int], reason: str) -> list[int]:
    """Return the ids that are concerned and log why others are left out; raise RefusedError if none is left."""
    rest = [broker for broker in ids if broker in concerned]
    if not rest:
        raise RefusedError(reason)
    if len(rest) < len(ids):
        log(f"surveyor: {reason}; planned for {join_ids(rest)}")
    return rest


def _able_to_lead(
    ids: Sequence[int], brokers: Sequence[Broker], drained: AbstractSet[int], snapshot_id: int
) -> list[int]:
    """Return the brokers that can lead after the drain.

    Raise RefusedError if there are none: with all brokers last, the replica order would not change.
    """
    able = {row.broker_id for row in brokers if row.understood}.difference(drained, ids)
    if not able:
        others = f"; {join_ids(sorted(drained))} drained already" if drained else ""
        raise RefusedError(
            f"--brokers: no broker of snapshot {snapshot_id} could lead{others}; name fewer",
        )
    return sorted(able)


def _spread(tables: PlanningTables, candidates: DataFrame, able: list[int]) -> tuple[DataFrame, Figures]:
    """Return the next leader of each partition with `candidates` (topic, partition, next_leader), and the figures.

    Leaders of the brokers `able` to lead become as even as the candidates allow; the other partitions keep theirs.
    """
    rows = table_as_of(tables.warehouse, tables.snapshot, "partitions", columns=("topic", "partition", "leader"))
    led = candidates.toArrow()
    topics = rows["topic"].combine_chunks().cast(pa.string())
    leader = pc.fill_null(rows["leader"], NO_LEADER).to_numpy().astype(np.int64)
    of_led, numbers = lists_of(led["candidates"]), rows_of(led, rows)
    lists = np.full((len(leader), of_led.shape[1]), NO_BROKER, dtype=np.int64)
    lists[numbers] = of_led
    names = pc.rank(topics, tiebreaker="dense").to_numpy().astype(np.int64), rows["partition"].to_numpy()
    after = spread_leaders(names, leader, lists, np.array(able, dtype=np.int64))
    chosen = led.select(["topic", "partition"]).append_column(NEXT_LEADER, pa.array(after[numbers], pa.int32()))
    frame = tables.spark_warehouse.arrow(chosen, f"topic string, partition int, {NEXT_LEADER} int")
    return frame, spread_figures(leader, after, able)


def _drained_among(ids: Sequence[int], drained: Mapping[int, DrainedBroker], tables: PlanningTables) -> list[int]:
    """Return the brokers that are drained, as the snapshot has them."""
    not_drained_ids = [str(broker) for broker in ids if broker not in drained]
    drained_ids = join_ids(sorted(drained)) or "none"
    reason = (
        f"--brokers: {', '.join(not_drained_ids)} not drained; drained are {drained_ids}. "
        "A drain is active once its commit has begun; in resident mode it ends when another controller takes over"
    )
    ids = _keep_concerned(ids, drained, reason)
    snapshot = tables.snapshot
    later = [str(broker) for broker in ids if drained[broker].since > snapshot.taken_at]
    if later:
        raise RefusedError(
            f"--brokers: {', '.join(later)} drained after snapshot {snapshot.snapshot_id}, which has the order "
            "before the drain; run `surveyor snapshot` again",
        )
    return ids


def _mode_of(ids: Sequence[int], drained: Mapping[int, DrainedBroker]) -> DrainMode:
    """Return the drain mode of these brokers, which must be the same for all.

    A plan is executed either by Kafka's controller (admin mode) or by Surveyor (resident mode).
    """
    modes = sorted({drained[broker].mode for broker in ids})
    if len(modes) > 1:
        listed = ", ".join(f"{broker} in {drained[broker].mode} mode" for broker in ids)
        raise RefusedError(f"--brokers: drained are {listed}; undrain the brokers of each mode separately")
    return DrainMode(modes[0])


def _offline_refusal(rejections: DataFrame) -> str | None:
    """Return the refusal if partitions would go offline, else None."""
    doomed = rejections.where(F.col("code") == RejectionCode.WOULD_GO_OFFLINE.value)
    rows = doomed.orderBy("topic", "partition").limit(MAX_PARTITIONS_NAMED + 1).collect()
    if not rows:
        return None
    names = [f"{row.topic}-{row.partition} ({row.reason})" for row in rows[:MAX_PARTITIONS_NAMED]]
    more = f"\n  and {doomed.count() - MAX_PARTITIONS_NAMED} more" if len(rows) > MAX_PARTITIONS_NAMED else ""
    listed = "\n  ".join(names)
    return f"partitions would go offline when the brokers stop; --allow-offline plans it anyway:\n  {listed}{more}"


def _applied_reorders(tables: SnapshotTables) -> DataFrame:
    """Return the replica reorders that drains and undrains applied, with the time of each."""
    warehouse = tables.warehouse
    kinds = (PlanKind.DRAIN, PlanKind.UNDRAIN)
    plans = [row.plan_id for kind in kinds for row in warehouse.typed_rows(PlanRecord, ("kind", "=", kind.value))]
    key = ["plan_id", "wave", "topic", "partition"]
    applied = (
        tables.spark_warehouse.read("commits")
        .where(F.col("plan_id").isin(*plans) & (F.col("outcome") == Outcome.APPLIED.value))
        .groupBy(*key)
        .agg(F.min("committed_at").alias("at"))
    )
    return (
        tables.spark_warehouse.read("changes")
        .where(F.col("plan_id").isin(*plans) & (F.col("action") == Action.REASSIGN.value))
        .join(applied, key)
        .select("topic", "partition", "topic_id", "replicas_before", "replicas_after", "at")
    )
