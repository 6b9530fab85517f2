"""`--throttle auto`: rates by broker and hour, with the guarantees of a given rate."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import hour_of
from jobs.execution.admin.admin_commit import AdminCommit, commit_admin
from jobs.execution.admin.auto_throttle import rates_at
from jobs.execution.admin.reassignment_options import ReassignmentOptions
from jobs.execution.admin.throttle_configs import AUTO
from jobs.execution.admin.throttles import throttle_rows
from jobs.repositories.capacities import EVERY_BROKER, Capacity, store_capacities
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.settings import Settings
from planner.load.throttle_rates import ThrottleRate
from schemas.enums import PlanKind, PlanStatus
from schemas.stored_plan import Plan
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.controllers.throttled_tree import override, overrides, own_lease
from tests.jobs.support.rows.load_rows import HOUR, broker_row
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T, OTHER = "t", "other"
BEFORE = {0: [0, 1], 1: [1, 2]}
DONE, REFUSED, RUNNING = 0, 23, 25
MEGABYTE = 1_000_000
LIMIT = 80 * MEGABYTE
WEEK = timedelta(days=7)
Rates = dict[str, tuple[str, str]]


@pytest.fixture
def plan(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    """Partitions 0 and 1 get a replica on broker 3, in two waves."""
    rows = [reassignment(kafka, T, 0, [3, 1], wave=0), reassignment(kafka, T, 1, [3, 2], wave=1)]
    return store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def capacities(warehouse: Warehouse, now: datetime) -> None:
    rows = [Capacity(EVERY_BROKER, None, resource, 100.0 * MEGABYTE, None) for resource in ("in", "out")]
    store_capacities(warehouse, rows, "file", now)


def store_loads(warehouse: Warehouse, hour: datetime, *used: float) -> None:
    """Store the megabytes a second that brokers 0, 1, ... receive, and send."""
    rows = [broker_row(hour, broker, amount * MEGABYTE / 3) for broker, amount in enumerate(used)]
    warehouse.append("broker_load", rows)


@pytest.fixture
def loads(warehouse: Warehouse, capacities: None, now: datetime) -> None:  # noqa: ARG001 - stored before
    """Brokers use 10, 20, 30 and 40 MB/s of a limit of 80."""
    store_loads(warehouse, hour_of(now) - HOUR, 10, 20, 30, 40)


def run(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, *more: str, apply: bool = True) -> Any:  # noqa: ANN401
    flags = ["--zookeeper", kafka.hosts, "--mode", "admin", *["--apply"][: int(apply)]]
    return surveyor.run("commit", plan.plan_id, *flags, *more)


def rates_set(kafka: KafkaTree) -> Rates:
    """What each throttled broker receives and sends, in MB/s."""
    return {
        name: (f"{int(config[FOLLOWER_RATE]) // MEGABYTE}", f"{int(config[LEADER_RATE]) // MEGABYTE}")
        for name, config in overrides(kafka).items()
        if FOLLOWER_RATE in config
    }


@pytest.mark.usefixtures("loads")
def test_the_dry_run_shows_the_rates_and_changes_nothing(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    before = kafka.dump()

    dry = run(surveyor, kafka, plan, "--throttle", AUTO, apply=False)
    found = {int(parts[0]): (int(parts[1]), int(parts[2])) for parts in re.findall(_LINE, dry.stdout)}
    unchanged = (kafka.dump(), controller.alterations, throttle_rows(surveyor.warehouse)) == (before, [], [])
    during: list[Rates] = []
    controller.events = [lambda: during.append(rates_set(kafka))]
    done = run(surveyor, kafka, plan, "--throttle", AUTO)

    assert (dry.exit_code, done.exit_code, unchanged) == (DONE, DONE, True), dry.stderr + done.stderr
    free = {0: 70, 1: 60, 2: 50, 3: 40}
    assert found == {broker: (left * MEGABYTE, left * MEGABYTE) for broker, left in free.items()}
    assert during == [{f"brokers/{broker}": (f"{free[broker]}", f"{free[broker]}") for broker in (0, 1, 3)}]
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])


@pytest.mark.usefixtures("loads", "controller")
def test_the_json_of_a_dry_run_has_the_rates(kafka: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    dry = run(surveyor, kafka, plan, "--throttle", AUTO, "--json", apply=False)
    free = {"0": 70, "1": 60, "2": 50, "3": 40}
    rates = {broker: {"receive": left * MEGABYTE, "send": left * MEGABYTE} for broker, left in free.items()}
    assert json.loads(dry.stdout)["throttle_rates"] == rates


SLOW = (
    "the load leaves no room below the limit of the network of broker 3: copies get 2% of the capacity, as little as "
    "2000000 B/s, and take at least 50 min; a partition does not complete while more than that is written to it: "
    "commit in an hour of less load, or give a rate, as --throttle 50MB/s"
)


@pytest.mark.usefixtures("controller", "capacities")
@pytest.mark.parametrize("options", [["--apply"], ["--apply", "--yes"], []], ids=" ".join)
def test_rates_and_the_time_that_copies_take_are_shown_before_they_begin(
    kafka: KafkaTree, surveyor: Surveyor, plan: Plan, now: datetime, options: list[str]
) -> None:
    """Broker 3 is at its limit, and receives two copies of 3 GB, one after the other."""
    store_loads(surveyor.warehouse, hour_of(now) - HOUR, 10, 20, 30, 80)
    sizes = [
        {"broker_id": 1, "log_dir": "/a", "topic": T, "partition": number, "bytes": 3000 * MEGABYTE}
        for number in BEFORE
    ]
    surveyor.warehouse.replace(
        "sizes", [{"is_future": False, "offset_lag": 0, "taken_at": now, **row} for row in sizes]
    )
    done = run(surveyor, kafka, plan, "--throttle", AUTO, *options, apply=False)
    text = run(surveyor, kafka, plan, "--throttle", AUTO, *options, "--json", apply=False) if not options else done
    shown = done.stdout + done.stderr
    assert [shown.count(f"broker {broker} in this hour: receives {rate} B/s") for broker, rate in RATES] == [1, 1, 1, 1]
    assert shown.count("copies 2 replicas, 5.6 GiB; at least 50 min at the rates of this hour") == 1
    assert shown.count(f"warning: {SLOW}") == 1
    assert "for instance 50MB/s" not in shown
    assert options or json.loads(text.stdout)["warnings"][-1] == SLOW


RATES = ((0, 70_000_000), (1, 60_000_000), (2, 50_000_000), (3, 2_000_000))

_LINE = r"broker (\d+) in this hour: receives (\d+) B/s, sends (\d+) B/s"


@pytest.mark.usefixtures("loads")
def test_rates_follow_the_hour_while_replicas_move(
    kafka: KafkaTree, controller: KafkaController, settings: Settings, plan: Plan, now: datetime
) -> None:
    """The next hour was busier a week ago; before the second wave it is night, in which nothing is known but that."""
    store_loads(settings.warehouse, hour_of(now) + HOUR - WEEK, 70, 79, 50, 100)
    override(kafka, "broker", "1", {LEADER_RATE: "7"})
    before, clock, during = overrides(kafka), [now], list[Rates]()

    def record() -> None:
        during.append(rates_set(kafka))

    def in_the_next_hour() -> None:
        record()
        clock[0] += HOUR

    def finish() -> None:
        record()
        controller.finish_all()

    controller.events = [in_the_next_hour, finish, record]

    def seconds() -> float:
        return clock[0].timestamp()

    running = ReassignmentOptions(AUTO, wait=True)
    time = SimpleNamespace(sleep=controller.step, monotonic=monotonic, time=seconds)
    settings = replace(settings, pace=replace(controller.pace, clock=time))
    with settings.connect() as cluster, own_lease(settings, plan.plan_id, "commit") as lease:
        log = CommitLog.open(settings.warehouse, plan)
        commit_admin(
            settings,
            cluster,
            log,
            controller,
            plan.changes,
            lease=lease,
            running=running,
            throttler=controller,
        )
        log.close()

    assert during == [
        {"brokers/0": ("70", "70"), "brokers/1": ("60", "60"), "brokers/3": ("40", "40")},
        {"brokers/0": ("10", "10"), "brokers/1": ("2", "2"), "brokers/3": ("2", "2")},
        {"brokers/1": ("2", "2"), "brokers/2": ("30", "30"), "brokers/3": ("2", "2")},
    ]
    assert (overrides(kafka), throttle_rows(settings.warehouse)) == (before, [])


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize("requests", [0, 2, 4, 6, 8])
def test_crash_anywhere(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    requests: int,
) -> None:
    """Killed after so many config requests; the commit that continues, without the option, follows the load too."""
    override(kafka, "broker", "1", {LEADER_RATE: "7"})
    before = overrides(kafka)
    with monkeypatch.context() as killed:
        killed.setattr(AdminCommit, "clear_throttle", lambda _: None)
        killed.setattr(CommitLog, "close", lambda _: None)
        controller.crashes = requests
        run(surveyor, kafka, plan, "--throttle", AUTO)
    controller.crashes = None
    rows = throttle_rows(surveyor.warehouse)
    sources = {row.source for row in rows if row.kind == "broker"}
    during: list[Rates] = []
    controller.events = [lambda: during.append(rates_set(kafka))]

    done = run(surveyor, kafka, plan, "--wait")

    assert done.exit_code == DONE, done.stderr
    assert sources <= {AUTO}
    known = {"brokers/0": "70", "brokers/1": "60", "brokers/2": "50", "brokers/3": "40"}
    set_again = {name: receives for rates in during for name, (receives, _) in rates.items()}
    assert bool(set_again) == bool(rows)
    assert set_again.items() <= known.items()
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == (before, [])
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


@pytest.mark.usefixtures("loads")
def test_a_throttle_that_is_left_is_named_and_undone(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    controller.stuck = True
    stopped = run(surveyor, kafka, plan, "--throttle", AUTO, "--max-wait", "0s")
    shown = surveyor.run("show", "throttles")
    status = surveyor.run("status", "--zookeeper", kafka.hosts)
    controller.stuck = False
    cancelled = surveyor.run("cancel", plan.plan_id, "--zookeeper", kafka.hosts, "--apply", "--yes")

    assert (stopped.exit_code, cancelled.exit_code) == (RUNNING, DONE), stopped.stderr + cancelled.stderr
    assert (shown.stdout.count("[60000000]"), plan.plan_id in status.stdout) == (2, True), shown.stdout
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])


@pytest.mark.usefixtures("capacities")
def test_loads_that_are_not_known_are_refused(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, now: datetime
) -> None:
    """None, those of two days ago, and those of three of the four brokers."""
    before = kafka.dump()
    without = run(surveyor, kafka, plan, "--throttle", AUTO)
    store_loads(surveyor.warehouse, hour_of(now) - 48 * HOUR, 1, 1, 1, 1)
    old = run(surveyor, kafka, plan, "--throttle", AUTO, apply=False)
    store_loads(surveyor.warehouse, hour_of(now) - HOUR, 1, 1, 1)
    of_three = run(surveyor, kafka, plan, "--throttle", AUTO, apply=False)

    assert [done.exit_code for done in (without, old)] == [REFUSED] * 2
    for done in (without, old):
        assert "--throttle auto needs the load of brokers 0, 1, 2, 3: `surveyor load sample` and" in done.stderr
        assert "or give a rate, as --throttle 50MB/s" in done.stderr
    assert (kafka.dump(), controller.alterations) == (before, [])
    assert (of_three.exit_code, "the load of broker 3" in of_three.stderr) == (REFUSED, True), of_three.stderr


def test_capacities_that_are_not_known_are_refused(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, now: datetime
) -> None:
    store_loads(surveyor.warehouse, hour_of(now) - HOUR, 1, 1, 1, 1)
    done = run(surveyor, kafka, plan, "--throttle", AUTO)
    missing = "the capacity of in of brokers 0, 1, 2, 3, and the capacity of out of brokers 0, 1, 2, 3"
    assert (done.exit_code, controller.alterations) == (REFUSED, [])
    assert f"--throttle auto needs {missing}: `surveyor load import --capacity FILE` states capacities" in done.stderr


@pytest.mark.usefixtures("loads")
def test_a_broker_that_is_not_live_gets_least(settings: Settings, now: datetime) -> None:
    """Its load may not be known, and it copies nothing before it is live again."""
    rates = rates_at(settings, [2, 7], {0, 1, 2, 3}, now)
    assert rates == {2: ThrottleRate(50 * MEGABYTE, 50 * MEGABYTE), 7: ThrottleRate(2 * MEGABYTE, 2 * MEGABYTE)}
