"""Plans that `surveyor commit` submits to the resident controller: carried out by it, under its controllership.

While it runs, no other process can be the controller. It therefore takes the part of a commit in batch mode: drains for
a planned shutdown, topics, settings and recoveries. The plan is checked again with the state in
ZooKeeper, written by the same fenced multis, and sent through the same queues as all changes. For drains it corresponds
to `KafkaController.doControlledShutdown`.

Reading the tables and writing a large plan take seconds, and a broker failure must not wait for that. A plan is
therefore written by a thread of its own, concurrently with the cycles. Every multi checks versions, so neither
overwrites the other. Only the cycles send requests and update the context.
"""

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.adapters.zookeeper.plan_submission import (
    announce_resident,
    fault_of,
    ignored_reason,
    read_submissions,
    respond,
)
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import PendingWork
from jobs.core.errors import ExitCode, FencedError, SurveyorError
from jobs.execution.batch.batch_commit import HeldControllership
from jobs.execution.batch.fenced_writer import UNTIL_RESIGNED
from jobs.execution.commit import apply_plan
from jobs.execution.commit_report import plan_result
from jobs.execution.preflight import check_before_commit
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.actor import Actor, this_process
from jobs.repositories.plans.plans_reader import read_plan, refuse_unsubmitted
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import LogLine
from jobs.runtime.settings import Settings
from schemas.partition_info import PartitionInfo
from schemas.rows import Change, Key
from schemas.submitted_plan import PlanResult, SubmittedPlan, decode_submitted, submission_of

BATCH_PARTITIONS: Final = 2_000
"""Partitions of a plan that are sent or read in one cycle, so that a broker failure does not wait for more."""

_INTERRUPTED: Final = PlanResult(
    int(ExitCode.ERROR),
    {},
    [],
    "the controller was interrupted while it carried out the plan; commit the plan again, which finds what is already "
    "written",
)


@dataclass(frozen=True, slots=True)
class _PendingBatch:
    """Changes that are written to ZooKeeper, and whether they have been sent."""

    changes: Sequence[Change]
    is_first: bool
    sent: Event = field(default_factory=Event)


@dataclass(slots=True)
class PlanInbox:
    """Receives plans during one controllership."""

    settings: Settings
    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    pending: PendingWork
    broker_requests: BrokerRequestBatch
    refresh_drained: Callable[[], None]
    """Reads which brokers are drained; called before and after a plan that may have changed that."""
    log_line: LogLine
    _topics_to_refresh: set[str] = field(default_factory=set)
    """Topics of plans that have not been read again yet."""
    _thread: Thread | None = None
    _pending_batches: SimpleQueue[_PendingBatch] = field(default_factory=SimpleQueue)
    _failed: Exception | None = None
    """The error that ended the thread."""
    _reported: set[tuple[str, int]] = field(default_factory=set)
    """Invalid submissions that were reported, by path and last change."""
    _closed: bool = False

    def announce(self) -> None:
        """Announce to commits that this process carries out plans."""
        if not announce_resident(self.control.client, this_process("control")):
            self.log_line(
                "surveyor: cannot write /surveyor in ZooKeeper (NoAuth): commits cannot submit plans while this "
                "process is the controller; ask an administrator to create /surveyor and to permit writes",
                logging.WARNING,
            )

    @property
    def topics(self) -> AbstractSet[str]:
        """Topics of the plan in progress; the plan's changes of them are sent by this class."""
        return self._topics_to_refresh

    @property
    def is_busy(self) -> bool:
        """Whether a plan is in progress."""
        return self._thread is not None or bool(self._topics_to_refresh)

    def poll(self) -> set[Key]:
        """Send what the plan in progress has written; once it is done, start the next submitted plan.

        Return partitions that differ from the context; whether brokers were sent their state is unknown.
        """
        self._send_next_batch()
        if self._thread is not None and (self._thread.is_alive() or not self._pending_batches.empty()):
            return set()
        if self._thread is not None:
            self._thread = None
            self.refresh_drained()
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error
        if self._topics_to_refresh:
            return self._refresh_next_topics()
        znodes = read_submissions(self.control.client)
        self._reported &= {*map(_submission_key, znodes)}
        for znode in znodes:
            if self._try_start(znode):
                break
        return set()

    def _refresh_next_topics(self) -> set[Key]:
        """Read topics of the plan again, a few thousand partitions in a cycle."""
        topics, partitions = set[str](), 0
        while self._topics_to_refresh and partitions < BATCH_PARTITIONS:
            topics.add(self._topics_to_refresh.pop())
            partitions = sum(len(self.context.of_topic(topic)) for topic in topics)
        self.reader.watches.signal()
        return self.reader.refresh_topics(topics)

    def close(self, timeout_seconds: float = 20.0) -> None:
        """Wait until the plan in progress reaches its next step, and send what it has written."""
        deadline = monotonic() + timeout_seconds
        while self._thread is not None and self._thread.is_alive() and monotonic() < deadline:
            self._thread.join(0.05)
            self._send_next_batch()
        self._closed = True

    def _send_next_batch(self) -> None:
        """Send a batch of written changes; for partitions that have changed since, send the current state."""
        if self._pending_batches.empty():
            return
        batch = self._pending_batches.get()
        if batch.is_first:
            self.refresh_drained()
        partitions = self.context.partitions
        superseded = [c for c in batch.changes if c.key in partitions and _is_superseded(partitions[c.key], c)]
        superseded_keys = {change.key for change in superseded}
        written = [change for change in batch.changes if change.key not in superseded_keys]
        self.pending.add(self.context.apply(written, self.control.epoch))
        self.broker_requests.send_changes(written)
        self.broker_requests.resend_current(superseded)
        batch.sent.set()
        self.reader.watches.signal()

    def _try_start(self, znode: Znode) -> bool:
        """Start a submitted plan if it is valid and not started yet; return whether it was started."""
        if fault := fault_of(znode):
            if _submission_key(znode) not in self._reported:  # it is not ours to delete
                self._reported.add(_submission_key(znode))
                self.log_line(f"surveyor: {ignored_reason(znode.path, fault)}", logging.WARNING)
            return False
        plan_request = decode_submitted(znode.data)
        if plan_request.answer is not None:
            return False
        if plan_request.is_begun:  # no thread carries it out now, so it was interrupted
            respond(self.control.client, znode.path, with_values(plan_request, answer=_INTERRUPTED))
            return False
        started = with_values(plan_request, is_begun=True)
        if znode.version is None or not respond(self.control.client, znode.path, started, znode.version):
            return False  # it was withdrawn
        plan_id = znode.path.rpartition("/")[2]
        self.log_line(f"  plan {plan_id} was submitted by {plan_request.holder}")
        self._thread = Thread(
            target=self._run, args=(znode, plan_id, plan_request), daemon=True, name=f"plan-{plan_id}"
        )
        self._thread.start()
        return True

    def _run(self, znode: Znode, plan_id: str, plan_request: SubmittedPlan) -> None:
        """Carry out a plan, and respond with its result."""
        try:
            result = self._run_plan(znode, plan_id, plan_request)
            line = result.error or result.lines[0]
            answered = with_values(plan_request, is_begun=True, answer=result)
            is_delivered = respond(self.control.client, znode.path, answered)
            self.log_line(f"  {line}" if is_delivered else f"  {line}; the client that submitted it has disconnected")
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the cycles
            self._failed = error
        finally:
            self.reader.watches.signal()

    def _send_in_batches(self, changes: Sequence[Change]) -> None:
        """Let the cycles send what the thread has written, and wait for that."""
        batches = [
            _PendingBatch(changes[at : at + BATCH_PARTITIONS], is_first=at == 0)
            for at in range(0, len(changes), BATCH_PARTITIONS)
        ]
        for batch in batches:
            self._pending_batches.put(batch)
        self.reader.watches.signal()
        while batches and not batches[-1].sent.wait(0.2) and not self._closed:
            pass

    def _run_plan(self, znode: Znode, plan_id: str, plan_request: SubmittedPlan) -> PlanResult:
        try:
            return self._commit_plan(znode, plan_id, plan_request)
        except (FencedError, SessionLostError, *LOST):
            raise  # the controllership has ended, or the writes must be read back first
        except SurveyorError as error:
            where = f"{error} (reported by the controller, whose warehouse is {self.settings.warehouse.uri})"
            return PlanResult(int(error.exit_code), dict(error.result), [], where)
        except Exception as error:  # noqa: BLE001 - a full disk or a bad plan must not end the controllership
            reason = f"{type(error).__name__}: {error}"
            text = (
                f"plan {plan_id} was interrupted by an unexpected error of the controller ({reason}); commit it again"
            )
            return PlanResult(int(ExitCode.ERROR), {}, [], f"{text}, which finds what is already written")

    def _commit_plan(self, znode: Znode, plan_id: str, plan_request: SubmittedPlan) -> PlanResult:
        warehouse = self.settings.warehouse
        plan = read_plan(warehouse, plan_id)
        refuse_unsubmitted(plan, _submission_id(znode))
        self._topics_to_refresh |= {change.topic for change in plan.changes}
        limits = CommitLimits(plan_request.max_plan_age, plan_request.max_changes, plan_request.allow_majority_dead)
        author = Actor(f"{plan_request.holder.user}@{plan_request.holder.host}", plan_request.run)
        # not by the session of the term: an error while a plan is checked must not end the controllership
        with ZooKeeperCluster(self.settings.zookeeper_endpoint) as cluster:
            commit_log = apply_plan(
                self.settings,
                cluster,
                plan,
                check_before_commit(self.settings, cluster, plan, Mode.BATCH, limits, is_ours=True),
                UNTIL_RESIGNED,
                held=HeldControllership(self.control, self._send_in_batches),
                author=author,
            )
        return plan_result(self.settings, plan, commit_log, detailed=plan_request.detailed)


def _submission_key(znode: Znode) -> tuple[str, int]:
    return znode.path, 0 if znode.stat is None else znode.stat.mzxid


def _submission_id(znode: Znode) -> str:
    return "" if znode.stat is None else submission_of(znode.stat.ephemeralOwner, znode.data or b"")


def _is_superseded(row: PartitionInfo, change: Change) -> bool:
    """Return whether a partition has changed since a change of it was written."""
    return row.state_version is not None and row.state_version > change.state_znode_version + 1
