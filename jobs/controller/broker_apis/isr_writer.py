"""Writes the ISRs that leaders propose (AlterPartition), by fenced multis in a separate thread.

Corresponds to `KafkaController.alterPartitions`. A leader's high watermark waits for the response, so a proposal does
not wait for a cycle. The thread judges a proposal by the controller's context and by the states that it has written and
the cycle has not put into the context yet. Every multi checks the versions of the znodes. If the cycle and this thread
write the same partition, the later multi fails, and its writer reads the state and judges again.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, NamedTuple

from kazoo.exceptions import KazooException
from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster_state import BROKER_IDS
from jobs.adapters.zookeeper.controllership import Controllership, check_registered
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.adapters.zookeeper.multi_operations import Op, SetData
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import STATE_FIELDS, with_current_state
from jobs.controller.pending_work import drained
from jobs.core.errors import SurveyorError
from jobs.core.logs import module_logger
from planner.rules.alter_partition import IsrCandidates, IsrError, IsrProposal, IsrVerdict, check_proposal
from schemas.partition_info import PartitionInfo
from schemas.response_codes import NO_ERROR, STALE_BROKER_EPOCH
from schemas.rows import Key
from schemas.znode_codecs import State, encode_state
from schemas.znode_paths import state_path

_LOG: Final = module_logger(__name__)

MAX_MULTI_STATES: Final = 500
"""Maximum number of states that a multi writes."""

MAX_BATCH_PROPOSALS: Final = 20_000
"""Number of proposals after which no further waiting request is handled together with others."""

_MAX_ATTEMPTS: Final = 3
"""Attempts to write states if the multi fails although the states read afterwards allow it, for example after a lost
connection.

After the last one their leaders get OPERATION_NOT_ATTEMPTED and propose again.
"""


class IsrResult(NamedTuple):
    """The result for one partition: an error, or the present state."""

    error: IsrError
    row: PartitionInfo | None = None


class IsrResponse(NamedTuple):
    """The response to a request: an error of the whole request, or a result for each proposal."""

    error: int
    results: Mapping[Key, IsrResult]


@dataclass(frozen=True, slots=True, eq=False)
class IsrRequest:
    """An AlterPartition request of one broker."""

    broker_id: int
    broker_epoch: int
    version: int
    proposals: Sequence[IsrProposal]
    response: Future[IsrResponse] = field(default_factory=Future)
    received_at: float = field(default_factory=time.monotonic)


class WrittenState(NamedTuple):
    """A state that this thread wrote; the topic id distinguishes its topic from a later one of the same name."""

    topic_id: str | None
    row: PartitionInfo


@dataclass(slots=True)
class IsrWriter:
    """Handles the AlterPartition requests of one controllership."""

    control: Controllership
    context: ControllerContext
    candidates: Callable[[], IsrCandidates]
    """Which brokers may be in an ISR now; called in this thread."""
    wake: Callable[[], None]
    """Wakes the cycle, which puts the written states into the context and sends them to the brokers."""
    on_response: Callable[[float], None] = lambda _: None
    """Called with the seconds between each request and its response."""
    has_received_requests: bool = False
    """Whether any leader has sent a request in this controllership."""
    _waiting: SimpleQueue[IsrRequest | None] = field(default_factory=SimpleQueue)
    _written_states: dict[Key, WrittenState] = field(default_factory=dict)
    _requested_keys: set[Key] = field(default_factory=set)
    _outdated: set[Key] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)
    _thread: Thread | None = None

    @property
    def is_started(self) -> bool:
        """Whether leaders can send requests, or could until the end of the controllership."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self.is_started:
            return
        self._thread = Thread(target=self._run, daemon=True, name="isr-writer")
        self._thread.start()

    def stop(self) -> None:
        """Handle no further request; the response to those that wait is NOT_CONTROLLER."""
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def submit(self, request: IsrRequest) -> Future[IsrResponse]:
        """Queue a request; may be called from any thread."""
        self.has_received_requests = True
        self._waiting.put(request)
        return request.response

    def drain_written(self) -> tuple[set[Key], set[Key]]:
        """Put the written states into the context; return the requested partitions, and those found outdated.

        Only the cycle calls this. A state is dropped here only after the context has it, so a request that arrives in
        between is checked by one of the two.
        """
        with self._lock:
            written_states = [*self._written_states.items()]
            requested_keys, self._requested_keys = self._requested_keys, set()
            outdated, self._outdated = self._outdated, set()
        for key, state in written_states:
            row = self.context.partitions.get(key)
            if row is not None:
                merged = self._merged(row, state)
                if merged is not row:
                    self.context.put_partition(merged)
            with self._lock:
                if self._written_states.get(key) is state:
                    del self._written_states[key]
        return requested_keys, outdated

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._respond(batch)
            except (SurveyorError, KazooException) as error:
                _LOG.info("surveyor: no further AlterPartition is handled: %s", error)
            except Exception:  # noqa: BLE001 - the next request must not wait for a bad one
                _LOG.exception("surveyor: cannot handle AlterPartition")
            _refuse(batch)
            self.wake()

    def _next(self) -> list[IsrRequest]:
        """Return the requests that wait, at least one; none at the end."""
        first = self._waiting.get()
        batch, count = [first] if first is not None else [], 0
        while batch and count < MAX_BATCH_PROPOSALS:
            count += len(batch[-1].proposals)
            try:
                request = self._waiting.get_nowait()
            except Empty:
                return batch
            if request is None:
                self._waiting.put(None)
                return batch
            batch.append(request)
        if not batch:
            _refuse(request for request in drained(self._waiting) if request is not None)
        return batch

    def _respond(self, batch: Sequence[IsrRequest]) -> None:
        """Handle requests; requests for the same partition one at a time."""
        waiting = [*batch]
        while waiting:
            together, requested, later = list[IsrRequest](), set[Key](), list[IsrRequest]()
            for request in waiting:
                keys = {proposal.key for proposal in request.proposals}
                (together if requested.isdisjoint(keys) else later).append(request)
                requested |= keys
            self._respond_together(together)
            waiting = later

    def _respond_together(self, requests: Sequence[IsrRequest]) -> None:
        """Handle requests that have no partition in common."""
        current = []
        for request in requests:
            broker = self.context.brokers.get(request.broker_id)
            if broker is not None and broker.broker_epoch == request.broker_epoch:
                current.append(request)
            else:
                self._reply(request, IsrResponse(STALE_BROKER_EPOCH, {}))
        versions = {proposal.key: request.version for request in current for proposal in request.proposals}
        results = self._results([p for request in current for p in request.proposals], versions)
        for request in current:
            keys = [proposal.key for proposal in request.proposals]
            with self._lock:
                self._requested_keys.update(keys)
            self._reply(request, IsrResponse(NO_ERROR, {key: results[key] for key in keys}))

    def _reply(self, request: IsrRequest, response: IsrResponse) -> None:
        request.response.set_result(response)
        self.on_response(time.monotonic() - request.received_at)

    def _results(self, proposals: Sequence[IsrProposal], versions: Mapping[Key, int]) -> dict[Key, IsrResult]:
        """Check proposals, and write those that are accepted.

        A proposal that the context refuses, or that could not be written, is checked again by the state in ZooKeeper. A
        multi has proposals of several leaders, and one of them makes it fail: its partition has changed, or a broker
        that joins its ISR is not registered. The second check refuses that proposal, and the others are written.
        """
        results, unregistered = dict[Key, IsrResult](), set[int]()
        pending, rows = proposals, {proposal.key: self._row(proposal.key) for proposal in proposals}
        is_first, attempts = True, 0
        while pending:
            candidates = self.candidates().without(unregistered)
            accepted, refused = list[IsrProposal](), list[IsrProposal]()
            for proposal in pending:
                row = rows[proposal.key]
                verdict = self._check(proposal, row, candidates, versions[proposal.key])
                if verdict.changes:
                    accepted.append(proposal)
                else:
                    results[proposal.key] = IsrResult(verdict.error, row if verdict.error is IsrError.NONE else None)
                    if verdict.error is not IsrError.NONE:
                        refused.append(proposal)
            attempts += len(accepted) == len(pending)
            if attempts > _MAX_ATTEMPTS:
                break
            unwritten = self._write(accepted, rows, results, unregistered)
            pending = [*refused, *unwritten] if is_first else unwritten
            is_first = False
            rows |= self._read(pending)
        results |= {proposal.key: IsrResult(IsrError.OPERATION_NOT_ATTEMPTED) for proposal in pending}
        return results

    def _check(
        self, proposal: IsrProposal, row: PartitionInfo | None, candidates: IsrCandidates, version: int
    ) -> IsrVerdict:
        """Check a proposal; one for a state of a later controller epoch must wait until the cycle has raised ours."""
        verdict = check_proposal(proposal, row, candidates, version=version)
        is_of_later_controller = row is not None and (row.controller_epoch or 0) > self.control.epoch
        return IsrVerdict(IsrError.OPERATION_NOT_ATTEMPTED) if verdict.changes and is_of_later_controller else verdict

    def _row(self, key: Key) -> PartitionInfo | None:
        """Return a partition as the context or this thread knows it."""
        row, written_state = self.context.partitions.get(key), self._written_states.get(key)
        return row if row is None or written_state is None else self._merged(row, written_state)

    def _merged(self, row: PartitionInfo, written_state: WrittenState) -> PartitionInfo:
        """Return a partition with the state that this thread wrote, if that is later than the one known."""
        state = written_state.row
        is_later = (state.state_version or 0) > (-1 if row.state_version is None else row.state_version)
        if not is_later or written_state.topic_id != self.context.topic_id(row.topic):
            return row
        return replace(row, **{name: getattr(state, name) for name in STATE_FIELDS})

    def _read(self, proposals: Sequence[IsrProposal]) -> dict[Key, PartitionInfo | None]:
        """Read partitions from ZooKeeper; mark those that differ from the context, so that the cycle reads them.

        A partition that is not in the context is not read, because a client may name any number of them.
        A partition is checked by its state even if it is not understood for another reason, such as a list of moving
        replicas that cannot be read: its leader must be able to continue without a dead follower.
        """
        keys = [proposal.key for proposal in proposals]
        partitions = {key: row for key in keys if (row := self.context.partitions.get(key)) is not None}
        rows: dict[Key, PartitionInfo | None] = dict.fromkeys(keys)
        paths = [state_path(key) for key in partitions]
        znodes = self.control.read(lambda: read_permitted(self.control.client, paths))
        for (key, row), znode in zip(partitions.items(), znodes, strict=True):
            rows[key] = with_current_state(row, znode)
            if rows[key] != row:
                with self._lock:
                    self._outdated.add(key)
        return rows

    def _write(
        self,
        proposals: Sequence[IsrProposal],
        rows: Mapping[Key, PartitionInfo | None],
        results: dict[Key, IsrResult],
        unregistered: set[int],
    ) -> list[IsrProposal]:
        """Write accepted proposals in multis; add their results, and return those that were not written.

        Add brokers that would have joined an ISR and are not registered to `unregistered`.
        """
        unwritten = list[IsrProposal]()
        for start in range(0, len(proposals), MAX_MULTI_STATES):
            group = proposals[start : start + MAX_MULTI_STATES]
            epoch = self.control.epoch
            after = {proposal.key: _after(proposal, rows[proposal.key], epoch) for proposal in group}
            failure = self.control.commit(_ops(group, rows, after))
            if failure is not None:
                joining = _broker_of(failure)
                if joining is None:
                    unwritten += self._set_aside(group, failure, results)
                else:
                    unregistered.add(joining)
                    unwritten += group
                continue
            with self._lock:
                self._written_states |= {
                    key: WrittenState(self.context.topic_id(key[0]), row) for key, row in after.items()
                }
            results |= {key: IsrResult(IsrError.NONE, row) for key, row in after.items()}
        return unwritten

    def _set_aside(
        self, proposals: Sequence[IsrProposal], failure: MultiFailure, results: dict[Key, IsrResult]
    ) -> list[IsrProposal]:
        """Return the proposals to be checked again; one whose state must not be written gets its result at once."""
        if not failure.is_final:
            return [*proposals]
        _LOG.warning("surveyor: an ISR cannot be changed: %s", failure)
        failed = [proposal for proposal in proposals if state_path(proposal.key) == failure.path] or proposals
        results |= {proposal.key: IsrResult(IsrError.OPERATION_NOT_ATTEMPTED) for proposal in failed}
        return [proposal for proposal in proposals if proposal.key not in results]


def _refuse(requests: Iterable[IsrRequest]) -> None:
    """Respond to the remaining requests with NOT_CONTROLLER, after which the broker repeats them."""
    for request in requests:
        if not request.response.done():
            request.response.set_result(IsrResponse(IsrError.NOT_CONTROLLER, {}))


def _broker_of(failure: MultiFailure) -> int | None:
    """Return the broker whose registration could not be checked, None if something else was refused."""
    folder, _, name = (failure.path or "").rpartition("/")
    return int(name) if folder == BROKER_IDS else None


def _after(proposal: IsrProposal, row: PartitionInfo | None, epoch: int) -> PartitionInfo:
    """Return the partition with the proposed ISR; its leader and leader epoch do not change."""
    if row is None or row.state_version is None:
        raise ValueError(f"{proposal.topic}-{proposal.partition} has no state to be changed")
    return replace(
        row,
        isr=proposal.isr,
        leader_recovery_state=proposal.leader_recovery_state,
        controller_epoch=epoch,
        state_version=row.state_version + 1,
    )


def _ops(
    proposals: Sequence[IsrProposal], rows: Mapping[Key, PartitionInfo | None], after: Mapping[Key, PartitionInfo]
) -> list[Op]:
    """Operations that write the states; a broker that joins an ISR must be registered."""
    joining = set[int]()
    ops = list[Op]()
    for proposal in proposals:
        row, new = rows[proposal.key], after[proposal.key]
        if row is None or row.state_version is None:
            continue
        joining.update({*(new.isr or ())}.difference(row.isr or ()))
        values = {name: getattr(new, name) for name in State.__struct_fields__}
        ops.append(SetData(state_path(proposal.key), encode_state(State(**values)), row.state_version))
    return [op for broker in sorted(joining) for op in check_registered(broker)] + ops
