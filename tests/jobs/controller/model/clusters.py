"""A small simulated cluster, one of many in one ZooKeeper, and the events of its scenario.

Each write and each request is checked for what must never happen: leaders outside of the ISR, epochs that decrease,
replicas removed before they were stopped, leaders for partitions whose state was lost. If brokers propose ISRs to the
controller, `isr_oracle` checks what it writes and answers. `invariants` checks what must hold once everything is quiet.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas.enums import NO_LEADER
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Key
from schemas.topic_configs import UNCLEAN_ELECTION
from schemas.znode_codecs import (
    Assignment,
    MalformedZnodeError,
    State,
    TopicPartition,
    decode_assignment,
    decode_config,
    decode_partitions,
    decode_state,
    encode_assignment,
    encode_config,
    encode_config_change,
    encode_partitions,
    encode_state,
)
from tests.jobs.controller.model.brokers import Shutdown, SimulatedBroker
from tests.jobs.controller.model.isr_oracle import IsrOracle, IsrWriterNow
from tests.jobs.controller.model.leaders import NO_ID, IsrRequest, Proposal
from tests.jobs.controller.model.network import MAX_BROKERS, Network
from tests.jobs.controller.model.scenarios import Event, Point, Scenario
from tests.jobs.controller.model.zookeeper import Tree, Write
from tests.jobs.support.zookeeper.kafka_tree import state_path

REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"
CONFIGS, CONFIG_CHANGES = "/config/topics", "/config/changes"


@dataclass
class SimulatedCluster:
    """One of many clusters; `log` is its history, `faults` are the violations found."""

    index: int
    scenario: Scenario
    tree: Tree
    network: Network
    oracle: IsrOracle
    ask: Callable[[IsrRequest], None] = lambda _: None
    """Sends a request of a broker to the controller."""
    brokers: dict[int, SimulatedBroker] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    turn_began_at: int = 0
    """The zxid at which the turn began: the controller may not have seen brokers that registered later."""
    last_turn_began_at: int = 0
    """The zxid at which the previous turn began: the controller has seen states that existed then."""
    allowed: set[str] = field(default_factory=set)
    """Topics that allowed unclean elections when the turn began: the controller may not have read later changes."""
    lost: set[Key] = field(default_factory=set)
    """Partitions whose state was removed or corrupted by an event; the controller must leave them alone."""
    shut_down: set[int] = field(default_factory=set)
    """Brokers whose controlled shutdown the present controller has granted."""
    is_taken_over: bool = False
    """Whether a controller is taking over, and has not read all states yet."""
    last_turn: int = 0
    """The last turn with a write or a request in this cluster."""

    def __post_init__(self) -> None:
        for local in range(self.scenario.brokers):
            broker = SimulatedBroker(self.index * MAX_BROKERS + local, self.tree, self.add_fault)
            self.brokers[broker.id] = self.network.brokers[broker.id] = broker

    def add_fault(self, fault: str) -> None:
        self.log.append(f"FAULT: {fault}")
        self.faults.append(fault)

    def topic(self, name: str) -> str:
        return f"i{self.index:05d}.{name}"

    def ids(self, local: Sequence[int]) -> list[int]:
        return [self.index * MAX_BROKERS + broker for broker in local]

    # what there is
    @property
    def topics(self) -> list[str]:
        prefix = self.topic("")
        return [name for name in self.tree.names("/brokers/topics") if name.startswith(prefix)]

    def assignment(self, topic: str) -> Assignment | None:
        data = self.tree.get(f"/brokers/topics/{topic}")
        return None if data is None else decode_assignment(data)

    def state(self, key: Key) -> tuple[State, int] | None:
        """Return a state and its version; None if there is none that can be decoded."""
        node = self.tree.nodes.get(state_path(*key))
        state = None if node is None else _legible(node.data)
        return None if node is None or state is None else (state, node.version)

    def allows_unclean(self, topic: str) -> bool:
        """Whether the settings of a topic allow unclean elections."""
        data = self.tree.get(f"{CONFIGS}/{topic}")
        return data is not None and decode_config(data).get(UNCLEAN_ELECTION) == "true"

    def is_queued(self, topic: str) -> bool:
        return f"/admin/delete_topics/{topic}" in self.tree.nodes

    def is_healthy(self, broker_id: int, key: Key) -> bool:
        """Whether a broker runs and has the log dir of a partition."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.process is not None and key not in broker.process.offline

    def is_up(self, broker_id: int) -> bool:
        """Whether a broker runs."""
        return broker_id in self.brokers and self.brokers[broker_id].process is not None

    def orders(self, path: str) -> Iterator[TopicPartition]:
        """Yield the requests for partitions of this cluster."""
        data = self.tree.get(path)
        prefix = self.topic("")
        yield from (order for order in decode_partitions(data) if order.topic.startswith(prefix)) if data else ()

    # events
    def set_up(self) -> None:
        """Start the brokers, and create the topics of the scenario, led and in sync."""
        for broker in self.brokers.values():
            broker.start()
        for name, partitions in self.scenario.topics.items():
            topic = self.topic(name)
            assigned = {number: self.ids(replicas) for number, replicas in partitions.items()}
            self.tree.put(f"/brokers/topics/{topic}", encode_assignment(Assignment(assigned, {}, {}, None)))
            for number, replicas in assigned.items():
                data = encode_state(State(controller_epoch=1, leader=replicas[0], leader_epoch=5, isr=replicas))
                self.tree.put(state_path(topic, number), data)
                for holder in replicas:
                    self.brokers[holder].logs.add((topic, number))

    def apply_events(self, round_number: int, point: Point) -> None:
        """Apply the events that the scenario has for this moment."""
        for event in self.scenario.events:
            if (event.round, event.point) == (round_number, point):
                self.apply(event)

    def apply(self, event: Event) -> None:
        self.log.append(str(event))
        getattr(self, f"_{event.kind}")(*event.args)

    def begin_turn(self) -> None:
        """Store what the controller may rely on in this turn."""
        self.last_turn_began_at, self.turn_began_at = self.turn_began_at, self.tree.zxid
        self.allowed = {topic for topic in self.topics if self.allows_unclean(topic)}

    def run_leaders(self) -> None:
        """Let leaders change ISRs and send notifications."""
        for broker in self.brokers.values():
            if not broker.stalled:
                broker.update_isrs(self.brokers)

    def heal(self) -> None:
        """Start what is down and end all disturbances, except for permanent ones."""
        self.log.append("calm")
        for local, broker in enumerate(self.brokers.values()):
            broker.stalled = broker.lags = broker.deaf = False
            broker.fails = 0
            if broker.process is not None and broker.process.shutdown is not None:
                self.log.append(f"calm: stop {local}")
                broker.stop()
            if broker.process is None and local not in self.scenario.stay_dead:
                self.log.append(f"calm: start {local}")
                broker.start()
            elif broker.process is not None and broker.process.lacks_dir and not self.scenario.stay_failed:
                self.log.append(f"calm: bounce {local}")
                self._bounce(local)

    def _broker(self, local: int) -> SimulatedBroker:
        return self.brokers[self.index * MAX_BROKERS + local]

    def _kill(self, local: int) -> None:
        if self._broker(local).process is not None:
            self._broker(local).stop()

    def _start(self, local: int) -> None:
        if self._broker(local).process is None:
            self._broker(local).start()

    def _bounce(self, local: int) -> None:
        self._kill(local)
        self._start(local)

    def _stall(self, local: int) -> None:
        self._broker(local).stalled ^= True

    def _fail(self, local: int, count: int, in_part: bool) -> None:  # noqa: FBT001 - an argument of an event
        broker = self._broker(local)
        broker.fails, broker.fails_in_part = count, in_part

    def _lag(self, local: int) -> None:
        self._broker(local).lags ^= True

    # events of brokers that propose ISRs to the controller
    def _deaf(self, local: int) -> None:
        self._broker(local).deaf ^= True

    def _lose_answers(self, local: int, count: int) -> None:
        process = self._broker(local).process
        if process is not None and process.manager is not None:
            process.manager.lost_answers = count

    def _shut_down(self, local: int) -> None:
        process = self._broker(local).process
        if process is not None and process.shutdown is None:
            process.shutdown = Shutdown()

    def _propose(self, local: int, seed: int) -> None:
        """Let a leader propose any of its replicas, also those that are dead, lag behind, or shut down."""
        random = Random(seed)  # noqa: S311 - no secret
        broker = self._broker(local)
        for key, replica in broker.led():
            if replica.pending is None and random.random() < 0.7:
                others = [other for other in replica.replicas if other != broker.id]
                chosen = random.sample(others, random.randint(0, len(others)))
                isr = [broker.id, *chosen]
                random.shuffle(isr)
                broker.propose(key, isr)

    def _overwrite(self, local: int) -> None:
        """Let a leader write its ISRs itself, as with inter.broker.protocol.version 2.6, and then propose others.

        Its notification comes with the next turn, so the controller knows earlier states than the leader.
        """
        broker = self._broker(local)
        for key, replica in broker.led():
            znode = self.state(key)
            if replica.pending is not None or znode is None or key in self.lost:
                continue
            isr = [broker.id, *(other for other in replica.isr if other != broker.id)]
            if broker.write_isr(key, replica, isr, znode[0].controller_epoch) and len(isr) > 1:
                broker.propose(key, [*isr[1:], broker.id])
        if broker.process is not None and broker.process.manager is not None:
            broker.process.manager.propose()

    def _repeat(self, local: int) -> None:
        """Deliver the last request once more, as after a lost answer; its leader ignores the answer."""
        process = self._broker(local).process
        isr_request = process.manager.finished if process is not None and process.manager is not None else None
        if isr_request is not None and isr_request.is_final:
            self.ask(
                IsrRequest(isr_request.broker, isr_request.broker_epoch, isr_request.version, isr_request.proposals)
            )

    def _forge(self, local: int, seed: int) -> None:
        """Send proposals that no controller may accept, about several partitions in one request."""
        random = Random(seed)  # noqa: S311 - no secret
        broker = self._broker(local)
        manager = None if broker.process is None else broker.process.manager
        keys = [key for topic in self.topics for key in self._keys(topic)]
        if broker.process is None or manager is None or not keys:
            return
        proposals = [self._forged(random, broker.id, key) for key in random.sample(keys, min(len(keys), 3))]
        isr_request = manager.isr_request((*proposals,))
        if random.random() < 0.2:
            isr_request.broker_epoch += random.choice((-1, 1_000_000))
        self.ask(isr_request)

    def _keys(self, topic: str) -> list[Key]:
        assignment = self.assignment(topic)
        return [(topic, partition) for partition in assignment.partitions] if assignment else []

    def _forged(self, random: Random, broker: int, key: Key) -> Proposal:
        znode, assignment = self.state(key), self.assignment(key[0])
        assert assignment is not None
        state, version = znode or (State(1, broker, 0, [broker]), 0)
        forged = Proposal(key, assignment.topic_id, state.leader_epoch, version, [*state.isr], may_change=False)
        stranger = self.index * MAX_BROKERS + MAX_BROKERS - 1
        match random.randrange(8):
            case 0:
                forged.leader_epoch -= 1
            case 1:
                forged.leader_epoch += 100
            case 2:
                forged.partition_epoch -= 1
                forged.isr = [*reversed(forged.isr), stranger]
            case 3:
                forged.partition_epoch += 100
            case 4:
                forged.isr = [*forged.isr, stranger]
            case 5:
                forged.isr = [*forged.isr, *forged.isr]
            case 6:
                forged.isr, forged.recovery = [*forged.isr, stranger], 1
            case _:
                forged.key = key[0], key[1] + 7
                if random.random() < 0.5:
                    forged.key, forged.topic_id = (self.topic("nothing"), 0), NO_ID
        return forged

    def _act(self) -> None:
        self.run_leaders()

    def _deliver(self) -> None:
        self.network.step(lambda broker: broker.id in self.brokers)

    def _create(self, name: str, partitions: dict[int, list[int]]) -> None:
        topic = self.topic(name)
        if self.tree.get(f"/brokers/topics/{topic}") is None and not self.is_queued(topic):
            assigned = {number: self.ids(replicas) for number, replicas in partitions.items()}
            self.tree.put(f"/brokers/topics/{topic}", encode_assignment(Assignment(assigned, {}, {}, None)))

    def _grow(self, name: str, replicas: list[int]) -> None:
        """Add a partition; also to a topic that is queued for deletion, as any client that writes the znode can."""
        topic = self.topic(name)
        before = self.assignment(topic)
        if before is not None:
            after = before.partitions | {len(before.partitions): self.ids(replicas)}
            whole = Assignment(after, before.adding_replicas, before.removing_replicas, before.topic_id)
            self.tree.put(f"/brokers/topics/{topic}", encode_assignment(whole))

    def _delete(self, name: str) -> None:
        self.tree.put(f"/admin/delete_topics/{self.topic(name)}")

    def _keep(self, name: str) -> None:
        """Withdraw the deletion of a topic, as operators do by hand; Kafka has no such request."""
        self.tree.remove(f"/admin/delete_topics/{self.topic(name)}")

    def _reassign(self, name: str, partition: int, replicas: list[int]) -> None:
        self._order(REASSIGN, TopicPartition(self.topic(name), partition, self.ids(replicas)))

    def _cancel(self, name: str, partition: int) -> None:
        """Request the replicas from before the reassignment in progress."""
        before = self.assignment(self.topic(name))
        if before is not None and partition in before.partitions:
            adding = before.adding_replicas.get(partition, [])
            origin = [broker for broker in before.partitions[partition] if broker not in adding]
            if origin:
                self._order(REASSIGN, TopicPartition(self.topic(name), partition, origin))

    def _junk(self) -> None:
        """Create empty requests and notifications, and one that cannot be decoded."""
        self.tree.put("/isr_change_notification/isr_change_", b"{illegible", sequence=True)
        self.tree.put("/log_dir_event_notification/log_dir_event_", b"", sequence=True)
        for path in (REASSIGN, ELECT):
            if path not in self.tree.nodes:
                self.tree.put(path, encode_partitions([]))

    def _elect(self, name: str, partition: int) -> None:
        self._order(ELECT, TopicPartition(self.topic(name), partition))

    def _order(self, path: str, order: TopicPartition) -> None:
        data = self.tree.get(path)
        kept = [
            stored
            for stored in (decode_partitions(data) if data else [])
            if (stored.topic, stored.partition) != (order.topic, order.partition)
        ]
        self.tree.put(path, encode_partitions([*kept, order]))

    def _fail_dir(self, local: int, of_three: int) -> None:
        broker = self._broker(local)
        if broker.process is not None:
            broker.fail_dir(key for key in broker.logs if (len(key[0]) + key[1]) % 3 == of_three)

    def _unclean(self, name: str, allowed: bool) -> None:  # noqa: FBT001 - an argument of an event
        """Allow a topic unclean elections or forbid them, with the notification that Kafka's tools write."""
        topic = self.topic(name)
        if topic in self.topics:
            self.tree.put(f"{CONFIGS}/{topic}", encode_config({UNCLEAN_ELECTION: str(allowed).lower()}))
            self.tree.put(f"{CONFIG_CHANGES}/config_change_", encode_config_change(f"topics/{topic}"), sequence=True)

    def _vanish(self, name: str, partition: int) -> None:
        """Remove the state of a partition that the controller has seen, which it has not during its take-over."""
        key = self.topic(name), partition
        node = self.tree.nodes.get(state_path(*key))
        if node is not None and node.czxid <= self.last_turn_began_at and not self.is_taken_over:
            self.lost.add(key)
            self.tree.remove(state_path(*key))

    def _garble(self, name: str, partition: int) -> None:
        """Corrupt the state of a partition, whether there was one before or not.

        Not a lost one: a znode that is removed and created again between the reading and the write has version 0 again,
        which ZooKeeper cannot distinguish from a state that was never changed.
        """
        key = self.topic(name), partition
        assignment = self.assignment(key[0])
        if assignment is None or partition not in assignment.partitions:
            return
        if key not in self.lost or state_path(*key) in self.tree.nodes:
            self.lost.add(key)
            self.tree.put(state_path(*key), b"{illegible")

    def move_a_replica(self) -> bool:
        """Move a replica to another broker, once all is quiet; return whether one can be moved.

        The other broker lags behind until `catch_up`.
        """
        if not self.scenario.moves_at_end:
            return False
        live = [broker.id for broker in self.brokers.values() if broker.process and not broker.process.lacks_dir]
        for topic in self.topics:
            assignment = self.assignment(topic)
            for number, replicas in assignment.partitions.items() if assignment and not self.is_queued(topic) else ():
                free = [broker for broker in live if broker not in replicas]
                is_whole = (topic, number) not in self.lost and {*replicas} <= {*live}
                if (
                    assignment
                    and is_whole
                    and free
                    and not assignment.adding_replicas
                    and not assignment.removing_replicas
                ):
                    self.log.append(f"quiet: move {topic}-{number} to {free[0]}, which lags")
                    self.brokers[free[0]].lags = True
                    self._order(REASSIGN, TopicPartition(topic, number, [*replicas[1:], free[0]]))
                    return True
        return False

    def catch_up(self) -> bool:
        """End all lags, once all is quiet; return whether there were any.

        Nothing else is due then in this cluster, so only the ISR that the leader changes makes a move go on.
        """
        lagging = [broker for broker in self.brokers.values() if broker.lags]
        for broker in lagging:
            self.log.append(f"quiet: {broker.id} catches up")
            broker.lags = False
        return bool(lagging)

    # checks at each write and request
    def check_write(self, write: Write, writer: IsrWriterNow | None = None) -> None:
        """Check a write to one of its topics.

        `writer`: the ISR writer, if it has written this.
        """
        parts = write.path.split("/")
        if parts[-1] == "state":
            self.log.append(f"  {_writer(write)} {parts[3]}-{parts[5]}: {_text(write.before)} -> {_text(write.after)}")
            self._check_state((parts[3], int(parts[5])), write, writer)
        elif len(parts) == 4:
            self.log.append(f"  {_writer(write)} {parts[3]}: {_text(write.before)} -> {_text(write.after)}")
            if write.session and write.before:
                self._check_topic(parts[3], decode_assignment(write.before), write.after)
            if write.after is None:
                self.lost = {key for key in self.lost if key[0] != parts[3]}

    def _check_state(self, key: Key, write: Write, writer: IsrWriterNow | None) -> None:
        if write.after is None:
            if write.session and not self.is_queued(key[0]):
                self.add_fault(f"the state of {key} is deleted, but its topic is not queued for deletion")
            return
        if key in self.lost:
            if write.session:
                self.add_fault(f"{key} is given a state, although its own was lost or corrupt: {_text(write.after)}")
            elif _legible(write.after) is not None:
                # a running leader keeps its own state, and writes it if the version is the one it knows
                self.lost.discard(key)
            return
        self._check_values(key, write, writer)

    def _check_values(self, key: Key, write: Write, writer: IsrWriterNow | None) -> None:  # noqa: C901 - a line for each
        after = decode_state(write.after)
        if after.leader != NO_LEADER and after.leader not in after.isr:
            self.add_fault(f"{key}: leader {after.leader} is not in the ISR {after.isr}")
        if write.before is None:
            if after.leader_epoch != 0:
                self.add_fault(f"{key} starts at leader epoch {after.leader_epoch}")
            return
        before = decode_state(write.before)
        if after.leader_epoch < before.leader_epoch or after.controller_epoch < before.controller_epoch:
            self.add_fault(f"{key}: an epoch decreases: {before} -> {after}")
        if not write.session:
            return
        if writer is not None:
            for fault in self.oracle.check_write(key, writer, before, after):
                self.add_fault(fault)
            return
        if after.leader != before.leader and after.leader in self.shut_down:
            # the last resort, as with a drained broker; when a move ends, replicas that leave cannot lead, as in Kafka
            absent = {*self._leaving(key), *self.shut_down}
            others = [b for b in before.isr if b not in absent and self._could_lead(b, key)]
            if others:
                self.add_fault(f"{key}: {after.leader} shuts down and leads, but {others} could: {before} -> {after}")
        if after.leader_epoch != before.leader_epoch + 1:
            self.add_fault(f"{key}: the controller does not raise the leader epoch by one: {before} -> {after}")
        if not set(after.isr) <= set(before.isr) and not self._is_allowed_unclean(key, before, after):
            self.add_fault(f"{key}: the controller adds a replica to the ISR: {before} -> {after}")

    def _leaving(self, key: Key) -> list[int]:
        assignment = self.assignment(key[0])
        return assignment.removing_replicas.get(key[1], []) if assignment else []

    def _is_allowed_unclean(self, key: Key, before: State, after: State) -> bool:
        """Whether an unclean election was allowed.

        The topic must allow it, the new leader must be alone in the ISR, and no former member may be healthy.
        """
        allowed = key[0] in self.allowed or self.allows_unclean(key[0])
        return (
            allowed and after.isr == [after.leader] and not any(self.is_healthy(member, key) for member in before.isr)
        )

    def _check_topic(self, topic: str, before: Assignment, data: bytes | None) -> None:
        after = None if data is None else decode_assignment(data)
        if after is not None and after.partitions.keys() != before.partitions.keys():
            self.add_fault(f"{topic}: the controller adds or removes partitions")
        for number, replicas in before.partitions.items():
            left = set(replicas) - set(after.partitions.get(number, ()) if after else ())
            for broker in sorted(left):
                if self._could_stop(broker, (topic, number)) and (topic, number) in self.brokers[broker].logs:
                    self.add_fault(f"{topic}-{number}: replica {broker} is removed before its log is deleted")

    def _could_stop(self, broker_id: int, key: Key) -> bool:
        process = self.brokers[broker_id].process if broker_id in self.brokers else None
        return process is not None and key not in process.offline and process.epoch <= self.turn_began_at

    def _could_lead(self, broker_id: int, key: Key) -> bool:
        """Whether the controller must know that a broker is live, and has not failed lately."""
        return self._could_stop(broker_id, key) and not self.oracle.has_bounced(broker_id, -1)

    def check_request(self, broker: SimulatedBroker, api: str, notice: Notice) -> None:
        """Check a request to a broker."""
        key = notice.topic, notice.partition
        if api != UPDATE_METADATA or notice.leader < NO_LEADER:
            self.log.append(f"  {broker.id} receives {api} {_notice(notice)}")
        state = self.state(key)
        if api == LEADER_AND_ISR and state is not None and notice.leader_epoch > state[0].leader_epoch:
            self.add_fault(f"{broker.id} is sent leader epoch {notice.leader_epoch} of {key}, which is not written")
        known = notice.leader, notice.leader_epoch, notice.isr, notice.state_version
        if api != STOP_REPLICA and notice.leader >= NO_LEADER and not self.oracle.was_written(key, *known):
            self.add_fault(f"{broker.id} is sent a state of {key} that was never written: {api} {_notice(notice)}")


def _legible(data: bytes | None) -> State | None:
    try:
        return decode_state(data)
    except MalformedZnodeError:
        return None


def _writer(write: Write) -> str:
    return f"session {write.session} writes" if write.session else "written:"


def _text(data: bytes | None) -> str:
    if data is None:
        return "none"
    text = data.decode().replace('"', "").replace("controller_epoch", "ce").replace("leader_epoch", "le")
    return text.replace("version:1,", "").replace("version:3,", "")


def _notice(notice: Notice) -> str:
    deletes = ", and delete" if notice.delete_partition else ""
    content: dict[str, Any] = {
        "leader": notice.leader,
        "le": notice.leader_epoch,
        "isr": notice.isr,
        "replicas": notice.replicas,
        "version": notice.state_version,
    }
    words = ", ".join(f"{name} {value}" for name, value in content.items())
    return f"{notice.topic}-{notice.partition}: {words}{', new' * notice.is_new}{deletes}"
