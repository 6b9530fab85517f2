"""Plans on clusters where racks are not what they seem, where leaders are not preferred, and on outdated snapshots."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemas.enums import Outcome
from schemas.rows import CommitRecord, Row
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration, state_path

pytestmark = pytest.mark.usefixtures("spark")

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def lay_out(tree: KafkaTree, racks: dict[int, str | None], topics: dict[str, dict[int, list[int]]]) -> None:
    tree.lay_out(brokers=())
    for broker, rack in racks.items():
        tree.register(broker, registration(rack=rack))
    tree.elect(1, epoch=7)
    for topic, replicas in topics.items():
        tree.add_topic(topic, replicas)


@pytest.fixture
def surveyor(bare_tree: KafkaTree, tmp_path: Path) -> Surveyor:
    return Surveyor(bare_tree.hosts, tmp_path / "warehouse")


def moved_to(surveyor: Surveyor, plan: Row) -> list[list[int]]:
    changes = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]), ("action", "=", "reassign"))
    return [row["replicas_after"] for row in changes]


def test_brokers_without_a_rack_get_nothing_and_every_command_says_so(bare_tree: KafkaTree, surveyor: Surveyor) -> None:
    """Brokers 4 and 5 were added without a rack."""
    racks = {broker: rack if broker < 4 else None for broker, rack in RACKS.items() if broker < 6}
    lay_out(bare_tree, racks, {"orders": {number: [1, 2, 3] for number in range(6)}})
    gap = "brokers 4, 5 have no rack, brokers 1, 2, 3 do"
    taken = surveyor("snapshot")
    assert f"{gap}: plans leave no partition in fewer racks" in taken.stderr
    for goal in (["--add-brokers", "4,5"], ["--rebalance"], ["--fix-racks"]):
        ran = surveyor("plan", "reassign", *goal)
        assert f"warning: {gap}" in ran.stdout, goal
        assert "set broker.rack there and restart, or plan with --disable-rack-aware" in ran.stdout
    blind = surveyor.json("plan", "reassign", "--add-brokers", "4,5", "--disable-rack-aware")
    assert (blind["moves"], blind["warnings"]) == (6, [])
    assert gap in surveyor("plan", "assign", "--topic", "t", "--partitions", "1", "--replication-factor", "2").stderr
    assert gap in surveyor("plan", "expand", "--topic", "orders", "--partitions", "7").stderr
    due = [row["what"] for row in surveyor.json("status")["due"]]
    (mixed,) = (text for text in due if "rack" in text)
    assert mixed == (
        f"{gap}: plans leave no partition in fewer racks for a broker without one, and Kafka creates no topic by "
        "itself (Not all brokers have rack information); set broker.rack there and restart, or plan with "
        "--disable-rack-aware"
    )
    assert [text for text in due if "hold" in text] == []
    checks = {check["check"]: check for check in surveyor("doctor", "--json").json["findings"]}
    assert (checks["racks"]["state"], checks["racks"]["found"].startswith(gap)) == ("warning", True)


def test_rack_is_the_same_while_its_brokers_get_its_new_name(bare_tree: KafkaTree, surveyor: Surveyor) -> None:
    """Half of the brokers have been restarted with the names zone-a to zone-c, and then all."""
    lists = {number: [1, 2, 3] for number in range(4)}
    lay_out(bare_tree, dict(RACKS), {"orders": lists})
    surveyor.json("snapshot")
    for broker in (1, 2, 3):
        bare_tree.unregister(broker)
        bare_tree.register(broker, registration(rack=f"zone-{RACKS[broker]}"))
    surveyor.json("snapshot")
    for goal in (["--add-brokers", "4,5,6"], ["--replace", "1=4"]):
        plan = surveyor.json("plan", "reassign", *goal)
        targets = moved_to(surveyor, plan)
        assert targets
        assert all(len({RACKS[broker] for broker in replicas}) == 3 for replicas in targets), goal
        assert plan["warnings"] == [
            f"rack {rack} is now named zone-{rack}, by the snapshots of brokers that were restarted: both count as one "
            f"rack for 7 days; if zone-{rack} is another rack, plan with --disable-rack-aware until then"
            for rack in "abc"
        ]
    made = surveyor.json("plan", "assign", "--topic", "t", "--partitions", "6", "--replication-factor", "3")
    created = surveyor.warehouse.rows("changes", ("plan_id", "=", made["plan_id"]))
    assert all(len({RACKS[broker] for broker in row["replicas_after"]}) == 3 for row in created)
    losses = surveyor.json("whatif", "--lose", "racks=1")
    assert sorted(row["scenario"] for row in losses["rows"]) == ["rack zone-a", "rack zone-b", "rack zone-c"]
    for broker in (4, 5, 6):
        bare_tree.unregister(broker)
        bare_tree.register(broker, registration(rack=f"zone-{RACKS[broker]}"))
    assert surveyor.json("plan", "reassign", "--rebalance")["warnings"] == []


def test_rebalancing_elects_where_nothing_moves(bare_tree: KafkaTree, surveyor: Surveyor) -> None:
    """Lists are even, and broker 1 leads all partitions; the preferred replica of one is not in sync."""
    lists = {number: [number % 3 + 1, (number + 1) % 3 + 1, (number + 2) % 3 + 1] for number in range(9)}
    lay_out(bare_tree, dict.fromkeys((1, 2, 3)), {"orders": lists})
    for number in range(9):
        isr = [1, 3] if number == 1 else [1, 2, 3]
        state = State(controller_epoch=1, leader=1, leader_epoch=6, isr=isr)
        bare_tree.write(state_path("orders", number), encode_state(state))
    plan = surveyor.json("plan", "reassign", "--rebalance")
    changes = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    elected = {row["partition"]: (row["action"], row["leader_after"]) for row in changes}
    assert elected == {number: ("elect_preferred", lists[number][0]) for number in (2, 4, 5, 7, 8)}
    assert (plan["moves"], plan["led_per_broker"]) == (0, [[0, 9], [2, 4]])
    assert surveyor.json("plan", "reassign", "--rebalance", "--skip-elections")["changes"] == 0
    load = {"topic": "orders", "method": "imported", "samples": 0, "bytes_out": 9.0, "size_bytes": 10.0}
    surveyor.warehouse.append("partition_load", [{"partition": number, **load} for number in range(9)])
    plan = surveyor.json("plan", "reassign", "--rebalance", "--by-load")
    changes = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    elections = sum(row["action"] == "elect_preferred" for row in changes)
    assert plan["load_balance"]["elections"] == elections > 0


def test_age_of_a_snapshot_is_said_where_it_matters(bare_tree: KafkaTree, surveyor: Surveyor) -> None:
    lay_out(bare_tree, dict.fromkeys((1, 2)), {"orders": {0: [1, 2]}})
    surveyor.json("snapshot")
    bare_tree.register(3)
    joined = surveyor("plan", "reassign", "--add-brokers", "3", "--no-refresh")
    age = re.compile(r"snapshot 1 is \d+ s old")
    assert "broker 3 is not live in snapshot 1; live are 1, 2; " in joined.stderr
    assert age.search(joined.stderr)
    assert "s old, and broker 3 joined since: add --refresh" in joined.stderr
    absent = surveyor("plan", "assign", "--topic", "t", "--replica-assignment", "1:7", "--no-refresh")
    assert (
        "s old, and broker 7 is not live now either (ZooKeeper): start what is down, or correct the ids"
        in absent.stderr
    )
    assert age.search(surveyor("plan", "reassign", "--rebalance", "--topics", "new", "--no-refresh").stderr)
    assert age.search(surveyor("plan", "config", "--topic", "new", "--set", "retention.ms=1", "--no-refresh").stderr)
    assert age.search(surveyor("whatif", "--lose", "brokers=1").stdout)


def test_plan_on_a_snapshot_from_before_a_commit_warns(tree: KafkaTree, surveyor: Surveyor) -> None:
    """Another plan is committed after the snapshot; own commits and failed ones do not count."""
    tree.add_topic("orders", {0: [1, 2], 1: [1, 2]})
    tree.write(state_path("orders", 0), encode_state(State(controller_epoch=1, leader=2, leader_epoch=6, isr=[1, 2])))
    plan = surveyor.json("plan", "elect", "--preferred")
    assert plan["warnings"] == []
    at = datetime.now(UTC) + timedelta(seconds=1)
    for plan_id, outcome in ((plan["plan_id"], Outcome.APPLIED), ("failed", Outcome.FAILED)):
        surveyor.warehouse.append("commits", [committed(plan_id, outcome, at)])
    assert surveyor.json("commit", plan["plan_id"], "--mode", "batch")["warnings"] == []
    surveyor.warehouse.append("commits", [committed("other", Outcome.APPLIED, at)])
    warning = (
        f"snapshot 1 is older than the commit of plan other at {at:%Y-%m-%d %H:%M:%S} UTC and lacks its "
        "changes; plan again on a new snapshot"
    )
    assert surveyor.json("plan", "reassign", "--rebalance", "--no-refresh")["warnings"] == [warning]
    assert surveyor.json("commit", plan["plan_id"], "--mode", "batch")["warnings"] == [warning]
    assert "snapshot 1 is older than the commit of plan other" in surveyor("show", "imbalance").stderr
    assert "snapshot 1 is older than the commit" in surveyor("whatif", "--lose", "brokers=1").stdout


def committed(plan_id: str, outcome: Outcome, at: datetime) -> CommitRecord:
    return CommitRecord(
        plan_id=plan_id,
        attempt=1,
        wave=0,
        topic="orders",
        partition=0,
        action="reassign",
        outcome=outcome.value,
        committed_at=at,
    )


def test_a_successor_in_a_rack_that_has_a_replica_is_named(bare_tree: KafkaTree, surveyor: Surveyor) -> None:
    lay_out(bare_tree, dict(RACKS), {"orders": {number: [1, 2, 3] for number in range(6)}})
    surveyor("snapshot")
    ran = surveyor("plan", "reassign", "--replace", "3=4")
    assert (
        "6 of 6 replicas of broker 3 go to others than 4, which has one already or would crowd its rack" in ran.stdout
    )
    assert "go to others" not in surveyor("plan", "reassign", "--replace", "3=6").stdout
