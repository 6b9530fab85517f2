"""The brokers that share the load before or after a plan, and the share of each; see `broker_weights`."""

from collections.abc import Collection, Mapping

import numpy as np

from planner.columns.broker_weights import broker_weights
from planner.load.resources import RESOURCES, Capacities

Shares = Mapping[int, Mapping[str, float]]
"""By broker and resource the share of the load that it should have, as a multiple of the mean share."""


def sharing_brokers(brokers: Collection[int], capacities: Capacities) -> Shares:
    """Return the shares of these brokers.

    >>> from planner.load.resources import Capacity
    >>> known = {1: {"disk": Capacity(300.0), "in": Capacity(9.0)}, 2: {"disk": Capacity(100.0)}}
    >>> sharing_brokers([1, 2], known)[1]
    {'disk': 1.5, 'in': 1.0, 'out': 1.0, 'cpu': 1.0}
    >>> sharing_brokers([], {})
    {}
    """
    ids = sorted(brokers)
    capacity = np.array(
        [
            [known[name].amount if name in known else np.nan for name in RESOURCES]
            for known in (capacities.get(broker, {}) for broker in ids)
        ]
    ).reshape(len(ids), len(RESOURCES))
    weights = broker_weights(capacity, np.ones(len(ids), dtype=bool))
    equal = (weights == weights[:1]).all(axis=0)
    shares = np.where(equal, 1.0, weights * len(ids) / np.maximum(weights.sum(axis=0), np.finfo(float).tiny))
    return {broker: dict(zip(RESOURCES, row, strict=True)) for broker, row in zip(ids, shares.tolist(), strict=True)}


def by_capacity(shares: Shares) -> bool:
    """Return whether shares differ by capacity."""
    return any(share != 1 for of_broker in shares.values() for share in of_broker.values())
