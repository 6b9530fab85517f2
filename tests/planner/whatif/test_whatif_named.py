"""Partitions affected by a loss, on arrays: compared with brute force for every scenario."""

from dataclasses import fields

import pytest
from hypothesis import given

from planner.columns.numpy_rules import lost_partitions
from schemas.enums import FailureScenario
from tests.planner.frames import World, arrays_of
from tests.planner.whatif import whatif_oracle
from tests.planner.worlds import all_small_partitions, worlds

RACKS = {0: "a", 1: "a", 2: "b"}


def assert_counted_alike(world: World, lose: FailureScenario) -> None:
    arrays = arrays_of(world)
    for scenario, lost in whatif_oracle.scenarios(world, RACKS, lose).items():
        named = lost_partitions(arrays, world.registered, world.live, (), lost)
        counts = {field.name: int(getattr(named, field.name).sum()) for field in fields(named)}
        played = whatif_oracle.costs(world, lost)
        assert counts == {name: played[name] for name in counts}, scenario


@pytest.mark.parametrize("lose", FailureScenario)
@given(worlds())
def test_every_scenario_played(lose: FailureScenario, world: World) -> None:
    assert_counted_alike(world, lose)


@pytest.mark.parametrize("lose", FailureScenario)
def test_every_small_partition(lose: FailureScenario) -> None:
    assert_counted_alike(all_small_partitions(), lose)
