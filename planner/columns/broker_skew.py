"""Brokers without a replica, and brokers whose part of the replicas, leaders or bytes is far from an even share.

Kafka's controller moves no replicas, so nothing there corresponds to it. It shows that `plan reassign` would change
much, without the optimiser; the thresholds are high, and few partitions are never far from even. Racks with different
numbers of brokers allow no even share of replicas and bytes. Then a broker must be far from the share of all brokers
and from the share of its rack.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from planner.columns.partition_masks import Ints, PartitionArrays

FAR_RATIO: Final = 1.5
"""A broker is far above an even share from this many times the share on."""

FAR_BELOW: Final = 0.5
"""A broker is far below an even share up to this part of the share."""

FAR_COUNT: Final = 10
"""Replicas or leaders by which a broker must also differ from an even share."""

FAR_BYTES: Final = 10 * 2**30
"""Bytes by which a broker must also differ from an even share."""

EMPTY_SHARE: Final = 3
"""Replicas of an even share from which on a broker without any is empty; below, there are too few for all brokers."""

EMPTY: Final = "empty"
REPLICAS: Final = "replicas"
LEADERS: Final = "leaders"
BYTES: Final = "bytes"

Amounts = Mapping[int, int]
"""The replicas, leaders or bytes of each broker."""

RackOf = Mapping[int, str | None]
"""The brokers that are compared, with their racks."""


class Skew(Struct, frozen=True, kw_only=True):
    """What is far from even: a quantity, the brokers that are far from the share, the most and the least first."""

    quantity: str
    amounts: dict[int, int]
    share: float
    """The even share."""


def skew_of(rows: PartitionArrays, rack_of: RackOf) -> list[Skew]:
    """Return the empty brokers, else whether replicas or leaders are far from even.

    Leaders are only far from even if preferred leaders are as well: else an election of preferred replicas is enough.
    """
    replicas, leader = rows.replicas[rows.judged], rows.leader[rows.judged]
    held, led, preferred = (_count(brokers, rack_of) for brokers in (replicas, leader, replicas[:, :1]))
    share = _mean(held)
    if (empty := {broker: 0 for broker, count in held.items() if not count}) and share >= EMPTY_SHARE:
        return [Skew(quantity=EMPTY, amounts=empty, share=share)]
    found = [far_from_even(REPLICAS, held, rack_of, FAR_COUNT)]
    anywhere = dict.fromkeys(rack_of)  # racks do not limit the leaders of a broker
    if far_from_even(LEADERS, preferred, anywhere, FAR_COUNT):
        found.append(far_from_even(LEADERS, led, anywhere, FAR_COUNT))
    return [skew for skew in found if skew is not None]


def far_from_even(quantity: str, amounts: Amounts, rack_of: RackOf, least_difference: int) -> Skew | None:
    """Return the fullest and the emptiest broker if one of them is far from an even share, else None.

    >>> far_from_even(REPLICAS, {1: 40, 2: 20, 3: 18}, {1: None, 2: None, 3: None}, 10)
    Skew(quantity='replicas', amounts={1: 40, 3: 18}, share=26.0)
    >>> far_from_even(REPLICAS, {1: 4, 2: 1, 3: 1}, {1: None, 2: None, 3: None}, 10), "too few to matter"
    (None, 'too few to matter')
    >>> far_from_even(REPLICAS, {1: 90, 2: 30, 3: 30}, {1: "a", 2: "b", 3: "b"}, 10), "alone in its rack"
    (None, 'alone in its rack')
    >>> far_from_even(REPLICAS, {1: 90, 2: 30, 3: 30}, {1: "a", 2: "b", 3: "c"}, 10)
    Skew(quantity='replicas', amounts={1: 90, 3: 30}, share=50.0)
    """
    by_rack: dict[str | None, dict[int, int]] = defaultdict(dict)
    for broker, amount in amounts.items():
        by_rack[rack_of[broker]][broker] = amount
    groups = [amounts, *(by_rack.values() if len({len(group) for group in by_rack.values()}) > 1 else ())]
    shares = {broker: [_mean(group) for group in groups if broker in group] for broker in amounts}
    if not any(_is_far(amounts[broker], of_broker, least_difference) for broker, of_broker in shares.items()):
        return None
    ordered = sorted(amounts, key=lambda broker: (-amounts[broker], broker))
    ends = {broker: amounts[broker] for broker in (ordered[0], ordered[-1])}
    return Skew(quantity=quantity, amounts=ends, share=_mean(amounts))


def _is_far(amount: int, shares: list[float], least_difference: int) -> bool:
    above = all(amount >= FAR_RATIO * share and amount - share >= least_difference for share in shares)
    return above or all(amount <= FAR_BELOW * share and share - amount >= least_difference for share in shares)


def _count(brokers: Ints, rack_of: RackOf) -> dict[int, int]:
    ids, counts = np.unique(brokers, return_counts=True)
    counted = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    return {broker: counted.get(broker, 0) for broker in sorted(rack_of)}


def _mean(amounts: Amounts) -> float:
    return sum(amounts.values()) / max(len(amounts), 1)
