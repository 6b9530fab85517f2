"""Plans that commits hand in to a controller that stays: carried out under its controllership, between two cycles.

While it is in office nobody else can be, so what a commit in batch mode would do as the controller is done here: a
drain for a planned shutdown, topics, settings, a recovery. The plan is judged anew by what ZooKeeper shows, written by
the same fenced multis, and told through the same queues as everything else. Corresponds to
`KafkaController.doControlledShutdown` for drains. In: /surveyor/plans. Out: an answer, and partitions to look at.

The tables and a large plan take seconds, and a failure must not wait for them: so a plan is written by a thread of its
own, beside the cycles. Every multi checks its versions, so neither overwrites the other; what is told, and what is
known, is the cycles' alone.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.zookeeper.connection import LOST, Znode
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.adapters.zookeeper.plan_submission import announce_resident, fault_of, ignored_reason, respond, submitted
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.context import PartitionInfo
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.state_writer import StateWriter
from jobs.core.errors import ExitCode, FencedError, SurveyorError
from jobs.execution.admin.lease import this_process
from jobs.execution.commit import apply_plan
from jobs.execution.preflight import check_before_commit
from jobs.execution.report import plan_result
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.actor import Actor
from jobs.repositories.plans.repository import read_plan, refuse_unsubmitted
from jobs.runtime.cli_enums import Mode
from jobs.runtime.settings import Settings
from schemas.rows import Change, Key
from schemas.submitted_plan import PlanResult, SubmittedPlan, decode_submitted, submission_of

BATCH_PARTITIONS: Final = 2_000
"""Partitions of a plan that are told, or looked at, in a cycle: a failure waits for no more of them."""

_UNTIL_RESIGNED: Final = float("inf")

_CUT_OFF: Final = PlanResult(
    int(ExitCode.ERROR),
    {},
    [],
    "the controller was cut off in the midst of it: commit the plan again, what is written is found so",
)


@dataclass(frozen=True, slots=True)
class _PendingBatch:
    """Changes that stand in ZooKeeper, and whether they have been told."""

    changes: Sequence[Change]
    is_first: bool
    told: Event = field(default_factory=Event)


@dataclass(slots=True)
class PlanInbox:
    """Where plans are handed in while one controllership lasts."""

    settings: Settings
    control: Controllership
    reader: MetadataReader
    writer: StateWriter
    broker_requests: BrokerRequestBatch
    refresh_drained: Callable[[], None]
    """Learns who is drained, before and after a plan that may have changed it."""
    say: Callable[[str], None]
    is_done: int = 0
    """Plans that were answered."""
    _touched: set[str] = field(default_factory=set)
    """Topics that plans have named since the last time that was asked."""
    _thread: Thread | None = None
    _pending_batches: SimpleQueue[_PendingBatch] = field(default_factory=SimpleQueue)
    _failed: Exception | None = None
    """What ended the thread."""
    _reported: set[tuple[str, int]] = field(default_factory=set)
    """What other clients have put there, by path and last change, and was reported."""
    _closed: bool = False

    def announce(self) -> None:
        """Let commits know that this is where plans are carried out."""
        if not announce_resident(self.control.client, this_process("control")):
            self.say(
                "surveyor: ZooKeeper does not let us write /surveyor (NoAuth): no commit can hand its plan in while "
                "this is the controller; let somebody create /surveyor for us",
            )

    @property
    def topics(self) -> AbstractSet[str]:
        """Topics that the plan in hand names: what it writes of them is told as it is told here."""
        return self._touched

    @property
    def is_busy(self) -> bool:
        """Whether a plan is being carried out."""
        return self._thread is not None or bool(self._touched)

    def poll(self) -> set[Key]:
        """Tell what the plan in hand has written; once it is done, begin with the next that was handed in.

        Returns partitions that are not what they were known to be: nobody knows whether brokers were told of that.
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
        if self._touched:
            return self._refresh_next_topics()
        znodes = submitted(self.control.client)
        self._reported &= {*map(_seen, znodes)}
        for znode in znodes:
            if self._try_start(znode):
                break
        return set()

    def _refresh_next_topics(self) -> set[Key]:
        """Read topics again that a plan has named, a few thousand partitions in a cycle."""
        some, partitions = set[str](), 0
        while self._touched and partitions < BATCH_PARTITIONS:
            some.add(self._touched.pop())
            partitions = sum(len(self.writer.context.of_topic(topic)) for topic in some)
        self.reader.watches.signal()
        return self.reader.refresh_topics(some)

    def close(self, patience: float = 20.0) -> None:
        """Let the plan in hand come to the next border, and tell what of it is written."""
        deadline = monotonic() + patience
        while self._thread is not None and self._thread.is_alive() and monotonic() < deadline:
            self._thread.join(0.05)
            self._send_next_batch()
        self._closed = True

    def _send_next_batch(self) -> None:
        """Tell a part of what was written; of what has changed since, as it is now."""
        if self._pending_batches.empty():
            return
        untold = self._pending_batches.get()
        if untold.is_first:
            self.refresh_drained()
        known = self.writer.context.partitions
        later = [c for c in untold.changes if c.key in known and _is_past(known[c.key], c)]
        overtaken = {change.key for change in later}
        written = [change for change in untold.changes if change.key not in overtaken]
        self.writer.apply_written(written)
        self.broker_requests.send_changes(written)
        self.broker_requests.resend_current(later)
        untold.told.set()
        self.reader.watches.signal()

    def _try_start(self, znode: Znode) -> bool:
        """Begin with a plan, where it is one that can be begun."""
        if fault := fault_of(znode):
            self._ignore_submission(znode, fault)
            return False
        handed = decode_submitted(znode.data)
        if handed.answer is not None:
            return False
        if handed.is_begun:  # no thread is at it now: it was cut off
            respond(self.control.client, znode.path, with_values(handed, answer=_CUT_OFF))
            return False
        begun = with_values(handed, is_begun=True)
        if znode.version is None or not respond(self.control.client, znode.path, begun, znode.version):
            return False  # taken back
        plan_id = znode.path.rpartition("/")[2]
        self.say(f"  plan {plan_id} was handed in by {handed.holder}")
        self._thread = Thread(target=self._run, args=(znode, plan_id, handed), daemon=True, name=f"plan-{plan_id}")
        self._thread.start()
        return True

    def _ignore_submission(self, znode: Znode, fault: str) -> None:
        """Report once what another client has put there; it is not ours to delete."""
        seen = _seen(znode)
        if seen not in self._reported:
            self._reported.add(seen)
            self.say(f"surveyor: {ignored_reason(znode.path, fault)}")

    def _run(self, znode: Znode, plan_id: str, handed: SubmittedPlan) -> None:
        try:
            self._carry_out(znode, plan_id, handed)
        except Exception as error:  # noqa: BLE001 - raised where the cycles are
            self._failed = error
        finally:
            self.reader.watches.signal()

    def _send_in_batches(self, changes: Sequence[Change]) -> None:
        """Let the cycles tell what the thread has written, and wait for that."""
        parts = [
            _PendingBatch(changes[at : at + BATCH_PARTITIONS], is_first=at == 0)
            for at in range(0, len(changes), BATCH_PARTITIONS)
        ]
        for part in parts:
            self._pending_batches.put(part)
        self.reader.watches.signal()
        while parts and not parts[-1].told.wait(0.2) and not self._closed:
            pass

    def _carry_out(self, znode: Znode, plan_id: str, handed: SubmittedPlan) -> None:
        answer = self._answer(znode, plan_id, handed)
        self.is_done += 1
        line = answer.error or answer.lines[0]
        heard = respond(self.control.client, znode.path, with_values(handed, is_begun=True, answer=answer))
        self.say(f"  {line}" if heard else f"  {line}; whoever handed it in is gone")

    def _answer(self, znode: Znode, plan_id: str, handed: SubmittedPlan) -> PlanResult:
        try:
            return self._committed(znode, plan_id, handed)
        except (FencedError, SessionLostError, *LOST):
            raise  # it is over, or what was written is read back first
        except SurveyorError as error:
            where = f"{error} (as the controller found, in the warehouse of `surveyor control`, {self._warehouse})"
            return PlanResult(int(error.exit_code), dict(error.result), [], where)

    @property
    def _warehouse(self) -> str:
        return self.settings.lake.warehouse

    def _committed(self, znode: Znode, plan_id: str, handed: SubmittedPlan) -> PlanResult:
        lake = self.settings.lake
        plan = read_plan(lake, plan_id)
        refuse_unsubmitted(plan, _submission(znode))
        self._touched |= {change.topic for change in plan.changes}
        limits = CommitLimits(handed.max_plan_age, handed.max_changes, handed.allow_majority_dead)
        assessment = check_before_commit(self.settings, plan, Mode.BATCH, limits, is_ours=True)
        author = Actor(f"{handed.holder.user}@{handed.holder.host}", handed.run)
        tell_all, control = self._send_in_batches, self.control
        ledger = apply_plan(
            self.settings, plan, assessment, _UNTIL_RESIGNED, control, notify_brokers=tell_all, author=author
        )
        return plan_result(self.settings, plan, ledger, detailed=handed.detailed)


def _seen(znode: Znode) -> tuple[str, int]:
    return znode.path, 0 if znode.stat is None else znode.stat.mzxid


def _submission(znode: Znode) -> str:
    return "" if znode.stat is None else submission_of(znode.stat.ephemeralOwner, znode.data or b"")


def _is_past(row: PartitionInfo, change: Change) -> bool:
    """Whether a partition has changed since a change of it was written."""
    return row.state_version is not None and row.state_version > change.state_version + 1
