"""The quorum during restarts: all small quorums by brute force, and orders that never take a majority down."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.rules.quorum import MAX_VOTER_LAG_MS, quorum_after_restart
from planner.rules.restart_order import InSyncNeed, restart_order
from schemas.rows import Voter

LAGS = [0, MAX_VOTER_LAG_MS, MAX_VOTER_LAG_MS + 1, None]


@given(lags=st.lists(st.sampled_from(LAGS), min_size=1, max_size=5), restarting=st.sets(st.integers(0, 6), min_size=1))
def test_a_majority_remains_in_every_possible_world(lags: list[int | None], restarting: set[int]) -> None:
    """A voter of which nothing is known is up to date in one world, and down in another."""
    after = quorum_after_restart([Voter(voter_id=id_, lag_ms=lag) for id_, lag in enumerate(lags)], restarting)
    if restarting.isdisjoint(range(len(lags))):
        assert after is None
        return
    staying = [lag for id_, lag in enumerate(lags) if id_ not in restarting]
    certain = sum(lag in {0, MAX_VOTER_LAG_MS} for lag in staying)
    worlds = {2 * (certain + more) > len(lags) for more in range(staying.count(None) + 1)}
    assert after is not None
    assert after.keeps_majority is (worlds.pop() if len(worlds) == 1 else None)


@given(voters=st.sets(st.integers(0, 8), max_size=7), racks=st.lists(st.sampled_from("ab"), min_size=9, max_size=9))
def test_a_wave_of_several_voters_leaves_a_majority(voters: set[int], racks: list[str]) -> None:
    controller = min(voters, default=None)
    steps = restart_order({}, dict(enumerate(racks)), [], controller, voters=voters)
    assert sorted(step.broker_id for step in steps) == list(range(9))
    for wave in {step.wave for step in steps}:
        down = voters.intersection(step.broker_id for step in steps if step.wave == wave)
        assert len(down) <= 1 or 2 * (len(voters) - len(down)) > len(voters)
    assert [step.is_controller for step in steps[:-1]] == [False] * 8
    assert steps[-1].is_controller == (controller is not None)


def test_without_voters_the_waves_are_those_of_the_partitions() -> None:
    racks = dict.fromkeys(range(6), "a")
    needs = {InSyncNeed(frozenset(pair), 1): 1 for pair in combinations(range(2), 2)}
    assert max(step.wave for step in restart_order(needs, racks, [], None)) == 2


@pytest.mark.parametrize(("voters", "losing"), [([1], [1]), ([1, 2], [1, 2]), ([1, 2, 3], []), ([7, 8, 9], [])])
def test_small_quorums_lose_their_majority(voters: list[int], losing: list[int]) -> None:
    steps = restart_order({}, dict.fromkeys([1, 2, 3]), [], None, voters=voters)
    assert [step.broker_id for step in steps if step.loses_quorum] == losing


def test_a_broker_that_is_down_is_started_with_any_quorum() -> None:
    (down, *_) = restart_order({}, dict.fromkeys([1, 2]), [1], None, voters=[1, 2])
    assert (down.broker_id, down.is_down, down.loses_quorum) == (1, True, False)
