"""The copy progress in `verify`: with silent brokers, without brokers, and with the slowest replicas first."""

import json

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.copy_progress import PARTITIONS_SHOWN, CopyProgress, copy_figures, copying_lines
from planner.reassignment.copy_rate import ReplicaCopy, ReplicaKey
from schemas.enums import Action, PlanKind
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

T = "t"


def _plan(tree: KafkaTree, warehouse: Warehouse) -> str:
    """Partition 0 moves from [0, 1] to [1, 2]; returns the plan's id."""
    tree.add_topic(T, {0: [0, 1]})
    after = {"replicas_after": [1, 2], "adding_after": [2], "removing_after": [0], "leader_epoch_after": None}
    change = election(tree, T, 0, leader=1, action=Action.REASSIGN.value, **after)
    return store_plan(warehouse, tree, [change], kind=PlanKind.REASSIGN.value).plan_id


def _begin(tree: KafkaTree) -> None:
    """The first step of Kafka's controller."""
    merged = Assignment({0: [1, 2, 0]}, {0: [2]}, {0: [0]}, TOPIC_ID)
    tree.write(f"/brokers/topics/{T}", encode_assignment(merged))


def _verified(surveyor: Surveyor, tree: KafkaTree, plan: str) -> tuple[int, object, str]:
    done = surveyor.run("verify", plan, "--zookeeper", tree.hosts, "--json")
    return done.exit_code, json.loads(done.stdout)["copying"], done.stderr


def test_nothing_is_copied_before_and_after(surveyor: Surveyor, tree: KafkaTree, warehouse: Warehouse) -> None:
    plan = _plan(tree, warehouse)
    assert _verified(surveyor, tree, plan) == (0, None, "")
    tree.write(f"/brokers/topics/{T}", encode_assignment(Assignment({0: [1, 2]}, {}, {}, TOPIC_ID)))
    assert _verified(surveyor, tree, plan) == (0, None, "")


def test_silent_brokers_leave_bytes_unknown(surveyor: Surveyor, tree: KafkaTree, warehouse: Warehouse) -> None:
    plan = _plan(tree, warehouse)
    _begin(tree)
    tree.unregister(2)
    before = tree.dump()
    ran = surveyor.run("verify", plan, "--zookeeper", tree.hosts)
    result = json.loads(surveyor.run("verify", plan, "--zookeeper", tree.hosts, "--json").stdout)
    assert (ran.exit_code, result["in_progress"], tree.dump()) == (0, 1, before)
    copying = result["copying"]
    assert [copying[name] for name in ("replicas", "unknown", "bytes_total", "seconds_left")] == [1, 1, None, None]
    assert {row["broker_id"]: row["reason"] for row in copying["silent"]}[2] == "it is not registered"
    assert [row["broker_id"] for row in copying["silent"]] == [0, 2]
    assert "copying 1 replica: bytes unknown, lag unknown, time left unknown" in ran.stdout
    assert "bytes unknown: broker 2 did not respond: it is not registered" in ran.stdout


def test_kept_replica_that_is_behind_counts(surveyor: Surveyor, tree: KafkaTree, warehouse: Warehouse) -> None:
    """Broker 1 fell out of the ISR, so the plan waits for it as well."""
    plan = _plan(tree, warehouse)
    _begin(tree)
    tree.write(state_path(T, 0), b'{"controller_epoch":7,"leader":0,"version":1,"leader_epoch":6,"isr":[0]}')
    copying = json.loads(surveyor.run("verify", plan, "--zookeeper", tree.hosts, "--json").stdout)["copying"]
    assert [row["broker_id"] for row in copying["brokers"]] == [1, 2]


def test_complete_move_with_a_replica_that_fell_out_of_the_isr(
    surveyor: Surveyor, tree: KafkaTree, warehouse: Warehouse
) -> None:
    """It is complete, as for Kafka's tool, but a commit would wait for broker 2."""
    plan = _plan(tree, warehouse)
    tree.write(f"/brokers/topics/{T}", encode_assignment(Assignment({0: [1, 2]}, {}, {}, TOPIC_ID)))
    tree.write(state_path(T, 0), b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":6,"isr":[1]}')

    ran = surveyor.run("verify", plan, "--zookeeper", tree.hosts, "--detailed-exitcode")

    assert (ran.exit_code, "1 complete; the plan is complete" in ran.stdout) == (0, True), ran.stderr
    assert "t-0  complete, but [2] not in sync: a commit waits before its next wave" in ran.stdout


def test_measure_that_is_no_duration(surveyor: Surveyor, warehouse: Warehouse) -> None:
    warehouse.ensure_tables()
    ran = surveyor.run("verify", "p", "--measure", "soon")
    assert (ran.exit_code, "'soon' is no duration" in ran.stderr) == (2, True)


def test_lines_are_few_and_the_worst_come_first() -> None:
    def copy(held: int | None) -> ReplicaCopy:
        return ReplicaCopy(held=held, whole=1000, lag=7, in_sync=False)

    now: dict[ReplicaKey, ReplicaCopy] = {("t", number, 5): copy(number) for number in range(PARTITIONS_SHOWN + 5)}
    now["u", 0, 5] = copy(None)
    now["v", 0, 6] = copy(1000)
    before = {key: copy(0) for key in now}
    figures = copy_figures(
        CopyProgress(current=now, previous=before, seconds=1.0, silent={5: "it did not answer in time"})
    )
    lines = list(copying_lines(figures))
    lag = "at most 7 offsets behind"
    first = f"1.1 KiB of 15.6 KiB (6 %), bytes of 1 of them unknown, {lag}, 1.1 KiB/s, time left unknown"
    fifth = f"105 B of 14.6 KiB (0 %), bytes of 1 of them unknown, {lag}, 105 B/s, time left unknown"
    assert lines[:4] == [
        f"  copying 17 replicas: {first}",
        f"    broker 5 receives 16 replicas: {fifth}",
        f"    broker 6 receives 1 replica: 1000 B of 1000 B (100 %), {lag}, 1000 B/s, all there",
        f"    u-0: bytes unknown, {lag}",
    ]
    assert lines[4] == "    t-0: 0 B of 1000 B (0 %), at most 7 offsets behind"
    assert lines[-2:] == [
        "    ... and 6 more partitions; --json gives all",
        "    bytes unknown: broker 5 did not respond: it did not answer in time",
    ]
