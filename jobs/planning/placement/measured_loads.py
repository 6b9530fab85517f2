"""Measured loads for the optimiser: disk, and bytes in and out and CPU of each window, with the capacity of brokers.

The loads are those of a profile, whose version the plan names, or the mean of a window of hours. A partition without a
load counts as the mean of its topic, or of all partitions if its topic has none. The plan records a digest of the
loads, so equal loads give the same plan id.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.errors import RefusedError, UsageError
from jobs.planning.placement.partition_arrays import NamedPartitions, rows_of
from jobs.planning.placement.weights import DIGEST_LENGTH, UNKNOWN_SIZE, Weights, fill_unknown
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.capacities import RESOURCES, broker_capacities
from jobs.repositories.loads import find_window, partition_means
from jobs.repositories.plan_loads import find_profile
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from planner.load.findings import LIMIT_SHARE
from planner.placement.types import NO_BROKER, Ints, PlacementLoads
from schemas.enums import EVERY_HOUR
from schemas.rows import ProfiledLoad
from schemas.text import pluralise

EVEN_WITHIN: Final = 0.1
"""Share of the mean by which loads may differ from it, unless --within says otherwise."""

UNITS: Final = {"disk": 1, "in": 64, "out": 64, "cpu": 1_000_000}
"""The whole numbers that a byte, a byte per second and a percent of all cores are counted in."""


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
        given = {
            "profile": self.profile,
            "window": self.window,
            "relieve": self.relieve,
            "budget": self.max_bytes,
            "effort": self.effort,
        }
        resources = {} if set(self.resources) == set(RESOURCES) else {"resources": [*self.resources]}
        return {"by_load": True} | resources | {name: value for name, value in given.items() if value is not None}

    def weighed(self, tables: PlanningTables, cluster: NamedPartitions) -> tuple[NamedPartitions, dict[str, Any]]:
        """Return the partitions with their loads, and the figures about these for the plan."""
        title, windows = self._windows(tables)
        size, assumed = self._sizes(tables, cluster, next(iter(windows.values())))
        columns = list(self._columns(windows, cluster, size))
        if not columns:
            raise RefusedError(
                f"no load of {', '.join(self.resources)} is known by {title}; measure it, or choose other --resources"
            )
        if assumed:
            log(f"surveyor: {assumed} of {len(size)} partitions have no load; each counts as the mean of its topic")
        names, leader, follower = zip(*columns, strict=True)
        ids = np.unique(cluster.partitions.replicas)
        loads = PlacementLoads(
            names=names,
            leader=np.stack(leader, axis=1),
            follower=np.stack(follower, axis=1),
            capacity=np.full((len(ids), len(names)), np.nan),
            limit=np.full((len(ids), len(names)), np.nan),
            relieve=self.relieve,
            max_bytes=self.max_bytes,
            copy=self.copy,
            attempts=self.effort,
        )
        partitions = replace(cluster.partitions, weights=size, loads=loads)
        order = np.lexsort((partitions.partition, partitions.topic))
        digest = hashlib.sha256(np.concatenate([loads.leader, loads.follower], axis=1)[order].astype("<i8").tobytes())
        figures = {
            "source": title,
            "resources": [*names],
            "known": len(size) - assumed,
            "assumed": assumed,
            "digest": digest.hexdigest()[:DIGEST_LENGTH],
        }
        return replace(cluster, partitions=partitions), {"loads": figures}

    def with_capacities(self, cluster: NamedPartitions, brokers: Ints) -> NamedPartitions:
        """Return the partitions with the capacities and limits of these brokers."""
        loads = cluster.partitions.loads
        if loads is None:
            return cluster
        rows = broker_capacities(self.settings, brokers.tolist())
        capacity = np.full((len(brokers), len(loads.names)), np.nan)
        limit = capacity.copy()
        places = {broker: place for place, broker in enumerate(brokers.tolist())}
        for row in rows.to_pylist():
            for column, name in enumerate(loads.names):
                if name.split(" ", 1)[0] == row["resource"]:
                    share = LIMIT_SHARE if row["limit_share"] is None else row["limit_share"]
                    units = row["capacity"] * UNITS[row["resource"]]
                    at = places[row["broker_id"]], column
                    capacity[at] = np.nan_to_num(capacity[at]) + units
                    limit[at] = np.nan_to_num(limit[at]) + share * units
        if self.relieve is not None and np.isnan(capacity[:, 0]).all():
            raise UsageError("--relieve needs the size of disks: run `surveyor sizes`, or `surveyor load sample`")
        return replace(
            cluster, partitions=replace(cluster.partitions, loads=replace(loads, capacity=capacity, limit=limit))
        )

    def _sizes(self, tables: PlanningTables, cluster: NamedPartitions, rows: pa.Table) -> tuple[Ints, int]:
        """Return the bytes of a replica of each partition, and how many are assumed; those of `surveyor sizes` if the
        loads have none.
        """
        sizes = _by_row(rows, "size_bytes", cluster, 1)
        if (sizes == UNKNOWN_SIZE).all():
            weighed, figures = Weights().weighed(tables, cluster)
            known: Ints | None = weighed.partitions.weights
            if known is not None:
                return known, figures["sizes"]["assumed"]
        return fill_unknown(sizes, cluster.partitions.topic)

    def _windows(self, tables: PlanningTables) -> tuple[str, dict[str, pa.Table]]:
        """Return a title of the loads, and the loads of partitions by window."""
        warehouse = tables.warehouse
        found = None if self.window is not None else find_profile(warehouse, self.profile)
        if found is not None:
            rows = warehouse.read(ProfiledLoad.TABLE, ("profile", "=", found.profile), ("version", "=", found.version))
            windows = sorted(pc.unique(rows["window"]).to_pylist())
            return found.title, {window: rows.filter(pc.equal(rows["window"], window)) for window in windows}
        if self.profile is not None:
            raise RefusedError(
                f"there is no profile {self.profile!r}; run `surveyor load profile --name {self.profile}`"
            )
        window = find_window(warehouse, self.window or "7d")
        if window.newest is None and self.window is not None:
            raise RefusedError(f"--window {self.window}: only loads of every hour were imported; leave it out")
        means = partition_means(warehouse, window).rows
        hours = f"the mean of {pluralise(len(window.hours), 'hour')} until {window.newest} UTC"
        return hours if window.newest else "imported loads", {EVERY_HOUR: means}

    def _columns(
        self, windows: dict[str, pa.Table], cluster: NamedPartitions, size: Ints
    ) -> Iterator[tuple[str, Ints, Ints]]:
        """Yield the name of each resource, and the loads of a leader and of a follower."""
        if "disk" in self.resources:
            yield "disk", size, size
        followers = (cluster.partitions.replicas != NO_BROKER).sum(axis=1) - 1
        if self.factor is not None:
            followers = np.where(cluster.partitions.movable, self.factor - 1, followers)
        for window, rows in windows.items():
            suffix = "" if window == EVERY_HOUR else f" {window}"
            received = _rates(rows, "bytes_in", cluster)
            sent = _rates(rows, "bytes_out", cluster)
            if "in" in self.resources and received is not None:
                yield f"in{suffix}", received, received
            if "out" in self.resources and (received is not None or sent is not None):
                none = np.zeros(len(size), dtype=np.int64)
                out = (none if sent is None else sent) + (none if received is None else received * followers)
                yield f"out{suffix}", out, none
            if "cpu" in self.resources and "cpu_leader" in rows.column_names:
                leader, follower = (_rates(rows, name, cluster) for name in ("cpu_leader", "cpu_follower"))
                if leader is not None and follower is not None:
                    yield f"cpu{suffix}", np.maximum(leader, follower), follower


def _rates(rows: pa.Table, name: str, cluster: NamedPartitions) -> Ints | None:
    """Return a rate of each partition in whole units, that of its topic's mean if it is unknown; None if all are."""
    rates = _by_row(rows, name, cluster, UNITS["cpu" if name.startswith("cpu") else "in"])
    return None if (rates == UNKNOWN_SIZE).all() else fill_unknown(rates, cluster.partitions.topic)[0]


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
