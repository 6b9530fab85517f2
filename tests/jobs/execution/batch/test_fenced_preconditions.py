"""The preconditions of a change hold at the moment of the write: live brokers, dead brokers, and topics."""

from collections.abc import Callable
from functools import partial
from threading import Event, Thread

import pytest
from kazoo.client import TransactionRequest
from kazoo.security import make_acl

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import commit, connected
from jobs.adapters.zookeeper.controllership import Controllership, check_absent
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.enums import Action, Outcome
from schemas.rows import Row
from schemas.stored_plan import Plan
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.fenced_writes import Multis, write
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

T = "t"


def unclean(tree: KafkaTree, partition: int) -> Row:
    """Broker 1 becomes the leader where only broker 2, which is dead, was in sync."""
    after = {"isr_after": [1], "leader_recovery_state_after": 1, "action": Action.ELECT.value}
    return election(tree, T, partition, leader=1, requires_dead=[2], **after)


def elections(tree: KafkaTree, warehouse: Warehouse, count: int, make: Callable[[KafkaTree, int], Row]) -> Plan:
    tree.add_topic(T, {partition: [2, 1, 0] for partition in range(count)})
    return store_plan(warehouse, tree, [make(tree, partition) for partition in range(count)])


@pytest.fixture
def without_2(tree: KafkaTree) -> KafkaTree:
    tree.unregister(2)
    return tree


def test_no_unclean_election_once_the_isr_member_is_back(
    without_2: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    """It registers after the first of three multis."""
    plan = elections(without_2, warehouse, 1200, unclean)

    written = write(control, plan, then=partial(without_2.register, 2), batch_changes=400)

    outcomes = list(written.outcomes.values())
    assert outcomes == [Outcome.APPLIED] * 400 + [Outcome.STALE] * 800
    assert written.message(400) == "broker 2 is live again"
    assert set(without_2.versions(T).values()) == {0, 1}
    assert sum(without_2.versions(T).values()) == 400


def test_no_unclean_election_if_it_returns_after_the_read(
    without_2: KafkaTree, control: Controllership, warehouse: Warehouse, multis: Multis
) -> None:
    """The multi itself is refused; its rows that do not require broker 2 to be dead are written."""
    without_2.add_topic("other", {9: [0, 1]})
    plan = elections(without_2, warehouse, 3, unclean)
    clean = store_plan(warehouse, without_2, [*plan.changes, election(without_2, "other", 9, leader=1)])
    multis.before(partial(without_2.register, 2))

    written = write(control, clean)

    assert written.outcomes == dict.fromkeys(range(3), Outcome.STALE) | {9: Outcome.APPLIED}
    assert without_2.versions(T) == dict.fromkeys(range(3), 0)


def test_absence_is_proved_and_leaves_nothing(
    without_2: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    plan = elections(without_2, warehouse, 2, unclean)
    before = without_2.dump()

    written = write(control, plan)

    after = without_2.dump()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    ids_before, ids_after = (dump["/brokers/ids"][1] for dump in (before, after))
    assert set(written.outcomes.values()) == {Outcome.APPLIED}
    assert changed == {state_path(T, 0), state_path(T, 1), "/brokers/ids"}
    assert ids_after == ids_before._replace(cversion=ids_before.cversion + 2, pzxid=ids_after.pzxid)


def test_proof_of_absence_is_never_visible(tree: KafkaTree, control: Controllership, zookeeper_hosts: str) -> None:
    """A broker that registers in one multi, as Kafka's do, never finds its id in use, and no client ever reads it."""
    tree.unregister(2)
    over = Event()
    registered: list[object] = []

    def come_and_go() -> None:
        with connected(ZooKeeperEndpoint(zookeeper_hosts)) as client:
            while not over.is_set():
                multi = client.transaction()
                multi.create("/brokers/ids/2", b"", ephemeral=True)
                multi.set_data("/brokers/ids/2", b"registered", 0)
                registered.append(commit(multi)[0])
                client.delete("/brokers/ids/2")

    def both_absent() -> bool:
        return control.commit([*check_absent(2), *check_absent(3)]) is None

    broker = Thread(target=come_and_go)
    broker.start()
    absent: list[bool] = []
    names: set[str] = set()
    while len(absent) < 300:
        absent.append(both_absent())
        names.update(tree.client.get_children("/brokers/ids"))
    over.set()
    broker.join()

    assert {type(answer) for answer in registered} == {str}
    assert set(absent) == {True, False}
    assert names == {"0", "1", "2"}


def test_new_leader_that_bounced_between_two_batches(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    """Its znode exists, as the multi checks; that it is another registration is found by reading."""
    plan = elections(tree, warehouse, 2, lambda tree, partition: election(tree, T, partition, leader=1))

    written = write(control, plan, then=partial(tree.bounce, 1), batch_changes=1)

    assert written.outcomes == {0: Outcome.APPLIED, 1: Outcome.STALE}
    assert written.message(1) == "broker 1 registered again since the snapshot"


def test_topic_queued_for_deletion_between_two_batches(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    plan = elections(tree, warehouse, 2, lambda tree, partition: election(tree, T, partition, leader=1))

    written = write(control, plan, then=lambda: tree.client.create(f"/admin/delete_topics/{T}"), batch_changes=1)

    assert written.outcomes == {0: Outcome.APPLIED, 1: Outcome.STALE}
    assert written.message(1) == "topic t is queued for deletion"


def test_each_dead_leader_fails_only_its_own_rows(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, multis: Multis
) -> None:
    """The multi is refused three times, each time because of another broker."""
    for broker in (3, 4):
        tree.register(broker)
    tree.add_topic(T, {partition: [0, 1, 2, 3, 4] for partition in range(400)})
    leaders = [1, 2, 3, 4]
    changes = [election(tree, T, partition, leader=leaders[partition % 4]) for partition in range(400)]
    plan = store_plan(warehouse, tree, changes)
    multis.before(*(partial(tree.unregister, broker) for broker in (1, 2, 3)))

    written = write(control, plan)

    assert written.outcomes == {p: Outcome.STALE if p % 4 < 3 else Outcome.APPLIED for p in range(400)}
    assert written.message(1) == "broker 2 is not live"


def test_flapping_broker_fails_only_its_own_rows(
    without_2: KafkaTree, control: Controllership, warehouse: Warehouse, multis: Multis
) -> None:
    """It is registered whenever a multi is tried, and not registered whenever it is read."""
    without_2.add_topic("other", {9: [0, 1]})
    changes = elections(without_2, warehouse, 2, unclean).changes
    plan = store_plan(warehouse, without_2, [*changes, election(without_2, "other", 9, leader=1)])

    def commit_meanwhile(multi: TransactionRequest) -> object:
        without_2.register(2)
        results = commit(multi)
        without_2.unregister(2)
        return results

    multis.commit = commit_meanwhile

    written = write(control, plan)

    assert written.outcomes == {0: Outcome.FAILED, 1: Outcome.FAILED, 9: Outcome.APPLIED}
    assert written.message(0) == "ZooKeeper refused to create /brokers/ids/2 (NodeExistsError)"
    assert without_2.versions(T) == {0: 0, 1: 0}


def test_znode_that_may_not_be_written_fails_alone(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    plan = elections(tree, warehouse, 4, lambda tree, partition: election(tree, T, partition, leader=1))
    tree.client.set_acls(state_path(T, 2), [make_acl("world", "anyone", read=True)])

    written = write(control, plan)

    assert written.outcomes == dict.fromkeys(range(4), Outcome.APPLIED) | {2: Outcome.FAILED}
    assert f"an ACL denies Surveyor permission to set {state_path(T, 2)} (NoAuth)" in written.message(2)


def test_forbidden_ids_are_named(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    tree.unregister(2)
    plan = elections(tree, warehouse, 2, unclean)
    tree.client.set_acls("/brokers/ids", [make_acl("world", "anyone", read=True)])

    written = write(control, plan)

    assert set(written.outcomes.values()) == {Outcome.FAILED}
    assert "an ACL denies Surveyor permission to create /brokers/ids/2 (NoAuth)" in written.message(0)
