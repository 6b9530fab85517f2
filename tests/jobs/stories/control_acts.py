"""Events of a cluster under `surveyor control`: of brokers, moves, deletions and the controller.

Each begins and ends with all brokers up and all replicas in sync, and has topics of its own in addition to the one
that is written and read throughout. The order and the authors of writes are read from ZooKeeper's own log.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.core.addresses import LOOPBACK
from schemas.znode_codecs import State, TopicPartition, decode_assignment, decode_state, encode_partitions
from tests.jobs.support.commands.control_process import (
    OURS,
    controller_id,
    end_session_of,
    idle_controller,
    mark,
    written_since,
)
from tests.jobs.support.kafka.controlled_cluster import (
    DELETIONS,
    ELECTION,
    PARTITIONS,
    REASSIGN,
    TOPIC,
    ControlledCluster,
    restart,
)
from tests.jobs.support.kafka.real_cluster import Flow, eventually, topic_metadata
from tests.jobs.support.zookeeper.kafka_tree import state_path
from tests.jobs.torture.zookeeper_log import CREATE, DELETE, SET, Op, Transaction

NOTIFICATIONS = "/isr_change_notification/"
BOTH = "seed003"
HANDLED = re.compile(rf"Handling LeaderAndIsr request correlationId \d+ from controller {OURS} for (\d+) partitions")


def a_topic_is_created_by_its_first_record(controlled: ControlledCluster) -> None:
    """A broker writes the topic (auto.create.topics.enable), the controller gives it its leader.

    Its only replica is wherever that broker put it, so it goes again: a drain of that broker would be refused.
    """
    assert controlled.takes_records("auto")

    assert controlled.kafka.state("auto").controller_epoch == controlled.controller.epoch
    controlled.delete("auto")
    controlled.wait_until(lambda: controlled.is_deleted("auto"))


def a_broker_bounces_in_one_look(controlled: ControlledCluster, broker: int) -> None:
    """It is gone and back between two readings, so its partitions are written as after a failure.

    Its session ends, and it registers again at once.
    """
    path, before = f"/brokers/ids/{broker}", mark(controlled.kafka)
    registered = controlled.kafka.client.get(path)[1].czxid
    led = {p for p in PARTITIONS if controlled.kafka.state(TOPIC, p).leader == broker}
    held = {p for p in PARTITIONS if broker in controlled.kafka.state(TOPIC, p).isr}
    assert led
    with controlled.controller.stopped():
        controlled.cluster.brokers[broker].expire()
        assert eventually(lambda: _czxid(controlled, path) not in {None, registered}, 8)

    controlled.wait_until(lambda: {p for p, _ in _removals(controlled, before, broker)} == held)
    assert {p for p, state in _removals(controlled, before, broker) if state.leader != broker} >= led
    controlled.wait_until(controlled.is_whole)


def _czxid(controlled: ControlledCluster, path: str) -> int | None:
    stat = controlled.kafka.client.exists(path)
    return None if stat is None else stat.czxid


def _removals(controlled: ControlledCluster, since: int, broker: int) -> Iterator[tuple[int, State]]:
    """Partitions of the topic that the controller took a broker out of the ISR of, with what it wrote."""
    for transaction in written_since(controlled.cluster, since):
        for op in transaction.ops if transaction.session == controlled.controller.session else ():
            if op.kind == SET and op.path.startswith(f"/brokers/topics/{TOPIC}/") and op.path.endswith("/state"):
                state = decode_state(op.data)
                if broker not in state.isr:
                    yield int(op.path.split("/")[-2]), state


def leaders_since(controlled: ControlledCluster, since: int, topic: str, partition: int) -> list[int]:
    """The leaders of a partition, one after another."""
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    written = (
        op for transaction in written_since(controlled.cluster, since) for op in transaction.ops if op.path == path
    )
    leaders = [decode_state(op.data).leader for op in written if op.kind == SET]
    return [leader for leader, before in zip(leaders, [None, *leaders], strict=False) if leader != before]


def a_broker_joins_and_the_seeds_move_goes_to_it(controlled: ControlledCluster) -> None:
    """[1,2,3] -> [3,4,5], the seeds' example, one less each: its steps are four writes, and nothing else."""
    joined = controlled.cluster.add_broker(4)
    everything = set(controlled.kafka.client.get_children("/brokers/topics"))
    controlled.wait_until(
        lambda: set(AdminClient({"bootstrap.servers": joined.address}).list_topics().topics) >= everything
    )
    others = [controlled.cluster.brokers[broker].address for broker in range(4)]
    controlled.wait_until(
        lambda: all(4 in AdminClient({"bootstrap.servers": address}).list_topics().brokers for address in others)
    )
    controlled.create("seed", {0: [0, 1, 2]})
    controlled.wait_until(lambda: len(controlled.kafka.state("seed").isr) == 3)

    before, epoch = mark(controlled.kafka), controlled.kafka.state("seed").leader_epoch
    controlled.ask_to_move("seed", {0: [2, 3, 4]})
    controlled.wait_until(lambda: controlled.kafka.client.exists(REASSIGN) is None)

    assert list(_steps(controlled, before, "seed", epoch)) == [
        {"assigned": ([2, 3, 4, 0, 1], [3, 4], [0, 1]), "state": (0, {0, 1, 2}, 1)},
        {"by the leader": (0, {0, 1, 2, 3, 4}, 1)},
        {"state": (2, {2, 3, 4}, 2)},
        {"assigned": ([2, 3, 4], [], []), "state": (2, {2, 3, 4}, 3)},
        {"request": "deleted"},
    ]
    assert [controlled.log_names(broker, "seed") for broker in controlled.cluster.brokers] == [
        [],
        [],
        *[["seed-0"]] * 3,
    ]
    controlled.delete("seed")
    controlled.wait_until(lambda: controlled.is_deleted("seed"))
    controlled.kill(4)
    del controlled.cluster.brokers[4]


def _steps(controlled: ControlledCluster, since: int, topic: str, epoch: int) -> Iterator[dict[str, object]]:
    """What a move wrote, multi by multi; of ISRs that the leader asks for one after another, the last.

    An ISR that a leader asks for is of the same leader epoch, whether the leader writes it or the controller.
    """
    grown: dict[str, object] = {}
    leader_epoch = 0
    for transaction in written_since(controlled.cluster, since):
        step = {name: value for op in transaction.ops for name, value in _step(op, topic, epoch)}
        state = step.get("state")
        if isinstance(state, tuple) and state[2] == leader_epoch:
            grown = {"by the leader": state}
        elif step:
            yield from [grown] if grown else []
            grown, leader_epoch = {}, state[2] if isinstance(state, tuple) else leader_epoch
            assert transaction.session == controlled.controller.session
            yield step


def _step(op: Op, topic: str, epoch: int) -> Iterator[tuple[str, object]]:
    if op.kind == SET and op.path == f"/brokers/topics/{topic}":
        assignment = decode_assignment(op.data)
        moving = assignment.adding_replicas.get(0, []), assignment.removing_replicas.get(0, [])
        yield "assigned", (assignment.partitions[0], *moving)
    elif op.kind == SET and op.path == f"/brokers/topics/{topic}/partitions/0/state":
        state = decode_state(op.data)
        yield "state", (state.leader, {*state.isr}, state.leader_epoch - epoch)
    elif op.kind == DELETE and op.path == REASSIGN:
        yield "request", "deleted"


def a_broker_is_silent_then_dead_then_back(controlled: ControlledCluster, broker: int) -> None:
    """What concerns it waits for it and goes on when it is back; what does not concern it does not wait."""
    before = mark(controlled.kafka)
    controlled.create("moves", {p: [0, 1] for p in range(3)})
    controlled.create("old", {0: [0, broker]})
    with controlled.silent(broker):
        controlled.ask_to_move("moves", {p: [0, broker] for p in range(3)})
        controlled.wait_until(lambda: controlled.assigned("moves").adding_replicas == {p: [broker] for p in range(3)})
        controlled.write_topic("meanwhile", {0: [0, 1]})  # it does not respond to requests, and nothing waits for it
        controlled.wait_until(lambda: 0 in topic_metadata(controlled.cluster.brokers[0].address, "meanwhile"), 20)
        assert controlled.takes_records("meanwhile")

        controlled.ask_to_move("moves", {0: [0, broker], 1: [1, 2], 2: [0, 1]})  # goes on, is overridden, is cancelled
        controlled.wait_until(lambda: controlled.assigned("moves").removing_replicas.get(2) == [broker])
        controlled.kill(broker)

    controlled.wait_until(lambda: controlled.asked_to_move() == {0})
    moves = controlled.assigned("moves")
    assert (moves.partitions[1], moves.partitions[2], moves.adding_replicas) == ([1, 2], [0, 1], {0: [broker]})

    controlled.write_topic("leaderless", {0: [broker]})
    controlled.delete("old")
    controlled.write_topic("old", {0: [0, broker], 1: [1, 0]})  # partitions added to what is to be deleted
    controlled.write_topic("later", {0: [1, 0]})
    controlled.wait_until(lambda: controlled.has_state("later"))  # so what was asked for before it has been looked at
    assert not controlled.has_state("leaderless")
    assert controlled.kafka.client.get_children(DELETIONS) == ["old"]
    assert controlled.kafka.state("moves").isr == [0, 1]

    controlled.restart(broker)
    controlled.wait_until(
        lambda: controlled.has_state("leaderless") and controlled.kafka.state("leaderless").leader == broker
    )
    assert controlled.takes_records("leaderless")
    controlled.wait_until(lambda: controlled.is_deleted("old"))
    controlled.wait_until(lambda: controlled.kafka.client.exists(REASSIGN) is None)
    assert controlled.assigned("moves").partitions == {0: [0, broker], 1: [1, 2], 2: [0, 1]}
    created = {
        op.path
        for transaction in written_since(controlled.cluster, before)
        for op in transaction.ops
        if op.kind == CREATE
    }
    assert "/brokers/topics/old/partitions/0/state" in created
    assert "/brokers/topics/old/partitions/1/state" not in created
    controlled.wait_until(controlled.is_whole)


def isr_changes_are_read_and_taken_away(controlled: ControlledCluster) -> None:
    """All ISR changes notified by leaders in this controllership."""
    ours = [
        transaction
        for transaction in written_since(controlled.cluster, 0)
        if transaction.session == controlled.controller.session
    ]
    removed = {
        op.path
        for transaction in ours
        for op in transaction.ops
        if op.kind == DELETE and op.path.startswith(NOTIFICATIONS)
    }
    assert removed
    controlled.wait_until(lambda: controlled.kafka.client.get_children(NOTIFICATIONS) == [])


def every_broker_knows_the_isrs(controlled: ControlledCluster) -> None:
    known = {p: {*state.isr} for p, state in enumerate(controlled.states())}
    addresses = [broker.address for broker in controlled.cluster.brokers.values()]
    controlled.wait_until(
        lambda: all(
            {p: {*metadata[2]} for p, metadata in topic_metadata(at, TOPIC).items()} == known for at in addresses
        )
    )


def a_broker_gets_another_listener(controlled: ControlledCluster, broker: int) -> None:
    """Dynamic settings make the broker write its registration again; the others learn of its endpoints."""
    address, added = controlled.cluster.brokers[broker].address, f"{LOOPBACK}:{free_port()}"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADDED:PLAINTEXT",
        "listeners": f"PLAINTEXT://{address},ADDED://{added}",
    }
    entries = {name: ("SET", value) for name, value in settings.items()}
    client = KafkaAdminClient(bootstrap_servers=controlled.cluster.bootstrap.split(","))
    client.alter_configs([ConfigResource(ConfigResourceType.BROKER, str(broker), entries)], incremental=True)
    client.close()
    controlled.wait_until(lambda: f"broker {broker} has written its registration again" in controlled.controller.output)
    controlled.wait_until(lambda: len(AdminClient({"bootstrap.servers": added}).list_topics(timeout=30).brokers) >= 1)
    controlled.wait_until(controlled.is_whole)


def a_state_is_illegible_for_a_while(controlled: ControlledCluster) -> None:
    """Nothing is written to it meanwhile, and its partition is led again once it is restored."""
    controlled.create("torn", {0: [0, 1, 2]})
    controlled.wait_until(lambda: controlled.is_whole("torn"))
    path = state_path("torn", 0)
    data = controlled.kafka.client.get(path)[0]
    controlled.kafka.client.set(path, data[:-5])
    controlled.kill(0)
    controlled.wait_until(lambda: all(0 not in state.isr for state in controlled.states()))
    assert controlled.kafka.client.get(path)[0] == data[:-5]
    controlled.kafka.client.set(path, data)
    controlled.wait_until(lambda: controlled.states("torn")[0].leader in {1, 2})
    assert controlled.takes_records("torn")
    controlled.restart(0)
    controlled.wait_until(lambda: controlled.is_whole("torn") and controlled.is_whole())


@contextmanager
def it_is_killed_and_the_next_one_goes_on(controlled: ControlledCluster, broker: int) -> Iterator[None]:
    """Killed in the midst of a deletion; the next one announces everything, then elects, balances and deletes."""
    controlled.create("cut", {0: [0, broker], 1: [broker, 0]})
    with controlled.silent(broker):
        controlled.delete("cut")
        controlled.wait_until(lambda: not controlled.logs(0, "cut"))
        controlled.controller.kill()
        with idle_controller(controlled.kafka):
            assert controlled.kafka.client.exists("/brokers/topics/cut")
            controlled.kill(broker)
            stale = encode_partitions([TopicPartition(TOPIC, 0)])
            notified = controlled.kafka.client.create(f"{NOTIFICATIONS}isr_change_", stale, sequence=True)
            leaderless = [p for p, state in enumerate(controlled.states()) if state.leader == broker]
            assert leaderless
            before = mark(controlled.kafka)
            log_lengths = {broker: len(controlled.cluster.brokers[broker].log_of_this_run()) for broker in (0, 1, 2)}
            with controlled.running_controller():
                controlled.wait_until(
                    lambda: all(controlled.kafka.state(TOPIC, p).leader != broker for p in leaderless)
                )
                _everything_was_announced_before_elections(controlled, before, notified, log_lengths)
                controlled.restart(broker)
                controlled.wait_until(lambda: controlled.is_deleted("cut"))
                controlled.wait_until(controlled.is_whole)
                yield


def _everything_was_announced_before_elections(
    controlled: ControlledCluster, since: int, notified: str, log_lengths: dict[int, int]
) -> None:
    """Order in ZooKeeper: controllership, old notifications, elections; a broker's first request is complete.

    `log_lengths` are the lengths of the brokers' logs before the take-over.
    """
    ours = [
        transaction
        for transaction in written_since(controlled.cluster, since)
        if transaction.session == controlled.controller.session
    ]
    order = [_first(ours, "/controller_epoch", SET), _first(ours, notified, DELETE), _first(ours, "/state", SET)]
    assert order == sorted(order), order
    topics = set(controlled.kafka.client.get_children("/brokers/topics")) - {"cut"}
    placed = [replicas for topic in topics for replicas in controlled.assigned(topic).partitions.values()]
    for broker, length in log_lengths.items():
        counts = [*map(int, HANDLED.findall(controlled.cluster.brokers[broker].log_of_this_run()[length:]))]
        assert counts[0] == sum(broker in replicas for replicas in placed), counts


def _first(transactions: list[Transaction], ending: str, kind: int) -> int:
    return next(
        number
        for number, transaction in enumerate(transactions)
        if any(op.kind == kind and op.path.endswith(ending) for op in transaction.ops)
    )


def leaders_are_balanced_when_that_is_due(controlled: ControlledCluster, broker: int) -> None:
    """The first check is some seconds after the take-over and needs no request (auto.leader.rebalance.enable)."""
    preferring = {p for p, replicas in controlled.assigned(TOPIC).partitions.items() if replicas[0] == broker}
    assert preferring
    controlled.wait_until(
        lambda: {p for p, state in enumerate(controlled.states()) if state.leader == broker} >= preferring
    )
    assert {controlled.kafka.state(TOPIC, p).controller_epoch for p in preferring} == {controlled.controller.epoch}


def it_is_stopped_longer_than_its_session(controlled: ControlledCluster, broker: int) -> None:
    """A broker dies meanwhile and another controller sees to it; when it goes on it writes nothing, and ends."""
    epochs = [state.leader_epoch for state in controlled.states()]
    with controlled.controller.stopped():
        before = mark(controlled.kafka)
        end_session_of(controlled.kafka, controlled.controller)
        assert eventually(lambda: controller_id(controlled.kafka) in controlled.cluster.brokers)
        allowed = {controlled.kafka.client.client_id[0], *_sessions(controlled)}
        controlled.kill(broker)
        controlled.wait_until(lambda: all(broker not in state.isr for state in controlled.states()))
    assert controlled.controller.process.wait(60) in {1, 20}
    controlled.restart(broker)
    controlled.wait_until(controlled.is_whole)

    written = written_since(controlled.cluster, before)
    assert {transaction.session for transaction in written} <= allowed | _sessions(controlled)
    assert controlled.controller.session not in {transaction.session for transaction in written}
    assert all(now.leader_epoch >= before for now, before in zip(controlled.states(), epochs, strict=True))


def _sessions(controlled: ControlledCluster) -> set[int]:
    """Of the brokers that are registered."""
    ids = controlled.kafka.client.get_children("/brokers/ids")
    return {controlled.kafka.client.get(f"/brokers/ids/{broker}")[1].ephemeralOwner for broker in ids}


@contextmanager
def second_log_dir(broker: EmbeddedKafka) -> Iterator[Path]:
    """Another log dir, the next to get a log, as the first holds more; the broker lives without it again afterwards."""
    before, folder = broker.overrides, broker.folder / "second"
    broker.overrides = {**before, "log.dirs": f"{broker.folder / 'data'},{folder}"}
    restart(broker)
    yield folder
    broker.overrides = before
    restart(broker)


def a_broker_fails_and_starts(controlled: ControlledCluster) -> None:
    """As the controller has thought of beforehand; then its leaders are asked for.

    While it is down, another one goes down, and both come back. The one that went down last leads their partitions.
    """
    controlled.create(BOTH, {0: [1, 3], 1: [3, 1]})
    controlled.wait_until(lambda: all({*state.isr} == {1, 3} for state in controlled.states(BOTH)))
    before = mark(controlled.kafka)
    epochs = {p: state.leader_epoch for p, state in enumerate(controlled.states()) if 1 in state.isr}
    controlled.kill(1)
    controlled.wait_until(
        lambda: all(state.leader in {0, 2, 3} and 1 not in state.isr for state in controlled.states())
    )
    assert {p: controlled.states()[p].leader_epoch for p in epochs} == {p: epoch + 1 for p, epoch in epochs.items()}
    controlled.wait_until(lambda: [state.isr for state in controlled.states(BOTH)] == [[3], [3]])
    controlled.kill(3)
    controlled.wait_until(
        lambda: [(state.leader, state.isr) for state in controlled.states(BOTH)] == [(-1, [3]), (-1, [3])]
    )
    controlled.restart(1, 3)
    controlled.wait_until(lambda: all({*state.isr} == {1, 3} for state in controlled.states(BOTH)))
    assert [leaders_since(controlled, before, BOTH, p) for p in range(2)] == [[3, -1, 3], [3, -1, 3]]
    controlled.delete(BOTH)
    controlled.wait_until(lambda: controlled.is_deleted(BOTH))
    controlled.wait_until(controlled.is_whole)

    preferred = {p: replicas[0] for p, replicas in controlled.assigned(TOPIC).partitions.items()}
    controlled.kafka.client.create(ELECTION, encode_partitions([TopicPartition(TOPIC, p) for p in PARTITIONS]))
    controlled.wait_until(lambda: {p: state.leader for p, state in enumerate(controlled.states())} == preferred)
    controlled.wait_until(lambda: controlled.kafka.client.exists(ELECTION) is None, 60)


def replicas_move_while_records_come_in(controlled: ControlledCluster) -> None:
    controlled.ask_to_move(TOPIC, {0: [1, 2, 3], 1: [3, 1], 2: [9]})
    controlled.wait_until(lambda: controlled.asked_to_move() == {2}, 180)
    controlled.kafka.client.delete(REASSIGN)  # broker 9 never comes, and the request would wait for it

    assignment = controlled.assigned(TOPIC)
    assert [assignment.partitions[p] for p in range(3)] == [[1, 2, 3], [3, 1], [2, 0, 1]]
    assert (assignment.adding_replicas, assignment.removing_replicas) == ({}, {})
    controlled.wait_until(lambda: f"{TOPIC}-0" not in controlled.log_names(0, TOPIC))


def a_disk_is_lost(controlled: ControlledCluster) -> None:
    with second_log_dir(controlled.cluster.brokers[3]) as disk:
        controlled.write_topic("disk", {0: [3, 0], 1: [0, 3]})
        # a log that is being created as the disk fails leaves Kafka's broker with a replica that no request can start
        controlled.wait_until(lambda: len(list(disk.glob("disk-*/*.log"))) == 2)
        controlled.wait_until(lambda: all(len(state.isr) == 2 for state in controlled.states("disk")))
        controlled.wait_until(lambda: all(3 in state.isr for state in controlled.states()[:2]))  # it was restarted
        shutil.rmtree(disk)
        disk.touch()
        controlled.wait_until(lambda: [state.isr for state in controlled.states("disk")] == [[0], [0]])
        assert [state.leader for state in controlled.states("disk")] == [0, 0]
        assert [3 in state.isr for state in controlled.states()[:2]] == [True, True]  # their log dir is another
    controlled.wait_until(lambda: all(len(state.isr) == 2 for state in controlled.states("disk")))
    controlled.wait_until(controlled.is_whole)


def a_broker_is_drained_and_comes_back(controlled: ControlledCluster) -> None:
    controlled.drain(1)
    states, replicas = controlled.states(), controlled.assigned(TOPIC).partitions
    assert all(state.leader != 1 for state in states)
    controlled.restart(1)
    controlled.wait_until(controlled.is_whole)
    assert all(state.leader != 1 for state in controlled.states())
    assert any(1 in replicas[p] for p in PARTITIONS)


@contextmanager
def records_flow(controlled: ControlledCluster) -> Iterator[None]:
    """Run a controller while a topic is written and read, and verify at the end that no record is lost."""
    with controlled.running_controller():
        controlled.write_topic(TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in range(4)})
        controlled.wait_until(lambda: controlled.has_state(TOPIC, 3), 60)
        controlled.write_topic(TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in PARTITIONS})
        controlled.wait_until(lambda: controlled.has_state(TOPIC, 5), 60)
        controlled.wait_until(
            lambda: len(topic_metadata(controlled.cluster.brokers[3].address, TOPIC)) == len(PARTITIONS)
        )
        with Flow(controlled.cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            yield
        assert flow.failed == []
        assert flow.kept <= flow.stored(len(PARTITIONS))


def brokers_fail_and_replicas_move(controlled: ControlledCluster) -> None:
    """The acts with which each life of a cluster begins."""
    a_broker_fails_and_starts(controlled)
    replicas_move_while_records_come_in(controlled)
    a_topic_is_created_by_its_first_record(controlled)
    a_broker_bounces_in_one_look(controlled, 2)
    a_broker_joins_and_the_seeds_move_goes_to_it(controlled)
    a_broker_is_silent_then_dead_then_back(controlled, 3)


def all_kinds_of_changes_are_recorded(controlled: ControlledCluster) -> None:
    applied = ("outcome", "=", "applied")
    written = {row["action"] for row in Warehouse(str(controlled.warehouse), "default").rows("commits", applied)}
    moved = {"start_reassignment", "narrow_to_target", "end_reassignment", "withdraw_reassignment"}
    assert written >= {"create", "elect", "shrink_isr", "elect_preferred", "delete_topic", *moved}
