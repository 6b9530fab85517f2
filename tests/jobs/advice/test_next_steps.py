"""What is due and the command for it: a case for each rule, and a check that the command line accepts each command."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace as with_values

from jobs.advice.next_steps import ClusterSituation, next_steps, uncommitted_plans
from jobs.advice.outage import Outage
from jobs.repositories.plans.moving_plans import MovingPlan
from jobs.repositories.warehouse_status import WarehouseStatus
from jobs.runtime.settings import ClusterConf, Settings
from jobs.runtime.suggestions import Suggestion, with_full_command
from jobs.snapshots.health import Health
from planner.columns.broker_skew import Skew
from planner.leadership.broker_start_order import BrokerStart, StartOrder
from planner.reassignment.stalled_reassignments import BlockedReassignment, describe_reassignment
from schemas.enums import NO_CONTROLLER, DrainMode
from schemas.lease_holder import LeaseHolder
from schemas.metadata_names import IN_KRAFT
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import DrainedBroker, PlanRecord, QuarantinedZnode, Row, Snapshot, ThrottledConfig
from schemas.topic_configs import LEADER_RATE
from tests.docs.command_checks import fault
from tests.jobs.support.kafka.kraft_cluster import words_of_zookeeper
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import NOW

WELL: Final = Health(
    controller_id=0,
    controller_epoch=7,
    latest_epoch=7,
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
    stalled=[],
    not_understood=0,
    leader_outside_isr=0,
    named={},
    configs_not_understood=0,
    repairable=0,
    offline_without_isr=0,
    led_by_drained=0,
    imbalance=[],
    quarantined=0,
    blocking=[],
    throttled_brokers=[],
    throttled_topics=[],
)
DAY: Final = 86_400.0
SNAPSHOT: Final = Snapshot(snapshot_id=4, taken_at=NOW - timedelta(minutes=5))


def drained(broker: int, mode: DrainMode = DrainMode.ADMIN, since: datetime = NOW) -> DrainedBroker:
    return DrainedBroker(broker_id=broker, mode=mode.value, since=since)


def throttle(broker: str) -> ThrottledConfig:
    return ThrottledConfig(
        plan_id="5f", kind="broker", resource=broker, name=LEADER_RATE, before=None, set_to=["10"], set_at=NOW
    )


EPOCH_BLOCKS: Final = QuarantinedZnode(path="/controller_epoch", blocks="fail-over", reason="why")


def plan(status: str = "planned", **columns: Any) -> PlanRecord:  # noqa: ANN401 - columns of `plans`
    made: Row = {"snapshot_id": 4, "created_at": NOW - timedelta(minutes=1), "changes": 6}
    return plan_record(**{"name": "a", "names": ["a"], "kind": "elect", "status": status, **made, **columns})


def steps(health: Health = WELL, **recent: object) -> list[Suggestion]:
    known = WarehouseStatus(**{"snapshot": SNAPSHOT, **recent})  # type: ignore[arg-type]
    return next_steps(ClusterSituation(health=health, warehouse_status=known, now=NOW, max_plan_age=DAY))


def open_plans(health: Health = WELL, **recent: object) -> list[tuple[str, str | None, str | None]]:
    """What is shown of plans that no commit has begun with: text, and the commands that show and discard it."""
    known = WarehouseStatus(**{"snapshot": SNAPSHOT, **recent})  # type: ignore[arg-type]
    assumed = {"5f": ["broker 2 is live again: 6 of 6 changes assume otherwise"]}
    plans = uncommitted_plans(
        ClusterSituation(health=health, warehouse_status=known, now=NOW, max_plan_age=DAY, assumptions=assumed)
    )
    return [(row.review.what, row.review.command, row.discard.command if row.discard else None) for row in plans]


STOPPED: Final = (
    "broker 4 is drained and down: start it once the work is done, then restore its leadership with "
    "`surveyor plan undrain --brokers 4`"
)
STILL: Final = ReplicaAssignment([0, 1])


def stalled(topic: str, now: ReplicaAssignment | None, request: list[int] | None) -> BlockedReassignment:
    return describe_reassignment((topic, 0), now, request, [0, 1], [0, 1])


REFUSED: Final = "brokers refuse the controller, so no election succeeds; a take-over with a later epoch repairs it"
EARLIER: Final = f"/controller_epoch is 7, earlier than controller epoch 57, the latest recorded one: {REFUSED}"
GONE: Final = f"/controller_epoch does not exist, but controller epoch 57 is recorded: {REFUSED}"

BLOCKING: Final = QuarantinedZnode(path="/feature", blocks="fail-over", reason="why")

CASES: Final[list[tuple[dict[str, object], dict[str, object], str, str | None]]] = [
    ({"latest_epoch": 57}, {}, EARLIER, "reconcile"),
    ({}, {"latest_epoch": 57}, EARLIER, "reconcile"),
    ({"controller_epoch": 0, "latest_epoch": 57}, {}, GONE, "reconcile"),
    (
        {"live": [], "topics": 0, "partitions": 0},
        {},
        "no broker is registered: start the brokers, or correct the address or its chroot",
        None,
    ),
    ({"repairable": 2}, {}, "2 partitions with a dead leader or a dead ISR member", "reconcile"),
    (
        {"controller_id": NO_CONTROLLER},
        {},
        "no broker is the controller: no leader is elected when a broker fails",
        "reconcile",
    ),
    ({"gone": {4: 1, 3: 9}}, {}, "brokers 3, 4 are gone: start them", None),
    (
        {"leader_outside_isr": 2},
        {},
        (
            "2 partitions led by a broker outside the ISR: Kafka does not change that; a preferred election ends it "
            "if the preferred replica is in the ISR, else a restart of the leader's broker"
        ),
        None,
    ),
    (
        {"blocking": [with_values(BLOCKING, path="/config/topics/t", blocks="broker start")]},
        {},
        "/config/topics/t blocks Kafka's broker start: why; docs/runbook.md explains how to repair it",
        "show quarantine",
    ),
    (
        {"blocking": [with_values(BLOCKING, path="/admin/delete_topics/t")]},
        {},
        "/admin/delete_topics/t blocks Kafka's fail-over: why; Surveyor deletes it once it is the controller",
        "reconcile",
    ),
    ({"gone": {4: 1}, "most_replicas": 3}, {}, "broker 4 is gone: start it", None),
    (
        {"gone": {4: 1}},
        {"drained": [drained(4)]},
        STOPPED,
        None,
    ),
    (
        {"gone": {4: 1}},
        {"drained": [drained(4, DrainMode.RESIDENT)]},
        "broker 4 is drained and down: start it once the work is done, which ends the drain",
        None,
    ),
    (
        {"stalled": [stalled("ghost", None, [1]), stalled("kept", STILL, [0, 1])]},
        {},
        (
            "2 requested reassignments that cannot be carried out: ghost-0 to [1] (there is no such "
            "partition), kept-0 to [0, 1] (it has these replicas already)"
        ),
        "cancel --partitions ghost-0,kept-0",
    ),
    (
        {"stalled": [stalled("a", STILL.towards([0, 9]), None), stalled("b", STILL, [8, 0])]},
        {},
        (
            "2 reassignments do not move: a-0 to [0, 9] (not live: 9), b-0 to [8, 0] (not live: 8); start "
            "brokers 8, 9, or cancel"
        ),
        "cancel --partitions a-0,b-0",
    ),
    ({}, {"snapshot": None}, "no snapshot yet: plans are made on one, and `show` shows it", "snapshot"),
    (
        {},
        {"snapshot": Snapshot(snapshot_id=4, taken_at=NOW - timedelta(hours=3))},
        "the last snapshot is 3 h 0 min old",
        "snapshot",
    ),
    ({}, {"snapshot": None, "fault": "no table"}, "the warehouse is not used: no table", None),
    ({}, {"throttled": ["5f"]}, "nothing moves, and the throttle of plan 5f is still set", "commit 5f"),
    (
        {"throttled_brokers": ["0", "<default>"], "throttled_topics": ["t"]},
        {},
        "nothing moves, and a throttle is still set on brokers 0, <default> and topics t",
        "cancel --throttles",
    ),
    ({}, {"plans": [plan("partial", names=[], name=None)]}, "plan 5f (elect) is partial", "commit 5f"),
    ({}, {"plans": [plan("committing", snapshot_id=1)]}, "plan a (elect) is committing", "commit a"),
    (
        {"skew": [Skew(quantity="empty", amounts={4: 0}, share=12.4)]},
        {"plans": [plan("committing", kind="reassign")], "throttled": ["5f"]},
        "plan a (reassign) is committing, and its throttle is set",
        "commit a",
    ),
    (
        {},
        {"plans": [plan("partial", created_at=NOW - timedelta(days=2))]},
        "plan a (elect) is partial, and too old for a commit",
        "verify a",
    ),
    (
        {},
        {"drained": [drained(1, since=NOW - timedelta(days=2))]},
        "broker 1 is drained for 2 days at least: if the work is done, restore its leadership",
        "plan undrain --brokers 1",
    ),
    (
        {"led_by_drained": 2},
        {"drained": [drained(1)]},
        (
            "2 partitions are led by a drained broker, as no other replica was in sync or the drain left them alone: "
            "do not stop broker 1"
        ),
        None,
    ),
    (
        {"electable_imbalance": [0, 1, 9]},
        {},
        "2 brokers do not lead all partitions of which they are the preferred replica",
        "plan elect --preferred",
    ),
    ({"mixed_racks": "broker 4 has no rack"}, {}, "broker 4 has no rack", None),
    (
        {"skew": [Skew(quantity="empty", amounts={4: 0}, share=12.4)]},
        {},
        "broker 4 holds no replica; an even share is 12",
        "plan reassign --add-brokers 4",
    ),
    (
        {"skew": [Skew(quantity="empty", amounts={4: 0}, share=12.4)]},
        {"removed": {4: "5f"}},
        "broker 4 holds no replica, as plan 5f removed it: stop it, or use it again",
        None,
    ),
    (
        {"skew": [Skew(quantity="replicas", amounts={1: 120, 3: 20}, share=60)]},
        {},
        "replicas are far from even: broker 1 holds 120, broker 3 holds 20; an even share is 60",
        "plan reassign --rebalance",
    ),
    (
        {
            "skew": [Skew(quantity="bytes", amounts={1: 2**40, 3: 2**30}, share=2**38)],
            "sizes_taken_at": NOW - timedelta(hours=3),
        },
        {},
        (
            "bytes are far from even by the sizes of 3 h 0 min ago: broker 1 holds 1.0 TiB, broker 3 holds 1.0 GiB; "
            "an even share is 256.0 GiB"
        ),
        "plan reassign --rebalance --by-size",
    ),
    ({"quarantined": 3}, {}, "3 znodes not understood; plans leave their partitions alone", "show quarantine"),
    (
        {"migration": "/controller carries kraftControllerEpoch 3"},
        {},
        "migration to KRaft is in progress (/controller carries kraftControllerEpoch 3): plans and commits are refused",
        None,
    ),
]


@pytest.mark.parametrize(("columns", "recent", "text", "command"), CASES)
def test_a_rule(columns: dict[str, object], recent: dict[str, object], text: str, command: str | None) -> None:
    assert steps(replace(WELL, **columns), **recent) == [Suggestion(text, command)]  # type: ignore[arg-type]


def test_what_is_due_during_a_migration_has_no_command_that_is_refused() -> None:
    health = replace(WELL, electable_imbalance=[0], repairable=2)

    usual = steps(health)
    notice, *others = steps(replace(health, migration="/migration names KRaft controller 3000"))

    assert all(step.command for step in usual)
    assert [step.what for step in others] == [step.what for step in usual]
    assert {step.command for step in (notice, *others)} == {None}


KRAFT: Final = Settings("default", "w", ClusterConf(bootstrap_servers="kafka1:9092"))
OF_ZNODES: Final = {"migration", "blocking", "controller_epoch", "without_state"}
"""Facts that a KRaft cluster does not have."""


@pytest.mark.parametrize("columns", [columns for columns, *_ in CASES if not OF_ZNODES & columns.keys()])
def test_no_step_on_a_kraft_cluster_is_about_zookeeper(columns: dict[str, object]) -> None:
    health = replace(WELL, **columns)  # type: ignore[arg-type]
    known = WarehouseStatus(snapshot=SNAPSHOT)
    situation = ClusterSituation(health=health, warehouse_status=known, now=NOW, max_plan_age=DAY, names=IN_KRAFT)
    steps_due = [with_full_command(KRAFT, step) for step in next_steps(situation)]
    assert words_of_zookeeper(*(f"{step.what} {step.command}" for step in steps_due)) == []


def test_without_the_leader_of_the_quorum_everything_else_is_less_urgent() -> None:
    situation = ClusterSituation(
        health=replace(WELL, controller_id=None, controller_epoch=None, quarantined=2, gone={1: 4}),
        warehouse_status=WarehouseStatus(snapshot=SNAPSHOT),
        now=NOW,
        max_plan_age=DAY,
        names=IN_KRAFT,
    )
    first, *_ = next_steps(situation)
    assert (first.what.partition(":")[0], first.command) == ("the quorum's leader is unknown", "doctor")


def test_a_quorum_is_not_behind_the_epochs_of_zookeeper() -> None:
    """A migrated cluster keeps its id and its warehouse, and its quorum counts from zero."""
    recent = WarehouseStatus(snapshot=SNAPSHOT, latest_epoch=57)
    situation = ClusterSituation(
        health=replace(WELL, controller_epoch=3), warehouse_status=recent, now=NOW, max_plan_age=DAY, names=IN_KRAFT
    )
    assert next_steps(situation) == []


def test_an_unreadable_epoch_is_set_to_the_latest_known() -> None:
    health = replace(WELL, controller_epoch=None, latest_epoch=57, blocking=[EPOCH_BLOCKS])

    (step,) = steps(health)

    assert step.what == "/controller_epoch blocks Kafka's fail-over: why; set it to the latest known controller epoch"
    assert step.zookeeper_shell == "set /controller_epoch 57"


def test_blocking_znodes_that_are_not_listed_are_counted() -> None:
    shown = steps(replace(WELL, blocking=[BLOCKING] * 5))

    assert [(step.what, step.command) for step in shown[3:]] == [
        ("2 more znodes block a part of Kafka", "show quarantine"),
    ]


def test_blocking_znode_comes_before_everything_else() -> None:
    blocking = [with_values(BLOCKING, mend="delete /feature"), *[BLOCKING] * 9]
    steps_due = steps(replace(WELL, blocking=blocking, repairable=1))

    assert steps_due[0] == Suggestion(
        "/feature blocks Kafka's fail-over: why; delete it", zookeeper_shell="delete /feature"
    )
    assert [step.command for step in steps_due] == [
        None,
        "show quarantine",
        "show quarantine",
        "show quarantine",
        "reconcile",
    ]


OUTAGE: Final = Outage(
    order=StartOrder(
        partitions=1,
        starts=(BrokerStart(brokers=(3,), partitions=1, brings_back=1),),
        not_in_sync=(4,),
        live={},
        unknown=0,
        holders=(),
    )
)


def gone_for(hours: float, health: Health, **columns: object) -> list[Suggestion]:
    """What is due if snapshots have missed every missing broker for so long."""
    recent = WarehouseStatus(**{"snapshot": SNAPSHOT, **columns})  # type: ignore[arg-type]
    since = dict.fromkeys(health.gone, NOW - timedelta(hours=hours))
    return next_steps(
        ClusterSituation(health=health, warehouse_status=recent, now=NOW, max_plan_age=DAY, missing_since=since)
    )


def test_a_broker_is_given_up_last_and_later() -> None:
    """Only after snapshots, the newest of them fresh, have missed it for long; never if it was drained."""
    gone = replace(WELL, gone={4: 1}, quarantined=1)
    start = Suggestion("broker 4 is gone: start it", None)
    quarantine = next_steps(
        ClusterSituation(health=gone, warehouse_status=WarehouseStatus(), now=NOW, max_plan_age=DAY)
    )[-1]
    last = Suggestion(
        "broker 4 has been gone for 3 h 0 min at least: only if they do not return, copy their replicas to other "
        "brokers",
        "plan reassign --remove-brokers 4",
    )
    too_few = Suggestion(
        "broker 4 has been gone for 3 h 0 min at least: if they do not return, add another broker first, because 2 "
        "brokers cannot hold 3 replicas",
    )
    old = Snapshot(snapshot_id=4, taken_at=NOW - timedelta(hours=2))

    assert gone_for(0.9, gone) == [start, quarantine]
    assert gone_for(3, gone) == [start, quarantine, last]
    assert gone_for(3, replace(gone, most_replicas=3)) == [start, quarantine, too_few]
    assert last not in gone_for(3, gone, snapshot=old)
    assert [step.command for step in gone_for(3, gone, drained=[drained(4)])] == [None, "show quarantine"]


def test_outage_comes_first_and_nothing_is_given_up() -> None:
    """Which brokers to start in which order and, last, what remains if they cannot be started."""
    dark = replace(WELL, gone={3: 1, 4: 1}, offline_without_isr=1, offline=1)
    recent = WarehouseStatus(snapshot=SNAPSHOT)
    since = dict.fromkeys(dark.gone, NOW - timedelta(days=3))
    advised = next_steps(
        ClusterSituation(
            health=dark, warehouse_status=recent, now=NOW, max_plan_age=DAY, missing_since=since, outage=OUTAGE
        )
    )

    assert advised == [
        Suggestion(
            "1 partition offline, and Surveyor cannot elect a leader: start broker 3 first (last in sync of it), "
            "broker 4 was not",
        ),
        Suggestion("brokers 3, 4 are gone: start them, in the order above"),
        Suggestion(
            "if those brokers cannot be started: see which replica could lead, and what that loses",
            "plan recover",
        ),
    ]


def test_without_live_brokers_no_controller_is_expected() -> None:
    dark = replace(WELL, live=[], controller_id=NO_CONTROLLER, gone={0: 9, 1: 9})

    assert steps(dark) == [Suggestion("brokers 0, 1 are gone: start them")]


@pytest.mark.parametrize("command", sorted({command for *_, command in CASES if command is not None}))
def test_the_command_line_takes_the_command(command: str) -> None:
    assert fault(command.split()) is None


@pytest.mark.parametrize(
    "old",
    [
        plan(changes=0),
        plan(created_at=NOW - timedelta(days=2)),
        plan(kind="reconcile", snapshot_id=3),
    ],
)
def test_uncommittable_plans_are_not_shown(old: PlanRecord) -> None:
    assert (steps(plans=[old]), open_plans(plans=[old])) == ([], [])


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        (
            {"plans": [plan()]},
            "plan a (elect) is not committed: 6 changes; broker 2 is live again: 6 of 6 changes assume otherwise",
        ),
        (
            {"plans": [plan(plan_id="7a", snapshot_id=3)], "taken": {3: NOW - timedelta(hours=2)}},
            "plan a (elect) is not committed: 6 changes, on snapshot 3, 2 h 0 min old",
        ),
        (
            {"plans": [plan(plan_id="7a", snapshot_id=3)]},
            "plan a (elect) is not committed: 6 changes, on snapshot 3",
        ),
        (
            {"plans": [plan(changes=0, plan_id="7a")], "operations": Counter({"7a": 1})},
            "plan a (elect) is not committed: 1 operation",
        ),
    ],
)
def test_a_plan_that_waits_is_not_due(waiting: dict[str, object], text: str) -> None:
    """It is shown apart, with the command that discards it, except during a migration, which refuses that."""
    migrating = replace(WELL, migration="/controller carries kraftControllerEpoch 3")

    assert steps(WELL, **waiting) == []
    assert open_plans(WELL, **waiting) == [(text, "show plan a", "cancel a --apply")]
    assert open_plans(migrating, **waiting) == [(text, "show plan a", None)]
    assert fault(["cancel", "a", "--apply"]) is fault(["show", "plan", "a"]) is None


def test_a_plan_that_has_begun_is_due_and_shows_what_it_assumed() -> None:
    known = WarehouseStatus(snapshot=SNAPSHOT, plans=[plan("partial")])
    assumed = {"5f": ["broker 2 is live again: 1 of 6 changes assume otherwise"]}
    due = next_steps(
        ClusterSituation(health=WELL, warehouse_status=known, now=NOW, max_plan_age=DAY, assumptions=assumed)
    )

    text = "plan a (elect) is partial; broker 2 is live again: 1 of 6 changes assume otherwise"
    assert due == [Suggestion(text, "commit a")]
    assert open_plans(plans=[plan("partial")]) == []


def test_a_plan_that_has_begun_is_not_committed_again_while_its_replicas_move() -> None:
    begun = plan("partial")
    known = WarehouseStatus(snapshot=SNAPSHOT, plans=[begun])
    moving = [MovingPlan(row=begun, author="ann@ops1", since=NOW, keys=[("a", 0)])]

    due = next_steps(
        ClusterSituation(health=WELL, warehouse_status=known, now=NOW, max_plan_age=DAY, moving_plans=moving)
    )

    assert due == [Suggestion("plan a (elect) is partial, and its replicas move", "verify a")]


def test_a_plan_that_was_made_again_on_a_later_snapshot_is_not_open() -> None:
    plans = [plan(plan_id="7a", snapshot_id=3), plan()]
    assert len(open_plans(plans=plans)) == 2
    assert [command for _, command, _ in open_plans(plans=plans, repeated={"7a"})] == ["show plan a"]


NOT_DUE: Final[dict[str, tuple[dict[str, object], dict[str, object], list[str | None]]]] = {
    "a throttle under which replicas catch up": (
        {"throttled_brokers": ["0"], "under_replicated": 1, "throttled_lagging": 1},
        {"throttled": ["5f"]},
        [None],
    ),
    "a throttle of a broker that is gone": ({"throttled_brokers": ["9"]}, {}, []),
    "a plan's throttle of a broker that is gone": ({}, {"throttled": ["5f"], "throttles": [throttle("9")]}, []),
    "a throttle of another tool, besides that of a plan": (
        {"throttled_brokers": ["0", "1"]},
        {"throttled": ["5f"], "throttles": [throttle("0")]},
        ["commit 5f", "cancel --throttles"],
    ),
    "a fresh drain": ({}, {"drained": [drained(1)]}, []),
    "an election of drained brokers": ({"electable_imbalance": [1]}, {"drained": [drained(1)]}, []),
    "an election with which a running plan ends": (
        {"electable_imbalance": [0], "moving": 3},
        {"plans": [plan("committing")], "electing": frozenset({"5f"})},
        ["commit a"],
    ),
    "that of a plan that is too old for a commit": (
        {"electable_imbalance": [0]},
        {"plans": [plan("partial", created_at=NOW - timedelta(days=2))], "electing": frozenset({"5f"})},
        ["verify a", "plan elect --preferred"],
    ),
}


@pytest.mark.parametrize(("columns", "recent", "commands"), NOT_DUE.values(), ids=NOT_DUE)
def test_a_state_that_is_intended_is_not_due(
    columns: dict[str, object], recent: dict[str, object], commands: list[str | None]
) -> None:
    advised = steps(replace(WELL, **columns), **recent)  # type: ignore[arg-type]
    assert [step.command for step in advised] == commands


SLOW: Final = "a throttle of 10 B/s on brokers 0, 1 was set by another tool, and 2 partitions are copied under it"
THEIRS: Final = (None, SLOW)
OURS: Final = ("5f", "a throttle of plan 5f")
CATCHING_UP: Final = (
    f"2 partitions lack in-sync replicas, which catch up under a throttle: {SLOW}; {OURS[1]}. Once the ISRs are full, "
    "`surveyor cancel --throttles` removes it; before, it lets replicas be copied at full speed"
)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"moving": 2}, f"{SLOW}; `surveyor commit PLAN --throttle RATE` sets another rate for the moves of a plan"),
        ({"throttled_lagging": 2}, CATCHING_UP),
    ],
)
def test_a_throttle_in_use_is_named_and_not_removed(columns: dict[str, int], text: str) -> None:
    situation = ClusterSituation(
        health=replace(WELL, throttled_brokers=["0", "1"], **columns),  # type: ignore[arg-type]
        warehouse_status=WarehouseStatus(snapshot=SNAPSHOT),
        now=NOW,
        max_plan_age=DAY,
        copy_throttles=[THEIRS, OURS],
    )
    assert next_steps(situation) == [Suggestion(text)]


def test_a_broker_that_a_running_plan_removes_is_not_given_up_again() -> None:
    gone = replace(WELL, gone={4: 1})
    removing = plan("committing", parameters='{"remove_brokers": [4]}')

    assert [step.command for step in gone_for(3, gone, plans=[removing])] == [None, "commit a"]


def test_moves_of_a_plan_that_do_not_move_belong_to_its_author() -> None:
    owner = MovingPlan(row=plan("committing"), author="ann@ops1", since=NOW, keys=[("a", 0)])
    both = [stalled("a", STILL.towards([0, 9]), None), stalled("b", STILL, [8, 0])]
    situation = ClusterSituation(
        health=replace(WELL, stalled=both),
        warehouse_status=WarehouseStatus(snapshot=SNAPSHOT),
        now=NOW,
        max_plan_age=DAY,
        moving_plans=[owner],
    )

    assert next_steps(situation) == [
        Suggestion(
            "1 reassignment does not move: a-0 to [0, 9] (not live: 9); start broker 9; plan 5f (a), committed by "
            f"ann@ops1 since {NOW:%Y-%m-%d %H:%M:%S} UTC, moves a-0; only if it cannot be started, `surveyor cancel "
            "a` ends the plan",
            "verify a",
        ),
        Suggestion(
            "1 reassignment does not move: b-0 to [8, 0] (not live: 8); start broker 8, or cancel",
            "cancel --partitions b-0",
        ),
    ]


def test_a_throttle_is_due_once_nothing_moves_by_it() -> None:
    assert steps(replace(WELL, moving=1), throttled=["5f"]) == []
    assert [step.what for step in steps(plans=[plan("committing")], throttled=["5f"])] == [
        "plan a (elect) is committing, and its throttle is set"
    ]


def test_foreign_throttle_is_due_once_nothing_moves() -> None:
    throttled = replace(WELL, throttled_topics=["t"])

    assert steps(replace(throttled, moving=1)) == []
    assert [step.command for step in steps(throttled, throttled=["5f"])] == ["commit 5f"]
    assert [step.command for step in steps(throttled, plans=[plan("committing")])] == ["commit a"]


def test_all_is_well() -> None:
    assert steps() == []


def test_only_the_newest_plans_that_have_begun_are_named() -> None:
    advised = steps(plans=[plan("partial", names=[f"p{number}"]) for number in range(5)])

    assert [step.command for step in advised] == ["commit p4", "commit p3", "commit p2", "show plans"]


def test_the_most_urgent_comes_first() -> None:
    advised = steps(replace(WELL, quarantined=1, repairable=1, gone={3: 1}), snapshot=None)

    assert [step.command for step in advised] == [
        "reconcile",
        None,
        "snapshot",
        "show quarantine",
    ]


def test_a_plan_that_is_being_committed_is_waited_for() -> None:
    """The lease of its commit refuses another one."""
    holder = LeaseHolder("ann", "ops1", 7, "commit", "5f", "2026-11-22T06:00:00+00:00")
    plan = plan_record("5f", status="committing", created_at=NOW)
    known = WarehouseStatus(snapshot=SNAPSHOT, plans=[plan])
    situation = ClusterSituation(health=WELL, warehouse_status=known, now=NOW, max_plan_age=DAY, holder=holder)
    text = f"plan 5f (reassign) is carried out by {holder}: wait for it, or ask there"
    assert Suggestion(text, "verify 5f") in next_steps(situation)
