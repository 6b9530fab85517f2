"""What a person must know of the load of brokers: limits, uneven load, and partitions that no move makes smaller.

Kafka has no such rule.
"""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from planner.load.resources import CPU, DISK, IN, OUT, REPLICAS, RESOURCES, Capacities
from planner.load.sharing_brokers import sharing_brokers
from schemas.enums import NO_LEADER
from schemas.rows import BrokerLoad

FULL_SOON_SECONDS: Final = 7 * 86_400.0
"""Seconds before a disk is full from which on a person must know it."""

HOT_SHARE: Final = 1 / 3
"""Share of the load of a broker from which on a partition is hot."""

MIN_LEADERS: Final = 6
"""Partitions that a broker must lead for one of them to be hot: of less each has much of its load."""

EVEN_COUNTS: Final = 0.1
"""Difference from the mean, as a share of it, up to which replicas and leaders are even by counts."""

UNEVEN_LOAD: Final = 1.25
"""Load of a broker, as a multiple of the mean, above which load is uneven."""

MIN_RATE: Final = 100_000.0
"""Bytes per second of a broker below which its network is idle, so that nothing about it is worth a line."""


class AboveLimit(Struct, frozen=True, kw_only=True):
    """A resource of which a broker uses more than its limit."""

    broker_id: int
    resource: str
    share: float
    limit_share: float


class Unevenness(Struct, frozen=True, kw_only=True):
    """The broker with the most load of a resource, as a multiple of its share: by capacity, else of the mean."""

    resource: str
    broker_id: int
    ratio: float


class HotPartition(Struct, frozen=True, kw_only=True):
    """The partition with the largest share of the load of its leader, in the resource of which that is most."""

    topic: str
    partition: int
    broker_id: int
    resource: str
    share: float


def used_by(load: BrokerLoad) -> dict[str, float]:
    """Return what a broker uses of each resource; a resource of unknown use is left out.

    If what readers get is unknown, the network out is that to followers.

    >>> rates = {"bytes_in": 5.0, "replication_in": 7.0, "bytes_out": 1.0, "replication_out": 10.0}
    >>> used_by(BrokerLoad(broker_id=1, leaders=1, replicas=2, size_bytes=900, **rates))
    {'disk': 900.0, 'in': 12.0, 'out': 11.0}
    """
    sums = {
        DISK: load.size_bytes,
        IN: sum_of_known(load.bytes_in, load.replication_in),
        OUT: sum_of_known(load.bytes_out, load.replication_out),
        CPU: load.cpu,
    }
    return {resource: float(amount) for resource, amount in sums.items() if amount is not None}


def sum_of_known(*rates: float | None) -> float | None:
    """Add up the rates that are known, None if none is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def shares_of(load: BrokerLoad, capacities: Capacities) -> dict[str, float]:
    """Return the share that a broker uses of each capacity that is known."""
    known, used = capacities.get(load.broker_id, {}), used_by(load)
    return {
        resource: amount / known[resource].amount
        for resource, amount in used.items()
        if resource in known and known[resource].amount > 0
    }


def above_limits(
    loads: Sequence[BrokerLoad], capacities: Capacities, replicas: Mapping[int, int] = MappingProxyType({})
) -> list[AboveLimit]:
    """Return the brokers and resources above their limits, the one furthest above its limit first.

    `replicas` are the numbers that brokers hold now, whatever their loads.
    """
    shares = [(load.broker_id, *share) for load in loads for share in shares_of(load, capacities).items()]
    shares += [
        (broker, REPLICAS, count / capacities[broker][REPLICAS].amount)
        for broker, count in replicas.items()
        if REPLICAS in capacities.get(broker, {})
    ]
    found = [
        AboveLimit(broker_id=broker, resource=resource, share=share, limit_share=limit)
        for broker, resource, share in shares
        if share > (limit := capacities[broker][resource].limit_share)
    ]
    return sorted(found, key=lambda one: (-one.share / one.limit_share, one.broker_id, one.resource))


def unevenness(loads: Sequence[BrokerLoad], capacities: Capacities) -> list[Unevenness]:
    """Return the broker with the most load for its share, of each resource that is known of all brokers."""
    used = {load.broker_id: used_by(load) for load in loads}
    shares = sharing_brokers(used, capacities)
    found = []
    for resource in RESOURCES:
        amounts = {broker: amounts[resource] for broker, amounts in used.items() if resource in amounts}
        mean = sum(amounts.values()) / max(len(amounts), 1)
        if len(amounts) == len(loads) and mean > 0:
            ratios = {broker: amount / mean / shares[broker][resource] for broker, amount in amounts.items()}
            broker = min(ratios, key=lambda broker: (-ratios[broker], broker))
            found.append(Unevenness(resource=resource, broker_id=broker, ratio=ratios[broker]))
    return found


def hidden_by_counts(loads: Sequence[BrokerLoad], capacities: Capacities) -> Unevenness | None:
    """Return the most uneven network or CPU if leaders and replicas are even by counts: plans by counts do not see it.

    None if the load is even, or too small to matter. The bytes on disks are compared by `broker_skew`.
    """
    if not (_is_even([load.leaders for load in loads]) and _is_even([load.replicas for load in loads])):
        return None
    used = {load.broker_id: used_by(load) for load in loads}
    uneven = [
        one
        for one in unevenness(loads, capacities)
        if one.ratio > UNEVEN_LOAD
        and (one.resource == CPU or (one.resource != DISK and used[one.broker_id][one.resource] >= MIN_RATE))
    ]
    return max(uneven, key=lambda one: one.ratio, default=None)


def _is_even(counts: Sequence[int]) -> bool:
    """Return whether each count is near the mean.

    >>> _is_even([100, 110, 91]), _is_even([100, 120, 80]), _is_even([])
    (True, False, False)
    """
    mean = sum(counts) / max(len(counts), 1)
    return mean > 0 and all(abs(count - mean) <= EVEN_COUNTS * mean for count in counts)


def with_leader_share(partitions: pa.Table, loads: Sequence[BrokerLoad]) -> pa.Table:
    """Add the share that each partition has of its leader's load, and the `leader_resource` in which it is larger.

    `partitions` has `leader`, `bytes_in`, `bytes_out` and `replication_out`, of which null counts as none. Both columns
    are null if the load of the leader is not known.
    """
    ids = np.array(sorted(load.broker_id for load in loads), dtype=np.int64)
    leaders = pc.fill_null(partitions["leader"], NO_LEADER).to_numpy()
    at = np.searchsorted(ids, leaders).clip(max=max(len(ids) - 1, 0))
    is_known = pa.array(ids[at] == leaders if len(ids) else np.zeros(len(leaders), dtype=bool))
    used = [used_by(load) for load in sorted(loads, key=lambda load: load.broker_id)]
    bytes_in, bytes_out, replicated = (
        pc.fill_null(partitions[name], 0.0).to_numpy() for name in ("bytes_in", "bytes_out", "replication_out")
    )
    of_in, of_out = (
        amounts / np.array([max(of_broker.get(resource, 0.0), 1.0) for of_broker in used] or [1.0])[at]
        for resource, amounts in ((IN, bytes_in), (OUT, bytes_out + replicated))
    )
    share = pc.if_else(is_known, pa.array(np.maximum(of_in, of_out)), None)
    resource = pc.if_else(is_known, pc.if_else(pa.array(of_in > of_out), IN, OUT), None)
    return partitions.append_column("leader_share", share).append_column("leader_resource", resource)


def hottest_partitions(partitions: pa.Table, loads: Sequence[BrokerLoad]) -> list[HotPartition]:
    """Return the partition with the largest share of each broker's load, the largest share first.

    `partitions` are as in `with_leader_share`, with `topic` and `partition`. Brokers without load have none.
    """
    shared = with_leader_share(partitions, loads)
    largest = shared.group_by("leader").aggregate([("leader_share", "max")])
    most = largest["leader_share_max"].take(pc.index_in(shared["leader"], largest["leader"].combine_chunks()))
    is_most = pc.and_(pc.equal(shared["leader_share"], most), pc.greater(most, 0.0))
    columns = ["topic", "partition", "leader", "leader_resource", "leader_share"]
    rows = shared.select(columns).filter(is_most).sort_by([("topic", "ascending"), ("partition", "ascending")])
    found = dict[int, HotPartition]()
    for topic, partition, broker, resource, share in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        hot = HotPartition(topic=topic, partition=partition, broker_id=broker, resource=resource, share=share)
        found.setdefault(broker, hot)
    return sorted(found.values(), key=lambda one: (-one.share, one.broker_id))


def is_hot(partition: HotPartition, leader: BrokerLoad) -> bool:
    """Return whether a partition is so large a part of its leader's load that a person must know it."""
    return partition.share >= HOT_SHARE and _can_have_hot_partition(leader, partition.resource)


def _can_have_hot_partition(leader: BrokerLoad, resource: str) -> bool:
    return leader.leaders >= MIN_LEADERS and used_by(leader).get(resource, 0.0) >= MIN_RATE


def least_hot_rates(loads: Sequence[BrokerLoad], followers: int) -> tuple[float, float]:
    """Return bytes in and bytes out of which a hot partition has at least one; infinite if no partition can be hot.

    `followers` is the most followers of a partition. Half of the bytes out of a hot partition go to readers, or half of
    them to followers.
    """
    of_in, of_out = (
        min((used_by(load)[resource] for load in loads if _can_have_hot_partition(load, resource)), default=inf)
        for resource in (IN, OUT)
    )
    to_each = of_out / 2 / followers if followers else inf
    return HOT_SHARE * min(of_in, to_each), HOT_SHARE * of_out / (2 if followers else 1)
