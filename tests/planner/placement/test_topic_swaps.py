"""Balance within topics: replicas that move anyway exchange targets, and nothing else changes."""

from typing import Final

import numpy as np
from hypothesis import given, settings

from planner.placement.balancing.topic_swaps import even_topics
from planner.placement.forced_moves import apply
from planner.placement.model import PlacementModel, copies_by_row, model_of, topic_load
from planner.placement.racks import racks_spanned
from planner.placement.solve import place
from planner.placement.types import NO_BROKER, PlacementGoal, PlacementPartitions
from tests.planner.placement.clusters import Case, brokers_of, cases, padded

EMPTYING: Final = (PlacementGoal(), PlacementGoal(replication_factor=3))


def _unevenness(model: PlacementModel) -> int:
    _, load = topic_load(model, np.arange(len(model.topic)))
    return int((load**2).sum())


@settings(max_examples=100)
@given(cases(EMPTYING))
def test_no_topic_pays_and_nothing_else_changes(case: Case) -> None:
    try:
        model = model_of(case.brokers, case.partitions, case.question)
        rows = apply(model, case.question)
    except ValueError:
        return
    before = (
        model.load().tolist(),
        copies_by_row(model).tolist(),
        racks_spanned(model.racks[model.after]),
        _unevenness(model),
    )
    even_topics(model, rows)
    assert (model.load().tolist(), copies_by_row(model).tolist()) == before[:2]
    assert (racks_spanned(model.racks[model.after]) >= before[2]).all()
    assert _unevenness(model) <= before[3]


def test_two_topics_that_leave_a_broker_share_the_others() -> None:
    lists = [[3]] * 6 + [[3]] * 6
    partitions = PlacementPartitions(
        topic=np.repeat([0, 1], 6),
        partition=np.tile(np.arange(6), 2),
        replicas=padded(lists),
        movable=np.ones(12, dtype=bool),
    )
    placement = place(brokers_of((None,) * 4, emptied=frozenset({3})), partitions, PlacementGoal())
    counts = [
        [int((placement.replicas[rows, 0] == broker).sum()) for broker in (1, 4, 15)]
        for rows in np.arange(12).reshape(2, 6)
    ]
    assert (counts, (placement.replicas != NO_BROKER).sum()) == ([[2, 2, 2], [2, 2, 2]], 12)
