"""Partitions affected by a loss, on arrays: compared with brute force for every scenario."""

from dataclasses import fields

import pytest
from hypothesis import given

from planner.columns.numpy_rules import lost_partitions
from schemas.enums import FailureScenario
from tests.planner.frames import RuleInput, arrays_of
from tests.planner.rule_inputs import all_small_partitions, rule_inputs
from tests.planner.whatif import whatif_oracle

RACKS = {0: "a", 1: "a", 2: "b"}


def assert_counted_alike(rule_input: RuleInput, lose: FailureScenario) -> None:
    arrays = arrays_of(rule_input)
    for scenario, lost in whatif_oracle.scenarios(rule_input, RACKS, lose).items():
        named = lost_partitions(arrays, rule_input.registered, rule_input.live, (), lost)
        counts = {field.name: int(getattr(named, field.name).sum()) for field in fields(named)}
        played = whatif_oracle.costs(rule_input, lost)
        assert counts == {name: played[name] for name in counts}, scenario


@pytest.mark.parametrize("lose", FailureScenario)
@given(rule_inputs())
def test_every_scenario_played(lose: FailureScenario, rule_input: RuleInput) -> None:
    assert_counted_alike(rule_input, lose)


@pytest.mark.parametrize("lose", FailureScenario)
def test_every_small_partition(lose: FailureScenario) -> None:
    assert_counted_alike(all_small_partitions(), lose)
