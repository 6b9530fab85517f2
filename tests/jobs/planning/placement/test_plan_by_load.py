"""`plan reassign --by-load` and `plan elect --by-load`: loads even out with few copied bytes, within limits."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from schemas.enums import Action
from schemas.rows import PlanRecord
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import first_snapshot_of, write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

REPLICAS: Final = {
    "hot": {0: [0, 1], 1: [0, 1], 2: [0, 2]},
    "cold": {0: [1, 2], 1: [2, 1], 2: [2, 0]},
}
NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def template(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    return first_snapshot_of(module_tree, tmp_path_factory.mktemp("load"), REPLICAS)


@pytest.fixture
def surveyor(template: Surveyor, tmp_path: Path) -> Surveyor:
    return template.copied_to(tmp_path / "warehouse")


def _load(surveyor: Surveyor, hot: dict[str, float], cold: dict[str, float]) -> None:
    """Store imported loads of every hour."""
    surveyor.warehouse.append(
        "partition_load",
        [
            {"topic": topic, "partition": number, "method": "imported", "samples": 0, **load}
            for topic, load in (("hot", hot), ("cold", cold))
            for number in REPLICAS[topic]
        ],
    )


def _changes(surveyor: Surveyor) -> dict[str, list[int]]:
    rows = surveyor.warehouse.rows("changes", ("action", "=", "reassign"))
    return {f"{row['topic']}-{row['partition']}": row["replicas_after"] for row in rows}


def _balance(surveyor: Surveyor) -> Any:  # noqa: ANN401 - JSON
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    return plan.options["figures"]["load_balance"]


def test_leaders_of_hot_partitions_spread_without_a_copy(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 0.0, "bytes_out": 90.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "out")
    assert sorted(lists[0] for name, lists in _changes(surveyor).items() if name.startswith("hot")) == [1, 2]
    assert _balance(surveyor)["bytes"] == 0


def test_added_replicas_are_copied_in_any_case_and_leaders_send_less_before(surveyor: Surveyor) -> None:
    """Of 330 B/s broker 0 sends 300 before, to one follower of each partition of hot, whose mean is 110."""
    _load(surveyor, {"bytes_in": 100.0, "size_bytes": 1000}, {"bytes_in": 10.0, "size_bytes": 100})
    plan = surveyor.json("plan", "reassign", "--replication-factor", "3", "--topics", "hot", "--by-load")
    balance = plan["load_balance"]
    assert (balance["bytes"], balance["bytes_bound"]) == (3000, 3000)
    assert balance["worst_before"] == {"multiple": 2.7273, "broker": 0, "resource": "out"}
    assert plan["load"]["worst_before"] == pytest.approx(300 / 110)
    assert (plan["load"]["bytes"], plan["load"]["bytes_bound"]) == (3000, 3000)


def test_topics_go_onto_some_brokers_with_their_loads_even(surveyor: Surveyor) -> None:
    """Each partition of hot lacks a replica on one of the two, and these lead as many bytes as can be even."""
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 1000}, {"bytes_out": 9.0, "size_bytes": 10})
    command = ("plan", "reassign", "--onto", "1,2", "--topics", "hot", "--by-load")
    plan = surveyor.json(*command)
    assert (plan["load_balance"]["bytes"], plan["load_balance"]["bytes_bound"]) == (3000, 3000)
    assert sorted(_changes(surveyor).values()) == [[1, 2], [1, 2], [2, 1]]
    assert plan["load_balance"]["worst_before"]["broker"] in {1, 2}, "broker 0 keeps cold-2"
    shown = surveyor(*command, "--budget", "1kB", "--replace-name", "--name", "cheap").stdout
    assert "the plan copies 2.9 KiB, and the budget is 1000 B: the goal requires these copies" in shown
    refused = surveyor("plan", "reassign", "--onto", "1,7", "--topics", "hot", "--by-load")
    assert (refused.code, "--onto: broker 7 is not live" in refused.stderr) == (23, True)


def test_the_brokers_that_share_the_load_are_the_same_wherever_it_is_shown(tree: KafkaTree, tmp_path: Path) -> None:
    """Broker 2 is down, 3 has no replicas, and 4 is drained; of the other three each has a third of the load."""
    tree.add_topic("hot", {0: [0, 1], 1: [0, 2]})
    tree.add_topic("cold", {0: [1, 4], 1: [4, 0]})
    tree.unregister(2)
    tree.register(3)
    tree.register(4)
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse", plans_on_stored=True)
    write_first_snapshot(surveyor)
    surveyor.warehouse.append("drained", [{"broker_id": 4, "mode": "ready", "plan_id": "a", "since": NOW}])
    common = {"method": "imported", "samples": 0, "bytes_in": 100.0, "bytes_out": 50.0, "size_bytes": 1000}
    keys = [("hot", 0), ("hot", 1), ("cold", 0), ("cold", 1)]
    surveyor.warehouse.append("partition_load", [{"topic": topic, "partition": n, **common} for topic, n in keys])
    multiples = {"disk": 1.8, "in": 1.8, "out": 2.0}  # broker 0: 3 of 5 replicas, and 2 of 3 leaders

    shown = surveyor.json("show", "load")
    samples = [row for row in surveyor.json("metrics")["samples"] if row["name"].endswith("load_worst_broker_ratio")]
    plan = surveyor.json("plan", "reassign", "--rebalance", "--by-load")

    assert {one["resource"]: (one["broker_id"], one["ratio"]) for one in shown["unevenness"]} == {
        name: (0, pytest.approx(multiple)) for name, multiple in multiples.items()
    }
    assert sorted((row["broker_id"], row["bytes_in"]) for row in shown["rows"])[2:4] == [(2, 0.0), (3, 0.0)]
    assert {row["labels"]["resource"]: row["value"] for row in samples} == pytest.approx(multiples)
    effects = {one["resource"]: one["most"][0] / one["mean"][0] for one in plan["load"]["effects"]}
    assert effects == pytest.approx(multiples)
    assert plan["load_balance"]["worst_before"] == {"multiple": 2.0, "broker": 0, "resource": "out"}


@pytest.mark.parametrize("options", [("--remove-brokers", "0,1"), ("--replace", "0=3,1=4")])
def test_all_brokers_that_hold_replicas_are_emptied(tree: KafkaTree, tmp_path: Path, options: tuple[str, str]) -> None:
    """Those that remain hold nothing before, so there is no mean to divide by."""
    tree.add_topic("hot", {0: [0, 1], 1: [1, 0]})
    tree.unregister(2)
    tree.register(3)
    tree.register(4)
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse", plans_on_stored=True)
    write_first_snapshot(surveyor)
    common = {"method": "imported", "samples": 0, "bytes_in": 100.0, "size_bytes": 1000}
    surveyor.warehouse.append("partition_load", [{"topic": "hot", "partition": n, **common} for n in (0, 1)])

    plan = surveyor.json("plan", "reassign", *options, "--by-load")

    figures = plan["load_balance"]
    assert (figures["bytes"], figures["bytes_bound"], figures["worst_after"]["multiple"]) == (4000, 4000, 1.0)
    shown = surveyor("show", "plan", plan["plan_id"])
    assert (shown.code, "multiples of the mean - → 1.00..1.00" in shown.stdout) == (0, True)
    assert surveyor("report", "--plan", plan["plan_id"], "--out", str(tmp_path / "plan.html")).code == 0


def test_a_topic_without_any_load_counts_as_none(surveyor: Surveyor) -> None:
    """Broker 0 leads hot, and sends all that is known to be sent; two partitions of hot count as its mean."""
    common = {"method": "imported", "samples": 0}
    surveyor.warehouse.append(
        "partition_load", [{"topic": "hot", "partition": 0, "bytes_out": 90.0, "size_bytes": 10, **common}]
    )
    plan = surveyor.json("plan", "reassign", "--rebalance", "--by-load")
    assert {name: plan["loads"][name] for name in ("known", "assumed", "without_load", "topics_without_load")} == {
        "known": 1,
        "assumed": 2,
        "without_load": 3,
        "topics_without_load": 1,
    }
    assert plan["load_balance"]["worst_before"] == {"multiple": 3.0, "broker": 0, "resource": "out"}
    assert plan["load"]["worst_before"] == 3.0
    assert plan["load"]["worst_after"] == pytest.approx(plan["load_balance"]["worst_after"]["multiple"], abs=1e-4)
    counts = "1 of 6 partitions have one, 2 count as the mean of their topic, 3 as 0"
    assert f"load from imported loads; {counts}\n" in surveyor("show", "plan", plan["plan_id"]).stdout
    warning = "3 partitions of 1 topic have no load and count as 0: run `surveyor load sample`"
    assert [text for text in plan["warnings"] if text.startswith(warning)]
    budgets = surveyor.json("plan", "reassign", "--rebalance", "--by-load", "--pareto")
    assert [text for text in budgets["warnings"] if text.startswith(warning)]


def test_an_election_plan_by_load_copies_nothing(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 1000}, {"bytes_out": 9.0, "size_bytes": 10})
    surveyor("plan", "elect", "--by-load")
    moved = {name: set(lists) for name, lists in _changes(surveyor).items()}
    assert moved
    assert all(lists == set(REPLICAS[name[:-2]][int(name[-1])]) for name, lists in moved.items())


def test_elections_by_load_need_the_load_of_leaders(surveyor: Surveyor) -> None:
    _load(surveyor, {"size_bytes": 1000}, {"size_bytes": 10})
    refused = surveyor("plan", "elect", "--by-load")
    assert (refused.code, "no load of out, cpu is known by imported loads" in refused.stderr) == (23, True)
    wrong = surveyor("plan", "elect", "--by-load", "--offline")
    assert (wrong.code, "--offline: not with --by-load" in wrong.stderr) == (2, True)


def _profiled(surveyor: Surveyor, name: str, leader: int, **columns: object) -> None:
    """Store a profile of one window, in which readers read from the partitions that one broker leads only."""
    common = {"profile": name, "version": 1, "window": "Mon 20:00", "created_at": NOW, "weeks": 4, **columns}
    surveyor.warehouse.append(
        "load_profiles",
        [
            {"topic": topic, "partition": number, "size_bytes": 10, "bytes_out": float(replicas[0] == leader), **common}
            for topic, partitions in REPLICAS.items()
            for number, replicas in partitions.items()
        ],
    )


@pytest.mark.parametrize(
    ("options", "busiest", "source"),
    [
        (["--profile", "other"], 2, "profile other, version 1"),
        (["--window", "now"], 0, "the mean of 1 hour until 2026-11-30 13:00 UTC"),
        (["--window", "2h"], 0, "the mean of 2 hours until 2026-11-30 13:00 UTC"),
        ([], 1, "profile default, version 1"),
    ],
)
def test_the_effect_of_a_plan_is_of_the_loads_that_it_is_for(
    surveyor: Surveyor, options: list[str], busiest: int, source: str
) -> None:
    """Loads of a deleted topic, whose name another one has now, count in neither."""
    _profiled(surveyor, "default", 1)
    _profiled(surveyor, "other", 2)
    _profiled(surveyor, "other", 0, topic_id="AAAAAAAAAAAAAAAAAAAAAA", bytes_out=1e9)
    hours = [
        {
            "topic": "hot",
            "partition": number,
            "hour": NOW - age,
            "method": "delta_size",
            "bytes_out": 90.0,
            "size_bytes": 10,
        }
        for number in REPLICAS["hot"]
        for age in (timedelta(), timedelta(hours=1))
    ]
    surveyor.warehouse.append("partition_load", hours)

    plan = surveyor.json("plan", "reassign", "--rebalance", "--by-load", "--resources", "out", *options)

    worst = plan["load_balance"]["worst_before"]
    assert (worst["broker"], plan["loads"]["source"]) == (busiest, source)
    assert plan["load"]["worst_before"] == pytest.approx(worst["multiple"], abs=1e-4)
    assert plan["load"]["loads"] == source


@pytest.mark.parametrize("command", [("reassign", "--rebalance"), ("elect",)])
def test_a_process_plans_on_a_stored_snapshot(surveyor: Surveyor, command: tuple[str, ...]) -> None:
    """The first question to the engine may be the one for loads."""
    _profiled(surveyor, "default", 1)
    options = ["--by-load", "--snapshot", "1", "--zookeeper", surveyor.hosts, "--warehouse", str(surveyor.folder)]
    arguments = [sys.executable, "-m", "jobs.entry", "plan", *command, *options, "--engine", "embedded"]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    ran = subprocess.run(arguments, env=bare, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("plan ")


@pytest.mark.parametrize("command", [("reassign", "--rebalance"), ("elect",)])
def test_a_profile_may_be_of_every_hour(surveyor: Surveyor, command: tuple[str, ...]) -> None:
    """As `load profile` makes it of imported loads without an hour."""
    _load(surveyor, {"bytes_out": 9.0, "size_bytes": 10}, {"bytes_out": 1.0, "size_bytes": 10})
    assert surveyor.json("load", "profile")["windows"] == ["always"]
    plan = surveyor.json("plan", *command, "--by-load")
    assert (plan["loads"]["source"], "out" in plan["loads"]["resources"]) == ("profile default, version 1", True)


def test_elections_need_no_sizes(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0}, {"bytes_out": 9.0})
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load")
    assert (ran.code, "or `surveyor plan elect --by-load`, which copies nothing" in ran.stderr) == (23, True)
    assert surveyor.json("plan", "elect", "--by-load")["load_balance"]["worst_after"]["multiple"] < 1.5


@pytest.mark.parametrize("sized", ["loads", "sizes"])
def test_status_advises_a_plan_once_sizes_are_known(surveyor: Surveyor, sized: str) -> None:
    """Broker 0 leads hot and sends 270 of 297 B/s; until then it advises to record sizes."""
    _load(surveyor, {"bytes_out": 90.0}, {"bytes_out": 9.0})
    row = {"broker_id": -1, "resource": "out", "capacity": 300.0, "source": "file", "valid_from": NOW}
    surveyor.warehouse.append("broker_capacity", [row])

    def advised() -> list[str]:
        commands = [step["command"] or "" for step in surveyor.json("status")["due"] if step["command"]]
        return [command.partition(" --zookeeper")[0] for command in commands if "sizes" in command or "load" in command]

    before = advised()
    if sized == "loads":
        surveyor.warehouse.delete("partition_load", "true")
        _load(surveyor, {"bytes_out": 90.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    else:
        log = {"broker_id": 0, "topic": "hot", "partition": 0, "log_dir": "/a", "bytes": 9, "offset_lag": 0}
        surveyor.warehouse.append("sizes", [{**log, "is_future": False, "taken_at": NOW}])

    assert (before, advised()) == (["surveyor sizes"], ["surveyor plan reassign --rebalance --by-load"])
    assert surveyor("plan", "reassign", "--rebalance", "--by-load").code == 0


def test_waves_of_a_plan_by_counts_have_room_by_imported_sizes(surveyor: Surveyor) -> None:
    """Without any sizes the plan says that room is not checked."""
    rows = [
        {"broker_id": broker, "resource": "disk", "capacity": 1000.0, "source": "file", "valid_from": NOW}
        for broker in range(3)
    ]
    surveyor.warehouse.append("broker_capacity", rows)
    unknown = "no size of a log is known, so room on disks is not checked: run `surveyor sizes`"
    warned = []
    for load in ({"bytes_out": 9.0}, {"bytes_out": 9.0, "size_bytes": 10}):
        surveyor.warehouse.delete("partition_load", "true")
        _load(surveyor, load, load)
        warned.append(unknown in surveyor.json("plan", "reassign", "--remove-brokers", "2")["warnings"])
    assert warned == [True, False]


def test_bytes_stay_within_the_budget(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 9.0, "bytes_out": 0.0, "size_bytes": 1000}, {"bytes_in": 1.0, "size_bytes": 100})
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--budget", "999", "--within", "1%")
    balance = _balance(surveyor)
    assert balance["bytes"] <= 999
    assert balance["worst_after"]["multiple"] <= balance["worst_before"]["multiple"]


def test_the_same_loads_give_the_same_plan(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 9.0, "bytes_out": 30.0, "size_bytes": 1000}, {"bytes_in": 1.0, "size_bytes": 100})
    first, second = (
        json.loads(surveyor("plan", "reassign", "--rebalance", "--by-load", "--json").stdout)["plan_id"]
        for _ in range(2)
    )
    assert first == second


def test_the_order_of_rows_in_the_tables_gives_the_same_plan(surveyor: Surveyor, tmp_path: Path) -> None:
    other = surveyor.copied_to(tmp_path / "other")
    rows = [
        {"topic": topic, "partition": number, "method": "imported", "samples": 0, "size_bytes": 100 * number + 50}
        for topic in REPLICAS
        for number in range(3)
    ]
    capacities = [
        {"broker_id": broker, "resource": "disk", "source": "file", "valid_from": NOW, "capacity": 1000.0 + broker}
        for broker in range(3)
    ]
    plans = set()
    for one, sign in ((surveyor, 1), (other, -1)):
        one.warehouse.append("partition_load", rows[::sign])
        one.warehouse.append("broker_capacity", capacities[::sign])
        plans.add(json.loads(one("plan", "reassign", "--rebalance", "--by-load", "--json").stdout)["plan_id"])
    assert len(plans) == 1


def test_relief_moves_only_what_exceeds_the_share(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 100}, {"bytes_out": 1.0, "size_bytes": 10})
    capacity = {"resource": "disk", "source": "file", "valid_from": NOW, "limit_share": 1.0}
    sizes = {0: 300.0, 1: 1000.0, 2: 1000.0}  # broker 0 holds 310, broker 1 220, broker 2 130
    rows = [{"broker_id": broker, "capacity": size, **capacity} for broker, size in sizes.items()]
    surveyor.warehouse.append("broker_capacity", rows)
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--relieve", "85%")
    assert _balance(surveyor)["bytes"] == 100
    assert len(_changes(surveyor)) == 1


def test_a_disk_of_unknown_capacity_takes_nothing_to_relieve_others(surveyor: Surveyor) -> None:
    """Broker 0 holds 310 bytes, 1 holds 220 and 2 holds 130; a log dir of broker 2, which has least, failed."""
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 100}, {"bytes_out": 1.0, "size_bytes": 10})
    capacity = {"resource": "disk", "source": "file", "valid_from": NOW, "limit_share": 1.0}
    rows = [{"broker_id": broker, "capacity": size, **capacity} for broker, size in enumerate((300.0, 1000.0, 1000.0))]
    surveyor.warehouse.append("broker_capacity", rows)
    failed = {"broker_id": 2, "log_dir": "/b", "error": "KAFKA_STORAGE_ERROR", "taken_at": NOW}
    surveyor.warehouse.append("log_dirs", [failed])
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--relieve", "85%")
    assert ran.stderr.count("broker 2: the capacity of its disk is unknown, because /b failed") == 1
    assert _changes(surveyor) == {"hot-2": [1, 2]}


def test_disks_that_relief_leaves_above_the_share_are_named(surveyor: Surveyor) -> None:
    _load(surveyor, {"size_bytes": 100}, {"size_bytes": 100})
    capacity = {"resource": "disk", "source": "file", "valid_from": NOW, "limit_share": 1.0, "capacity": 500.0}
    surveyor.warehouse.append("broker_capacity", [{"broker_id": broker, **capacity} for broker in range(3)])
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--relieve", "10%")
    disks = "disks of brokers 0, 1, 2 stay above 10 % of capacity, and no change was found to help"
    assert (disks in ran.stdout, _balance(surveyor)["bytes"]) == (True, 0)


def test_limits_that_the_plan_does_not_meet_are_named(surveyor: Surveyor) -> None:
    """Twelve replicas on three brokers."""
    _load(surveyor, {"bytes_out": 9.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    conf = _conf(surveyor, "[clusters.default.capacity]\nreplicas = 3\n")
    plan = surveyor.json("plan", "reassign", "--rebalance", "--by-load", "--conf", conf)
    held = [broker for lists in _lists(surveyor).values() for broker in lists]
    assert [held.count(broker) for broker in range(3)] == [4, 4, 4]
    assert _balance(surveyor)["exceeded"] == [
        {"multiple": 1.3334, "broker": broker, "resource": "replicas"} for broker in range(3)
    ]
    limits = "broker 0 replicas 1.34, broker 1 replicas 1.34, broker 2 replicas 1.34 times the limit"
    warning = f"limits are not met after the plan: {limits}"
    assert warning in plan["warnings"]
    assert f"  warning: {warning}\n" in surveyor("show", "plan", plan["plan_id"]).stdout


@pytest.mark.parametrize(("days", "is_old"), [(30, True), (3, False)])
def test_old_loads_are_warned_of(surveyor: Surveyor, days: int, is_old: bool) -> None:  # noqa: FBT001 - a case
    hour = (datetime.now(UTC) - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
    rows = [
        {"topic": topic, "partition": number, "method": "imported", "samples": 0, "hour": hour, "size_bytes": 10}
        for topic in REPLICAS
        for number in range(3)
    ]
    surveyor.warehouse.append("partition_load", rows)
    planned = surveyor.json("plan", "reassign", "--rebalance", "--by-load")
    assert any(warning.startswith("the newest hour with loads is") for warning in planned["warnings"]) == is_old


def _load_each(surveyor: Surveyor) -> None:
    """Store imported loads of which each partition has another."""
    rows = [
        {"topic": topic, "partition": number, "method": "imported", "samples": 0, "bytes_in": 7.0 * place + 3}
        | {"bytes_out": 90.0 / (place + 1), "size_bytes": 1000 + 700 * place}
        for place, (topic, number) in enumerate((topic, number) for topic in REPLICAS for number in REPLICAS[topic])
    ]
    surveyor.warehouse.append("partition_load", rows)


BY_LOAD: Final = ("plan", "reassign", "--rebalance", "--by-load", "--within", "1%")


def test_each_row_of_pareto_is_the_plan_of_its_budget(surveyor: Surveyor) -> None:
    _load_each(surveyor)
    shown = surveyor.json(*BY_LOAD, "--pareto")
    rows = shown["rows"]
    assert surveyor.warehouse.typed_rows(PlanRecord) == []
    assert [row["budget"] for row in rows][-1] is None
    assert len(rows) > 2
    assert [row["bytes"] for row in rows] == sorted({row["bytes"] for row in rows})
    worst = [row["worst"]["multiple"] for row in rows]
    assert worst[:-1] == sorted(set(worst[:-1]), reverse=True)
    for row in rows:
        plan = surveyor.json(*BY_LOAD, *([] if row["budget"] is None else ["--budget", row["budget"]]))
        balance = plan["load_balance"]
        ratio = round(balance["bytes"] / balance["bytes_bound"], 4) if balance["bytes_bound"] else None
        assert row == {
            "budget": row["budget"],
            "bytes": balance["bytes"],
            "moves": plan["moves"],
            "elections": balance["elections"],
            "worst": balance["worst_after"],
            "outside": balance["loads_outside"],
            "ratio": ratio,
        }
        assert (shown["before"], shown["worst_bound"]) == (balance["worst_before"], balance["worst_bound"])


@pytest.mark.parametrize(
    "options",
    [
        ("reassign", "--rebalance"),
        ("reassign", "--rebalance", "--skip-elections"),
        ("reassign", "--remove-brokers", "1", "--one-replica-at-a-time"),
        ("reassign", "--replication-factor", "3"),
        ("reassign", "--add-brokers", "2"),
        ("elect",),
    ],
)
def test_the_elections_that_are_shown_are_those_of_the_rows(surveyor: Surveyor, options: tuple[str, ...]) -> None:
    _load_each(surveyor)
    plan = surveyor.json("plan", *options, "--by-load")
    actions = [row["action"] for row in surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))]
    assert plan["load_balance"]["elections"] == actions.count(Action.ELECT_PREFERRED)


def test_pareto_as_people_read_it(surveyor: Surveyor) -> None:
    _load_each(surveyor)
    rows = surveyor.json(*BY_LOAD, "--pareto")["rows"]
    shown = surveyor(*BY_LOAD, "--pareto").stdout
    assert "default, snapshot 1, plans by load from imported loads" in shown
    assert f"{rows[0]['worst']['multiple']:.2f} |o\n" in shown
    assert "o most loaded broker by bytes copied\n" in shown
    assert f"surveyor plan reassign --budget {rows[-2]['budget']} --rebalance --within 1% --by-load " in shown


def test_the_shares_of_capacities_are_named(surveyor: Surveyor) -> None:
    """Of 660 bytes brokers 1 and 2 should hold 110 each, by capacity; broker 1 holds 220."""
    _load(surveyor, {"size_bytes": 100}, {"size_bytes": 10})
    common = {"resource": "disk", "source": "file", "valid_from": NOW}
    capacities = {0: 4000.0, 1: 1000.0, 2: 1000.0}
    rows = [{"broker_id": broker, "capacity": capacity, **common} for broker, capacity in capacities.items()]
    surveyor.warehouse.append("broker_capacity", rows)
    shown = surveyor(*BY_LOAD).stdout
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    balance, figures = plan.options["figures"]["load_balance"], json.loads(plan.figures or "{}")
    assert " of its share (by capacity where that differs), at best " in shown
    for side in ("before", "after"):
        assert figures[f"worst_{side}"] == pytest.approx(balance[f"worst_{side}"]["multiple"], abs=1e-4)
    assert balance["worst_before"] == {"multiple": 2.0, "broker": 1, "resource": "disk"}
    assert "less even" not in shown


@pytest.mark.parametrize(
    ("cold", "smallest", "options", "uneven"),
    [
        (100, 250.0, [], "brokers 0, 1, 2 differ from their share by capacity by more than 1 %, and no change"),
        (
            100,
            250.0,
            ["--budget", "0B"],
            "brokers 0, 1, 2 differ from their share by capacity by more than 1 %, and no",
        ),
        (10, 500.0, ["--budget", "0B"], "brokers 0, 2 differ from the mean by more than 1 %, and no change within"),
    ],
)
def test_loads_outside_differ_from_what_is_evened(
    surveyor: Surveyor, cold: int, smallest: float, options: list[str], uneven: str
) -> None:
    """Of 1200 bytes in replicas of 100 brokers should hold 480, 480 and 240; or of 660 bytes 220 each."""
    _load(surveyor, {"size_bytes": 100}, {"size_bytes": cold})
    common = {"resource": "disk", "source": "file", "valid_from": NOW, "limit_share": 1.0}
    capacities = {0: 500.0, 1: 500.0, 2: smallest}
    rows = [{"broker_id": broker, "capacity": capacity, **common} for broker, capacity in capacities.items()]
    surveyor.warehouse.append("broker_capacity", rows)
    assert f"\n  loads stay uneven: loads of {uneven} " in surveyor(*BY_LOAD, *options).stdout


def test_the_page_of_a_plan_draws_the_steps_of_its_search(surveyor: Surveyor, tmp_path: Path) -> None:
    _load_each(surveyor)
    plan = surveyor.json(*BY_LOAD)
    page = tmp_path / "plan.html"
    assert surveyor("report", "--plan", plan["plan_id"], "--out", str(page)).code == 0
    html = page.read_text()
    picture = html[html.index("<figcaption>Most loaded broker by bytes copied") :].partition("</figure>")[0]
    points = re.findall(r'points="([^"]*)"', picture)
    assert [line.split()[-1].partition(",")[0] for line in points] == ["100.0", "100.0"]
    assert f">{plan['load_balance']['worst_after']['multiple']:.2f}<" in picture


def test_a_plan_for_other_hours_than_now_says_so(surveyor: Surveyor) -> None:
    window = f"{datetime.now(UTC) + timedelta(hours=5):%a %H}:00"
    common = {"profile": "default", "version": 1, "created_at": NOW, "window": window}
    loads = {"hot": {"bytes_in": 9.0, "size_bytes": 1000}, "cold": {"bytes_in": 1.0, "size_bytes": 100}}
    rows = [{**common, "topic": topic, "partition": number, **loads[topic]} for topic in loads for number in range(3)]
    surveyor.warehouse.append("load_profiles", rows)
    shown = surveyor(*BY_LOAD).stdout
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    made = f"{plan.created_at:%a %H}:00"
    assert f"planned for {window} UTC (profile default, version 1), not for {made}, when it was made\n" in shown


def test_the_reason_of_each_change_has_its_bytes(surveyor: Surveyor) -> None:
    _load_each(surveyor)
    size = {(topic, n): 1000 + 700 * (n + 3 * (topic == "cold")) for topic in REPLICAS for n in REPLICAS[topic]}
    for goal in (("--rebalance", "--within", "1%"), ("--remove-brokers", "2"), ("--replication-factor", "1")):
        plan = surveyor.json("plan", "reassign", *goal, "--by-load")["plan_id"]
        rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan), ("action", "=", "reassign"))
        copied = {
            (row["topic"], row["partition"]): len({*row["replicas_after"]} - {*row["replicas_before"]}) for row in rows
        }
        assert copied
        stated = {(row["topic"], row["partition"]): re.findall(r" with ([\d,]+) bytes:", row["reason"]) for row in rows}
        assert {key: [f"{size[key] * count:,}"] for key, count in copied.items()} == {
            key: texts[:1] for key, texts in stated.items()
        }


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--budget", "1TB"], "--budget: only with --by-load"),
        (["--by-load", "--by-size"], "--by-size and --by-load exclude each other"),
        (["--by-load", "--resources", "network"], "expected some of disk, in, out, cpu"),
        (["--pareto"], "--pareto shows plans by load: give --by-load, too"),
        (["--by-load", "--pareto", "--budget", "1TB"], "leave out --budget"),
        (["--by-load", "--pareto", "--name", "even"], "--name: not with --pareto, which stores no plan"),
        (["--by-load", "--profile", "a", "--window", "24h"], "exclude each other"),
        (["--by-load", "--window", "0h"], "--window '0h' is no window: expected now, peak, or hours"),
        (["--by-load", "--window", "30m"], "--window '30m' is no window"),
        (["--by-load", "--pareto", "--window", "noon"], "--window 'noon' is no window"),
        (["--by-load", "--relieve", "most"], "--relieve 'most' is no share"),
        (["--by-load", "--within", "most"], "--within 'most' is no share"),
        (["--by-load", "--budget", "most"], "--budget 'most' is no size"),
    ],
)
def test_contradictory_options_are_refused_before_a_snapshot(
    surveyor: Surveyor, options: list[str], fault: str
) -> None:
    ran = replace(surveyor, plans_on_stored=False)("plan", "reassign", "--rebalance", "--refresh", *options)
    assert (ran.code, fault in ran.stderr) == (2, True), ran.stderr
    assert surveyor.warehouse.count("snapshots") == 1


@pytest.mark.parametrize(
    ("size", "copied"),
    [
        (0, "copies 2 replicas, 0 B by table sizes (2.0 KiB by the sizes that the plan was made with); --throttle"),
        (1024, "copies 2 replicas, 2.0 KiB; --throttle"),
    ],
)
def test_bytes_of_other_sizes_than_those_of_the_plan_are_named(surveyor: Surveyor, size: int, copied: str) -> None:
    """Two replicas of 1,024 bytes are added."""
    _load(surveyor, {"size_bytes": 1024}, {"size_bytes": 1024})
    log = {"log_dir": "/a", "offset_lag": 0, "is_future": False, "taken_at": NOW, "bytes": size}
    surveyor.warehouse.replace(
        "sizes",
        [
            {"broker_id": lists[0], "topic": topic, "partition": number, **log}
            for topic, partitions in REPLICAS.items()
            for number, lists in partitions.items()
        ],
    )
    more = "--replication-factor", "3", "--topics", "hot", "--max-moves", "2"
    assert f"\n  {copied}" in surveyor("plan", "reassign", "--by-load", *more).stdout


def _profile(surveyor: Surveyor, cpu: dict[str, tuple[float, float] | None], r2: float | None) -> None:
    """Store a profile with the CPU of the leader and of a follower of partitions of each topic."""
    rows = [
        {"topic": topic, "partition": number, "cpu_leader": load and load[0], "cpu_follower": load and load[1]}
        for topic, load in cpu.items()
        for number in REPLICAS[topic]
    ]
    rates = {"bytes_in": 1.0, "bytes_out": 1.0, "size_bytes": 1000, "window": "Mon 20:00"}
    factors = dict.fromkeys(("cpu_leader_in", "cpu_leader_out", "cpu_follower_in"), None if r2 is None else 1e-6)
    common = {"profile": "default", "version": 1, "created_at": NOW, **rates, **factors, "cpu_r2": r2}
    surveyor.warehouse.append("load_profiles", [{**row, **common} for row in rows])


def test_cpu_evens_by_leaders(surveyor: Surveyor) -> None:
    """Broker 0 leads what takes most CPU; that of followers is less, and a copy is not needed."""
    _profile(surveyor, {"hot": (20.0, 1.0), "cold": (2.0, 1.0)}, r2=0.9)
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "cpu")
    assert sorted(lists[0] for name, lists in _changes(surveyor).items() if name.startswith("hot")) == [1, 2]
    balance = _balance(surveyor)
    assert (balance["bytes"], balance["worst_before"]["resource"]) == (0, "cpu Mon 20:00")
    assert "  CPU per broker" in ran.stdout


@pytest.mark.parametrize(
    ("r2", "reason"),
    [(0.31, "not modelled: R² 0.31 is below 0.6"), (None, "not modelled: too few measured hours of brokers are known")],
)
def test_a_plan_says_why_it_does_not_even_cpu(surveyor: Surveyor, r2: float | None, reason: str) -> None:
    _profile(surveyor, {"hot": None, "cold": None}, r2)
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "disk,cpu")
    assert (ran.code, f"the plan does not even CPU, which is {reason}; `surveyor" in ran.stderr) == (0, True)
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "cpu")
    assert (ran.code, f"choose other --resources; CPU is {reason}" in ran.stderr) == (23, True)


@pytest.mark.parametrize(
    ("cpu", "reason"),
    [
        (5.0, "modelled in profiles only: run `surveyor load profile`"),
        (None, "not measured; `surveyor load import --prometheus URL`"),
    ],
)
def test_cpu_needs_a_profile(surveyor: Surveyor, cpu: float | None, reason: str) -> None:
    hour = {"hour": NOW, "method": "delta_size", "samples": 9, "bytes_out": 90.0, "size_bytes": 10}
    surveyor.warehouse.append("partition_load", [{"topic": "hot", "partition": 0, **hour}])
    surveyor.warehouse.append("broker_load", [{"hour": NOW, "broker_id": 0, "bytes_in": 1.0, "cpu": cpu}])
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "cpu")
    assert f"CPU is {reason}" in ran.stderr


def _conf(surveyor: Surveyor, section: str) -> str:
    """Write a configuration file with a section of the cluster; return its path."""
    path = Path(surveyor.warehouse.uri).parent / "surveyor.toml"
    path.write_text(f'[clusters.default]\nzookeeper = "{surveyor.hosts}"\n{section}')
    return str(path)


def _lists(surveyor: Surveyor) -> dict[str, list[int]]:
    """Return the lists of all partitions after the plan."""
    before = {f"{topic}-{n}": lists for topic, all_ in REPLICAS.items() for n, lists in all_.items()}
    return before | _changes(surveyor)


def test_replicas_of_a_broker_stay_within_the_number_of_the_conf(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 9.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    conf = _conf(surveyor, "[clusters.default.capacity]\nreplicas = 4\n")
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--within", "90%", "--conf", conf)
    held = [broker for lists in _lists(surveyor).values() for broker in lists]
    assert [held.count(broker) for broker in (0, 1, 2)] == [4, 4, 4]


def test_each_broker_leads_partitions_of_the_topics_of_the_conf(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 1.0, "size_bytes": 10}, {"bytes_out": 1.0, "size_bytes": 10})
    conf = _conf(surveyor, '[clusters.default.leaders]\nmin = { cold = 1 }\neven = ["h.*"]\n')
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--within", "90%", "--conf", conf)
    led = {name: lists[0] for name, lists in _lists(surveyor).items()}
    assert sorted(led[f"hot-{n}"] for n in range(3)) == [0, 1, 2]
    assert sorted(led[f"cold-{n}"] for n in range(3)) == [0, 1, 2]
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    assert plan.options["leaders"] == {"min": {"cold": 1}, "even": ["h.*"], "racks": []}


def test_a_broker_with_cordoned_log_dirs_receives_nothing(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 1000}, {"bytes_out": 9.0, "size_bytes": 10})
    dirs = [("/a", True, 1), ("/b", True, 1), ("/a", True, 2), ("/b", False, 2)]
    rows = [{"log_dir": path, "cordoned": mark, "broker_id": broker, "taken_at": NOW} for path, mark, broker in dirs]
    surveyor.warehouse.append("log_dirs", rows)
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--within", "1%")
    assert _changes(surveyor)
    before = {f"{topic}-{n}": lists for topic, all_ in REPLICAS.items() for n, lists in all_.items()}
    assert all(1 in before[name] or 1 not in lists for name, lists in _changes(surveyor).items())
    ran = surveyor("plan", "reassign", "--add-brokers", "1", "--by-load")
    assert (ran.code, "broker 1: all its log dirs are cordoned" in ran.stderr) == (23, True)


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ('[clusters.default.leaders]\nracks = ["z"]\n', "racks: no broker is in z"),
        ('[clusters.default.leaders]\neven = ["("]\n', "even has '(', which is not a regex"),
    ],
)
def test_rules_of_leaders_that_cannot_be_meant_are_refused(surveyor: Surveyor, section: str, fault: str) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    ran = surveyor("plan", "reassign", "--rebalance", "--by-load", "--conf", _conf(surveyor, section))
    assert (ran.code, fault in ran.stderr) == (2, True)


def test_a_lower_factor_and_a_higher_one_by_load(surveyor: Surveyor) -> None:
    """Of equal brokers by counts, each partition keeps the replica whose broker has less."""
    _load(surveyor, {"bytes_in": 9.0, "size_bytes": 1000}, {"bytes_in": 1.0, "size_bytes": 10})
    surveyor("plan", "reassign", "--replication-factor", "1", "--by-load")
    assert {name: len(lists) for name, lists in _changes(surveyor).items()} == dict.fromkeys(_lists(surveyor), 1)
    assert _balance(surveyor)["bytes"] == 0
