"""Fenced writes: exact bytes at exact versions, only stale rows set aside, nothing written once fenced."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from typing import Final

import pytest
from kazoo.client import KazooClient, TransactionRequest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import commit, connected
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, take_over
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_failure import multi_bytes
from jobs.core.errors import FencedError
from jobs.execution.batch import transactions as fenced_multis
from jobs.execution.batch.fenced_writer import FencedWriter
from schemas.enums import NO_LEADER, Action, Outcome, PlanStatus
from schemas.rows import Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.fenced_writes import Multis, write
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, MULTI_READ, Loss, ZooKeeperProxy

RIVAL = 1000
T = "t"


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """Partitions 0 to 5 of topic t get leader 1 instead of 0."""
    tree.add_topic(T, {partition: [0, 1, 2] for partition in range(6)})
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=1) for partition in range(6)])


ALL_APPLIED = dict.fromkeys(range(6), Outcome.APPLIED)


def test_states_are_written_to_the_byte(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    write(control, plan)

    data, stat = tree.client.get(state_path(T, 3))
    assert data == b'{"controller_epoch":8,"leader":1,"version":1,"leader_epoch":6,"isr":[0,1,2]}'
    assert stat.version == 1


def test_recovering_leader_is_written_as_such(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    tree.add_topic(T, {0: [0, 1]})
    unclean = {"isr_after": [1], "leader_recovery_state_after": 1, "action": Action.ELECT.value}
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1, **unclean)])

    write(control, plan)

    data = b'{"controller_epoch":8,"leader":1,"version":1,"leader_epoch":6,"isr":[1],"leader_recovery_state":1}'
    assert tree.client.get(state_path(T, 0))[0] == data


def test_no_leader_needs_no_broker(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    tree.add_topic(T, {0: [0, 1]})
    offline = {"action": Action.TAKE_OFFLINE.value, "requires_live": []}
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=NO_LEADER, **offline)])

    assert write(control, plan).outcomes == {0: Outcome.APPLIED}
    assert tree.state(T).leader == NO_LEADER


def test_outcomes_carry_the_version_written(control: Controllership, plan: Plan) -> None:
    written = write(control, plan)

    assert written.outcomes == ALL_APPLIED
    assert {row.state_version_after for row in written.rows} == {1}


def test_more_than_one_batch(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    assert write(control, plan, batch_changes=2).outcomes == ALL_APPLIED
    assert tree.versions(T) == dict.fromkeys(range(6), 1)


def test_stale_rows_are_set_aside_and_the_others_applied(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    for partition in (1, 4):
        tree.touch(state_path(T, partition))

    written = write(control, plan)

    assert written.outcomes == ALL_APPLIED | {1: Outcome.STALE, 4: Outcome.STALE}
    assert tree.versions(T) == dict.fromkeys(range(6), 1)
    assert "state is at version 1, planned at 0: leader 0, ISR [0, 1, 2]" in written.message(4)


def test_state_that_is_gone_is_stale(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    tree.client.delete(state_path(T, 2))

    assert write(control, plan).outcomes == ALL_APPLIED | {2: Outcome.STALE}
    assert tree.client.exists(state_path(T, 2)) is None


def test_new_leader_that_left_makes_its_rows_stale(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    tree.add_topic(T, {0: [0, 1], 1: [0, 2]})
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1), election(tree, T, 1, leader=2)])
    tree.unregister(2)

    written = write(control, plan)

    assert written.outcomes == {0: Outcome.APPLIED, 1: Outcome.STALE}
    assert written.message(1) == "broker 2 is not live"
    assert tree.state(T, 1).leader == 0


def test_topic_that_moved_makes_its_rows_stale(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    tree.add_topic("a", {0: [0, 1]})
    tree.add_topic("b", {1: [0, 1]})
    plan = store_plan(warehouse, tree, [election(tree, "a", 0, leader=1), election(tree, "b", 1, leader=1)])
    tree.touch("/brokers/topics/a")

    written = write(control, plan)

    assert written.outcomes == {0: Outcome.STALE, 1: Outcome.APPLIED}
    assert written.message(0) == "/brokers/topics/a is at version 1, planned at 0"


def test_deleted_topic_makes_its_rows_stale(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    tree.client.delete("/brokers/topics/t", recursive=True)

    written = write(control, plan)

    assert set(written.outcomes.values()) == {Outcome.STALE}
    assert written.message(0) == "topic t is gone"
    assert tree.client.exists("/brokers/topics/t") is None


def test_nothing_is_written_once_fenced(
    tree: KafkaTree, control: Controllership, plan: Plan, zookeeper_hosts: str
) -> None:
    with connected(ZooKeeperEndpoint(zookeeper_hosts)) as rival:
        take_over(rival, RIVAL)

        written = write(control, plan)

    assert isinstance(written.error, FencedError)
    assert set(written.outcomes.values()) == {Outcome.FENCED}
    assert tree.versions(T) == dict.fromkeys(range(6), 0)


def test_take_over_between_two_batches_fences_the_second(
    tree: KafkaTree, control: Controllership, plan: Plan, zookeeper_hosts: str
) -> None:
    batches = FencedWriter(control, 30, plan, 2).write(plan.changes, plan.broker_epochs)
    first = next(batches)
    with connected(ZooKeeperEndpoint(zookeeper_hosts)) as rival:
        take_over(rival, RIVAL)
        second = next(batches)
        with pytest.raises(FencedError, match="after our epoch 8") as raised:
            next(batches)

    assert {v.outcome for v in first} == {Outcome.APPLIED}
    assert {v.outcome for v in second} == {Outcome.FENCED}
    assert raised.value.exit_code == 20
    assert tree.versions(T) == {0: 1, 1: 1, 2: 0, 3: 0, 4: 0, 5: 0}


def test_nothing_is_written_after_max_hold(tree: KafkaTree, control: Controllership, plan: Plan) -> None:
    outcomes = next(FencedWriter(control, 0, plan).write(plan.changes, plan.broker_epochs))

    assert {(v.outcome, v.message) for v in outcomes} == {(Outcome.SKIPPED, "--max-hold 0s is over")}
    assert tree.versions(T) == dict.fromkeys(range(6), 0)


def test_lost_answer_is_read_back(tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, plan: Plan) -> None:
    loss = proxy.lose(Loss(MULTI))

    written = write(proxied, plan)

    assert loss.happened.is_set()
    assert written.outcomes == ALL_APPLIED
    assert written.message(0) == "found applied"
    assert tree.versions(T) == dict.fromkeys(range(6), 1)


def test_batches_after_a_lost_answer_continue(
    tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, plan: Plan
) -> None:
    proxy.lose(Loss(MULTI, nth=2))

    assert write(proxied, plan, batch_changes=2).outcomes == ALL_APPLIED
    assert tree.versions(T) == dict.fromkeys(range(6), 1)


def test_lost_request_is_sent_again(
    tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, plan: Plan
) -> None:
    loss = proxy.lose(Loss(MULTI, deliver=False))

    written = write(proxied, plan)

    assert loss.happened.is_set()
    assert written.message(0) == "written"
    assert tree.versions(T) == dict.fromkeys(range(6), 1)


def test_connection_lost_while_reading_back(
    tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, plan: Plan
) -> None:
    tree.touch(state_path(T, 0))
    loss = proxy.lose(Loss(MULTI_READ))

    written = write(proxied, plan)

    assert loss.happened.is_set()
    assert written.outcomes == ALL_APPLIED | {0: Outcome.STALE}


def test_connection_lost_while_preparing_a_creation(
    tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, warehouse: Warehouse
) -> None:
    plan = store_plan(warehouse, tree, [creation("new", 0, [0, 1])], [topic_creation("new")])
    loss = proxy.lose(Loss(MULTI_READ))

    written = write(proxied, plan)

    assert loss.happened.is_set()
    assert written.outcomes == {0: Outcome.APPLIED}


def test_lost_session_leaves_the_batch_unknown(plan: Plan, proxied: Controllership, proxy: ZooKeeperProxy) -> None:
    proxy.lose(Loss(MULTI, then=ZooKeeperProxy.expire_session))

    written = write(proxied, plan)

    assert isinstance(written.error, SessionLostError)
    assert set(written.outcomes.values()) == {Outcome.UNKNOWN}


def test_other_controller_after_a_lost_request_fences(
    tree: KafkaTree, proxied: Controllership, proxy: ZooKeeperProxy, plan: Plan, client: KazooClient
) -> None:
    proxy.lose(Loss(MULTI, deliver=False, then=lambda _: take_over(client, RIVAL)))

    written = write(proxied, plan)

    assert isinstance(written.error, FencedError)
    assert set(written.outcomes.values()) == {Outcome.FENCED}
    assert tree.versions(T) == dict.fromkeys(range(6), 0)


@pytest.fixture
def new_topic(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    changes = [creation("new", 0, [1, 2]), creation("new", 1, [2, 0]), creation("new", 2, [0, 1])]
    return store_plan(
        warehouse, tree, changes, [topic_creation("new", {"retention.ms": "1000", "cleanup.policy": "delete"})]
    )


def test_topic_is_created_as_kafka_does(tree: KafkaTree, control: Controllership, new_topic: Plan) -> None:
    write(control, new_topic)

    read = {path: data for path, (data, _) in tree.dump().items() if "/new" in path}
    partitions = b'{"0":[1,2],"1":[2,0],"2":[0,1]}'
    assert read == {
        "/config/topics/new": b'{"version":1,"config":{"cleanup.policy":"delete","retention.ms":"1000"}}',
        "/brokers/topics/new": b'{"version":3,"partitions":' + partitions + b',"adding_replicas":{},'
        b'"removing_replicas":{},"topic_id":"' + TOPIC_ID.encode() + b'"}',
        "/brokers/topics/new/partitions": None,
        "/brokers/topics/new/partitions/0": None,
        "/brokers/topics/new/partitions/1": None,
        "/brokers/topics/new/partitions/2": None,
        state_path("new", 0): b'{"controller_epoch":8,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
        state_path("new", 1): b'{"controller_epoch":8,"leader":2,"version":1,"leader_epoch":0,"isr":[2,0]}',
        state_path("new", 2): b'{"controller_epoch":8,"leader":0,"version":1,"leader_epoch":0,"isr":[0,1]}',
    }


def test_topic_without_an_id_is_created_without_one(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    plan = store_plan(warehouse, tree, [creation("new", 0, [1], None)], [topic_creation("new", topic_id=None)])

    write(control, plan)

    data = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    assert tree.client.get("/brokers/topics/new")[0] == data


def test_topic_that_got_an_id_since_is_the_same(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    plan = store_plan(warehouse, tree, [creation("new", 0, [1], None)], [topic_creation("new", topic_id=None)])
    write(control, plan)
    tree.write("/brokers/topics/new", encode_assignment(Assignment({0: [1]}, {}, {}, TOPIC_ID)))

    again = write(control, plan)

    assert (again.outcomes, again.message(0)) == ({0: Outcome.APPLIED}, "found applied")


def test_another_topic_without_id_is_recognised_by_its_replicas(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    plan = store_plan(warehouse, tree, [creation("new", 0, [1], None)], [topic_creation("new", topic_id=None)])
    tree.add_topic("new", {0: [2]}, topic_id=None)

    assert write(control, plan).outcomes == {0: Outcome.STALE}


def test_config_that_an_older_topic_left_is_overwritten(
    tree: KafkaTree, control: Controllership, new_topic: Plan
) -> None:
    tree.write("/config/topics/new", b'{"version":1,"config":{"left":"over"}}')

    written = write(control, new_topic)

    assert set(written.outcomes.values()) == {Outcome.APPLIED}
    data = b'{"version":1,"config":{"cleanup.policy":"delete","retention.ms":"1000"}}'
    assert tree.client.get("/config/topics/new")[0] == data


def test_another_topic_of_that_name_makes_all_stale(tree: KafkaTree, control: Controllership, new_topic: Plan) -> None:
    tree.add_topic("new", {0: [1, 2]}, topic_id="Aaaaaaaaaaaaaaaaaaaaag")
    before = tree.dump()

    written = write(control, new_topic)

    assert dict.fromkeys(range(3), Outcome.STALE) == written.outcomes
    assert written.message(2) == "topic new exists and is not the one planned"
    assert tree.dump() == before


def test_nothing_of_a_topic_is_created_if_one_of_its_brokers_left(
    tree: KafkaTree, control: Controllership, new_topic: Plan
) -> None:
    """Partition 0 alone does not need broker 0."""
    tree.unregister(0)
    before = tree.dump()

    written = write(control, new_topic)

    assert written.outcomes == dict.fromkeys(range(3), Outcome.STALE)
    assert {row.message for row in written.rows} == {"broker 0 is not live"}
    assert tree.dump() == before


def test_creation_that_stopped_between_batches_is_completed(
    tree: KafkaTree, control: Controllership, new_topic: Plan
) -> None:
    next(FencedWriter(control, 30, new_topic, 2).write(new_topic.changes, new_topic.broker_epochs))
    halfway = tree.versions("new")

    written = write(control, new_topic, batch_changes=2)

    assert halfway == {0: 0, 1: 0}
    assert set(written.outcomes.values()) == {Outcome.APPLIED}
    assert tree.versions("new") == dict.fromkeys(range(3), 0)


def test_first_states_of_a_topic_that_exists(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    tree.add_topic(T, {0: [0, 1]})
    assignment = b'{"version":3,"partitions":{"0":[0,1],"1":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
    tree.client.set("/brokers/topics/t", assignment)
    plan = store_plan(warehouse, tree, [creation(T, 1, [1, 2], None) | {"topic_version": 1}])

    assert write(control, plan).outcomes == {1: Outcome.APPLIED}
    assert tree.state(T, 1).leader == 1


def test_hundreds_of_partitions_in_few_multis(tree: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    replicas = {partition: [0, 1, 2] for partition in range(1_000)}
    changes = [creation("n" * 249, partition, assigned) for partition, assigned in replicas.items()]
    plan = store_plan(warehouse, tree, changes, [topic_creation("n" * 249)])

    written = write(control, plan)

    assert set(written.outcomes.values()) == {Outcome.APPLIED}
    assert len(tree.versions("n" * 249)) == 1_000


REFUSED = 23
LONG = "n" * 249


def wide(topic: str, partition: int, more: int = 0) -> Row:
    """A partition with a hundred replicas, of which the first `1 + more` are live: 800 bytes of its topic's znode."""
    replicas = [1, *range(1_000_000, 1_000_099)]
    alive = replicas[: 1 + more]
    return creation(topic, partition, replicas) | {"isr_after": alive, "requires_live": [1]}


def wide_topic(tree: KafkaTree, warehouse: Warehouse, partitions: int) -> Plan:
    changes = [wide(LONG, partition) for partition in range(partitions)]
    return store_plan(warehouse, tree, changes, [topic_creation(LONG)])


@pytest.fixture
def sent(multis: Multis) -> list[int]:
    """Bytes of each sent multi."""
    sizes: list[int] = []

    def weigh(multi: TransactionRequest) -> object:
        sizes.append(multi_bytes(multi))
        return commit(multi)

    multis.commit = weigh
    return sizes


def test_topic_that_fits_only_alone(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, sent: list[int]
) -> None:
    """With 400 states it would be 1.1 MB, more than ZooKeeper accepts."""
    written = write(control, wide_topic(tree, warehouse, 1_000))

    assert written.outcomes == dict.fromkeys(range(1_000), Outcome.APPLIED)
    assert len(tree.assignment(LONG).partitions) == 1_000
    assert sent[0] > 800_000
    assert max(sent[1:]) <= fenced_multis.MULTI_BYTES


def test_multis_are_bounded_in_bytes(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, sent: list[int]
) -> None:
    """Long ISRs, and small topics with long configs: 400 of either would be more than ZooKeeper accepts."""
    states = [wide("wide", partition, more=99) | {"requires_live": [1]} for partition in range(400)]
    topics = [f"small-{number:03}" for number in range(400)]
    changes = [*(creation(topic, 0, [0, 1]) for topic in topics), *states]
    operations = [topic_creation(topic, {"follower.replication.throttled.replicas": "9" * 3_000}) for topic in topics]
    plan = store_plan(warehouse, tree, changes, [*operations, topic_creation("wide")])

    written = write(control, plan)

    assert {row.outcome for row in written.rows} == {Outcome.APPLIED}
    assert len(written.rows) == 800
    assert max(sent) <= fenced_multis.MULTI_BYTES


LARGE = {"follower.replication.throttled.replicas": "9" * fenced_multis.TOPIC_MULTI_BYTES}
"""A config with which a topic gets a multi of its own."""


def test_crash_between_a_topic_and_its_states(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, multis: Multis
) -> None:
    plan = store_plan(
        warehouse, tree, [creation("new", 0, [1, 2]), creation("new", 1, [2, 0])], [topic_creation("new", LARGE)]
    )

    def crash() -> None:
        raise RuntimeError("crash")

    multis.before(partial(tree.client.exists, "/"), crash)
    with pytest.raises(RuntimeError, match="crash"):
        write(control, plan)
    halfway = tree.client.get_children("/brokers/topics/new")
    written = write(control, plan)

    assert halfway == []
    assert written.outcomes == {0: Outcome.APPLIED, 1: Outcome.APPLIED}
    assert tree.versions("new") == {0: 0, 1: 0}
    assert tree.client.get("/brokers/topics/new")[1].version == 0


def test_large_topic_needs_its_live_leaders(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, multis: Multis
) -> None:
    plan = store_plan(warehouse, tree, [creation("new", 0, [1, 2])], [topic_creation("new", LARGE)])
    multis.before(partial(tree.unregister, 1))

    written = write(control, plan)

    assert written.outcomes == {0: Outcome.STALE}
    assert tree.client.exists("/brokers/topics/new") is None


@pytest.mark.parametrize("flags", [(), ("--apply",)])
def test_topic_too_large_for_zookeeper_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, flags: tuple[str, ...]
) -> None:
    plan = wide_topic(tree, warehouse, 1_300)
    before = tree.dump()

    done = surveyor.commit(tree.hosts, plan.plan_id, *flags)

    assert done.exit_code == REFUSED
    assert f"/brokers/topics/{LONG} and its configuration would take 1,0" in done.stderr
    assert "ZooKeeper takes about a megabyte a request (jute.maxbuffer); nothing was written" in done.stderr
    assert tree.dump() == before
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


ALL: Final = os.environ.get("KILL_POINTS") == "all"


def positions(loss_of: int) -> Iterator[int]:
    """The bytes after which to cut: the frame's length, the xid, the op code, a random one, and the last but one."""
    return iter(range(loss_of) if ALL else (1, 4, 8, 12, loss_of // 2, loss_of - 1))


@pytest.mark.parametrize("deliver", [False, True], ids=["the request", "the answer"])
def test_cut_at_a_byte(
    tree: KafkaTree,
    warehouse: Warehouse,
    proxied: Controllership,
    proxy: ZooKeeperProxy,
    deliver: bool,  # noqa: FBT001 - a parameter of pytest's
) -> None:
    """Half a request has no effect, and half an answer is read back; a cut before the first byte counts the bytes."""
    tree.add_topic("t", {0: [0, 1, 2], 1: [0, 1, 2]})
    leaders = count(1)

    def cut(passed: int) -> int:
        version, leader = tree.versions("t")[0], next(leaders) % 2
        plan = store_plan(warehouse, tree, [election(tree, "t", partition, leader=leader) for partition in (0, 1)])
        loss = proxy.lose(Loss(MULTI, deliver=deliver, passed=passed))

        outcomes = list(chain.from_iterable(FencedWriter(proxied, 3600, plan).write(plan.changes, plan.broker_epochs)))

        assert loss.happened.is_set()
        assert [(outcome.outcome, outcome.message) for outcome in outcomes] == [
            (Outcome.APPLIED, "found applied" if deliver else "written")
        ] * 2, passed
        assert tree.versions("t") == {0: version + 1, 1: version + 1}, passed
        assert {tree.state("t", partition).leader for partition in (0, 1)} == {leader}, passed
        return loss.size

    for passed in positions(cut(0)):
        cut(passed)
