"""The resources of brokers: the disk, the network in both directions, and CPU; and what brokers have of them."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

DISK: Final = "disk"
"""Bytes."""

IN: Final = "in"
OUT: Final = "out"
"""Bytes per second of the network, with replication."""

CPU: Final = "cpu"
"""Percent of all cores."""

RESOURCES: Final = (DISK, IN, OUT, CPU)

REPLICAS: Final = "replicas"
"""The number of replicas that a broker may have. It is a limit, so all of it may be used unless its row has a share."""

LIMIT_SHARE: Final = 0.8
"""Share of a capacity above which a broker is above its limit, where its capacity states no other."""


class Capacity(Struct, frozen=True):
    """What a broker has of a resource, in its unit, and the share that plans may use."""

    amount: float
    limit_share: float = LIMIT_SHARE


Capacities = Mapping[int, Mapping[str, Capacity]]
"""Known capacities by broker and resource."""
