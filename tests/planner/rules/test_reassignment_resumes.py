"""A reassignment after a take-over: leaving replicas follow again where the target is not in sync."""

from typing import Any

import pytest

from planner.rules.decisions import Decision
from planner.rules.inputs import BrokerSets
from planner.rules.reassignment import decide_reassignment
from schemas.enums import Action, RejectionCode
from schemas.partition_info import PartitionInfo
from tests.planner.frames import partition_info

KEY = ("t", 0)


def moving(isr: list[int]) -> PartitionInfo:
    moving = {"adding_replicas": [3, 4], "removing_replicas": [1]}
    return partition_info([3, 4, 1], isr[0], isr, leader_epoch=7, **moving)


def decide(isr: list[int], live: set[int], **options: Any) -> Decision:  # noqa: ANN401 - of the rule
    brokers = BrokerSets.of(dict.fromkeys(live, True), {})
    decision = decide_reassignment(KEY, moving(isr), None, brokers, **options)
    assert decision is not None
    return decision


@pytest.mark.unit
@pytest.mark.parametrize("live", [{1, 3}, {1, 3, 4}])
def test_a_waiting_leader_is_sent_all_replicas(live: set[int]) -> None:
    change = decide([3], live, resumes=True).change

    assert change is not None
    assert (change.action, change.leader_epoch_after, change.isr_after) == (Action.START_REPLICA, 8, [3])
    assert (change.replicas_after, change.removing_after) == ([3, 4, 1], [1])
    assert {*change.leader_and_isr_to} == {3, 4, 1} & live


@pytest.mark.unit
@pytest.mark.parametrize(
    ("isr", "live", "resumes"),
    [([3], {1, 3}, False), ([3, 1], {1, 3}, True), ([3], {3}, True)],
    ids=["no take-over", "all are in sync", "none is live"],
)
def test_otherwise_it_waits(isr: list[int], live: set[int], resumes: bool) -> None:  # noqa: FBT001
    assert decide(isr, live, resumes=resumes).code is RejectionCode.WAITS_FOR_BROKER
