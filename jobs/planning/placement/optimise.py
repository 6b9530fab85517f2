"""From a request to targets: the partitions of a snapshot as arrays, the optimiser, and its result as rows for Spark.

The optimiser runs on the driver, on numpy arrays. A million partitions are a few hundred megabytes, and balance
concerns all brokers at once. The result has one row per partition and wave, as `planner.reassignment.targets` takes
them; its Arrow columns are computed without a loop over rows.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError
from jobs.planning.placement.measured_loads import MeasuredLoads, sizes_of_loads
from jobs.planning.placement.partition_arrays import NamedPartitions, Scope, lists_of, read_partitions
from jobs.planning.placement.weights import Weights, known_sizes
from jobs.planning.planning_tables import PlanningTables, since_snapshot
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.log_dirs import cordoned_brokers
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import live_brokers_as_of, unread_in
from jobs.runtime.console import warn
from planner.columns.change_rows import as_rejections
from planner.load.resources import DISK
from planner.placement.plan_figures import (
    Figures,
    balance_figures,
    byte_figures,
    figures_of,
    led_figures,
    other_successors,
    still_held,
    wave_figures,
)
from planner.placement.solve import evaluate_given, place
from planner.placement.types import (
    MAX_ROWS_NAMED,
    NO_BROKER,
    Bools,
    Ints,
    Placement,
    PlacementBrokers,
    PlacementError,
    PlacementGoal,
    PlacementPartitions,
)
from planner.placement.waves import WaveLimits, Waves, cut_into_waves, fewest_waves
from schemas import reasons
from schemas.enums import WHOLE_TOPIC, Action, RejectionCode
from schemas.text import join_ids, pluralise

NO_SIZES: Final = "no size of a log is known, so room on disks is not checked: run `surveyor sizes`"

REJECTED_COLUMNS: Final = "topic string, partition int, code string, reason string"

PARTITION_NAMES: Final = "topic string, partition int"

TARGETS: Final = "topic string, partition int, replicas array<int>, reason string, wave int"

INTERMEDIATE: Final = f"{TARGETS}, steps int, goal array<int>, earlier array<array<int>>"
"""`goal`: the final list. `earlier`: the lists of the waves before, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A request to the optimiser, with brokers and topics by name.

    `only`: no other brokers may hold the partitions that may change. `elects`: if moves change the preferred replica,
    it is elected.
    """

    goal: PlacementGoal
    scope: Scope
    emptied: frozenset[int] = frozenset()
    only: frozenset[int] | None = None
    rack_aware: bool = True
    caps: WaveLimits = field(default_factory=WaveLimits)
    elects: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """The result: targets with reasons and waves, rejections of partitions not considered, and figures.

    `given_up`: racks whose brokers are all emptied or dead. `may_hold`: the brokers that may be given replicas.
    `waves`: number of waves of the moves. `elected`: partitions that keep their lists and whose preferred replica is
    elected after the moves.
    """

    targets: DataFrame
    held: DataFrame | None
    figures: Figures
    given_up: frozenset[str] = frozenset()
    may_hold: frozenset[int] | None = None
    waves: int = 1
    elected: DataFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementProblem:
    """The input of the optimiser.

    `concerned` marks the rows of the request, `rackless` are brokers without a known rack, and `sizes` figures about
    weights or loads.
    """

    request: PlacementRequest
    cluster: NamedPartitions
    brokers: PlacementBrokers
    concerned: Bools
    rackless: set[int]
    sizes: Figures

    def placed(self) -> tuple[Placement, list[PlacementError]]:
        """Place what can be placed; also return the errors of the partitions that are not moved.

        Raise RefusedError if no partition of the request can be placed.
        """
        partitions, unplaced = self.cluster.partitions, list[PlacementError]()
        while True:
            try:
                return place(self.brokers, partitions, self.request.goal), unplaced
            except PlacementError as error:
                movable = partitions.movable.copy()
                movable[error.rows] = False
                if not error.rows or not (movable & self.concerned).any():
                    raise RefusedError(located(error, self.cluster)) from None
                partitions = replace(partitions, movable=movable)
                unplaced.append(error)

    def elections(self, placement: Placement) -> int:
        """Return the number of preferred replicas that are elected after the moves; see `elections_after_moves`."""
        if not self.request.elects:
            return 0
        replicas, leader = placement.replicas[placement.changed], self.cluster.leader[placement.changed]
        stays = (replicas == leader[:, None]).any(axis=1) & (replicas[:, 0] != leader)
        can_lead = np.isin(replicas[:, 0], self.brokers.ids[self.brokers.target])
        return int((stays & can_lead).sum() + self.led_elsewhere(placement).sum())

    def led_elsewhere(self, placement: Placement) -> Bools:
        """Mark the partitions that keep their list, and whose preferred replica is elected."""
        partitions = self.cluster.partitions
        preferred = partitions.replicas[:, 0]
        can_lead = np.isin(preferred, self.brokers.ids[self.brokers.target])
        if partitions.in_sync is not None:
            can_lead &= partitions.in_sync[:, 0]
        marked: Bools = partitions.movable & can_lead & (self.cluster.leader != preferred)
        marked[placement.changed] = False
        return marked & (self.request.elects and self.request.goal.reorder)

    def with_loads(self, **changes: Any) -> "PlacementProblem":  # noqa: ANN401 - fields of PlacementLoads
        """Return the problem with other loads or limits of loads."""
        partitions = self.cluster.partitions
        if partitions.loads is None:
            return self
        loads = replace(partitions.loads, **changes)
        return replace(self, cluster=replace(self.cluster, partitions=replace(partitions, loads=loads)))


def read_problem(
    tables: PlanningTables, request: PlacementRequest, weights: Weights | MeasuredLoads | None = None
) -> PlacementProblem:
    """Read the input of the optimiser from a snapshot; raise RefusedError if no broker may hold replicas."""
    cluster = read_partitions(tables, request.scope)
    sizes: Figures = {}
    if weights is not None:
        cluster, sizes = weights.weighed(tables, cluster)
    return problem_of(tables, request, cluster, sizes, weights)


def problem_of(
    tables: PlanningTables,
    request: PlacementRequest,
    cluster: NamedPartitions,
    sizes: Figures,
    weights: Weights | MeasuredLoads | None,
) -> PlacementProblem:
    """Return the problem of a request whose partitions are read and weighed, with the brokers that it concerns."""
    brokers, rackless = _brokers(tables, request, cluster.partitions)
    if isinstance(weights, MeasuredLoads):
        cluster = weights.with_limits(cluster, brokers, tables.racks.rack_of)
    if not brokers.target.any():
        raise RefusedError("no broker may hold replicas; start brokers, or name fewer")
    _refuse_too_many(request.goal, int(brokers.target.sum()))
    return PlacementProblem(
        request=request,
        cluster=cluster,
        brokers=brokers,
        concerned=_concerned(cluster.partitions, request),
        rackless=rackless,
        sizes=sizes,
    )


def optimise(
    tables: PlanningTables, request: PlacementRequest, weights: Weights | MeasuredLoads | None = None
) -> PlacementResult:
    """Run the optimiser on a snapshot; raise RefusedError if no placement keeps the rules.

    With `weights`, bytes or loads are balanced instead of replicas.
    """
    problem = read_problem(tables, request, weights)
    cluster, brokers, concerned, sizes = problem.cluster, problem.brokers, problem.concerned, problem.sizes
    placement, unplaced = problem.placed()
    barred, dead = np.flatnonzero(cluster.barred & concerned), placement.held[concerned[placement.held]]
    reason = (
        "a broker that is not live, or not understood, holds a replica; --remove-brokers or --replace moves it away"
    )
    held = [_rejected(cluster, dead, RejectionCode.REPLICA_NOT_ALIVE.value, reason)]
    held += [_rejected(cluster, np.array(error.rows), error.code, error.reason) for error in unplaced]
    held += _unknown_topics(request.scope, cluster, tables)
    whole = _Solution(
        cluster=cluster,
        brokers=brokers,
        placement=placement,
        barred=barred,
        elects=request.elects,
        elected=problem.led_elsewhere(placement),
        disk_limit=_disk_limit(tables, cluster, brokers, placement),
    )
    targets, figures, count = whole.in_waves(tables, request.caps)
    if request.goal.replacements:
        before, after = cluster.partitions.replicas, placement.replicas
        figures = {**figures, "other_successors": other_successors(before, after, request.goal.replacements)}
    if request.emptied:
        topics = cluster.names["topic"].to_pylist()
        figures = {**figures, "still_held": still_held(placement.replicas, topics, request.emptied)}
    return PlacementResult(
        targets=targets,
        held=tables.spark_warehouse.arrow(pa.concat_tables(held), REJECTED_COLUMNS).transform(
            as_rejections, Action.REASSIGN
        ),
        figures={
            **figures,
            "held": len(dead),
            "racks_unknown": _concerned_brokers(problem.rackless, cluster.partitions, placement),
            **byte_figures(brokers, cluster.partitions, placement),
            **balance_figures(placement, cluster.name_of, problem.elections(placement)),
            **sizes,
        },
        given_up=frozenset(placement.given_up),
        may_hold=frozenset(brokers.ids[brokers.target].tolist()),
        waves=count,
        elected=tables.spark_warehouse.arrow(cluster.names.filter(pa.array(whole.elected)), PARTITION_NAMES)
        if whole.elected.any()
        else None,
    )


def evaluate_targets(tables: PlanningTables, rows: pa.Table, caps: WaveLimits, *, rack_aware: bool) -> PlacementResult:
    """Compute the result of targets (topic, partition, replicas) that passed the lint: they exist and are unique."""
    cluster = read_partitions(tables, Scope())
    current = cluster.partitions.replicas
    request = PlacementRequest(goal=PlacementGoal(), scope=Scope(), rack_aware=rack_aware)
    brokers, rackless = _brokers(tables, request, cluster.partitions)
    targets = lists_of(rows["replicas"])
    target_indexes = rows_of(rows, cluster.names)
    replicas = np.full((len(current), max(current.shape[1], targets.shape[1])), NO_BROKER, dtype=np.int64)
    replicas[:, : current.shape[1]] = current
    replicas[target_indexes] = NO_BROKER
    replicas[target_indexes, : targets.shape[1]] = targets
    placement = evaluate_given(brokers, cluster.partitions, replicas)
    unchanged = np.setdiff1d(target_indexes, placement.changed)
    none = np.zeros_like(cluster.barred)
    whole = _Solution(cluster=cluster, brokers=brokers, placement=placement, barred=unchanged, elected=none)
    frame, figures, _ = whole.in_waves(tables, caps)
    unknown = _concerned_brokers(rackless, cluster.partitions, placement)
    return PlacementResult(targets=frame, held=None, figures={**figures, "held": 0, "racks_unknown": unknown})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Solution:
    """A placement with the names of its rows.

    `barred` are requested rows that stay unchanged. `elected` marks rows whose list stays, and whose preferred replica
    is elected.
    """

    cluster: NamedPartitions
    brokers: PlacementBrokers
    placement: Placement
    barred: Ints
    elected: Bools
    elects: bool = False
    disk_limit: Mapping[int, float] = field(default_factory=dict)
    """Bytes that each broker may hold during a wave; without brokers of unknown capacity."""

    def in_waves(self, tables: PlanningTables, caps: WaveLimits) -> tuple[DataFrame, Figures, int]:
        """Return the targets of each wave, the figures of all, and the number of waves."""
        planned, without_room = self._cut(tables, caps)
        rows, schema = (intermediate_rows, INTERMEDIATE) if caps.one_at_a_time else (target_rows, TARGETS)
        frame = tables.spark_warehouse.arrow(rows(self.cluster, self.placement, planned, self.barred), schema)
        allowed = set(self.brokers.ids[self.brokers.target].tolist())
        led = led_figures(self.placement, self.cluster.leader, allowed, self.elected, elects=self.elects)
        figures = {**figures_of(self.placement, allowed), **led}
        in_waves = bool(caps) or planned.count > 1
        more: Figures = {"waves": wave_figures(planned, fewest_waves(self.placement, caps))} if in_waves else {}
        more |= {"without_room": without_room} if without_room else {}
        return frame.localCheckpoint(), {**figures, **more}, planned.count

    def _cut(self, tables: PlanningTables, caps: WaveLimits) -> tuple[Waves, str]:
        """Cut into waves with room on the disks; also return a warning if no order has room, or no size is known.

        A plan by load is then refused, because its limits must hold.
        """
        partitions = self.cluster.partitions
        if self.disk_limit and partitions.weights is None:
            sizes = known_sizes(tables, self.cluster)
            if sizes is None:
                sizes = sizes_of_loads(tables, self.cluster)
            partitions = replace(partitions, weights=sizes)
        without_sizes = NO_SIZES if self.disk_limit and partitions.weights is None else ""
        rack_of = dict(zip(self.brokers.ids.tolist(), self.brokers.racks, strict=True))
        try:
            return cut_into_waves(partitions, self.placement, rack_of, caps, self.disk_limit), without_sizes
        except PlacementError as error:
            if partitions.loads is not None or not error.rows:
                raise RefusedError(located(error, self.cluster)) from None
            return cut_into_waves(partitions, self.placement, rack_of, caps), located(error, self.cluster)


def _disk_limit(
    tables: PlanningTables, cluster: NamedPartitions, brokers: PlacementBrokers, placement: Placement
) -> dict[int, float]:
    """Return the bytes that each broker may hold, by measured load those of its limit; empty if nothing is copied."""
    if not (placement.moves.target != NO_BROKER).any():
        return {}
    loads = cluster.partitions.loads
    if loads is None:
        return tables.disk_limits(brokers.ids.tolist())
    if loads.names[0] != DISK:
        return {}
    limits = zip(brokers.ids.tolist(), loads.limit[:, 0].tolist(), strict=True)
    return {broker: limit for broker, limit in limits if not np.isnan(limit)}


def located(error: PlacementError, cluster: NamedPartitions) -> str:
    """Format the error with the names of its partitions."""
    names = [
        f"{row['topic']}-{row['partition']}" for row in cluster.names.take(error.rows[:MAX_ROWS_NAMED]).to_pylist()
    ]
    return error.located(", ".join(names))


def _rejected(cluster: NamedPartitions, rows: Ints, code: str, reason: str) -> pa.Table:
    """Return rejected rows by name with the reason, as `as_rejections` takes them."""
    rejected = cluster.names.take(pa.array(rows, pa.int64()))
    return _with_reason(rejected["topic"].cast(pa.string()), rejected["partition"].cast(pa.int32()), code, reason)


def _unknown_topics(scope: Scope, cluster: NamedPartitions, tables: SnapshotTables) -> list[pa.Table]:
    """Return requested topics that have no partition in the snapshot: not understood, or not in it."""
    missing = set(scope.named or ()) - set(pc.unique(cluster.names["topic"]).to_pylist())
    not_understood = missing.intersection(unread_in(tables.warehouse, tables.snapshot).topics) if missing else set()
    unread = RejectionCode.NOT_UNDERSTOOD.value, reasons.TOPIC_NOT_UNDERSTOOD.render(command=QUARANTINE_COMMAND)
    absent = f"the topic is not in snapshot {tables.snapshot.snapshot_id}"
    unknown = RejectionCode.UNKNOWN_TOPIC.value, absent
    return [_whole_topics(sorted(not_understood), *unread), _whole_topics(sorted(missing - not_understood), *unknown)]


def _whole_topics(topics: Sequence[str], code: str, reason: str) -> pa.Table:
    whole = pa.array([WHOLE_TOPIC] * len(topics), pa.int32())
    return _with_reason(pa.array(topics, pa.string()), whole, code, reason)


def _with_reason(topic: pa.Array, partition: pa.Array, code: str, reason: str) -> pa.Table:
    texts = {"code": code, "reason": reason}
    columns = {name: pa.array([text] * len(topic), pa.string()) for name, text in texts.items()}
    return pa.table({"topic": topic, "partition": partition, **columns})


def _concerned_brokers(unknown: AbstractSet[int], partitions: PlacementPartitions, placement: Placement) -> list[int]:
    """Return the brokers that hold a replica of a changed partition."""
    return sorted(unknown & set(np.unique(partitions.replicas[placement.changed]).tolist()))


def _brokers(
    tables: PlanningTables, request: PlacementRequest, partitions: PlacementPartitions
) -> tuple[PlacementBrokers, set[int]]:
    """Return all brokers that are registered or hold a replica, and the brokers without a known rack.

    A dead broker is in the rack in which it was last seen. If no broker has a rack, none counts as unknown.
    """
    registered = {row.broker_id: row for row in live_brokers_as_of(tables.warehouse, tables.snapshot)}
    holding = set(np.unique(partitions.replicas[partitions.replicas != NO_BROKER]).tolist())
    ids = sorted(holding | registered.keys())
    emptied = request.emptied if request.only is None else frozenset(ids) - request.only
    _refuse_unknown(request, ids, tables)
    live = {broker for broker, row in registered.items() if row.understood}
    may_hold = live - drained_brokers(tables.warehouse) - emptied
    racks = tables.racks.rack_of if request.rack_aware else {}
    brokers = PlacementBrokers(
        ids=np.array(ids, dtype=np.int64),
        racks=tuple(racks.get(broker) for broker in ids),
        live=np.array([broker in live for broker in ids]),
        target=np.array([broker in may_hold for broker in ids]),
        emptied=np.array([broker in emptied for broker in ids]),
        cordoned=np.isin(ids, list(cordoned_brokers(tables.warehouse))),
    )
    return brokers, set(ids) - tables.racks.rack_of.keys() if any(brokers.racks) else set()


def _refuse_too_many(goal: PlacementGoal, brokers: int) -> None:
    factor = goal.replication_factor or 0
    if factor > brokers:
        raise RefusedError(f"--replication-factor {factor}: only {pluralise(brokers, 'broker')} may hold replicas")


def _refuse_unknown(request: PlacementRequest, known_brokers: list[int], tables: PlanningTables) -> None:
    """Raise RefusedError unless a broker to be emptied is known; unknown ones have nothing to move."""
    unknown = request.emptied.difference(known_brokers)
    if not unknown:
        return
    reason = (
        f"brokers {', '.join(map(str, sorted(unknown)))} are unknown: not live, and without replicas; "
        f"known brokers are {join_ids(known_brokers)}; {since_snapshot(tables, unknown)}"
    )
    if request.goal.replacements or unknown == request.emptied:
        raise RefusedError(reason)
    warn(f"{reason}; planned for {', '.join(map(str, sorted(request.emptied - unknown)))}")


def _concerned(partitions: PlacementPartitions, request: PlacementRequest) -> Bools:
    """Return the rows that the request concerns: all, or those on brokers to be emptied."""
    if not request.emptied:
        return np.ones(len(partitions.topic), dtype=bool)
    return np.asarray(np.isin(partitions.replicas, list(request.emptied)).any(axis=1), dtype=np.bool_)


def target_rows(cluster: NamedPartitions, placement: Placement, planned: Waves, barred: Ints) -> pa.Table:
    """Return the targets of each wave, and the requested partitions that may not change, unchanged."""
    reasons = pa.array(placement.reasons, pa.string()).take(pa.array(np.searchsorted(placement.changed, planned.row)))
    stay = _table(cluster, barred, cluster.partitions.replicas[barred], np.zeros_like(barred), [""] * len(barred))
    return pa.concat_tables([_table(cluster, planned.row, planned.after.T, planned.wave, reasons), stay])


def intermediate_rows(cluster: NamedPartitions, placement: Placement, planned: Waves, barred: Ints) -> pa.Table:
    """Return `target_rows` with the earlier and final lists of partitions that take several waves."""
    first = np.arange(len(planned.row)) - planned.nth
    of_step = np.arange(planned.nth.sum()) - np.repeat(np.cumsum(planned.nth) - planned.nth, planned.nth)
    before = lists(planned.after.T[np.repeat(first, planned.nth) + of_step])
    none = len(barred)
    offsets = _offsets(np.concatenate([planned.nth, np.zeros(none, dtype=np.int64)]))
    goals = np.concatenate([placement.replicas[planned.row], placement.replicas[barred]])
    return (
        target_rows(cluster, placement, planned, barred)
        .append_column("steps", pa.array(np.concatenate([planned.of, np.ones(none)]).astype(np.int32)))
        .append_column("goal", lists(goals))
        .append_column("earlier", pa.ListArray.from_arrays(offsets, before))
    )


def lists(replicas: Ints) -> pa.ListArray:
    """Convert padded rows of broker ids to lists."""
    filled = replicas != NO_BROKER
    return pa.ListArray.from_arrays(_offsets(filled.sum(axis=1)), replicas[filled].astype(np.int32))


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _table(cluster: NamedPartitions, rows: Ints, replicas: Ints, wave: Ints, reasons: pa.Array | list[str]) -> pa.Table:
    named = cluster.names.take(pa.array(rows))
    return pa.table(
        {
            "topic": named["topic"],
            "partition": named["partition"],
            "replicas": lists(replicas),
            "reason": pa.array(reasons, pa.string()),
            "wave": pa.array(wave.astype(np.int32)),
        },
    )
