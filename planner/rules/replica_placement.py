"""Placement of the replicas of new partitions by Kafka's two algorithms, in plain Python.

Corresponds to `AdminUtils.assignReplicasToBrokersRackUnaware`, `assignReplicasToBrokersRackAware` and
`getRackAlternatedBrokerList`. Without racks, partition p is led by broker (p + start) mod n, follower j is
1 + (shift + j) mod (n - 1) brokers after it, and the shift grows by one every n partitions. With racks, the same is
done on a broker list in which racks alternate.

Once every rack has a replica, Kafka takes any broker: of four replicas in two racks it may put three into one. With
`balanced`, a rack gets no replica while another rack with fewer replicas has room. With as many racks as replicas both
give the same result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice, zip_longest


def place_replicas(
    racks: Mapping[int, str | None], partitions: range, replication_factor: int, *, start_index: int, shift: int
) -> dict[int, list[int]]:
    """Return the replicas of new partitions of one topic on `racks`, the brokers that may get some.

    Racks count if every broker has one.
    """
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    order = PlacementOrder(sorted(racks), known if len(known) == len(racks) else {})
    return dict(order.placements(partitions, replication_factor, start_index, shift))


@dataclass(frozen=True, slots=True)
class PlacementOrder:
    """The brokers that get replicas of new partitions: in this order, or alternating over all `racks`."""

    brokers: Sequence[int]
    racks: Mapping[int, str] = field(default_factory=dict)
    balanced: bool = False

    def placements(
        self, partitions: range, replication_factor: int, start_index: int, shift: int
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the numbers and replicas of new partitions.

        `start_index` and `shift` start the round: random for a new topic, and for an existing one the position of
        partition 0's first replica, which is also the shift.

        >>> placed = PlacementOrder(range(5)).placements(range(10), 3, 0, 0)
        >>> " ".join("".join(map(str, replicas)) for _, replicas in placed)
        '012 123 234 340 401 023 134 240 301 412'
        """
        order = rack_alternated(self.racks) if self.racks else self.brokers
        count, steps = len({*self.racks.values()}) or 1, max(len(order) - 1, 1)
        lists: dict[tuple[int, int], list[int]] = {}
        for partition in partitions:
            rounds = partition // len(order) - (max(partitions.start, 1) - 1) // len(order)
            place = (partition + start_index) % len(order), (shift + rounds) * count % steps
            if place not in lists:
                lists[place] = self.replicas(order, *place, replication_factor)
            yield partition, lists[place]

    def replicas(self, order: Sequence[int], first: int, jump: int, factor: int) -> list[int]:
        """Return replicas by the position of their leader in the list of brokers and the jump of its followers."""
        candidates = _from(order, first, jump)
        if not self.racks:
            return [*islice(candidates, factor)]
        return (_pick_balanced if self.balanced else _pick_as_kafka)([*candidates], self.racks, factor)


def simple_placements(
    brokers: Sequence[int], partitions: range, replication_factor: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield new partitions with replica j of partition i on broker (i + j) mod n.

    >>> [replicas for _, replicas in simple_placements([0, 1, 2], range(3), 2)]
    [[0, 1], [1, 2], [2, 0]]
    """
    for partition in partitions:
        yield partition, [brokers[(partition + step) % len(brokers)] for step in range(replication_factor)]


def start_of_round(brokers: Sequence[int], first_replica: int) -> int:
    """Return the index of the first of `brokers`, by id, that is not below `first_replica`, 0 if all are.

    >>> [start_of_round([0, 1, 3], replica) for replica in (1, 2, 9)]
    [1, 2, 0]
    """
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def _from(order: Sequence[int], first: int, jump: int) -> Iterator[int]:
    """Yield all brokers of a list, beginning with the leader, its followers after a jump.

    >>> [*_from([5, 6, 7, 8], 1, 2)]
    [6, 5, 7, 8]
    """
    count, steps = len(order), max(len(order) - 1, 1)
    yield order[first]
    yield from (order[(first + 1 + (jump + step) % steps) % count] for step in range(count - 1))


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return brokers with alternating racks: racks by name, brokers of a rack by id.

    >>> rack_alternated({0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"})
    [0, 3, 1, 5, 4, 2]
    """
    names = sorted(set(racks.values()), key=_java_sort_key)
    by_rack = [[broker for broker in sorted(racks) if racks[broker] == rack] for rack in names]
    turns = chain.from_iterable(zip_longest(*by_rack))
    return [broker for broker in turns if broker is not None]


def _java_sort_key(name: str) -> bytes:
    """Sort names as Java does, by UTF-16; this differs from Python only beyond the basic multilingual plane."""
    return name.encode("utf-16-be", "surrogatepass")


def _pick_as_kafka(order: Sequence[int], racks: Mapping[int, str], factor: int) -> list[int]:
    """Pick brokers in order; skip racks and brokers that have a replica while others have none."""
    every_rack = len(set(racks.values()))
    replicas, used_racks = [order[0]], {racks[order[0]]}
    turns = cycle(order[1:])
    while len(replicas) < factor:
        broker = next(turns)
        if (racks[broker] not in used_racks or len(used_racks) == every_rack) and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return replicas


def _pick_balanced(order: Sequence[int], racks: Mapping[int, str], factor: int) -> list[int]:
    """Pick brokers in order; skip racks that have more replicas than others that still have room.

    >>> _pick_balanced([1, 2, 3, 7, 4, 5, 6], dict.fromkeys((1, 2, 3, 7), "a") | dict.fromkeys((4, 5, 6), "b"), 4)
    [1, 4, 5, 2]
    """
    replicas = [order[0]]
    turns = cycle(order[1:])
    while len(replicas) < factor:
        replicas_by_rack = Counter(racks[broker] for broker in replicas)
        least = min(replicas_by_rack[racks[broker]] for broker in order if broker not in replicas)
        replicas.append(next(b for b in turns if b not in replicas and replicas_by_rack[racks[b]] == least))
    return replicas
