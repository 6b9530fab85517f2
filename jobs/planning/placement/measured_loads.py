"""Measured loads for the optimiser: disk, and bytes in and out and CPU of each window, with the capacity of brokers.

The loads are those of a profile, whose version the plan names, or the mean of a window of hours. A partition without a
load counts as the mean of its topic, and as none if its topic has no load: the mean of other topics would be an
invented load. The plan records a digest of the loads, so equal loads give the same plan id.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.plan_load import no_load_warnings
from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError, UsageError
from jobs.core.units import age_seconds, format_age
from jobs.planning.placement.partition_arrays import NamedPartitions
from jobs.planning.placement.weights import DIGEST_LENGTH, UNKNOWN_SIZE, Weights, fill_unknown
from jobs.planning.plan_load import window_loads
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.capacities import broker_capacities
from jobs.repositories.load_basis import LoadRows, plan_loads
from jobs.repositories.loads import HOUR, NEWER_LOADS, WEEK, newest_window, no_loads
from jobs.runtime.console import log, warn, warn_once
from jobs.runtime.settings import LeadersConf, Settings
from planner.load.cpu_model import MODEL_COLUMNS, model_text, stored_model
from planner.load.load_figures import MEASURES
from planner.load.profiles import place_in_week
from planner.load.resources import CPU, LIMIT_SHARE, OUT, REPLICAS, RESOURCES
from planner.placement.plan_figures import PlannedLoads
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementBrokers, PlacementLoads
from schemas.enums import EVERY_HOUR
from schemas.rows import BrokerLoad, ProfiledLoad

EVEN_WITHIN: Final = 0.1
"""Share of the mean by which loads may differ from it, unless --within says otherwise."""

UNITS: Final = {"disk": 1, "in": 64, "out": 64, "cpu": 1_000_000}
"""The whole numbers that a byte, a byte per second and a percent of all cores are counted in."""

OF_LEADERS: Final = (OUT, CPU)
"""The resources of which a leader uses more than a follower."""

MAX_TOPICS: Final = 50
"""Topics whose leaders are counted, each of which is a resource of the search."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limited:
    """A resource that only has limits: the load of a leader and of a follower by row, and what every broker must have
    and may have at most.
    """

    leader: Ints
    follower: Ints | int = 0
    least: float = np.nan
    limit: float = np.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoads:
    """The options of a plan by load: `profile` or `window` name the loads, `resources` what is balanced."""

    settings: Settings
    resources: Sequence[str] = RESOURCES
    profile: str | None = None
    window: str | None = None
    relieve: float | None = None
    max_bytes: int | None = None
    copy: bool = True
    effort: int | None = None
    factor: int | None = None
    """The replication factor that the plan gives to partitions; None if it does not change."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The options as parameters of the plan."""
        given: dict[str, Any] = {
            "profile": self.profile,
            "window": self.window,
            "relieve": self.relieve,
            "budget": self.max_bytes,
            "effort": self.effort,
        }
        rules = self.settings.conf.leaders
        if rules != LeadersConf():
            given["leaders"] = msgspec.to_builtins(rules)
        resources = {} if set(self.resources) == set(RESOURCES) else {"resources": [*self.resources]}
        return {"by_load": True} | resources | {name: value for name, value in given.items() if value is not None}

    def weighed(self, tables: PlanningTables, cluster: NamedPartitions) -> tuple[NamedPartitions, dict[str, Any]]:
        """Return the partitions with their loads, and the figures about these for the plan."""
        found, windows = self._windows(tables)
        _warn_of_age(tables.warehouse)
        size = self._sizes(tables, cluster, next(iter(windows.values())))
        columns = list(self._columns(windows, cluster, size))
        wanted = self.resources if self.copy else OF_LEADERS
        if not any(column[0].split(" ", 1)[0] in wanted for column in columns):
            resources = ", ".join(wanted)
            raise RefusedError(
                f"no load of {resources} is known by {found.title}; measure it"
                + ", or choose other --resources" * self.copy
                + f"; CPU is {_without_cpu(tables.warehouse, found)}" * ("cpu" in self.resources)
            )
        if "cpu" in self.resources and not any(column[0].startswith("cpu") for column in columns):
            log(f"surveyor: the plan does not even CPU, which is {_without_cpu(tables.warehouse, found)}")
        measured, of_topic = _with_load(windows.values(), cluster)
        assumed = int((of_topic & ~measured).sum())
        if assumed:
            log(f"surveyor: {assumed} of {len(size)} partitions have no load; each counts as the mean of its topic")
        names, leader, follower, leader_before = zip(*columns, strict=True)
        ids = np.unique(cluster.partitions.replicas)
        loads = PlacementLoads(
            names=names,
            leader=np.stack(leader, axis=1),
            follower=np.stack(follower, axis=1),
            leader_before=None if self.factor is None else np.stack(leader_before, axis=1),
            capacity=np.full((len(ids), len(names)), np.nan),
            limit=np.full((len(ids), len(names)), np.nan),
            relieve=self.relieve,
            max_bytes=self.max_bytes,
            copy=self.copy,
            attempts=self.effort,
        )
        partitions = replace(cluster.partitions, weights=size, loads=loads, leader=cluster.leader)
        order = np.lexsort((partitions.partition, partitions.topic))
        digest = hashlib.sha256(np.concatenate([loads.leader, loads.follower], axis=1)[order].astype("<i8").tobytes())
        figures = {
            "source": found.title,
            "resources": [*names],
            "known": int(measured.sum()),
            "assumed": assumed,
            "without_load": int((~of_topic).sum()),
            "topics_without_load": len(np.unique(cluster.partitions.topic[~of_topic])),
            "digest": digest.hexdigest()[:DIGEST_LENGTH],
        }
        return replace(cluster, partitions=partitions), {"loads": figures}

    def with_limits(
        self, cluster: NamedPartitions, brokers: PlacementBrokers, rack_of: Mapping[int, str | None]
    ) -> NamedPartitions:
        """Return the partitions with the capacities and limits of these brokers, and the rules of leaders."""
        loads = cluster.partitions.loads
        if loads is None:
            return cluster
        capacities = broker_capacities(self.settings, brokers.ids.tolist())
        for note in capacities.notes if "disk" in loads.names else ():
            warn_once(note)
        rows = capacities.rows.to_pylist()
        limited = dict(
            self._limited(cluster, brokers, counts_replicas=any(row["resource"] == REPLICAS for row in rows))
        )
        loads = with_limited(loads, limited, len(brokers.ids))
        capacity = np.full((len(brokers.ids), len(loads.names)), np.nan)
        limit = loads.limit.copy()
        places = {broker: place for place, broker in enumerate(brokers.ids.tolist())}
        for row in rows:
            for column, name in enumerate(loads.names):
                if name.split(" ", 1)[0] == row["resource"]:
                    share = LIMIT_SHARE if row["limit_share"] is None else row["limit_share"]
                    units = row["capacity"] * UNITS.get(row["resource"], 1)
                    at = places[row["broker_id"]], column
                    capacity[at] = np.nan_to_num(capacity[at]) + units
                    limit[at] = np.nan_to_num(limit[at]) + share * units
        if self.relieve is not None and np.isnan(capacity[:, 0]).all():
            raise UsageError(
                "--relieve needs the size of disks: run `surveyor sizes` or `surveyor load sample`, or state it with "
                "`surveyor load import --capacity`"
            )
        loads = replace(loads, capacity=capacity, limit=limit, preferred=self._preferred(brokers, rack_of))
        return replace(cluster, partitions=replace(cluster.partitions, loads=loads))

    def _limited(
        self, cluster: NamedPartitions, brokers: PlacementBrokers, *, counts_replicas: bool
    ) -> Iterator[tuple[str, Limited]]:
        """Yield the resources that only have limits: replicas, and the leaders of the topics that rules name."""
        every = np.ones(cluster.names.num_rows, dtype=np.int64)
        if counts_replicas:
            yield REPLICAS, Limited(leader=every, follower=every)
        rules, able = self.settings.conf.leaders, max(int(brokers.target.sum()), 1)
        topics = pc.unique(cluster.names["topic"]).to_pylist()
        even = {topic for topic in topics for pattern in rules.even if re.fullmatch(pattern, topic)}
        named = sorted(even | (rules.min.keys() & {*topics}))
        if len(named) > MAX_TOPICS:
            raise UsageError(
                f"[clusters.{self.settings.cluster}.leaders] names {len(named)} topics; plans by load take {MAX_TOPICS}"
            )
        for topic in named:
            leads = pc.equal(cluster.names["topic"], topic).to_numpy().astype(np.int64)
            count, least = int(leads.sum()), rules.min.get(topic, 0)
            if least * able > count:
                warn_once(f"topic {topic} has {count} partitions, so {able} brokers cannot lead {least} each")
            bounds = (count // able, -(-count // able)) if topic in even else (0, np.nan)
            yield f"leaders of {topic}", Limited(leader=leads, least=max(least, bounds[0]), limit=bounds[1])

    def _preferred(self, brokers: PlacementBrokers, rack_of: Mapping[int, str | None]) -> Bools | None:
        """Return the brokers that leaders should be on, None for all."""
        racks = self.settings.conf.leaders.racks
        unknown = sorted({*racks} - {*rack_of.values()})
        if unknown:
            raise UsageError(f"[clusters.{self.settings.cluster}.leaders] racks: no broker is in {', '.join(unknown)}")
        if not racks:
            return None
        preferred: Bools = brokers.target & np.array([rack_of.get(broker) in racks for broker in brokers.ids.tolist()])
        return preferred

    def _sizes(self, tables: PlanningTables, cluster: NamedPartitions, rows: pa.Table) -> Ints:
        """Return the bytes of a replica of each partition; those of `surveyor sizes` if the loads have none."""
        sizes = _by_row(rows, "size_bytes", cluster, 1)
        if (sizes == UNKNOWN_SIZE).all():
            if not self.copy:
                return np.zeros_like(sizes)
            try:
                weighed, _ = Weights().weighed(tables, cluster)
            except RefusedError:
                raise RefusedError(
                    "no partition has a known size: run `surveyor sizes`, import `size_bytes` with the loads, or "
                    "`surveyor plan elect --by-load`, which copies nothing"
                ) from None
            known: Ints | None = weighed.partitions.weights
            if known is not None:
                return known
        return fill_unknown(sizes, cluster.partitions.topic, elsewhere=0)[0]

    def _windows(self, tables: PlanningTables) -> tuple[LoadRows, dict[str, pa.Table]]:
        """Return which loads count, and LOADS by window."""
        warehouse = tables.warehouse
        found = plan_loads(warehouse, self.profile, self.window)
        if self.profile is not None and (found is None or found.profile is None):
            known = pc.unique(warehouse.read(ProfiledLoad.TABLE, columns=["profile"])["profile"]).to_pylist()
            raise RefusedError(
                f"there is no profile {self.profile!r}; known are {', '.join(sorted(known)) or 'none'}: choose one of "
                f"them, or run `surveyor load profile --name {self.profile}`"
            )
        if found is None:
            raise no_loads(warehouse)
        if found.profile is None and found.window.newest is None and self.window is not None:
            raise RefusedError(f"--window {self.window}: only loads of every hour were imported; leave it out")
        rows = window_loads(tables, found).toArrow()
        names = [EVERY_HOUR]
        if found.profile is not None and rows.num_rows:
            names = sorted(pc.unique(rows["window"]).to_pylist(), key=place_in_week)
        return found, {name: rows.filter(pc.equal(rows["window"], name)) for name in names}

    def _columns(
        self, windows: dict[str, pa.Table], cluster: NamedPartitions, size: Ints
    ) -> Iterator[tuple[str, Ints, Ints, Ints]]:
        """Yield the name of each resource, and the loads of a leader, a follower, and a leader before the plan."""
        if "disk" in self.resources:
            yield "disk", size, size, size
        today = followers = (cluster.partitions.replicas != NO_BROKER).sum(axis=1) - 1
        if self.factor is not None:
            followers = np.where(cluster.partitions.movable, self.factor - 1, followers)
        for window, rows in windows.items():
            suffix = "" if window == EVERY_HOUR else f" {window}"
            received = _rates(rows, "bytes_in", cluster)
            sent = _rates(rows, "bytes_out", cluster)
            if "in" in self.resources and received is not None:
                yield f"in{suffix}", received, received, received
            if "out" in self.resources and (received is not None or sent is not None):
                none = np.zeros(len(size), dtype=np.int64)
                read, written = (none if rates is None else rates for rates in (sent, received))
                yield f"out{suffix}", read + written * followers, none, read + written * today
            if "cpu" in self.resources:
                leader, follower = (_rates(rows, name, cluster) for name in ("cpu_leader", "cpu_follower"))
                if leader is not None and follower is not None:
                    leader = np.maximum(leader, follower)
                    yield f"cpu{suffix}", leader, follower, leader


def sizes_of_loads(tables: PlanningTables, cluster: NamedPartitions) -> Ints | None:
    """Return the bytes of a replica of each partition by the loads of plans; None if these have none."""
    found = plan_loads(tables.warehouse)
    if found is None:
        return None
    sizes = _by_row(window_loads(tables, found).toArrow(), "size_bytes", cluster, 1)
    return None if (sizes == UNKNOWN_SIZE).all() else fill_unknown(sizes, cluster.partitions.topic)[0]


def warn_without_load(figures: Mapping[str, Any]) -> None:
    """Warn of partitions without a load, by the figures of `MeasuredLoads.weighed`; a stored plan does it itself."""
    for warning in no_load_warnings(msgspec.convert(figures["loads"], PlannedLoads)):
        warn(warning)


def _warn_of_age(warehouse: Warehouse) -> None:
    """Warn if the newest hour with loads is so old that they may not be those of the cluster any more."""
    window = newest_window(warehouse)
    newest = None if window is None else window.newest
    if newest is not None and age_seconds(newest + HOUR) > WEEK.total_seconds():
        warn(f"the newest hour with loads is {format_age(newest + HOUR)} old: {NEWER_LOADS}")


def _without_cpu(warehouse: Warehouse, found: LoadRows) -> str:
    """Return why the loads have no CPU."""
    if found.profile is not None:
        reason = model_text(stored_model(warehouse.read(ProfiledLoad.TABLE, *found.filters, columns=MODEL_COLUMNS)))
    elif warehouse.count_where(BrokerLoad.TABLE, *found.filters, ("cpu", ">=", 0.0)):
        return "modelled in profiles only: run `surveyor load profile`"
    else:
        reason = "not measured"
    return f"{reason}; `surveyor load import --prometheus URL` imports that of brokers"


def with_limited(loads: PlacementLoads, limited: Mapping[str, Limited], brokers: int) -> PlacementLoads:
    """Replace the resources that only have limits."""
    count, added = len(loads.leader), list(limited.values())
    evened, before = loads.evened, loads.leader_before
    unknown = np.full((brokers, int(evened.sum())), np.nan)
    of_leader = [np.broadcast_to(one.leader, count) for one in added]
    return replace(
        loads,
        names=(*(name for name in loads.names if name not in loads.limited), *limited),
        leader=np.column_stack([loads.leader[:, evened], *of_leader]),
        leader_before=None if before is None else np.column_stack([before[:, evened], *of_leader]),
        follower=np.column_stack([loads.follower[:, evened], *(np.broadcast_to(one.follower, count) for one in added)]),
        limit=np.column_stack([unknown, *(np.full(brokers, one.limit) for one in added)]),
        least=np.column_stack([unknown, *(np.full(brokers, one.least) for one in added)]),
        limited=frozenset(limited),
    )


def _rates(rows: pa.Table, name: str, cluster: NamedPartitions) -> Ints | None:
    """Return a rate of each partition in whole units, None if all are unknown.

    One that is unknown is the mean of its topic, or 0.
    """
    rates = _by_row(rows, name, cluster, UNITS["cpu" if name.startswith("cpu") else "in"])
    return None if (rates == UNKNOWN_SIZE).all() else fill_unknown(rates, cluster.partitions.topic, elsewhere=0)[0]


def _with_load(windows: Iterable[pa.Table], cluster: NamedPartitions) -> tuple[Bools, Bools]:
    """Return the partitions that have a load in some window, and those whose topic has one."""
    has = np.zeros(cluster.names.num_rows, dtype=bool)
    for rows in windows:
        for name in MEASURES:
            has |= _by_row(rows, name, cluster, 1) != UNKNOWN_SIZE
    topic = cluster.partitions.topic
    return has, np.isin(topic, topic[has])


def _by_row(rows: pa.Table, name: str, cluster: NamedPartitions, unit: int) -> Ints:
    """Return a column by partition of the cluster, in whole units; UNKNOWN_SIZE without a value."""
    values = np.full(cluster.names.num_rows, UNKNOWN_SIZE, dtype=np.int64)
    known = rows.select(["topic", "partition", name]).filter(pc.is_valid(rows[name]))
    if known.num_rows:
        at = rows_of(known, cluster.names)
        is_here = at != NO_BROKER
        values[at[is_here]] = np.rint(known[name].to_numpy()[is_here].astype(float) * unit).astype(np.int64)
    return values


def parse_resources(text: str | None) -> Sequence[str]:
    """Parse --resources.

    >>> parse_resources("out,disk")
    ('disk', 'out')
    """
    if text is None:
        return RESOURCES
    given = [part.strip() for part in text.split(",")]
    unknown = sorted({*given} - {*RESOURCES})
    if unknown:
        raise UsageError(f"--resources {', '.join(unknown)}: expected some of {', '.join(RESOURCES)}, as disk,out")
    return tuple(name for name in RESOURCES if name in given)
