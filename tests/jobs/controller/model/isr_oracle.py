"""What Kafka's controller answers to AlterPartition and ControlledShutdown, computed from the history of ZooKeeper.

Independent of the controller's code: `kafka_error` has the checks of `KafkaController.tryProcessAlterPartition` (3.9)
in their order, and those that decision record 028 adds. A request is answered by some state between its arrival and its
answer, and by registrations of which the controller may have read an earlier one. So several error codes are possible
while a broker has just come or gone; `determined` and `undetermined` count both cases.
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

from schemas.rows import Key
from schemas.znode_codecs import Assignment, MalformedZnodeError, State, decode_assignment, decode_state
from tests.jobs.controller.model.leaders import (
    FENCED_LEADER,
    IDS_SINCE,
    INELIGIBLE,
    INVALID_REQUEST,
    INVALID_VERSION,
    NONE,
    NOT_ATTEMPTED,
    NOT_CONTROLLER,
    STALE_BROKER,
    UNKNOWN_PARTITION,
    UNKNOWN_TOPIC_ID,
    IsrRequest,
    PartitionResponse,
    Proposal,
)
from tests.jobs.controller.model.zookeeper import Tree, Write
from tests.jobs.support.zookeeper.kafka_tree import state_path

INELIGIBLE_SINCE: Final = 2
MAX_CONTENTION: Final = 3
"""Multis of the ISR writer that may fail before a leader is asked to propose again."""

BROKER_NOT_AVAILABLE, STALE_CONTROLLER = 8, 11


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A state of a partition: None if it cannot be decoded."""

    state: State | None
    version: int


T = TypeVar("T")


@dataclass(slots=True)
class Timeline(Generic[T]):
    """The values of a thing, each with the zxid since which it is so; None while it does not exist."""

    values: list[tuple[int, T | None]] = field(default_factory=lambda: [(-1, None)])

    def add(self, zxid: int, value: T | None) -> None:
        self.values.append((zxid, value))

    def since(self, zxid: int) -> list[T | None]:
        """Return the value at a time, and all later ones."""
        first = max(index for index, (at, _) in enumerate(self.values) if at <= zxid)
        return [value for _, value in self.values[first:]]

    def all(self) -> Iterator[T]:
        yield from (value for _, value in self.values if value is not None)


@dataclass(frozen=True, slots=True)
class Window:
    """From when on what the controller answers by may be."""

    asked: int
    """The zxid at which the request arrived."""
    known: int
    """The zxid up to which the controller has certainly read everything that it watches."""
    bounced: int
    """The zxid since which a broker that registered again may look like a failed one."""
    troubles: int
    """Troubles of the controller until then: lost connections, other controllers, the end of its session."""
    multis: int
    """Multis of the ISR writer until then."""


@dataclass(frozen=True, slots=True)
class IsrWriterNow:
    """The ISR writer that writes now."""

    epoch: int
    """Its controller epoch."""
    stopping: frozenset[int]
    """Brokers whose controlled shutdown its controller has granted."""


def kafka_error(  # noqa: PLR0911 - a line for each error
    isr_request: IsrRequest, proposal: Proposal, now: StateVersion | None, replicas: Collection[int], *, all_live: bool
) -> int:
    """Return the error code for a proposal at a state; `all_live`: whether its members may be in an ISR."""
    if now is None:
        return UNKNOWN_PARTITION
    state, isr, broker = now.state, proposal.isr, isr_request.broker
    if state is None:
        return NOT_ATTEMPTED
    recovery = state.leader_recovery_state or 0
    if proposal.partition_epoch > now.version or proposal.leader_epoch > state.leader_epoch:
        return NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return FENCED_LEADER
    if (broker, isr, proposal.recovery) == (state.leader, state.isr, recovery):
        return NONE
    if proposal.partition_epoch < now.version:
        return INVALID_VERSION
    if proposal.recovery == 1 and (len(isr) > 1 or recovery == 0):
        return INVALID_REQUEST
    is_foreign = broker != state.leader or broker not in isr or not {*isr} <= {*replicas, *state.isr}
    if is_foreign or len({*isr}) < len(isr):
        return INVALID_REQUEST
    return NONE if all_live else (INELIGIBLE if isr_request.version >= INELIGIBLE_SINCE else NOT_ATTEMPTED)


@dataclass(slots=True)
class IsrOracle:
    """The history of ZooKeeper, and all that was asked."""

    tree: Tree
    states: dict[Key, Timeline[StateVersion]] = field(default_factory=lambda: defaultdict(Timeline))
    brokers: dict[int, Timeline[int]] = field(default_factory=lambda: defaultdict(Timeline))
    topics: dict[str, Timeline[Assignment]] = field(default_factory=lambda: defaultdict(Timeline))
    proposals: dict[Key, list[Proposal]] = field(default_factory=lambda: defaultdict(list))
    askers: dict[int, int] = field(default_factory=dict)
    """By the identity of a proposal, the broker that made it."""
    turns: list[int] = field(default_factory=list)
    """The zxid at which each turn began."""
    codes: Counter[int] = field(default_factory=Counter)
    """How often each error code was answered."""

    def record(self, writes: Sequence[Write]) -> None:
        """Note what was written."""
        for write in writes:
            parts, zxid = write.path.split("/"), self.tree.zxid
            if write.path.startswith("/brokers/ids/"):
                node = self.tree.nodes.get(write.path)
                self.brokers[int(parts[3])].add(zxid, None if node is None else node.czxid)
            elif write.path.startswith("/brokers/topics/") and len(parts) == 4:
                after = None if write.after is None else decode_assignment(write.after)
                self.topics[parts[3]].add(zxid, after)
            elif parts[-1] == "state":
                key = parts[3], int(parts[5])
                self.states[key].add(zxid, None if write.after is None else self._state(key, write.after))

    def _state(self, key: Key, data: bytes) -> StateVersion:
        version = self.tree.nodes[state_path(*key)].version
        try:
            return StateVersion(decode_state(data), version)
        except MalformedZnodeError:
            return StateVersion(None, version)

    def ask(self, isr_request: IsrRequest, controller: IsrWriterNow) -> None:
        """Note that a request was sent to a controller."""
        for proposal in isr_request.proposals:
            proposal.stopping.setdefault(controller.epoch, controller.stopping)
            if id(proposal) not in self.askers:
                self.askers[id(proposal)] = isr_request.broker
                self.proposals[proposal.key].append(proposal)

    # AlterPartition
    def check_write(self, key: Key, writer: IsrWriterNow, before: State, after: State) -> Iterator[str]:
        """Yield what is wrong with a state that an ISR writer wrote just now."""
        version = self.tree.nodes[state_path(*key)].version - 1
        wanted = [
            proposal
            for proposal in self.proposals[key]
            if proposal.may_change
            and (proposal.leader_epoch, proposal.partition_epoch) == (before.leader_epoch, version)
            and (proposal.isr, proposal.recovery) == (after.isr, after.leader_recovery_state or 0)
            and self.askers[id(proposal)] == before.leader
        ]
        if not wanted:
            yield f"{key}: no leader has proposed {after} after {before} at version {version}"
            return
        wanted[-1].changes += 1
        if wanted[-1].changes > 1:
            yield f"{key}: the same proposal is written again: {wanted[-1]}"
        if (after.leader, after.leader_epoch) != (before.leader, before.leader_epoch):
            yield f"{key}: an AlterPartition changes the leader: {before} -> {after}"
        if after.controller_epoch != writer.epoch:
            yield f"{key}: an AlterPartition is written at {after.controller_epoch}, not at epoch {writer.epoch}"
        joining = [broker for broker in after.isr if broker not in before.isr]
        absent = [broker for broker in joining if self.brokers[broker].values[-1][1] is None]
        if absent:
            yield f"{key}: brokers that are not registered join the ISR: {absent}"
        stopping = writer.stopping & wanted[-1].stopping.get(writer.epoch, frozenset())
        if not stopping.isdisjoint(joining):
            yield f"{key}: brokers join the ISR that shut down before it was proposed: {joining}, of {sorted(stopping)}"

    def check_answer(  # noqa: PLR0913 - what is known of the controller
        self,
        isr_request: IsrRequest,
        window: Window,
        multis: int,
        shutting: Mapping[int, bool],
        response: Any,  # noqa: ANN401 - of kio
        *,
        is_troubled: bool,
    ) -> Iterator[str]:
        """Yield what is wrong with a response that was given just now.

        `multis`: those of the ISR writer until now. `shutting`: brokers that ask for a controlled shutdown, and whether
        one was granted before the request arrived. `is_troubled`: whether the controller has lost its connection since
        the request arrived, or has been replaced.
        """
        code = int(response.error_code)
        epochs = self.brokers[isr_request.broker].since(window.known)
        if code == NOT_CONTROLLER and is_troubled:
            return
        if code == STALE_BROKER and any(epoch != isr_request.broker_epoch for epoch in epochs):
            return
        if code or isr_request.broker_epoch not in epochs:
            broker = isr_request.broker
            yield f"AlterPartition of {broker} gets error {code}; its registrations are {epochs}: {isr_request}"
            return
        for proposal, answer in isr_request.answers(response):
            self.codes[answer.code] += 1
            if is_troubled and answer.code == NONE and self._was_so(proposal, answer, window):
                continue  # a controller that does not know yet that it was replaced; its answer changes nothing
            expected = self._expected(isr_request, proposal, window, shutting)
            has_failed = multis - window.multis >= MAX_CONTENTION
            has_contention = answer.code == NOT_ATTEMPTED and NONE in expected and has_failed
            if answer.code not in expected and not has_contention:
                yield (
                    f"{isr_request.broker} gets error {answer.code} for {proposal}, expected is one of {expected}; "
                    f"states are {self.states[proposal.key].since(window.asked)}"
                )
            if answer.code == NONE:
                yield from self._check_success(proposal, answer, window)

    def _expected(
        self, isr_request: IsrRequest, proposal: Proposal, window: Window, shutting: Mapping[int, bool]
    ) -> set[int]:
        topic, partition = proposal.key
        assignments = self.topics[topic].since(window.known)
        expected = set[int]()
        if isr_request.version >= IDS_SINCE:
            known = {
                None if assignment is None else assignment.topic_id == proposal.topic_id for assignment in assignments
            }
            expected |= {UNKNOWN_TOPIC_ID} if known - {True} else set()
            if True not in known:
                return expected
        has_partition = {assignment is not None and partition in assignment.partitions for assignment in assignments}
        expected |= {UNKNOWN_PARTITION} if False in has_partition else set()
        if True not in has_partition:
            return expected
        replicas = {
            b for assignment in assignments if assignment is not None for b in assignment.partitions.get(partition, ())
        }
        live = [self._may_be_live(broker, window, shutting) for broker in proposal.isr]
        for all_live in (True, False):
            is_possible = (
                all(True in possible for possible in live) if all_live else any(False in possible for possible in live)
            )
            if is_possible or not proposal.isr:
                expected |= {
                    kafka_error(isr_request, proposal, now, replicas, all_live=all_live)
                    for now in self._possible_states(proposal.key, window.asked)
                }
        return expected

    def _possible_states(self, key: Key, asked: int) -> Iterator[StateVersion | None]:
        """Yield the states by which a request may be answered.

        A state that was corrupted or removed may not have been read since: it is watched by no controller.
        """
        states = self.states[key].since(asked)
        yield from states
        if any(state is None or state.state is None for state in states):
            yield from [state for state in self.states[key].all() if state.state is not None][-1:]

    def _may_be_live(self, broker: int, window: Window, shutting: Mapping[int, bool]) -> set[bool]:
        """Return whether a broker may be in an ISR by what the controller may know: both if that is not determined."""
        epochs = self.brokers[broker].since(window.known)
        if shutting.get(broker):
            return {False}
        may = {epoch is not None for epoch in epochs}
        return may | {False} if broker in shutting or self.has_bounced(broker, window.bounced) else may

    def has_bounced(self, broker: int, since: int) -> bool:
        """Whether a broker has registered again so soon that its failure may not have been written before."""
        values = self.brokers[broker].values
        for (gone_at, gone), (back_at, _) in pairwise(values[1:]):
            if gone is None and back_at > since:
                turn = bisect(self.turns, back_at) - 1
                if gone_at >= self.turns[max(0, turn - 1)]:
                    return True
        return False

    def _was_so(self, proposal: Proposal, answer: PartitionResponse, window: Window) -> bool:
        """Whether a controller may have known a partition to be as proposed, and its response says that."""
        known = (answer.leader, answer.leader_epoch, [*answer.isr], answer.partition_epoch)
        return answer.leader_epoch == proposal.leader_epoch and any(
            state is not None
            and state.state is not None
            and (state.state.leader, state.state.leader_epoch, state.state.isr, state.version) == known
            and state.state.isr == proposal.isr
            for state in self.states[proposal.key].since(window.known)
        )

    def _check_success(self, proposal: Proposal, answer: PartitionResponse, window: Window) -> Iterator[str]:
        written = [
            state
            for state in self._possible_states(proposal.key, window.asked)
            if state is not None and state.version == answer.partition_epoch
        ]
        if not written or written[-1].state is None:
            yield f"{proposal} is acknowledged as version {answer.partition_epoch}, which is no state: {answer}"
            return
        state = written[-1].state
        if (answer.leader, answer.leader_epoch, [*answer.isr]) != (state.leader, state.leader_epoch, state.isr):
            yield f"{proposal} is acknowledged by {answer}, and written is {state}"
        if state.isr != proposal.isr:
            yield f"{proposal} is acknowledged, and written is {state}"

    # ControlledShutdown
    def check_shutdown(
        self,
        broker: int,
        epoch: int,
        window: Window,
        response: Any,  # noqa: ANN401 - of kio
        *,
        is_troubled: bool,
    ) -> Iterator[str]:
        """Yield what is wrong with the answer to a controlled shutdown, which was given just now."""
        code, epochs = int(response.error_code), self.brokers[broker].since(window.known)
        possible = {
            BROKER_NOT_AVAILABLE if known_epoch is None else NONE if known_epoch == epoch else STALE_BROKER
            for known_epoch in epochs
        }
        if is_troubled:
            possible.add(STALE_CONTROLLER)
        if code not in possible:
            yield f"ControlledShutdown of {broker} gets error {code}, expected is one of {possible}"
        if code != NONE:
            return
        led = {
            key
            for key, timeline in self.states.items()
            if (now := timeline.values[-1][1]) is not None and now.state is not None and now.state.leader == broker
        }
        replicated = {
            (topic, partition)
            for topic, partition in led
            if (of_topic := self.topics[topic].values[-1][1]) is not None
            and len(of_topic.partitions.get(partition, ())) > 1
        }
        unreadable = {key for key, timeline in self.states.items() if _is_lost(timeline.values[-1][1])}
        remaining = {
            (partition.topic_name, partition.partition_index) for partition in response.remaining_partitions
        } - unreadable
        if remaining != replicated:
            yield f"ControlledShutdown of {broker}: {remaining} remain, but it leads {replicated}"

    # what is sent
    def was_written(self, key: Key, leader: int, leader_epoch: int, isr: Sequence[int], version: int) -> bool:
        """Return whether a partition had this state at this version."""
        return any(
            state.version == version
            and state.state is not None
            and (state.state.leader, state.state.leader_epoch, state.state.isr) == (leader, leader_epoch, [*isr])
            for state in self.states[key].all()
        )


def _is_lost(now: StateVersion | None) -> bool:
    return now is None or now.state is None
