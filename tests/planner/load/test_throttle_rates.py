"""What copies get of a broker's network: the limit less the load of the hour, and never nothing."""

from math import inf
from typing import Any

import pytest

from planner.load.resources import Capacity
from planner.load.throttle_rates import ThrottleRate, present_loads, throttle_rates, unknown_brokers
from schemas.rows import BrokerLoad

CAPACITIES = {1: {"in": Capacity(1000.0, 0.8), "out": Capacity(2000.0, 0.5)}}


@pytest.mark.parametrize(
    ("load_in", "load_out", "rate"),
    [
        (0.0, 0.0, ThrottleRate(800, 1000)),
        (300.0, 999.0, ThrottleRate(500, 40, is_least=True)),
        (780.0, 960.0, ThrottleRate(20, 40)),
        (780.5, 0.0, ThrottleRate(20, 1000, is_least=True)),  # 19.5 are left, and the floor is 2 % of 1000
        (790.0, 1500.0, ThrottleRate(20, 40, is_least=True)),
        (inf, inf, ThrottleRate(20, 40)),  # of a broker that is not live
    ],
)
def test_rates(load_in: float, load_out: float, rate: ThrottleRate) -> None:
    rates = throttle_rates([1], {1: {"in": load_in, "out": load_out}}, CAPACITIES)
    assert rates == {1: rate}


def load(broker: int, rate: float) -> BrokerLoad:
    """A broker that receives twice the rate and sends four times the rate."""
    rates: dict[str, Any] = {"bytes_in": rate, "replication_in": rate, "bytes_out": rate, "replication_out": 3 * rate}
    return BrokerLoad(broker_id=broker, leaders=1, replicas=1, **rates)


def test_the_hour_of_the_week_precedes_the_newest_hour() -> None:
    """Of several weeks the most counts, of each resource by itself."""
    of_week = [load(1, 10.0), load(2, 1.0), load(1, 30.0), load(1, 20.0)]
    present = present_loads(of_week, [load(1, 99.0), load(3, 5.0)])
    rates = {broker: (used["in"], used["out"]) for broker, used in present.items()}
    assert rates == {1: (60.0, 120.0), 2: (2.0, 4.0), 3: (10.0, 20.0)}


def test_what_is_missing_is_named_by_broker() -> None:
    known = {1: {"in": 1.0, "out": 1.0}, 2: {"in": 1.0, "out": 1.0}}
    capacities = {1: CAPACITIES[1], 3: {"in": Capacity(9.0)}}
    assert unknown_brokers([3, 2, 1], known, capacities) == {
        "the load": [3],
        "the capacity of in": [2],
        "the capacity of out": [2, 3],
    }
    assert unknown_brokers([1], known, capacities) == {}
