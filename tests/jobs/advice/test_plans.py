"""The next commands for a plan: cases with their commands, and a check that the command line accepts each of them."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from jobs.advice.plans import (
    RECONCILE_ONLY_OPTIONS,
    after_cancellation,
    after_commit,
    after_dry_run,
    after_planning,
    after_review,
    after_stale,
    after_verification,
    undo_steps,
)
from jobs.cli import app
from jobs.runtime.settings import ClusterConf, Settings
from jobs.runtime.suggestions import Suggestion
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.enums import NO_VERSION, OperationKind, Outcome, PlanKind, PlanStatus
from schemas.lease_holder import LeaseHolder
from schemas.rows import BrokerEpoch, Change, Operation
from schemas.stored_plan import Plan, RowOutcome
from tests.docs.command_checks import fault
from tests.docs.command_line import subcommands
from tests.jobs.support.rows.plan_rows import creation, plan_record

TYPED = {
    "cluster": ("--cluster", "east"),
    "zookeeper": ("--zookeeper", "zk1:2181"),
    "mode": ("--mode", "batch"),
    "as_json": ("--json",),
}
SETTINGS = Settings("east", "w", ClusterConf(zookeeper="zk1:2181"), given_options=TYPED)
ON_CLUSTER = "--cluster east --zookeeper zk1:2181"


def plan(status: PlanStatus, kind: PlanKind = PlanKind.REASSIGN, **columns: Any) -> Plan:  # noqa: ANN401
    row: dict[str, Any] = {"name": "p", "names": ["p"], "kind": kind.value, "status": status.value, "changes": 1}
    return Plan(plan_record(**{**row, **columns}), [], [], [], given_name="p")


def planned(status: PlanStatus, changes: int = 1, operations: int = 0) -> list[Suggestion]:
    return after_planning(SETTINGS, plan(status, changes=changes).row, "p", due=bool(changes or operations))


ALTERED = {"topic_id": None, "before": {"a": None, "b": "1"}, "after": {"a": "1", "b": "2"}}


def operation(kind: OperationKind, **data: Any) -> Operation:  # noqa: ANN401
    return Operation(cluster="east", plan_id="", sequence=0, kind=kind.value, topic="t", data=json.dumps(data))


def undone(kind: PlanKind, *operations: Operation) -> list[Suggestion]:
    committed = plan(PlanStatus.COMMITTED, kind, parameters=json.dumps({"brokers": [1, 2]}))
    return undo_steps(SETTINGS, replace(committed, operations=[*operations]))


def verified(
    status: PlanStatus,
    *standings: ReassignmentStatus,
    kind: PlanKind = PlanKind.REASSIGN,
    throttled: bool = False,
    holder: LeaseHolder | None = None,
) -> list[Suggestion]:
    some = plan(status, kind, parameters=json.dumps({"brokers": [1, 2]}))
    moving = kind is PlanKind.REASSIGN and ReassignmentStatus.IN_PROGRESS in standings
    return after_verification(SETTINGS, some, standings, moving=moving, throttled=throttled, holder=holder)


def stale(
    message: str,
    command: str | None = None,
    **change: Any,  # noqa: ANN401
) -> list[Suggestion]:
    stored = plan(PlanStatus.PLANNED, command=command or "surveyor plan reassign --remove-brokers 2 --name p")
    row = msgspec.convert(creation("t", 0, [1, 2]) | {**COLUMNS, **change}, Change)
    return after_stale(SETTINGS, stored.row, "p", [RowOutcome(row, Outcome.STALE, message)])


ANN = LeaseHolder("ann", "ops1", 7, "commit", "5f", "2026-11-22T06:00:00+00:00")
APPLY, VERIFY = f"surveyor commit p --apply {ON_CLUSTER}", f"surveyor verify p {ON_CLUSTER}"
STATUS = f"surveyor status {ON_CLUSTER}"
AGAIN = f"surveyor plan reassign --remove-brokers 2 {ON_CLUSTER}"
DISCARD = f"surveyor cancel p --apply {ON_CLUSTER}"

COLUMNS: dict[str, Any] = {"cluster": "east", "plan_id": "p", "topic_version": 3, "replicas_before": [1, 2]}
NEW: dict[str, Any] = {"topic_version": NO_VERSION, "replicas_before": None}
ADDED: dict[str, Any] = {"replicas_before": None}

CASES = {
    "a plan": (planned(PlanStatus.PLANNED), ["surveyor show plan p --cluster east", APPLY]),
    "operations alone": (planned(PlanStatus.PLANNED, 0, 1), ["surveyor show plan p --cluster east", APPLY]),
    "an empty plan": (planned(PlanStatus.PLANNED, 0), []),
    "a plan that was committed": (planned(PlanStatus.COMMITTED), [VERIFY]),
    "a plan that was begun": (planned(PlanStatus.PARTIAL), [APPLY]),
    "a plan that was called back": (planned(PlanStatus.CANCELLED), []),
    "a dry run": (after_dry_run(SETTINGS, "p", due=True), [f"{APPLY} --mode batch"]),
    "a dry run of nothing": (after_dry_run(SETTINGS, "p", due=False), []),
    "committed": (after_commit(SETTINGS, "p", "committed", {"applied": 1}), [VERIFY]),
    "failed": (
        after_commit(SETTINGS, "p", "partial", {"failed": 1}),
        ["surveyor show commits p --cluster east", APPLY],
    ),
    "cancelled while it was committed": (
        after_commit(SETTINGS, "p", "cancelled", {"stale": 7, "failed": 1}),
        ["surveyor show commits p --cluster east", STATUS],
    ),
    "stale": (after_commit(SETTINGS, "p", "partial", {"stale": 1, "applied": 3}), [STATUS]),
    "all stale": (after_commit(SETTINGS, "p", "planned", {"stale": 4}), [STATUS]),
    "stale by a later move": (stale("its replicas are now [3, 1]"), [AGAIN, DISCARD]),
    "stale by a broker that is gone": (stale("broker 2 is not live"), [AGAIN, DISCARD]),
    "stale by a broker that is back": (stale("broker 2 is live again"), [DISCARD, STATUS]),
    "a topic that exists": (stale("topic t exists and is not the one planned", **NEW), [DISCARD, STATUS]),
    "a topic with another config": (stale("topic t: k is not set, planned 1", **NEW), [DISCARD, STATUS]),
    "a topic with more partitions": (stale("topic t has 3 partitions, planned 2", **NEW), [DISCARD, STATUS]),
    "a partition that exists": (stale("partition 2 exists, on [1, 2]", **ADDED), [DISCARD, STATUS]),
    "partitions that may exist": (stale("/brokers/topics/t is at version 4, planned at 3", **ADDED), [DISCARD, STATUS]),
    "a state that was written": (stale("/state is at version 4, planned at 3"), [AGAIN, DISCARD]),
    "another topic to delete": (
        stale("the topic was deleted and created again; the topic of this name is not the one that the plan deletes"),
        [DISCARD, STATUS],
    ),
    "a plan of another command": (stale("broker 2 is not live", command="surveyor rollback q"), [DISCARD, STATUS]),
    "between the waves of a commit that runs": (
        verified(PlanStatus.COMMITTING, ReassignmentStatus.NOT_STARTED, throttled=True, holder=ANN),
        [VERIFY],
    ),
    "moving": (
        verified(PlanStatus.COMMITTED, ReassignmentStatus.COMPLETE, ReassignmentStatus.IN_PROGRESS),
        [VERIFY, f"surveyor cancel p {ON_CLUSTER}"],
    ),
    "being deleted": (verified(PlanStatus.COMMITTED, ReassignmentStatus.IN_PROGRESS, kind=PlanKind.DELETE), [VERIFY]),
    "half done": (verified(PlanStatus.PARTIAL, ReassignmentStatus.COMPLETE, ReassignmentStatus.NOT_STARTED), [APPLY]),
    "closed half done": (
        verified(PlanStatus.CANCELLED, ReassignmentStatus.COMPLETE, ReassignmentStatus.NOT_STARTED),
        [],
    ),
    "diverged": (verified(PlanStatus.COMMITTED, ReassignmentStatus.DIVERGED), [STATUS]),
    "complete": (verified(PlanStatus.COMMITTED, ReassignmentStatus.COMPLETE), []),
    "complete, and its throttle is left": (
        verified(PlanStatus.COMMITTED, ReassignmentStatus.COMPLETE, throttled=True),
        [APPLY],
    ),
    "begun, and its throttle is left": (
        verified(PlanStatus.PARTIAL, ReassignmentStatus.NOT_STARTED, throttled=True),
        [APPLY],
    ),
    "moving, throttled": (
        verified(PlanStatus.COMMITTED, ReassignmentStatus.IN_PROGRESS, throttled=True),
        [VERIFY, f"surveyor cancel p {ON_CLUSTER}"],
    ),
    "a complete drain": (
        verified(PlanStatus.COMMITTED, ReassignmentStatus.COMPLETE, kind=PlanKind.DRAIN),
        [f"surveyor plan undrain --brokers 1,2 --apply {ON_CLUSTER}"],
    ),
    "moves undone": (undone(PlanKind.REASSIGN), [f"surveyor rollback p --apply {ON_CLUSTER}"]),
    "an undrain undone": (
        undone(PlanKind.UNDRAIN),
        [f"surveyor plan drain --brokers 1,2 --apply {ON_CLUSTER}"],
    ),
    "new topics undone": (
        undone(PlanKind.ASSIGN, operation(OperationKind.CREATE_TOPIC, config={})),
        [f"surveyor plan delete --topics t --apply {ON_CLUSTER}"],
    ),
    "configs undone": (
        undone(PlanKind.CONFIG, operation(OperationKind.ALTER_CONFIG, **ALTERED)),
        [f"surveyor plan config --topic t --delete a --set b=1 --apply {ON_CLUSTER}"],
    ),
    "added partitions, which Kafka does not remove": (undone(PlanKind.EXPAND), []),
    "an election, which needs no undoing": (undone(PlanKind.ELECT), []),
    "nothing committed": (undo_steps(SETTINGS, plan(PlanStatus.PLANNED)), []),
    "called back": (
        after_cancellation(SETTINGS, plan(PlanStatus.CANCELLED), again=False, complete=True),
        [f"surveyor rollback p {ON_CLUSTER}"],
    ),
    "an election called back": (
        after_cancellation(SETTINGS, plan(PlanStatus.CANCELLED, PlanKind.ELECT), again=False, complete=True),
        [],
    ),
}


@pytest.mark.parametrize(("steps", "commands"), CASES.values(), ids=CASES)
def test_next_commands(steps: list[Suggestion], commands: list[str]) -> None:
    named = [step.command or "" for step in steps]

    assert (named, [fault(shlex.split(line)[1:]) for line in named]) == (commands, [None] * len(commands))


def test_suggested_commit_has_no_reconcile_only_options() -> None:
    """The dry run of `surveyor reconcile` suggests a commit with the options that it was given."""
    commands = dict(subcommands(get_command(app)))
    reconcile, commit = ({option.name for option in commands[name].params} for name in ("reconcile", "commit"))

    assert reconcile - commit == {*RECONCILE_ONLY_OPTIONS}


def test_cancelling_again_says_apply_once() -> None:
    settings = Settings("default", "w", ClusterConf(), given_options={"apply": ("--apply",), "yes": ("--yes",)})
    (step,) = after_cancellation(settings, plan(PlanStatus.CANCELLED), again=True, complete=True)

    assert step.command == "surveyor cancel p --apply --yes"


def broker(broker_id: int, *protocols: str) -> dict[str, Any]:
    endpoints = [
        {"listener": protocol, "security_protocol": protocol, "host": "kafka1", "port": 9092} for protocol in protocols
    ]
    return {"snapshot_id": 1, "broker_id": broker_id, "understood": True, "endpoints": endpoints}


@pytest.mark.parametrize(
    ("conf", "epoch", "brokers", "named"),
    [
        ({"zookeeper": "zk1"}, 7, [broker(1, "PLAINTEXT")], ""),
        ({"zookeeper": "zk1"}, 7, [broker(1, "SASL_SSL"), broker(2, "SSL", "PLAINTEXT")], ""),
        ({"zookeeper": "zk1"}, 7, [broker(1, "SASL_SSL"), broker(2, "SASL_PLAINTEXT")], " --command-config FILE"),
        ({"zookeeper": "zk1", "command_config": Path("c.properties")}, 7, [broker(1, "SASL_SSL")], ""),
        ({"bootstrap_servers": "kafka1:9092"}, None, [], ""),
        ({}, 7, [], " --zookeeper HOST:PORT"),
        ({}, None, [broker(1, "SSL")], " --bootstrap-server HOST:PORT --command-config FILE"),
    ],
)
def test_a_commit_is_shown_with_what_planning_did_not_need(
    tmp_path: Path, conf: dict[str, Any], epoch: int | None, brokers: list[dict[str, Any]], named: str
) -> None:
    """Options that are neither given nor in the environment, and without which the brokers refuse."""
    settings = Settings("default", str(tmp_path / "w"), ClusterConf(**conf))
    if brokers:
        settings.warehouse.ensure_tables()
        settings.warehouse.append("brokers", brokers)
    row = plan(PlanStatus.PLANNED, brokers=[BrokerEpoch(broker_id=1, broker_epoch=epoch)]).row
    [apply] = after_review(settings, row, "p", due=True)
    assert apply.command == f"surveyor commit p --apply{named}"
