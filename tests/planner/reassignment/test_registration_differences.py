"""The whole state of a partition, which a change was planned on: compared, and what a request does not explain."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reassignment.registration_differences import (
    PartitionRegistration,
    differences,
    unclean_choice,
    unexplained_by_election,
    unexplained_by_move,
)
from schemas.replica_assignment import ReplicaAssignment

BEFORE = PartitionRegistration([1, 2, 3], [], [], 1, 5, [1, 2, 3], [])

CHANGED: list[tuple[str, dict[str, Any], str | None]] = [
    ("nothing", {}, None),
    ("order of the ISR", {"isr": [3, 1, 2]}, None),
    ("order of replicas", {"replicas": [2, 1, 3]}, "replicas [1, 2, 3]→[2, 1, 3]"),
    ("adding", {"adding": [4]}, "adding []→[4]"),
    ("removing", {"removing": [3]}, "removing []→[3]"),
    ("leader", {"leader": 2}, "leader 1→2"),
    ("epoch alone", {"leader_epoch": 6}, "leader epoch 5→6"),
    ("epoch that is not known", {"leader_epoch": None}, "leader epoch 5→unknown"),
    ("ISR", {"isr": [1, 2]}, "ISR [1, 2, 3]→[1, 2]"),
    ("ELR", {"eligible": [3]}, "eligible leader replicas []→[3]"),
    ("ELR that is not known now", {"eligible": None}, "eligible leader replicas []→unknown"),
]


@pytest.mark.parametrize(("changed", "expected"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_every_part_counts(changed: dict[str, Any], expected: str | None) -> None:
    assert differences(BEFORE, BEFORE._replace(**changed)) == expected


def test_eligible_replicas_that_were_not_known_are_not_compared() -> None:
    assert differences(BEFORE._replace(eligible=None), BEFORE._replace(eligible=[2])) is None


GOAL = [4, 2, 1]
MOVED: list[tuple[str, dict[str, Any], str | None]] = [
    ("requested", {"replicas": [4, 2, 1, 3], "adding": [4], "removing": [3]}, None),
    ("arrived", {"replicas": [4, 2, 1, 3], "adding": [4], "removing": [3], "isr": [1, 2, 3, 4]}, None),
    ("complete", {"replicas": GOAL, "isr": [1, 2, 4], "leader_epoch": 7}, None),
    (
        "another leader meanwhile",
        {"replicas": [4, 2, 1, 3], "adding": [4], "removing": [3], "leader": 2, "leader_epoch": 6, "isr": [2, 3]},
        "leader 1→2, leader epoch 5→6, ISR [1, 2, 3]→[2, 3]",
    ),
    ("complete with another leader", {"replicas": GOAL, "isr": [2, 4], "leader": 2, "leader_epoch": 8}, "leader 1→2"),
    ("moved elsewhere", {"replicas": [5, 1, 2, 3], "adding": [5]}, "replicas [1, 2, 3]→[5, 1, 2, 3]"),
    ("cancelled", {}, "replicas [1, 2, 3]→[1, 2, 3]"),
]


@pytest.mark.parametrize(("now", "expected"), [row[1:] for row in MOVED], ids=[row[0] for row in MOVED])
def test_what_a_move_does_not_explain(now: dict[str, Any], expected: str | None) -> None:
    assert unexplained_by_move(BEFORE, BEFORE._replace(**now), GOAL) == expected


ELECTED: list[tuple[str, dict[str, Any], str | None]] = [
    ("elected", {"leader": 2, "leader_epoch": 6}, None),
    ("elected twice", {"leader": 2, "leader_epoch": 8}, "leader epoch 6→8"),
    ("another", {"leader": 3, "leader_epoch": 7}, "leader 2→3, leader epoch 6→7"),
    ("with a smaller ISR", {"leader": 2, "leader_epoch": 6, "isr": [2, 3]}, "ISR [1, 2, 3]→[2, 3]"),
]


@pytest.mark.parametrize(("now", "expected"), [row[1:] for row in ELECTED], ids=[row[0] for row in ELECTED])
def test_what_an_election_does_not_explain(now: dict[str, Any], expected: str | None) -> None:
    assert unexplained_by_election(BEFORE, BEFORE._replace(**now), 2) == expected


CHOICES: list[tuple[str, dict[str, Any], list[int] | None, set[int], int | None]] = [
    ("the first that is live", {"isr": [1], "eligible": []}, [], {2, 3}, 2),
    ("one that came back in sync", {"isr": [3], "eligible": []}, [], {2, 3}, 3),
    ("one that is eligible", {"isr": [], "eligible": [3]}, [1], {2, 3}, 3),
    ("none that is eligible while the ISR has members", {"isr": [1], "eligible": [3]}, [], {2, 3}, 2),
    ("the last known leader", {"isr": [], "eligible": []}, [3], {2, 3}, 3),
    ("the last known leader is dead", {"isr": [], "eligible": []}, [1], {2, 3}, 2),
    ("no last known leader of several", {"isr": [], "eligible": []}, [3, 2], {2, 3}, 2),
    ("not the last known leader while another is eligible", {"isr": [], "eligible": [1]}, [3], {2, 3}, 2),
    ("not the last known leader while the ISR has members", {"isr": [1], "eligible": []}, [3], {2, 3}, 2),
    ("none that is being removed", {"isr": [1], "removing": [2]}, None, {2, 3}, 3),
    ("none is live", {"isr": [1]}, None, set(), None),
]


@pytest.mark.parametrize(
    ("state", "last_known", "live", "expected"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES]
)
def test_which_replica_an_unclean_election_takes(
    state: dict[str, Any], last_known: list[int] | None, live: set[int], expected: int | None
) -> None:
    assert unclean_choice(BEFORE._replace(leader=-1, **state), last_known, live) == expected


BROKERS = st.lists(st.integers(1, 5), unique=True, max_size=5)
REGISTRATIONS = st.builds(
    PartitionRegistration,
    replicas=BROKERS,
    adding=BROKERS,
    removing=BROKERS,
    leader=st.none() | st.integers(-1, 5),
    leader_epoch=st.none() | st.integers(0, 3),
    isr=BROKERS,
    eligible=st.none() | BROKERS,
)


def as_facts(registration: PartitionRegistration) -> dict[str, Any]:
    return {
        "replicas": tuple(registration.replicas),
        "leader": registration.leader,
        "epoch": registration.leader_epoch,
        **{name: frozenset(getattr(registration, name)) for name in ("adding", "removing", "isr")},
        "eligible": None if registration.eligible is None else frozenset(registration.eligible),
    }


@given(REGISTRATIONS, REGISTRATIONS)
def test_states_are_the_same_only_if_each_fact_is(planned: PartitionRegistration, now: PartitionRegistration) -> None:
    """The oracle compares facts; `differences` builds words."""
    before, after = as_facts(planned), as_facts(now)
    if before["eligible"] is None:
        del before["eligible"], after["eligible"]
    assert (differences(planned, now) is None) == (before == after)


@given(REGISTRATIONS, BROKERS.filter(bool), st.booleans())
def test_a_request_explains_itself(before: PartitionRegistration, goal: list[int], complete: bool) -> None:  # noqa: FBT001
    """What a controller makes of the request, and nothing else, is explained."""
    before = before._replace(adding=[], removing=[], leader=goal[0], isr=[*before.replicas])
    if complete:
        now = before._replace(replicas=goal, isr=goal)
    else:
        towards = ReplicaAssignment(before.replicas).towards(goal)
        now = before._replace(replicas=towards.replicas, adding=towards.adding, removing=towards.removing)
    assert unexplained_by_move(before, now, goal) is None
    moved = now._replace(leader=99)
    assert unexplained_by_move(before, moved, goal) is not None
