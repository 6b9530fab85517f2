"""Kafka's assignment as its loops run, and topics to compare it with."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from jobs.planning.topics.new_partition_placement import place_topics
from schemas.rows import Row

Placed = dict[tuple[str, int], list[int]]


def topic(partitions: range, factor: int, start: int, shift: int | None = None, name: str = "t") -> Row:
    """Return a topic; Kafka's fixed start is its first shift."""
    return {
        "topic": name,
        "first_partition": partitions.start,
        "partitions": partitions.stop,
        "replication_factor": factor,
        "start_index": start,
        "shift": start if shift is None else shift,
    }


def placed(rows: Sequence[Row], brokers: Sequence[int], racks: Mapping[int, str] | None = None) -> Placed:
    """Place all topics by the rule; fail if a partition occurs twice."""
    settled = {"brokers": brokers} | ({"racks": racks} if racks else {})
    lists = place_topics(rows, settled)
    by_key = {(name, partition): replicas for name, partition, replicas in lists}
    assert len(by_key) == len(lists)
    return by_key


def listed(row: Row, brokers: Sequence[int], racks: Mapping[int, str] | None = None) -> str:
    """Format the replicas of a topic's partitions as Kafka's vectors."""
    return " ".join("".join(map(str, replicas)) for replicas in placed([row], brokers, racks).values())


def alternated(racks: Mapping[int, str]) -> list[int]:
    """Run the loop of `getRackAlternatedBrokerList`."""
    left = {rack: sorted(broker for broker in racks if racks[broker] == rack) for rack in racks.values()}
    names, turn = sorted(left), 0
    order: list[int] = []
    while len(order) < len(racks):
        brokers = left[names[turn]]
        if brokers:
            order.append(brokers.pop(0))
        turn = (turn + 1) % len(names)
    return order


def kafkas(rows: Sequence[Row], brokers: Sequence[int], racks: Mapping[int, str] | None = None) -> Placed:
    """Run the loops of AdminUtils for each topic."""
    arranged = alternated(racks) if racks else brokers
    return {
        (row["topic"], partition): replicas for row in rows for partition, replicas in _loop(row, arranged, racks or {})
    }


def _loop(row: Row, brokers: Sequence[int], racks: Mapping[int, str]) -> list[tuple[int, list[int]]]:
    n, shift = len(brokers), row["shift"]
    lists: list[tuple[int, list[int]]] = []
    for p in range(row["first_partition"], row["partitions"]):
        if p > 0 and p % n == 0:
            shift += 1
        first = (p + row["start_index"]) % n
        choose = _rack_aware if racks else _rack_unaware
        lists.append((p, choose(row["replication_factor"], brokers, racks, first, shift)))
    return lists


def _rack_unaware(factor: int, brokers: Sequence[int], _: Mapping[int, str], first: int, shift: int) -> list[int]:
    n = len(brokers)
    steps = [0, *(1 + (shift + j) % (n - 1) for j in range(factor - 1))]
    return [brokers[(first + step) % n] for step in steps]


def _rack_aware(factor: int, brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int) -> list[int]:
    n, names, k = len(brokers), set(racks.values()), 0
    replicas, in_racks, in_brokers = [brokers[first]], {racks[brokers[first]]}, {brokers[first]}
    for _ in range(factor - 1):
        done = False
        while not done:
            broker = brokers[(first + 1 + (shift * len(names) + k) % (n - 1)) % n]
            if (racks[broker] not in in_racks or in_racks == names) and (
                broker not in in_brokers or len(in_brokers) == n
            ):
                replicas.append(broker)
                in_racks.add(racks[broker])
                in_brokers.add(broker)
                done = True
            k += 1
    return replicas


@st.composite
def some_topics(draw: st.DrawFn, brokers: int) -> list[Row]:
    """Draw new topics and topics to expand, with any replication factor, start and shift."""
    count = draw(st.integers(1, 4))
    rows = []
    for number in range(count):
        existing = draw(st.just(0) | st.integers(1, 200))
        partitions = range(existing, existing + draw(st.integers(1, 40)))
        factor, start, shift = (draw(st.integers(low, high)) for low, high in ((1, brokers), (0, 20), (0, 2**31 - 1)))
        rows.append(topic(partitions, factor, start, shift, name=f"t{number}"))
    return rows
