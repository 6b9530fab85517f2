"""An outage: the advice of `status`, `reconcile`, `plan recover` and `verify` if no live replica may lead."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.outage import Outage, outage_left_by, outage_now
from planner.leadership.broker_start_order import BrokerStart, StartOrder
from schemas.enums import NO_LEADER, PlanKind, PlanStatus
from schemas.rows import PlanRecord, Snapshot
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.support.zookeeper.live_view import live_view

SENTENCE: Final = (
    "4 partitions offline, and Surveyor cannot elect a leader: "
    "start broker 0 first (last in sync of all 4), broker 2 was not"
)
START: Final = [{"brokers": [0], "last_in_sync": 4, "brings_back": 4}]
WHAT: Final = {"start": START, "not_in_sync": [2], "alive": [], "unknown": 0, "partitions": 4, "sentence": SENTENCE}


def words(ran: Ran) -> str:
    return " ".join(ran.stdout.split())


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    """Broker 2 died, then broker 0, which has all acknowledged records; broker 1 is no replica."""
    tree.add_topic("orders", {number: [0, 2] if number % 2 else [2, 0] for number in range(4)})
    tree.elect(1, epoch=8)
    for number in range(4):
        state = State(controller_epoch=8, leader=NO_LEADER, leader_epoch=7, isr=[0])
        tree.write(state_path("orders", number), encode_state(state))
    tree.unregister(0)
    tree.unregister(2)
    return Surveyor(tree.hosts, tmp_path / "warehouse")


def test_status(surveyor: Surveyor) -> None:
    """Without a warehouse the ISRs give the order."""
    ran, programs = surveyor("status"), surveyor.json("status")

    assert SENTENCE in words(ran)
    assert programs["outage"] == WHAT
    assert programs["due"][0] == {"what": SENTENCE, "command": None}
    assert not [step for step in programs["due"] if "remove-brokers" in (step["command"] or "")]


@pytest.mark.usefixtures("spark")
def test_reconcile_and_what_it_planned(surveyor: Surveyor, tree: KafkaTree) -> None:
    """It writes nothing and ends with 0, as always with nothing to write; it does not report that all is well."""
    before = tree.dump()
    ran = surveyor("reconcile", "--apply", "--detailed-exitcode")
    quiet = surveyor("reconcile", "--apply", "--until-quiet", "--yes")
    programs = surveyor.json("reconcile")

    assert (ran.code, SENTENCE in words(ran), "nothing is due" in ran.stdout) == (0, True, False)
    assert (quiet.code, SENTENCE in words(quiet), "nothing is due" in quiet.stdout) == (0, True, False)
    assert (programs["due"], programs["outage"]) == (0, WHAT)
    assert SENTENCE in words(surveyor("plan", "reconcile"))
    assert tree.dump() == before


@pytest.mark.usefixtures("spark")
def test_plan_without_recovery_is_not_complete(surveyor: Surveyor) -> None:
    planned = surveyor("plan", "recover", "--name", "rescue")
    programs = surveyor.json("plan", "recover")
    shown = surveyor("show", "plan", "rescue")
    verified = surveyor("verify", "rescue")

    assert [SENTENCE in words(ran) for ran in (planned, shown, verified)] == [True, True, True]
    assert programs["outage"] == WHAT
    assert (verified.code, "the plan is complete" in verified.stdout) == (0, False)
    assert "it changes nothing, so there is nothing to verify; 4 rejected: see `surveyor show rej" in verified.stdout
    assert surveyor.json("verify", "rescue")["outage"] == WHAT


@pytest.mark.usefixtures("spark")
def test_repaired_partitions_are_not_counted(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Another partition has a live in-sync replica: the plan elects it, and reports what stays offline."""
    tree.add_topic("more", {0: [0, 1]})
    ran = surveyor("reconcile")

    assert SENTENCE in words(ran)
    assert "would be written: ~ more-0  leader 0→1" in ran.stdout


def test_history_has_the_last_isr(warehouse: Warehouse, tree: KafkaTree) -> None:
    """A state without an ISR, as tools may write it: a snapshot has the last one."""
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(1, 11)], [topic("orders")]
    cluster.partitions = {("orders", 0): partition([2, 0]), ("orders", 1): partition([0, 2])}
    cluster.snapshot()
    cluster.partitions["orders", 0] = partition([2, 0], isr=[0])
    snapshot = Snapshot(snapshot_id=cluster.snapshot(), taken_at=datetime.now(UTC))
    tree.add_topic("orders", {0: [2, 0]})
    tree.unregister(0)
    tree.unregister(2)
    view = live_view(tree.endpoint)
    rows = view.partitions.to_pylist()
    emptied = view.partitions.from_pylist([row | {"isr": []} for row in rows], schema=view.partitions.schema)
    without = type(view)(**{name: getattr(view, name) for name in view.__slots__} | {"partitions": emptied})

    outage = outage_now(without, warehouse, snapshot)
    assert outage is not None
    assert outage.sentence == (
        "1 partition offline, and Surveyor cannot elect a leader: start broker 0 first (last in sync of it), "
        "broker 2 was not"
    )
    unknown = outage_now(without, None, None)
    assert unknown is not None
    assert unknown.sentence == (
        "1 partition offline, and Surveyor cannot elect a leader: the last in-sync replica of 1 is unknown: "
        "start brokers 0, 2"
    )


def test_a_plan_on_an_old_snapshot_ignores_earlier_outages(warehouse: Warehouse) -> None:
    """Vacuum has dropped the version of `partitions` that its snapshot names, so they are rebuilt from history."""
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(1, 11)], [topic("orders")]
    offline = partition([2, 0], leader=NO_LEADER, isr=[2], partition_state="Offline")
    cluster.partitions = {("orders", 0): offline, ("orders", 1): partition([0, 1])}
    cluster.snapshot()
    cluster.partitions = {("orders", 0): partition([2, 0]), ("orders", 1): partition([2, 1]) | offline}
    (row,) = warehouse.rows("snapshots", ("snapshot_id", "=", cluster.snapshot()))
    unversioned = row | {"versions": {**row["versions"], "partitions": 10**6}}
    warehouse.replace("snapshots", [unversioned], f"snapshot_id = {row['snapshot_id']}")
    plan = PlanRecord(
        plan_id="p", snapshot_id=row["snapshot_id"], kind=PlanKind.RECOVER, created_at=NOW, status=PlanStatus.PLANNED
    )

    outage = outage_left_by(warehouse, plan)
    assert outage is not None
    assert outage.order.partitions == 1
    assert outage.order.starts == (BrokerStart(brokers=(2,), partitions=1, brings_back=1),)


ORDER: Final = StartOrder(partitions=4, starts=(), not_in_sync=(), live={}, unknown=0, holders=())
THREE: Final = BrokerStart(brokers=(0,), partitions=3, brings_back=3)
ALIVE: Final = "broker 1 is registered and was last in sync of 4, but"


@pytest.mark.parametrize(
    ("order", "failed", "advice"),
    [
        (
            {
                "starts": (
                    BrokerStart(brokers=(0,), partitions=3, brings_back=3),
                    BrokerStart(brokers=(2,), partitions=2, brings_back=1),
                )
            },
            (),
            "start broker 0 first (last in sync of 3 of 4), then broker 2 (last in sync of 2 of 4)",
        ),
        (
            {"starts": (BrokerStart(brokers=(0, 1), partitions=4, brings_back=4),), "not_in_sync": (2, 3)},
            (),
            "start broker 0 or 1 first (each last in sync of all 4), brokers 2, 3 were not",
        ),
        (
            {"live": {1: 4}},
            (1,),
            f"{ALIVE} the log dir failed there: repair it and restart the broker",
        ),
        (
            {"live": {1: 4}},
            (),
            f"{ALIVE} cannot be elected: restart it, or see `surveyor show quarantine`",
        ),
    ],
)
def test_the_sentence(order: dict[str, object], failed: tuple[int, ...], advice: str) -> None:
    fields = {name: getattr(ORDER, name) for name in ORDER.__slots__} | order
    outage = Outage(order=StartOrder(**fields), failed_log_dirs=frozenset(failed))

    assert outage.sentence == f"4 partitions offline, and Surveyor cannot elect a leader: {advice}"
