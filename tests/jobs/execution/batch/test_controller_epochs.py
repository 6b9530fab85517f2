"""A take-over is above every known epoch: those in znodes, in the warehouse, and those that only brokers know.

A clean-up script may have deleted /controller_epoch or set it back. Brokers refuse a controller with an earlier epoch
than they know, and Kafka never overwrites a state with a later one.
"""

import json
import re
from collections.abc import Sequence

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.state_epochs import latest_epoch_of_states
from jobs.core.errors import FencedError, RefusedError
from jobs.execution.batch.fenced_writer import FencedWriter
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan
from schemas.znode_codecs import State, encode_state
from schemas.znode_json import LAST_EPOCH
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import CLUSTER_ID, KafkaTree, state_path

T = "t"
PARTITIONS = range(4)
DONE, ERROR, REFUSED = 0, 1, 23
LATEST = 57


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """Partition 0 was last written with epoch 57, the others with 7."""
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    for partition in PARTITIONS:
        epoch = LATEST if partition == 0 else 7
        state = State(controller_epoch=epoch, leader=0, leader_epoch=5, isr=[0, 1, 2])
        tree.client.set(state_path(T, partition), encode_state(state))
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=1) for partition in PARTITIONS])


def epochs(tree: KafkaTree) -> set[int]:
    return {tree.state(T, partition).controller_epoch for partition in PARTITIONS}


def handed_back(surveyor: Surveyor, plan: Plan) -> str:
    (message,) = (row["message"] for row in surveyor.commits(plan.plan_id) if row["action"] == "hand_back")
    return str(message)


@pytest.mark.parametrize("epoch", [None, 3, LATEST])
def test_take_over_is_above_the_epochs_of_all_states(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers, epoch: int | None
) -> None:
    """Includes states that the commit does not write: some broker may know their epoch."""
    some = store_plan(surveyor.warehouse, tree, [election(tree, T, 3, leader=1)], name="some")
    if epoch is None:
        tree.client.delete("/controller_epoch")
    else:
        tree.client.set("/controller_epoch", str(epoch).encode())
    for broker in range(3):
        fake_brokers[broker].controller_epoch = LATEST

    done = surveyor.apply(tree.hosts, some.plan_id)

    assert done.exit_code == DONE
    assert tree.client.get("/controller_epoch")[0] == b"58"
    assert (tree.state(T, 3).controller_epoch, tree.state(T, 3).leader) == (58, 1)
    assert fake_brokers[1].leader_epochs == {(T, 3): 6}
    assert "UpdateMetadata, LeaderAndIsr accepted by brokers 0, 1, 2" in done.stderr
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


def test_a_state_of_the_last_epoch_refuses_the_take_over(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """No controller could take an epoch after it."""
    state = State(controller_epoch=LAST_EPOCH, leader=0, leader_epoch=5, isr=[0, 1, 2])
    tree.client.set(state_path(T, 0), encode_state(state))
    before = tree.dump()

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, tree.dump()) == (REFUSED, before)
    assert "controller epoch 2147483646 is the last one" in done.stderr


RECORDED = {
    "commits": {"plan_id": "p", "attempt": 1, "outcome": "applied", "action": "take_over"},
    "answers": {"broker_id": 0, "api": "UpdateMetadata"},
    "snapshots": {"snapshot_id": 1, "cluster_id": CLUSTER_ID},
    "partition_history": {"snapshot_id": 1, "topic": T, "partition": 9},
}


@pytest.mark.parametrize("table", RECORDED)
def test_take_over_is_above_the_recorded_epochs(tree: KafkaTree, surveyor: Surveyor, plan: Plan, table: str) -> None:
    """The states need not carry the latest epoch: only brokers know that of a controller that wrote nothing."""
    surveyor.warehouse.append(table, [RECORDED[table] | {"controller_epoch": 90}])

    surveyor.apply(tree.hosts, plan.plan_id)

    assert (tree.client.get("/controller_epoch")[0], epochs(tree)) == (b"91", {91})


def test_new_cluster_under_an_old_name_starts_at_epoch_one(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.warehouse.append("snapshots", [{"snapshot_id": 1, "cluster_id": "another", "controller_epoch": 90}])

    surveyor.apply(tree.hosts, plan.plan_id)

    assert epochs(tree) == {58}


def test_epoch_is_raised_above_the_one_that_brokers_know(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    """No znode has that epoch: brokers answer StaleControllerEpoch, without the epoch that they know."""
    tree.client.delete("/controller_epoch")
    fake_brokers[2].controller_epoch = 60

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (DONE, PlanStatus.COMMITTED)
    assert "broker 2 refused controller epoch 58 as stale; raising the controller epoch" in done.stderr
    assert "accepted by brokers 0, 1, 2" in done.stderr
    assert int(tree.client.get("/controller_epoch")[0]) == fake_brokers[2].controller_epoch == 61
    assert fake_brokers[2].leader_epochs == {(T, partition): 6 for partition in PARTITIONS}
    assert handed_back(surveyor, plan).endswith("what was written was accepted")
    assert "announced it" not in done.stderr


@pytest.mark.usefixtures("successor")
@pytest.mark.parametrize("successor", [-1, 1], indirect=True)
def test_plan_stays_partial_if_brokers_refuse_every_epoch(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    """The next Kafka controller is refused, too; its epoch is the one after ours."""
    for broker in range(3):
        fake_brokers[broker].controller_epoch = LAST_EPOCH

    done = surveyor.apply(tree.hosts, plan.plan_id, "--json")

    assert (done.exit_code, json.loads(done.stdout)["status"]) == (ERROR, PlanStatus.PARTIAL)
    refused = r"refused controller epoch \d+ \(StaleControllerEpoch\).*Restart these brokers one at a time"
    assert re.search(refused, done.stderr)
    assert re.search(refused, handed_back(surveyor, plan))
    assert "announced it" not in done.stderr


def test_a_state_of_a_later_controller_is_not_overwritten(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    """The writer itself leaves it unchanged, as Kafka's state machine does."""
    later, earlier = _outcomes(FencedWriter(control, 60.0, plan), plan)

    assert later == (
        "failed",
        f"{state_path(T, 0)} has controller epoch 57, later than ours, 8, and is not overwritten; plan again",
    )
    assert earlier == ("applied", "written")
    assert (tree.state(T, 0).controller_epoch, tree.state(T, 1).controller_epoch) == (LATEST, control.epoch)


def _outcomes(writer: FencedWriter, plan: Plan) -> Sequence[tuple[str, str]]:
    outcomes = [outcome for judged in writer.write(plan.changes[:2], plan.broker_epochs) for outcome in judged]
    return [(outcome.outcome.value, outcome.message) for outcome in outcomes]


def test_our_own_epoch_is_raised_under_the_same_fence(tree: KafkaTree, control: Controllership) -> None:
    control.raise_above(LATEST)

    assert (control.epoch, tree.client.get("/controller_epoch")[0]) == (58, b"58")
    control.refuse_lost()
    control.raise_above(20)
    assert control.epoch == 58
    tree.touch("/controller_epoch")
    with pytest.raises(FencedError):
        control.raise_above(60)
    with pytest.raises(RefusedError, match=f"controller epoch {LAST_EPOCH} is the last one"):
        control.raise_above(LAST_EPOCH)


@pytest.mark.usefixtures("plan")
def test_unreadable_state_may_still_have_an_epoch(tree: KafkaTree) -> None:
    tree.client.set(state_path(T, 1), b"?")
    without = latest_epoch_of_states(tree.client)
    tree.client.set(state_path(T, 1), b'{"controller_epoch":99,"leader":1,"leader_epoch":5,"isr":["1","2"]}')

    assert (without, latest_epoch_of_states(tree.client)) == (LATEST, 99)


def test_admin_mode_refuses_a_controller_that_brokers_refuse(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    warehouse = surveyor.warehouse
    warehouse.append("commits", [RECORDED["commits"] | {"controller_epoch": LATEST}])

    admin = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin")
    auto = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts)

    assert admin.exit_code == REFUSED
    assert "/controller_epoch is 7, earlier than controller epoch 57, the latest recorded one" in admin.stderr
    assert "`surveyor reconcile --apply` takes the controllership with a later epoch" in admin.stderr
    assert "mode batch (/controller_epoch is 7, earlier than controller epoch 57" in auto.stdout
