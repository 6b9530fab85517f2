"""`--throttle auto`: replication throttles of brokers for an hour, by their capacities and their load in that hour.

The load is that of the same hour of the last weeks, else of the newest hour, as `surveyor load rollup` and `surveyor
load import` stored it. So copies are slow while a broker is busy, and faster when it is not.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from math import inf
from typing import Final

import pyarrow.compute as pc

from jobs.core.errors import RefusedError
from jobs.core.units import hour_of
from jobs.measurement.load_summary import read_capacities
from jobs.repositories.loads import DAY, HOUR, WEEK, LoadWindow, broker_loads, newest_window, read_assignment
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.settings import Settings
from planner.load.resources import IN, OUT
from planner.load.throttle_rates import LOAD, ThrottleRate, present_loads, throttle_rates, unknown_brokers
from schemas.text import broker_list

WEEKS: Final = 4
"""Weeks of which the same hour counts."""

_MEASURE: Final = "`surveyor load sample` and `surveyor load rollup` measure the load of the last day"
_STATE: Final = "`surveyor load import --capacity FILE` states capacities"


def rates_at(
    settings: Settings, brokers: Collection[int], live: Collection[int], now: datetime
) -> Mapping[int, ThrottleRate]:
    """Return the rates of brokers in the hour of `now`; raise RefusedError if a load or a capacity is not known.

    A broker that is not live, and whose load is not known, has the lowest rate.
    """
    loads, capacities = _loads_at(settings, brokers, now), read_capacities(settings, brokers)
    loads |= {broker: {IN: inf, OUT: inf} for broker in brokers if broker not in loads and broker not in live}
    unknown = unknown_brokers(brokers, loads, capacities)
    if not unknown:
        return throttle_rates(brokers, loads, capacities)
    missing = ", and ".join(f"{name} of {broker_list(some)}" for name, some in unknown.items())
    commands = [_MEASURE] * (LOAD in unknown) + [_STATE] * (unknown.keys() > {LOAD} or LOAD not in unknown)
    raise RefusedError(f"--throttle auto needs {missing}: {'; '.join(commands)}; or give a rate, as --throttle 50MB/s")


def _loads_at(settings: Settings, brokers: Collection[int], now: datetime) -> dict[int, Mapping[str, float]]:
    """Return the loads of brokers in the hour of `now`; a broker without a replica has none."""
    warehouse, hour = settings.warehouse, hour_of(now)
    newest = newest_window(warehouse, hour + HOUR)
    if newest is None:
        return {}
    snapshot = last_snapshot(warehouse)
    of_week = [LoadWindow((hour - number * WEEK,)) for number in range(1, WEEKS + 1)]
    is_recent = newest.newest is None or hour - newest.newest <= DAY
    loads = present_loads(
        [load for window in of_week for load in broker_loads(warehouse, window, snapshot)],
        broker_loads(warehouse, newest, snapshot) if is_recent else [],
    )
    if loads and not loads.keys() >= {*brokers} and snapshot is not None:
        holding = pc.unique(pc.list_flatten(read_assignment(warehouse, snapshot)["replicas"])).to_pylist()
        loads |= {broker: {IN: 0.0, OUT: 0.0} for broker in brokers if broker not in loads and broker not in holding}
    return loads
