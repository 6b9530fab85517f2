"""The meaning of each transaction in ZooKeeper's history: states, controllers, and under which fence they were
written.

The history is complete, so violations are searched for in all of it, not only at the end of a round.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from schemas.znode_codecs import (
    MalformedZnodeError,
    State,
    decode_controller,
    decode_epoch,
    decode_partitions,
    decode_state,
)
from tests.jobs.torture.torture_cluster import SURVEYOR_IDS
from tests.jobs.torture.zookeeper_log import CHECK, CREATE, DELETE, SET, Op, Transaction

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_EPOCH: Final = "/controller_epoch"

ORDERS, ELECTIONS, DELETIONS = (
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics/",
)
LISTS: Final = (ORDERS, ELECTIONS)
"""Requests that name partitions, in one znode each."""

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class StateWrite:
    """One written state of a partition, and the state before it."""

    at: float
    session: int
    topic: str
    partition: int
    state: State
    version: int
    before: State | None
    fenced: bool
    """Whether the same transaction checked the controller epoch."""
    epoch: int
    """The content of /controller_epoch at that moment."""
    checked: frozenset[str] = frozenset()
    """Znodes that the same transaction checked."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition} at version {self.version}"


class RemovedRequest(NamedTuple):
    """A request that Surveyor's controller removed from /admin; for a whole topic without a partition."""

    at: float
    path: str
    topic: str
    partition: int | None


@dataclass
class History:
    """The writes of /controller_epoch and of states, in order."""

    epochs: list[int] = field(default_factory=list)
    written: list[StateWrite] = field(default_factory=list)
    ours: set[int] = field(default_factory=set)
    """Sessions that were the controller and not a broker's."""
    taken: list[RemovedRequest] = field(default_factory=list)
    unfenced: list[str] = field(default_factory=list)
    """Writes of topics by such a session without a check of the epoch."""
    listening: frozenset[int] = frozenset()
    """Sessions of controllers that leaders could ask to change ISRs."""

    @classmethod
    def of(cls, transactions: Iterable[Transaction], listening: Collection[int] = ()) -> "History":
        history, states = cls(listening=frozenset(listening)), dict[str, State]()
        requests: dict[str, set[Place]] = {path: set() for path in LISTS}
        for transaction in transactions:
            history._take(transaction, states)
            history._take_requests(transaction, requests)
        return history

    def _take_requests(self, transaction: Transaction, requests: dict[str, set[Place]]) -> None:
        """Record the requests, and those that a session of ours removed."""
        ours = transaction.session in self.ours
        for op in transaction.ops:
            if op.kind == CHECK:
                continue
            if op.path in LISTS:
                left = set() if op.kind == DELETE else _places(op.data)
                gone, requests[op.path] = requests[op.path] - left, left
                self.taken += [RemovedRequest(transaction.at, op.path, *place) for place in sorted(gone) if ours]
            elif ours and op.kind == DELETE and op.path.startswith(DELETIONS):
                self.taken.append(RemovedRequest(transaction.at, DELETIONS, op.path.removeprefix(DELETIONS), None))

    def _take(self, transaction: Transaction, states: dict[str, State]) -> None:
        checked = frozenset(op.path for op in transaction.ops if op.kind == CHECK)
        fenced = _EPOCH in checked
        for op in transaction.ops:
            if op.path == _EPOCH and op.kind in {CREATE, SET}:
                self.epochs.append(decode_epoch(op.data))
            elif (
                op.path == "/controller" and op.kind == CREATE and decode_controller(op.data).broker_id in SURVEYOR_IDS
            ):
                self.ours.add(transaction.session)
            elif transaction.session in self.ours and not fenced and _is_metadata(op):
                self.unfenced.append(f"{op.path} was written in zxid {transaction.zxid:#x} without the fence")
            match = _STATE.fullmatch(op.path)
            if match is None or op.kind == CHECK:
                continue
            before = states.pop(op.path, None)
            if op.kind == DELETE:
                continue
            state = states[op.path] = decode_state(op.data)
            place = match[1], int(match[2])
            epoch = self.epochs[-1] if self.epochs else 0
            now = StateWrite(
                transaction.at, transaction.session, *place, state, op.version, before, fenced, epoch, checked
            )
            self.written.append(now)

    def wrong(self) -> list[str]:
        """Return the violations of invariants."""
        faults = [f"/controller_epoch went from {a} to {b}" for a, b in _pairs(self.epochs) if b != a + 1]
        faults += self.unfenced
        for transaction in self.written:
            faults += [
                f"{transaction.name}: {reason}"
                for reason in _faults(transaction, ours=transaction.session in self.ours)
            ]
            if self.is_isr_change(transaction):
                faults += [f"{transaction.name}: {reason}" for reason in _faults_of_isr_change(transaction)]
            elif (
                transaction.session in self.ours
                and transaction.before
                and transaction.state.leader_epoch == transaction.before.leader_epoch
            ):
                faults.append(f"{transaction.name}: written twice at leader epoch {transaction.state.leader_epoch}")
        return faults

    def is_isr_change(self, written: StateWrite) -> bool:
        """Whether a controller that leaders can ask has changed nothing but the ISR, for which `commits` has no row."""
        now, before = written.state, written.before
        if before is None or written.session not in self.listening & self.ours:
            return False
        return (now.leader, now.leader_epoch) == (before.leader, before.leader_epoch) and (
            (now.isr, now.leader_recovery_state) != (before.isr, before.leader_recovery_state)
        )


def _places(data: bytes) -> set[Place]:
    try:
        return {(order.topic, order.partition) for order in decode_partitions(data)}
    except MalformedZnodeError:
        return set()


def _is_metadata(op: Op) -> bool:
    return op.kind != CHECK and op.path.startswith(("/brokers/topics/", "/config/"))


def _pairs(epochs: list[int]) -> Iterator[tuple[int, int]]:
    return pairwise(epochs)


def _faults(written: StateWrite, *, ours: bool) -> Iterator[str]:
    now, before = written.state, written.before
    if now.leader not in {-1, *now.isr}:
        yield f"leader {now.leader} is not in the ISR {now.isr}"
    if before is not None and now.leader_epoch < before.leader_epoch:
        yield f"leader epoch {before.leader_epoch} is followed by {now.leader_epoch}"
    if before is not None and now.controller_epoch < before.controller_epoch:
        yield f"controller epoch {before.controller_epoch} is followed by {now.controller_epoch}"
    if ours and now.controller_epoch != written.epoch:
        yield f"written under controller epoch {now.controller_epoch} while the epoch was {written.epoch}"


def _faults_of_isr_change(written: StateWrite) -> Iterator[str]:
    now, before = written.state, written.before
    joined = {*now.isr} - {*(before.isr if before else ())}
    unchecked = sorted(broker for broker in joined if f"/brokers/ids/{broker}" not in written.checked)
    if unchecked:
        yield f"{unchecked} joined the ISR, and the transaction did not check that they were registered"
