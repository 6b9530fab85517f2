"""Given lists: measured and explained as the optimiser's own."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.solve import evaluate_given
from planner.placement.types import NO_BROKER, PlacementBrokers, PlacementError
from planner.placement.waves import WaveLimits, cut_into_waves
from tests.planner.placement.clusters import IDS, RACKS, brokers_of, padded, partitions_of

MANY: Final = settings(max_examples=100)
FOUR: Final = (None,) * 4
REPLICAS: Final = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True)
ASKED: Final = st.lists(st.tuples(REPLICAS, REPLICAS), min_size=1, max_size=8)


def test_reasons_name_rules_and_moves() -> None:
    partitions = partitions_of([[3, 1], [3, 4], [1, 4], [1, 3]])
    targets = padded([[15, 1], [4, 3], [1, 4], [1, 4, 15]])
    placement = evaluate_given(brokers_of(FOUR), partitions, targets)
    assert placement.reasons == (
        "as given: 3 → 15; preferred leader 3 → 15",
        "as given: preferred leader 3 → 4",
        "replication factor 2 → 3: 3 → 4, none → 15",
    )
    assert (placement.copies, placement.lower_bound, placement.bound) == (
        3,
        3,
        "3 replicas are given to brokers that do not hold them",
    )


def test_an_unknown_broker_is_an_error() -> None:
    with pytest.raises(PlacementError, match="brokers 77 are in no list now and not registered"):
        evaluate_given(brokers_of(FOUR), partitions_of([[3]]), padded([[77]]))


def _counts(brokers: PlacementBrokers, lists: list[list[int]], *, leaders: bool) -> list[int]:
    named = [broker for replicas in lists for broker in (replicas[:1] if leaders else replicas)]
    return [named.count(broker) for broker in sorted(brokers.ids.tolist())]


@MANY
@given(ASKED, st.sampled_from(RACKS), st.integers(0, 2))
def test_counted_as_they_are(
    pairs: list[tuple[list[int], list[int]]], racks: tuple[str | None, ...], room: int
) -> None:
    before, after = ([pair[n] for pair in pairs] for n in (0, 1))
    targets = np.pad(padded(after), ((0, 0), (0, room)), constant_values=NO_BROKER)
    brokers = brokers_of(racks)
    placement = evaluate_given(brokers, partitions_of(before), targets)
    assert [[b for b in replicas if b != NO_BROKER] for replicas in placement.replicas.tolist()] == after
    assert placement.copies == sum(len({*then} - {*earlier}) for earlier, then in pairs)
    assert placement.changed.tolist() == [row for row, (earlier, then) in enumerate(pairs) if earlier != then]
    assert len(placement.reasons) == len(placement.changed)
    for tally, leaders in ((placement.brokers.replicas, False), (placement.brokers.leaders, True)):
        assert [count.tolist() for count in tally] == [
            _counts(brokers, lists, leaders=leaders) for lists in (before, after)
        ]


@MANY
@given(ASKED, st.sampled_from(RACKS))
def test_intermediate_lists_lose_no_rack(
    pairs: list[tuple[list[int], list[int]]], racks: tuple[str | None, ...]
) -> None:
    partitions = partitions_of([earlier for earlier, _ in pairs])
    placement = evaluate_given(brokers_of(racks), partitions, padded([then for _, then in pairs]))
    rack_of = dict(zip(IDS, racks, strict=False))
    planned = cut_into_waves(partitions, placement, rack_of, WaveLimits(one_at_a_time=True, moves_per_broker=2))

    def spans(replicas: list[int]) -> int:
        return len({rack_of.get(broker) for broker in replicas} - {None})

    for row, then in zip(planned.row.tolist(), planned.after.T.tolist(), strict=True):
        assert spans(then) >= min(map(spans, pairs[row]))
        assert len({*then} - {NO_BROKER}) >= min(map(len, pairs[row]))
