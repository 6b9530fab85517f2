"""Events of a cluster under `surveyor control`: of brokers, moves, deletions and the controller.

Each begins and ends with all brokers up and all replicas in sync, and has topics of its own in addition to the one
that is written and read throughout. The order and the authors of writes are read from ZooKeeper's own log.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from schemas.znodes import State, TopicPartition, decode_assignment, decode_state, encode_partitions
from tests.jobs.support.commands.control_process import (
    OURS,
    controller_id,
    end_session_of,
    idle_controller,
    mark,
    running_controller,
    written_since,
)
from tests.jobs.support.kafka.controlled_cluster import DELETIONS, PARTITIONS, REASSIGN, TOPIC, ControlledCluster
from tests.jobs.support.kafka.real_cluster import eventually, topic_metadata
from tests.jobs.torture.zookeeper_log import CREATE, DELETE, SET, Op, Transaction

NOTIFICATIONS = "/isr_change_notification/"
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
    """It is gone and back while the controller does not look: who led and followed there is written as after a failure.

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
    for each in written_since(controlled.cluster, since):
        for op in each.ops if each.session == controlled.controller.session else ():
            if op.kind == SET and op.path.startswith(f"/brokers/topics/{TOPIC}/") and op.path.endswith("/state"):
                state = decode_state(op.data)
                if broker not in state.isr:
                    yield int(op.path.split("/")[-2]), state


def leaders_since(controlled: ControlledCluster, since: int, topic: str, partition: int) -> list[int]:
    """Who came to lead a partition, one after another."""
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    written = (op for each in written_since(controlled.cluster, since) for op in each.ops if op.path == path)
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
        lambda: all(4 in AdminClient({"bootstrap.servers": each}).list_topics().brokers for each in others)
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
    """What a move wrote, multi by multi; of ISRs that the leader writes one after another, the last."""
    grown: dict[str, object] = {}
    for each in written_since(controlled.cluster, since):
        ours = each.session == controlled.controller.session
        step = {name: value for op in each.ops for name, value in _step(op, topic, epoch)}
        if step and not ours and "state" in step:
            grown = {"by the leader": step["state"]}
        elif step and ours:
            yield from [grown] if grown else []
            grown = {}
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
    created = {op.path for each in written_since(controlled.cluster, before) for op in each.ops if op.kind == CREATE}
    assert "/brokers/topics/old/partitions/0/state" in created
    assert "/brokers/topics/old/partitions/1/state" not in created
    controlled.wait_until(controlled.is_whole)


def isr_changes_are_read_and_taken_away(controlled: ControlledCluster) -> None:
    """All ISR changes notified by leaders in this controllership and known to all brokers now."""
    ours = [each for each in written_since(controlled.cluster, 0) if each.session == controlled.controller.session]
    removed = {op.path for each in ours for op in each.ops if op.kind == DELETE and op.path.startswith(NOTIFICATIONS)}
    assert removed
    controlled.wait_until(lambda: controlled.kafka.client.get_children(NOTIFICATIONS) == [])
    known = {p: {*state.isr} for p, state in enumerate(controlled.states())}
    addresses = [broker.address for broker in controlled.cluster.brokers.values()]
    controlled.wait_until(
        lambda: all({p: {*seen[2]} for p, seen in topic_metadata(at, TOPIC).items()} == known for at in addresses)
    )


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
            log_lengths = {each: len(controlled.cluster.brokers[each].log_of_this_run()) for each in (0, 1, 2)}
            with running_controller(controlled.kafka, controlled.warehouse) as controller:
                controlled.controllers.append(controller)
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
    ours = [each for each in written_since(controlled.cluster, since) if each.session == controlled.controller.session]
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
        for number, each in enumerate(transactions)
        if any(op.kind == kind and op.path.endswith(ending) for op in each.ops)
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
    with controlled.controller.stopped():
        before = mark(controlled.kafka)
        end_session_of(controlled.kafka, controlled.controller)
        assert eventually(lambda: controller_id(controlled.kafka) in controlled.cluster.brokers, 60)
        allowed = {controlled.kafka.client.client_id[0], *_sessions(controlled)}
        controlled.kill(broker)
        controlled.wait_until(lambda: all(broker not in state.isr for state in controlled.states()))
    assert controlled.controller.process.wait(60) in {1, 20}
    controlled.restart(broker)
    controlled.wait_until(controlled.is_whole)

    written = written_since(controlled.cluster, before)
    assert {each.session for each in written} <= allowed | _sessions(controlled)
    assert controlled.controller.session not in {each.session for each in written}


def _sessions(controlled: ControlledCluster) -> set[int]:
    """Of the brokers that are registered."""
    ids = controlled.kafka.client.get_children("/brokers/ids")
    return {controlled.kafka.client.get(f"/brokers/ids/{broker}")[1].ephemeralOwner for broker in ids}
