"""Concurrent commits: one has the cluster's lease; the others are refused, wait, or take the lease over."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from msgspec.structs import asdict

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE, current_holder
from jobs.execution.admin.throttles import set_throttle, throttle_rows
from jobs.execution.cancellation import cancel_running
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.plans.plans_writer import apply_transition
from schemas.enums import Outcome, PlanKind, PlanStatus
from schemas.stored_plan import Plan, Transition
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.controllers.throttled_tree import RATES, overrides, own_lease
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T, OTHER = "t", "other"
BEFORE = {0: [0, 1], 1: [1, 2]}
AFTER = {0: [3, 1], 1: [1, 3]}
COMMITTED = ("plan_id", "attempt", "wave", "topic", "partition", "action", "outcome", "committed_at")
COMMITTED_AT = datetime(2026, 11, 21, tzinfo=UTC)
DONE, REFUSED, RUNNING = 0, 23, 25


@pytest.fixture
def plan(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    """One partition in each of two waves."""
    rows = [reassignment(kafka, T, partition, AFTER[partition], wave=partition) for partition in BEFORE]
    return store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)


def run(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, *more: str, command: str = "commit") -> Any:  # noqa: ANN401
    return surveyor.run(command, plan.plan_id, "--zookeeper", kafka.hosts, "--apply", *more)


def rates(kafka: KafkaTree) -> dict[str, set[str]]:
    by_broker = overrides(kafka)
    return {broker: set(values.values()) for broker, values in by_broker.items() if RATES[0] in values}


@pytest.mark.usefixtures("no_lease_waits")
@pytest.mark.parametrize("folder", ["warehouse", "another"])
def test_throttle_of_a_starting_commit_is_not_cleared(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    tmp_path: Path,
    folder: str,
) -> None:
    """Nothing moves yet, so the throttle looks left over.

    Nor may both commits set one, each storing the other's as the previous value.
    """
    second = Surveyor(Warehouse(str(tmp_path / folder), "default"), controller.pace)
    moved = store_plan(second.warehouse, kafka, [reassignment(kafka, OTHER, 0, [0, 3])], kind=PlanKind.REASSIGN.value)
    met: list[Any] = []

    def meanwhile() -> None:
        if not met:
            met.append(run(second, kafka, moved, "--throttle", "2000"))
            met.append(rates(kafka))

    controller.before_request = meanwhile

    done = run(surveyor, kafka, plan, "--throttle", "1000")

    refused, standing = met
    assert (done.exit_code, refused.exit_code) == (DONE, REFUSED), refused.stderr
    assert f"for `surveyor commit {plan.plan_id}` has the lease of this cluster" in refused.stderr
    assert standing == {f"brokers/{broker}": {"1000"} for broker in (0, 1, 3)}
    assert (second.commits(moved.plan_id), second.status(moved.plan_id)) == ([], PlanStatus.PLANNED)
    assert run(second, kafka, moved, "--throttle", "2000").exit_code == DONE
    assert (overrides(kafka), throttle_rows(surveyor.warehouse), throttle_rows(second.warehouse)) == ({}, [], [])


@pytest.mark.usefixtures("no_lease_waits")
def test_lease_is_held_while_a_commit_waits(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    led = store_plan(surveyor.warehouse, kafka, [election(kafka, OTHER, 0, leader=1)])
    met: list[Any] = []
    controller.events = [
        lambda: met.append(run(surveyor, kafka, led, "--mode", "admin")),
        lambda: met.append(run(surveyor, kafka, plan, "--throttle", "5MB/s")),
    ]

    done = run(surveyor, kafka, plan, "--throttle", "1MB/s")

    assert [ran.exit_code for ran in (done, *met)] == [DONE, REFUSED, REFUSED]
    assert "has the lease of this cluster" in met[0].stderr
    assert "interrupt it and run this again" in met[1].stderr
    assert controller.elected == []
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])
    assert (surveyor.status(plan.plan_id), current_holder(kafka.client)) == (
        PlanStatus.COMMITTED,
        None,
    )


def test_commit_without_its_lease_requests_nothing_more(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """ZooKeeper ended the session while wave 0 moved; the commit must not remove the throttle either."""
    controller.events = [lambda: kafka.client.delete(LEASE)]

    stopped = run(surveyor, kafka, plan, "--throttle", "1000")
    throttled, status = rates(kafka), surveyor.status(plan.plan_id)
    again = run(surveyor, kafka, plan)

    assert (stopped.exit_code, status) == (RUNNING, PlanStatus.PARTIAL)
    assert "was lost (it has no holder now)" in stopped.stderr
    assert throttled == {f"brokers/{broker}": {"1000"} for broker in (0, 1, 3)}
    assert controller.waves == [[(T, 0)], [(T, 1)]]
    assert (again.exit_code, controller.replicas(T), overrides(kafka)) == (DONE, AFTER, {})


@pytest.mark.usefixtures("short_responses")
def test_zookeeper_lost_during_the_wait_is_still_running(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requested changes continue, as the exit code and the rows show."""

    def lose(*_: object) -> None:
        raise ConnectionLoss

    controller.events = [lambda: monkeypatch.setattr("jobs.adapters.zookeeper.precondition_reader.read_current", lose)]

    stopped = run(surveyor, kafka, plan)

    assert (stopped.exit_code, surveyor.status(plan.plan_id)) == (RUNNING, PlanStatus.PARTIAL)
    assert "stopped answering (ConnectionLoss)" in stopped.stderr
    assert "requested changes continue in the cluster" in stopped.stderr
    assert surveyor.outcomes(plan.plan_id) == {0: "applied", 1: "skipped"}


def cancelling(kafka: KafkaTree, controller: KafkaController, plan: Plan) -> tuple[str, ...]:
    del kafka
    controller.begin((T, plan.changes[0].partition), plan.changes[0].replicas_after)
    return ("cancel",)


def throttling(kafka: KafkaTree, controller: KafkaController, plan: Plan) -> tuple[str, ...]:
    cancelling(kafka, controller, plan)
    return ("commit", "--throttle", "1MB/s")


def rolling_back(kafka: KafkaTree, controller: KafkaController, plan: Plan) -> tuple[str, ...]:
    del kafka
    for change in plan.changes:
        controller.begin((T, change.partition), change.replicas_after)
    controller.finish_all()
    return ("rollback",)


@pytest.mark.usefixtures("no_lease_waits")
@pytest.mark.parametrize(
    ("prepare", "status"),
    [(cancelling, "partial"), (throttling, "cancelled"), (rolling_back, "committed")],
)
def test_no_other_command_writes_during_a_commit(  # noqa: PLR0913, PLR0917 - a table
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    prepare: Callable[[KafkaTree, KafkaController, Plan], tuple[str, ...]],
    status: str,
) -> None:
    command, *more = prepare(kafka, controller, plan)
    committed = [
        {**asdict(change), "attempt": 1, "outcome": outcome, "committed_at": COMMITTED_AT}
        for change in plan.changes
        for outcome in ("pending", "applied")
    ]
    surveyor.warehouse.append("commits", [{key: row[key] for key in COMMITTED} for row in committed])
    surveyor.warehouse.update("plans", "true", status=f"'{status}'")
    before = kafka.dump()

    with own_lease(settings_of(surveyor.warehouse.uri, kafka.hosts), "theirs", "commit"):
        done = run(surveyor.paced(lease_handover=0.0), kafka, plan, *more, command=command)

    assert done.exit_code == REFUSED, done.stderr
    assert "for `surveyor commit theirs` has the lease" in done.stderr
    after = {path: znode for path, znode in kafka.dump().items() if path not in {"/", "/surveyor"}}
    assert (after, controller.waves) == ({path: before[path] for path in after}, [])


def test_waiting_commit_hands_the_lease_to_a_cancellation(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    settings = settings_of(surveyor.warehouse.uri, kafka.hosts)
    turned: list[tuple[Outcome, int | None]] = []

    def cancel() -> None:
        with ZooKeeperCluster(kafka.endpoint) as cluster:
            stored = read_plan(surveyor.warehouse, plan.plan_id)
            outcomes = cancel_running(settings, cluster, stored, skip_unsafe=False)
            turned.extend((outcome.outcome, outcome.change.partition) for outcome in outcomes)

    thread = threading.Thread(target=cancel)
    controller.events = [thread.start]
    controller.stuck = True

    done = run(surveyor, kafka, plan, "--throttle", "1000")
    thread.join(60)

    assert turned == [(Outcome.APPLIED, 0)] * 2
    assert done.exit_code == REFUSED
    assert " was cancelled" in done.stderr
    assert "nothing more of it is submitted; plan again" in done.stderr
    assert (controller.replicas(T), controller.waves) == (BEFORE, [[(T, 0)]] * 3), "asked, cancelled, put in order"
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])
    assert (surveyor.status(plan.plan_id), current_holder(kafka.client)) == (
        PlanStatus.CANCELLED,
        None,
    )


def test_a_dry_run_names_the_running_commit_and_advises_to_wait(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Its throttle is in use, although none of its replicas move yet."""
    reader = ClientCluster(kafka.client)
    set_throttle(surveyor.warehouse, reader, controller, "theirs", plan.changes, 1000)
    dry = [("commit", plan.plan_id, "--mode", "admin"), ("cancel", "--throttles")]
    with own_lease(settings_of(surveyor.warehouse.uri, kafka.hosts), "theirs", "commit"):
        held = [surveyor.run(*words, "--zookeeper", kafka.hosts).stdout for words in dry]
    free = [surveyor.run(*words, "--zookeeper", kafka.hosts).stdout for words in dry]

    running = (
        "for `surveyor commit theirs` has the lease of this cluster: wait until it is done (`surveyor verify theirs`"
    )
    left = "the throttle of plan theirs is still set: `surveyor commit theirs --apply`"
    apply = "\napply: surveyor "
    assert [[text in stdout for text in (running, left, apply)] for stdout in held] == [[True, False, False]] * 2, held
    assert [[text in stdout for text in (running, apply)] for stdout in free] == [[False, True]] * 2, free
    assert [left in free[0], "\nwait for it: surveyor verify theirs " in held[0]] == [True, True]


def test_uncommitted_plan_is_cancelled_during_a_commit(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    with own_lease(settings_of(surveyor.warehouse.uri, kafka.hosts), "theirs", "commit"):
        done = run(surveyor, kafka, plan, command="cancel")

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (DONE, PlanStatus.CANCELLED)
    assert controller.waves == []


def test_plan_closed_before_the_request_is_not_requested(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """It is closed while the throttle is being set."""
    controller.before_alteration = lambda: apply_transition(surveyor.warehouse, plan.plan_id, Transition.CANCEL)

    done = run(surveyor, kafka, plan, "--throttle", "1000")

    assert (done.exit_code, controller.waves, overrides(kafka)) == (REFUSED, [], {})
