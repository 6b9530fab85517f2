"""`surveyor whatif` with --add, --remove or --growth: the load of brokers if the cluster changes.

New brokers are as the median of those that may hold replicas, in the racks with the fewest brokers. A change of brokers
is planned as `plan reassign --by-load` plans it, and growth multiplies all loads before, but not the number of replicas
and leaders. Nothing is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
from msgspec import structs, to_builtins

from jobs.console_output.load_scenario import BrokerState, ChangedBroker, SimulatedCluster, scenario_result
from jobs.console_output.plan_figures import rack_warnings
from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError, UsageError
from jobs.core.units import parse_share
from jobs.planning.placement.measured_loads import EVEN_WITHIN, MeasuredLoads, warn_without_load
from jobs.planning.placement.optimise import PlacementProblem, PlacementRequest, located, problem_of, read_problem
from jobs.planning.placement.partition_arrays import Scope
from jobs.planning.placement.placement_options import PlacementLimits, read_request
from jobs.planning.plan_draft import look
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.loads import find_window, partition_growth
from jobs.runtime.console import CommandResult
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.settings import Settings
from planner.columns.broker_weights import broker_weights
from planner.load.disk_forecast import seconds_until_full
from planner.load.load_figures import SHARES
from planner.placement.load_balancing.load_model import ReplicaLoads
from planner.placement.model import broker_indexes
from planner.placement.plan_figures import MULTIPLE_DIGITS, balance_figures, figures_of, worst_load
from planner.placement.types import (
    NO_BROKER,
    Bools,
    Floats,
    Ints,
    LoadBalance,
    Placement,
    PlacementBrokers,
    PlacementGoal,
    PlacementLoads,
)

DAYS: Final = 30
"""Days of --growth without --days."""

DAY_SECONDS: Final = 86_400

MOST_GROWTH: Final = 100.0
"""The highest --growth, a hundred times the loads."""

LIMITS: Final = PlacementLimits(even_within=EVEN_WITHIN)

AS_IT_IS: Final = PlacementRequest(goal=PlacementGoal(leaders=False, within=EVEN_WITHIN), scope=Scope())
"""No partition changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The change of a cluster: a number of new brokers, the ids of brokers to remove, and the growth of all loads."""

    add: int | None = None
    remove: str | None = None
    growth: str | None = None
    days: int | None = None

    def __post_init__(self) -> None:
        if self.add is not None and self.remove is not None:
            raise UsageError("--add and --remove exclude each other: simulate one after the other")

    @property
    def factor(self) -> float:
        """The loads after growth, as a multiple of those before."""
        return 1.0 if self.growth is None else 1 + parse_share("--growth", self.growth, MOST_GROWTH)

    @property
    def removed(self) -> list[int]:
        return [] if self.remove is None else sorted(parse_broker_ids(self.remove, "--remove"))


def report_scenario(settings: Settings, scenario: Scenario, snapshot: int | None) -> CommandResult:
    """Return the load of brokers before and after a change; raise UnreadableError or RefusedError without loads."""
    _ = scenario.factor, scenario.removed  # wrong values are found before anything is read
    options = PlanOptions(snapshot_id=snapshot, refresh=False)
    return look(settings, options, partial(_simulated, settings, scenario))


def _simulated(settings: Settings, scenario: Scenario, tables: PlanningTables) -> CommandResult:
    find_window(tables.warehouse)  # reports that there are no loads, and why
    loads = MeasuredLoads(settings=settings)
    now = read_problem(tables, AS_IT_IS, loads)
    then = _changed(now, scenario, tables, loads)
    warn_without_load(now.sizes)
    placed_now, (placed_then, unplaced) = now.placed()[0], then.placed()
    if scenario.removed and unplaced:
        raise RefusedError("; ".join(located(error, then.cluster) for error in unplaced))
    growth = _growth(now, scenario, tables)
    before = _states(now, now, placed_now, growth, tables.snapshot.taken_at)
    after = _states(then, now, placed_then, growth, tables.snapshot.taken_at)
    figures = balance_figures(placed_then, then.cluster.name_of, then.elections(placed_then)).get("load_balance")
    if (balance := placed_then.loads) is not None and figures is not None:
        is_kept = np.isin(balance.brokers, then.brokers.ids[then.brokers.target])
        today = _in_later_shares(balance, then, is_kept) / scenario.factor
        before = _with_worst(before, balance.brokers, today)
        after = _with_worst(after, balance.brokers[is_kept], balance.after[is_kept])
        figures["worst_before"] = to_builtins(worst_load(balance, today))
    brokers = [
        ChangedBroker(broker_id=broker, rack=rack, before=before.get(broker, BrokerState()), after=after[broker])
        for broker, rack in zip(then.brokers.ids.tolist(), then.brokers.racks, strict=True)
    ]
    simulated = SimulatedCluster(
        snapshot_id=tables.snapshot.snapshot_id,
        added=np.setdiff1d(then.brokers.ids, now.brokers.ids).tolist(),
        removed=scenario.removed,
        growth=round(scenario.factor - 1, 6),
        days=None if scenario.growth is None else scenario.days or DAYS,
        loads=now.sizes["loads"]["source"],
        capacities=_known_capacities(then.cluster.partitions.loads),
        worst_of=f"{SHARES[bool(figures and figures['by_capacity'])]} after the change",
        load_balance=figures,
        brokers=brokers,
        warnings=[
            *rack_warnings({"figures": figures_of(placed_then, {*then.brokers.ids[then.brokers.target].tolist()})})
        ],
    )
    return scenario_result(settings, simulated)


def _in_later_shares(balance: LoadBalance, then: PlacementProblem, is_kept: Bools) -> Floats:
    """Return the loads before a removal as multiples of the shares after it, as those after it are.

    The brokers before, of whose shares the loads are multiples, and those that are kept have the same loads in total.
    """
    loads = then.cluster.partitions.loads
    if loads is None:
        return balance.before
    capacity = loads.capacity[np.isin(then.brokers.ids, balance.brokers)][:, loads.evened]
    former, later = (broker_weights(capacity, counted) for counted in (np.ones_like(is_kept), is_kept))
    ratio = (former / former.sum(axis=0))[is_kept] / (later / later.sum(axis=0))[is_kept]
    scale = np.tile(ratio.mean(axis=0), (len(is_kept), 1))  # of removed brokers, which have no share after
    scale[is_kept] = ratio
    return np.asarray(balance.before * scale, dtype=np.float64)


def _with_worst(states: Mapping[int, BrokerState], brokers: Ints, multiples: Floats) -> dict[int, BrokerState]:
    """Add the highest of the multiples by (broker, resource) of each broker."""
    most = np.round(multiples.max(axis=1), MULTIPLE_DIGITS).tolist()
    worst = dict(zip(brokers.tolist(), most, strict=True))
    return {broker: structs.replace(state, worst=worst.get(broker)) for broker, state in states.items()}


def _changed(
    now: PlacementProblem, scenario: Scenario, tables: PlanningTables, loads: MeasuredLoads
) -> PlacementProblem:
    """Return the cluster of a scenario, with the goal of the plan that makes it."""
    then = now
    if scenario.remove is not None:
        given = read_request("--remove-brokers", scenario.remove, LIMITS)
        then = problem_of(tables, given.request, now.cluster, now.sizes, loads)
    elif scenario.add is not None:
        then = _with_new_brokers(now, scenario.add, tables, loads)
    grown = then.cluster.partitions.loads
    if scenario.growth is None or grown is None:
        return then
    factors = np.where(grown.evened, scenario.factor, 1.0)
    return then.with_loads(leader=_multiplied(grown.leader, factors), follower=_multiplied(grown.follower, factors))


def _multiplied(loads: Ints, factors: Floats) -> Ints:
    multiplied: Ints = np.rint(loads * factors).astype(np.int64)
    return multiplied


def _known_capacities(loads: PlacementLoads | None) -> list[str]:
    """Return the resources, without windows, of which the capacity of some broker is known."""
    if loads is None:
        return []
    known: Bools = np.any(~np.isnan(loads.capacity), axis=0)
    names = zip(loads.names, known.tolist(), strict=True)
    return sorted({name.split(" ", 1)[0] for name, is_known in names if is_known})


def _with_new_brokers(
    now: PlacementProblem, count: int, tables: PlanningTables, loads: MeasuredLoads
) -> PlacementProblem:
    brokers = now.brokers
    first = int(brokers.ids.max(initial=-1)) + 1
    ids = list(range(first, first + count))
    given = read_request("--add-brokers", ",".join(map(str, ids)), LIMITS)
    racks = [rack for rack, may_hold in zip(brokers.racks, brokers.target, strict=True) if may_hold]
    for _ in ids:  # ties by name, so that the same cluster gives the same plan
        racks.append(min({*racks}, key=lambda rack: (racks.count(rack), str(rack))))
    yes, no = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    larger = PlacementBrokers(
        ids=np.append(brokers.ids, ids),
        racks=(*brokers.racks, *racks[-count:]),
        live=np.append(brokers.live, yes),
        target=np.append(brokers.target, yes),
        emptied=np.append(brokers.emptied, no),
        cordoned=None if brokers.cordoned is None else np.append(brokers.cordoned, no),
    )
    rack_of = tables.racks.rack_of | dict(zip(larger.ids.tolist(), larger.racks, strict=True))
    cluster = loads.with_limits(now.cluster, larger, rack_of)
    problem, limited = replace(now, request=given.request, brokers=larger, cluster=cluster), cluster.partitions.loads
    if limited is None:
        return problem
    return problem.with_loads(
        capacity=_with_medians(limited.capacity, brokers.target), limit=_with_medians(limited.limit, brokers.target)
    )


def _with_medians(values: Floats, target: Bools) -> Floats:
    """Give the rows after those of `target`, which are new brokers, the median of each column where they lack a value.

    The median is NaN if a broker that may hold replicas lacks the value.
    """
    old, new = values[: len(target)], values[len(target) :]
    return np.concatenate([old, np.where(np.isnan(new), np.median(old[target], axis=0), new)])


def _growth(now: PlacementProblem, scenario: Scenario, tables: PlanningTables) -> Floats | None:
    """Return the bytes per second by which a replica of each partition grows; None if that is unknown."""
    partitions = now.cluster.partitions
    if scenario.growth is not None and partitions.weights is not None:
        seconds = (scenario.days or DAYS) * DAY_SECONDS
        return partitions.weights.astype(np.float64) * ((scenario.factor - 1) / seconds)
    measured = partition_growth(tables.warehouse, find_window(tables.warehouse))
    if measured is None:
        return None
    growth = np.zeros(now.cluster.names.num_rows)
    at = rows_of(measured.rows, now.cluster.names)
    is_here = at != NO_BROKER
    growth[at[is_here]] = measured.rows["growth"].to_numpy()[is_here]
    return growth


def _states(
    then: PlacementProblem, now: PlacementProblem, placed: Placement, growth: Floats | None, taken_at: datetime
) -> dict[int, BrokerState]:
    """Return the brokers of `then` by id; their disks are full when the sizes of `now` have grown to the capacity."""
    loads, today = then.cluster.partitions.loads, now.cluster.partitions.loads
    if loads is None or today is None:
        return {}
    ids = then.brokers.ids
    lists = broker_indexes(ids, placed.replicas.T, 0)
    share = np.nan_to_num(_held(loads, lists, len(ids)) / loads.capacity, nan=-1.0)
    largest = share.argmax(axis=1).tolist()
    full = _full_disks(today, lists, loads.capacity[:, 0], growth, taken_at)
    return {
        broker: BrokerState(
            share=round(float(share[place, column]), MULTIPLE_DIGITS) if share[place, column] >= 0 else None,
            resource=loads.names[column] if share[place, column] >= 0 else None,
            disk_full=disk_full,
        )
        for place, (broker, column, disk_full) in enumerate(zip(ids.tolist(), largest, full, strict=True))
    }


def _full_disks(
    today: PlacementLoads, lists: Ints, capacity: Floats, growth: Floats | None, taken_at: datetime
) -> list[datetime | None]:
    """Return when the disk of each broker is full; None if it does not grow, or nothing tells."""
    if growth is None or today.names[0] != "disk":
        return [None] * len(capacity)
    held = lists != NO_BROKER
    grows = np.bincount(lists[held], np.broadcast_to(growth, lists.shape)[held], len(capacity))
    sizes = _held(today, lists, len(capacity))[:, 0]
    columns = zip(sizes.tolist(), grows.tolist(), capacity.tolist(), strict=True)
    return [_full_at(size, grown, most, taken_at) for size, grown, most in columns]


def _held(loads: PlacementLoads, lists: Ints, brokers: int) -> Ints:
    return ReplicaLoads(leader=loads.leader, follower=loads.follower, size=loads.leader[:, 0]).of_broker(lists, brokers)


def _full_at(size: float, growth: float, capacity: float, taken_at: datetime) -> datetime | None:
    """Return when a disk is full, None if it does not grow."""
    seconds = seconds_until_full(size, growth, capacity)
    return None if seconds is None else (taken_at + timedelta(seconds=seconds)).replace(microsecond=0)
