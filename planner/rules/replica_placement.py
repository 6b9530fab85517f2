"""Placement of the replicas of new partitions by Kafka's two algorithms, in plain Python.

Corresponds to `AdminUtils.assignReplicasToBrokersRackUnaware`, `assignReplicasToBrokersRackAware` and
`getRackAlternatedBrokerList`. `planner.topics` places many topics at once by the same rules, on Spark.

Once every rack has a replica, Kafka takes any broker: of four replicas in two racks it may put three into one. With
`balanced`, a rack gets no replica while another rack with fewer replicas has room. With as many racks as replicas both
give the same result.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, zip_longest
from typing import Any


def place_replicas(
    racks: Mapping[int, str | None], partitions: range, replication_factor: int, *, start_index: int, shift: int
) -> dict[int, list[int]]:
    """Return the replicas of new partitions.

    `racks`: the brokers that may get replicas, with racks that count if every broker has one. `partitions`: the new
    numbers. `start_index` and `shift` start the round: random for a new topic, and for an existing one the position of
    partition 0's first replica, which is also the shift.

    >>> placed = place_replicas(dict.fromkeys(range(5)), range(10), 3, start_index=0, shift=0)
    >>> " ".join("".join(map(str, replicas)) for replicas in placed.values())
    '012 123 234 340 401 023 134 240 301 412'
    """
    known_racks = {broker: rack for broker, rack in racks.items() if rack is not None}
    aware = len(known_racks) == len(racks)
    order = rack_alternated(known_racks) if aware else sorted(racks)
    count = len({*known_racks.values()}) if aware else 1
    steps = max(len(order) - 1, 1)
    placed = {}
    for partition in partitions:
        rounds = partition // len(order) - (max(partitions.start, 1) - 1) // len(order)
        first, jump = partition + start_index, (shift + rounds) * count % steps
        candidates = _from(order, first, jump)
        placed[partition] = (
            _pick_as_kafka(candidates, known_racks, replication_factor) if aware else candidates[:replication_factor]
        )
    return placed


def start_of_round(brokers: Sequence[int], first_replica: int) -> int:
    """Return the index of the first of `brokers`, by id, that is not below `first_replica`, 0 if all are.

    >>> [start_of_round([0, 1, 3], replica) for replica in (1, 2, 9)]
    [1, 2, 0]
    """
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def _from(order: Sequence[int], first: int, jump: int) -> list[int]:
    """Return all brokers of a list, beginning with the leader, its followers after a jump.

    >>> _from([5, 6, 7, 8], 1, 2)
    [6, 5, 7, 8]
    """
    count, steps = len(order), max(len(order) - 1, 1)
    return [order[first % count], *(order[(first + 1 + (jump + step) % steps) % count] for step in range(count - 1))]


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


def shifts_of(brokers: int, shift: int, first_partition: int, partitions: int) -> range:
    """Return the shifts that occur in a topic: the first one, and one more each time the leaders have gone round.

    >>> [list(shifts_of(5, shift=2, first_partition=first, partitions=11)) for first in (0, 5)]
    [[2, 3, 4], [2, 3, 4]]
    """
    return range(shift, shift + (partitions - 1) // brokers - (max(first_partition, 1) - 1) // brokers + 1)


def rack_aware_lists(
    racks: Mapping[int, str],
    replication_factor: int,
    shifts: Iterable[int] | None = None,
    *,
    balanced: bool = False,
) -> Iterator[tuple[int, int, int, list[int]]]:
    """Yield rows of LISTS: the replicas for each position of the leader and each jump of the followers.

    `shifts` are those that can occur, which keeps the table small; None for all.
    """
    brokers, steps = rack_alternated(racks), max(len(racks) - 1, 1)
    count = len(set(racks.values()))
    jumps = range(steps) if shifts is None else sorted({shift * count % steps for shift in shifts})
    for first in range(len(brokers)):
        for jump in jumps:
            take = _pick_balanced if balanced else _pick_as_kafka
            yield replication_factor, first, jump, take(_from(brokers, first, jump), racks, replication_factor)


def lists_for(
    racks: Mapping[int, str],
    topics: Iterable[Mapping[str, Any]],
    *,
    balanced: bool = False,
) -> Iterator[tuple[int, int, int, list[int]]]:
    """Yield the rows of LISTS that an assignment of `topics` (rows of `assignment.NEW_TOPICS`) can need.

    >>> topic = {"replication_factor": 2, "shift": 1, "first_partition": 0, "partitions": 3}
    >>> list(lists_for({0: "a", 1: "b", 2: "c"}, [topic, topic]))
    [(2, 0, 1, [0, 2]), (2, 1, 1, [1, 0]), (2, 2, 1, [2, 1])]
    """
    shifts: dict[int, set[int]] = defaultdict(set)
    for topic in topics:
        occurring = shifts_of(len(racks), *(topic[name] for name in ("shift", "first_partition", "partitions")))
        shifts[topic["replication_factor"]].update(occurring)
    for factor in sorted(shifts):
        yield from rack_aware_lists(racks, factor, shifts[factor], balanced=balanced)


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
