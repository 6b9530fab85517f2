"""What is due, and the command for it: a case a rule, and that each command is one that the command line takes."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from jobs.adapters.delta.lake import Row
from jobs.assessment.next_steps import Situation, next_steps
from jobs.records.recent import Recent
from jobs.runtime.next_commands import NextStep
from jobs.survey.health import Health
from schemas.names import NO_CONTROLLER
from tests.docs.shown import fault
from tests.jobs.support.rows.lake_rows import NOW

WELL: Final = Health(
    controller_id=0,
    controller_epoch=7,
    migration=None,
    live=[0, 1],
    not_understood_brokers=[],
    gone={},
    able_brokers=2,
    most_replicas=2,
    topics=1,
    deleting_topics=0,
    partitions=9,
    offline=0,
    without_state=0,
    under_replicated=0,
    under_min_isr=0,
    moving=0,
    not_understood=0,
    mendable=0,
    stuck=0,
    imbalance=[],
    quarantined=0,
)
DAY: Final = 86_400.0
SNAPSHOT: Final[Row] = {"snapshot_id": 4, "taken_at": NOW - timedelta(minutes=5)}


def plan(status: str = "planned", **columns: object) -> Row:
    made = {"snapshot_id": 4, "created_at": NOW - timedelta(minutes=1), "changes": 6, "operations": 0}
    return {"plan_id": "5f", "name": "a", "names": ["a"], "kind": "elect", "status": status, **made, **columns}


def uneven(broker: int) -> Row:
    return {"broker_id": broker, "exceeds": True}


def steps(health: Health = WELL, **recent: object) -> list[NextStep]:
    known = Recent(**{"snapshot": SNAPSHOT, **recent})  # type: ignore[arg-type]
    return next_steps(Situation(health=health, recent=known, now=NOW, max_plan_age=DAY))


CASES: Final[list[tuple[dict[str, object], dict[str, object], str, str | None]]] = [
    ({"mendable": 2}, {}, "2 partitions to be given a leader, or an ISR without the dead", "reconcile"),
    (
        {"controller_id": NO_CONTROLLER},
        {},
        "no broker is the controller: nobody is elected when a broker fails",
        "reconcile",
    ),
    (
        {"stuck": 1},
        {},
        "1 partition offline, nobody in sync can lead: start who was, or see who else could",
        "plan recover --refresh",
    ),
    (
        {"gone": {4: 1, 3: 9}},
        {},
        "brokers 3, 4 gone: start again, or give up",
        "plan reassign --remove-brokers 3,4 --refresh",
    ),
    (
        {"gone": {4: 1}, "most_replicas": 3},
        {},
        "broker 4 gone: start again, or others; 2 brokers cannot hold 3 replicas",
        None,
    ),
    ({}, {"snapshot": None}, "no snapshot yet: plans are made on one, and `show` shows it", "snapshot"),
    (
        {},
        {"snapshot": {"snapshot_id": 4, "taken_at": NOW - timedelta(hours=3)}},
        "the last snapshot is 3 h 0 min old",
        "snapshot",
    ),
    ({}, {"snapshot": None, "fault": "no table"}, "the warehouse could not be read: no table", None),
    ({}, {"plans": [plan()]}, "plan a (elect) waits: 6 changes", "show plan a"),
    ({}, {"plans": [plan(changes=0, operations=1)]}, "plan a (elect) waits: 1 operation", "show plan a"),
    ({}, {"throttled": ["5f"]}, "nothing moves, and the throttle of plan 5f is still set", "commit 5f"),
    ({}, {"plans": [plan("partial", names=[], name=None)]}, "plan 5f (elect) is partial", "commit 5f"),
    ({}, {"plans": [plan("committing", snapshot_id=1)]}, "plan a (elect) is committing", "commit a"),
    ({}, {"drained": [{"broker_id": 1}]}, "drained, and elected by no plan: 1", "plan undrain --brokers 1 --refresh"),
    (
        {"imbalance": [uneven(0), uneven(1), uneven(9)]},
        {},
        "2 brokers not leading what prefers them",
        "plan elect --preferred --refresh",
    ),
    ({"quarantined": 3}, {}, "3 znodes not understood; plans leave alone what they concern", "show quarantine"),
    (
        {"migration": "/controller is persistent"},
        {},
        "a migration to KRaft is in sight (/controller is persistent): plans and commits are refused",
        None,
    ),
]


@pytest.mark.parametrize(("columns", "recent", "what", "command"), CASES)
def test_a_rule(columns: dict[str, object], recent: dict[str, object], what: str, command: str | None) -> None:
    assert steps(replace(WELL, **columns), **recent) == [NextStep(what, command)]  # type: ignore[arg-type]


@pytest.mark.parametrize("command", sorted({command for *_, command in CASES if command is not None}))
def test_the_command_line_takes_the_command(command: str) -> None:
    assert fault(command.split()) is None


@pytest.mark.parametrize(
    "old",
    [
        plan(snapshot_id=3),
        plan(changes=0),
        plan(created_at=NOW - timedelta(days=2)),
    ],
)
def test_plans_that_nobody_would_commit_are_not_due(old: Row) -> None:
    assert steps(plans=[old]) == []


def test_a_throttle_is_due_once_nothing_moves_by_it() -> None:
    assert steps(replace(WELL, moving=1), throttled=["5f"]) == []
    assert [step.what for step in steps(plans=[plan("committing")], throttled=["5f"])] == [
        "plan a (elect) is committing"
    ]


def test_all_is_well() -> None:
    assert steps() == []


def test_of_many_plans_the_newest_are_named() -> None:
    advised = steps(plans=[plan(names=[f"p{number}"]) for number in range(5)])

    assert [step.command for step in advised] == ["show plan p4", "show plan p3", "show plan p2", "show plans"]
    assert advised[-1].what == "2 more plans wait"


def test_the_most_urgent_comes_first() -> None:
    advised = steps(replace(WELL, quarantined=1, mendable=1, gone={3: 1}), snapshot=None)

    assert [step.command for step in advised] == [
        "reconcile",
        "plan reassign --remove-brokers 3 --refresh",
        "snapshot",
        "show quarantine",
    ]
