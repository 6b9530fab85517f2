"""Rates of replication throttles that follow the load of brokers: copies get what the limit leaves above the load.

Kafka has no such rule: the rate of `kafka-reassign-partitions --throttle` is the same for all brokers and hours.
"""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Final

from msgspec import Struct

from planner.load.findings import used_by
from planner.load.resources import IN, OUT, Capacities, Capacity
from schemas.rows import BrokerLoad

FLOOR_SHARE: Final = 0.02
"""Share of a capacity that copies get at least, so that they end on a broker that is at its limit."""


class ThrottleRate(Struct, frozen=True):
    """Bytes per second of copies that a broker may receive and send."""

    receive: int
    send: int
    is_least: bool = False
    """Whether one of them is FLOOR_SHARE of a capacity, because the load leaves no more below the limit."""


Rates = int | Mapping[int, ThrottleRate]
"""Bytes a second for each broker, or its own ones."""


LOAD: Final = "the load"
"""A load that is not known, in messages."""

Loads = Mapping[int, Mapping[str, float]]
"""Bytes per second by broker and by resource, IN and OUT, replication included."""


def present_loads(of_week: Sequence[BrokerLoad], newest: Sequence[BrokerLoad]) -> dict[int, Mapping[str, float]]:
    """Return the loads that brokers have at present: the most in the same hour of the week, else the newest.

    `of_week` has that hour of several weeks, `newest` the newest hour.
    """
    present: dict[int, Mapping[str, float]] = {load.broker_id: used_by(load) for load in newest}
    for broker in {load.broker_id for load in of_week}:
        used = [used_by(load) for load in of_week if load.broker_id == broker]
        present[broker] = {resource: max(amounts[resource] for amounts in used) for resource in (IN, OUT)}
    return present


def throttle_rates(brokers: Collection[int], loads: Loads, capacities: Capacities) -> dict[int, ThrottleRate]:
    """Return the rates of brokers; their loads and the capacities of IN and OUT must be known.

    >>> capacities = {1: {"in": Capacity(100.0, 0.8), "out": Capacity(200.0, 0.8)}}
    >>> throttle_rates([1], {1: {"in": 30.0, "out": 159.0}}, capacities)
    {1: ThrottleRate(receive=50, send=4, is_least=True)}
    """
    rates = {}
    for broker in sorted(brokers):
        both = [(capacities[broker][resource], loads[broker][resource]) for resource in (IN, OUT)]
        is_least = any(
            isfinite(load) and _free(capacity, load) < FLOOR_SHARE * capacity.amount for capacity, load in both
        )
        receive, send = (_rate(capacity, load) for capacity, load in both)
        rates[broker] = ThrottleRate(receive=receive, send=send, is_least=is_least)
    return rates


def _free(capacity: Capacity, load: float) -> float:
    """Return what the limit leaves above the load."""
    return capacity.limit_share * capacity.amount - load


def _rate(capacity: Capacity, load: float) -> int:
    return int(max(_free(capacity, load), FLOOR_SHARE * capacity.amount, 1.0))


def unknown_brokers(brokers: Collection[int], loads: Loads, capacities: Capacities) -> dict[str, list[int]]:
    """Return the brokers of which the load, or a capacity, is not known, by what is missing.

    >>> unknown_brokers([1, 2], {1: {}}, {1: {"in": Capacity(100.0)}, 2: {"in": Capacity(9.0), "out": Capacity(9.0)}})
    {'the load': [2], 'the capacity of out': [1]}
    """
    known = {LOAD: loads} | {
        f"the capacity of {resource}": [broker for broker in brokers if resource in capacities.get(broker, {})]
        for resource in (IN, OUT)
    }
    missing = {name: [broker for broker in sorted(brokers) if broker not in some] for name, some in known.items()}
    return {name: some for name, some in missing.items() if some}
