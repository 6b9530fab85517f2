"""Acts of the life of a cluster under `surveyor control`: what befalls brokers, moves, deletions and the controller.

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
    controller,
    end_session_of,
    in_office,
    mark,
    nobody_in_office,
    written_since,
)
from tests.jobs.support.kafka.controlled_cluster import DELETIONS, PARTITIONS, REASSIGN, TOPIC, ControlledCluster
from tests.jobs.support.kafka.real_cluster import eventually, seen_by
from tests.jobs.torture.zookeeper_log import CREATE, DELETE, SET, Op, Transaction

NOTIFICATIONS = "/isr_change_notification/"
HANDLED = re.compile(rf"Handling LeaderAndIsr request correlationId \d+ from controller {OURS} for (\d+) partitions")


def a_topic_is_created_by_its_first_record(life: ControlledCluster) -> None:
    """A broker writes the topic (auto.create.topics.enable), the controller gives it its leader.

    Its only replica is wherever that broker put it, so it goes again: a drain of that broker would be refused.
    """
    assert life.takes_records("auto")

    assert life.kafka.state("auto").controller_epoch == life.office.epoch
    life.delete("auto")
    life.soon(lambda: life.is_deleted("auto"))


def a_broker_bounces_in_one_look(life: ControlledCluster, broker: int) -> None:
    """It is gone and back while the controller does not look: who led and followed there is written as after a failure.

    Its session ends, and it registers again at once.
    """
    path, before = f"/brokers/ids/{broker}", mark(life.kafka)
    registered = life.kafka.client.get(path)[1].czxid
    led = {p for p in PARTITIONS if life.kafka.state(TOPIC, p).leader == broker}
    held = {p for p in PARTITIONS if broker in life.kafka.state(TOPIC, p).isr}
    assert led
    with life.office.stopped():
        life.cluster.brokers[broker].expire()
        assert eventually(lambda: _czxid(life, path) not in {None, registered}, 8)

    life.soon(lambda: {p for p, _ in _removals(life, before, broker)} == held)
    assert {p for p, state in _removals(life, before, broker) if state.leader != broker} >= led
    life.soon(life.is_whole)


def _czxid(life: ControlledCluster, path: str) -> int | None:
    stat = life.kafka.client.exists(path)
    return None if stat is None else stat.czxid


def _removals(life: ControlledCluster, since: int, broker: int) -> Iterator[tuple[int, State]]:
    """Partitions of the topic that the controller took a broker out of the ISR of, with what it wrote."""
    for each in written_since(life.cluster, since):
        for op in each.ops if each.session == life.office.session else ():
            if op.kind == SET and op.path.startswith(f"/brokers/topics/{TOPIC}/") and op.path.endswith("/state"):
                state = decode_state(op.data)
                if broker not in state.isr:
                    yield int(op.path.split("/")[-2]), state


def leaders_since(life: ControlledCluster, since: int, topic: str, partition: int) -> list[int]:
    """Who came to lead a partition, one after another."""
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    written = (op for each in written_since(life.cluster, since) for op in each.ops if op.path == path)
    leaders = [decode_state(op.data).leader for op in written if op.kind == SET]
    return [leader for leader, before in zip(leaders, [None, *leaders], strict=False) if leader != before]


def a_broker_joins_and_the_seeds_move_goes_to_it(life: ControlledCluster) -> None:
    """[1,2,3] -> [3,4,5], the seeds' example, one less each: its steps are four writes, and nothing else."""
    joined = life.cluster.add_broker(4)
    everything = set(life.kafka.client.get_children("/brokers/topics"))
    life.soon(lambda: set(AdminClient({"bootstrap.servers": joined.address}).list_topics().topics) >= everything)
    others = [life.cluster.brokers[broker].address for broker in range(4)]
    life.soon(lambda: all(4 in AdminClient({"bootstrap.servers": each}).list_topics().brokers for each in others))
    life.create("seed", {0: [0, 1, 2]})
    life.soon(lambda: len(life.kafka.state("seed").isr) == 3)

    before, epoch = mark(life.kafka), life.kafka.state("seed").leader_epoch
    life.ask_to_move("seed", {0: [2, 3, 4]})
    life.soon(lambda: life.kafka.client.exists(REASSIGN) is None)

    assert list(_steps(life, before, "seed", epoch)) == [
        {"assigned": ([2, 3, 4, 0, 1], [3, 4], [0, 1]), "state": (0, {0, 1, 2}, 1)},
        {"by the leader": (0, {0, 1, 2, 3, 4}, 1)},
        {"state": (2, {2, 3, 4}, 2)},
        {"assigned": ([2, 3, 4], [], []), "state": (2, {2, 3, 4}, 3)},
        {"request": "deleted"},
    ]
    assert [life.log_names(broker, "seed") for broker in life.cluster.brokers] == [[], [], *[["seed-0"]] * 3]
    life.delete("seed")
    life.soon(lambda: life.is_deleted("seed"))
    life.kill(4)
    del life.cluster.brokers[4]


def _steps(life: ControlledCluster, since: int, topic: str, epoch: int) -> Iterator[dict[str, object]]:
    """What a move wrote, multi by multi; of ISRs that the leader writes one after another, the last."""
    grown: dict[str, object] = {}
    for each in written_since(life.cluster, since):
        ours = each.session == life.office.session
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


def a_broker_is_silent_then_dead_then_back(life: ControlledCluster, broker: int) -> None:
    """What concerns it waits for it and goes on when it is back; what does not concern it does not wait."""
    before = mark(life.kafka)
    life.create("moves", {p: [0, 1] for p in range(3)})
    life.create("old", {0: [0, broker]})
    with life.silent(broker):
        life.ask_to_move("moves", {p: [0, broker] for p in range(3)})
        life.soon(lambda: life.assigned("moves").adding_replicas == {p: [broker] for p in range(3)})
        life.by_hand("meanwhile", {0: [0, 1]})  # it does not respond to requests, and nothing waits for it
        life.soon(lambda: 0 in seen_by(life.cluster.brokers[0].address, "meanwhile"), 20)
        assert life.takes_records("meanwhile")

        life.ask_to_move("moves", {0: [0, broker], 1: [1, 2], 2: [0, 1]})  # goes on, is overridden, is cancelled
        life.soon(lambda: life.assigned("moves").removing_replicas.get(2) == [broker])
        life.kill(broker)

    life.soon(lambda: life.asked_to_move() == {0})
    moves = life.assigned("moves")
    assert (moves.partitions[1], moves.partitions[2], moves.adding_replicas) == ([1, 2], [0, 1], {0: [broker]})

    life.by_hand("leaderless", {0: [broker]})
    life.delete("old")
    life.by_hand("old", {0: [0, broker], 1: [1, 0]})  # partitions added to what is to be deleted
    life.by_hand("later", {0: [1, 0]})
    life.soon(lambda: life.has_state("later"))  # so what was asked for before it has been looked at
    assert not life.has_state("leaderless")
    assert life.kafka.client.get_children(DELETIONS) == ["old"]
    assert life.kafka.state("moves").isr == [0, 1]

    life.restart(broker)
    life.soon(lambda: life.has_state("leaderless") and life.kafka.state("leaderless").leader == broker)
    assert life.takes_records("leaderless")
    life.soon(lambda: life.is_deleted("old"))
    life.soon(lambda: life.kafka.client.exists(REASSIGN) is None)
    assert life.assigned("moves").partitions == {0: [0, broker], 1: [1, 2], 2: [0, 1]}
    created = {op.path for each in written_since(life.cluster, before) for op in each.ops if op.kind == CREATE}
    assert "/brokers/topics/old/partitions/0/state" in created
    assert "/brokers/topics/old/partitions/1/state" not in created
    life.soon(life.is_whole)


def isr_changes_are_read_and_taken_away(life: ControlledCluster) -> None:
    """All ISR changes notified by leaders in this controllership and known to all brokers now."""
    ours = [each for each in written_since(life.cluster, 0) if each.session == life.office.session]
    removed = {op.path for each in ours for op in each.ops if op.kind == DELETE and op.path.startswith(NOTIFICATIONS)}
    assert removed
    life.soon(lambda: life.kafka.client.get_children(NOTIFICATIONS) == [])
    known = {p: {*state.isr} for p, state in enumerate(life.states())}
    addresses = [broker.address for broker in life.cluster.brokers.values()]
    life.soon(lambda: all({p: {*seen[2]} for p, seen in seen_by(at, TOPIC).items()} == known for at in addresses))


@contextmanager
def it_is_killed_and_the_next_one_goes_on(life: ControlledCluster, broker: int) -> Iterator[None]:
    """Killed in the midst of a deletion; the next one announces everything, then elects, balances and deletes."""
    life.create("cut", {0: [0, broker], 1: [broker, 0]})
    with life.silent(broker):
        life.delete("cut")
        life.soon(lambda: not life.logs(0, "cut"))
        life.office.kill()
        with nobody_in_office(life.kafka):
            assert life.kafka.client.exists("/brokers/topics/cut")
            life.kill(broker)
            stale = encode_partitions([TopicPartition(TOPIC, 0)])
            notified = life.kafka.client.create(f"{NOTIFICATIONS}isr_change_", stale, sequence=True)
            leaderless = [p for p, state in enumerate(life.states()) if state.leader == broker]
            assert leaderless
            before = mark(life.kafka)
            heard = {each: len(life.cluster.brokers[each].log_of_this_run()) for each in (0, 1, 2)}
            with in_office(life.kafka, life.warehouse) as office:
                life.offices.append(office)
                life.soon(lambda: all(life.kafka.state(TOPIC, p).leader != broker for p in leaderless))
                _everything_was_announced_before_elections(life, before, notified, heard)
                life.restart(broker)
                life.soon(lambda: life.is_deleted("cut"))
                life.soon(life.is_whole)
                yield


def _everything_was_announced_before_elections(
    life: ControlledCluster, since: int, notified: str, heard: dict[int, int]
) -> None:
    """By ZooKeeper: office, old notifications, elections; by brokers: what they are told first is all they hold.

    `heard` is how long their logs were before the take-over.
    """
    ours = [each for each in written_since(life.cluster, since) if each.session == life.office.session]
    order = [_first(ours, "/controller_epoch", SET), _first(ours, notified, DELETE), _first(ours, "/state", SET)]
    assert order == sorted(order), order
    topics = set(life.kafka.client.get_children("/brokers/topics")) - {"cut"}
    placed = [replicas for topic in topics for replicas in life.assigned(topic).partitions.values()]
    for broker, length in heard.items():
        told = [*map(int, HANDLED.findall(life.cluster.brokers[broker].log_of_this_run()[length:]))]
        assert told[0] == sum(broker in replicas for replicas in placed), told


def _first(transactions: list[Transaction], ending: str, kind: int) -> int:
    return next(
        number
        for number, each in enumerate(transactions)
        if any(op.kind == kind and op.path.endswith(ending) for op in each.ops)
    )


def leaders_are_balanced_when_that_is_due(life: ControlledCluster, broker: int) -> None:
    """The first check is some seconds after the take-over and needs no request (auto.leader.rebalance.enable)."""
    preferring = {p for p, replicas in life.assigned(TOPIC).partitions.items() if replicas[0] == broker}
    assert preferring
    life.soon(lambda: {p for p, state in enumerate(life.states()) if state.leader == broker} >= preferring)
    assert {life.kafka.state(TOPIC, p).controller_epoch for p in preferring} == {life.office.epoch}


def it_is_stopped_longer_than_its_session(life: ControlledCluster, broker: int) -> None:
    """A broker dies meanwhile and another controller sees to it; when it goes on it writes nothing, and ends."""
    with life.office.stopped():
        before = mark(life.kafka)
        end_session_of(life.kafka, life.office)
        assert eventually(lambda: controller(life.kafka) in life.cluster.brokers, 60)
        allowed = {life.kafka.client.client_id[0], *_sessions(life)}
        life.kill(broker)
        life.soon(lambda: all(broker not in state.isr for state in life.states()))
    assert life.office.process.wait(60) in {1, 20}
    life.restart(broker)
    life.soon(life.is_whole)

    written = written_since(life.cluster, before)
    assert {each.session for each in written} <= allowed | _sessions(life)
    assert life.office.session not in {each.session for each in written}


def _sessions(life: ControlledCluster) -> set[int]:
    """Of the brokers that are registered."""
    ids = life.kafka.client.get_children("/brokers/ids")
    return {life.kafka.client.get(f"/brokers/ids/{broker}")[1].ephemeralOwner for broker in ids}
