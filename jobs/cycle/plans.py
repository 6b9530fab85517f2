"""Plans that commits hand in to a controller that stays: carried out under its controllership, between two cycles.

While it is in office nobody else can be, so what a commit in batch mode would do as the controller is done here: a
drain for a planned shutdown, topics, settings, a recovery. The plan is judged anew by what ZooKeeper shows, written by
the same fenced multis, and told through the same queues as everything else. Corresponds to
`KafkaController.doControlledShutdown` for drains. In: /surveyor/plans. Out: an answer, and partitions to look at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.zookeeper.connection import LOST, Znode
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.adapters.zookeeper.resident import announce_resident, handed_in, write_back
from jobs.assessment.limits import CommitLimits
from jobs.basics.errors import ExitCode, FencedError, SurveyorError
from jobs.cycle.looking import Look
from jobs.execution.admin.lease import this_process
from jobs.execution.commit import apply_plan
from jobs.execution.due import assess
from jobs.execution.report import answer_of
from jobs.records.author import Author
from jobs.records.plans import read_plan
from jobs.runtime.choices import Mode
from jobs.runtime.settings import Settings
from schemas.handed_in import Answer, HandedIn, decode_handed_in
from schemas.rows import Change, Key
from schemas.znodes import MalformedZnodeError

_UNTIL_RESIGNED: Final = float("inf")

_CUT_OFF: Final = Answer(
    int(ExitCode.ERROR),
    {},
    [],
    "the controller was cut off in the midst of it: commit the plan again, what is written is found so",
)


@dataclass(slots=True)
class Desk:
    """Where plans are handed in while one controllership lasts."""

    settings: Settings
    control: Controllership
    look: Look
    tell_all: Callable[[Sequence[Change]], None]
    say: Callable[[str], None]
    done: int = 0
    """Plans that were answered."""
    _touched: set[str] = field(default_factory=set)
    """Topics that plans have named since the last time that was asked."""

    def open(self) -> None:
        """Let commits know that this is where plans are carried out."""
        if not announce_resident(self.control.client, this_process("control")):
            self.say(
                "surveyor: ZooKeeper does not let us write /surveyor (NoAuth): no commit can hand its plan in while "
                "this is the controller; let somebody create /surveyor for us",
            )

    def carry_out_all(self) -> set[Key]:
        """Carry out what was handed in, and answer; return the partitions that are not what they were."""
        for znode in handed_in(self.control.client):
            self._carry_out(znode)
        touched, self._touched = self._touched, set()
        return self.look.at_topics(touched) if touched else set()

    def _carry_out(self, znode: Znode) -> None:
        try:
            handed = decode_handed_in(znode.data)
        except MalformedZnodeError as error:
            if znode.version is not None:
                self.say(f"surveyor: {znode.path} is not understood and left alone: {error}")
            return
        if handed.answer is not None:
            return
        if handed.is_begun:  # nobody is at it now: it was cut off
            write_back(self.control.client, znode.path, with_values(handed, answer=_CUT_OFF))
            return
        begun = with_values(handed, is_begun=True)
        if znode.version is None or not write_back(self.control.client, znode.path, begun, znode.version):
            return  # taken back
        plan_id = znode.path.rpartition("/")[2]
        self.say(f"  plan {plan_id} was handed in by {handed.holder}")
        answer = self._answer(plan_id, handed)
        self.done += 1
        said = answer.error or answer.lines[0]
        heard = write_back(self.control.client, znode.path, with_values(handed, is_begun=True, answer=answer))
        self.say(f"  {said}" if heard else f"  {said}; whoever handed it in is gone")

    def _answer(self, plan_id: str, handed: HandedIn) -> Answer:
        try:
            return self._committed(plan_id, handed)
        except (FencedError, SessionLostError, *LOST):
            raise  # it is over, or what was written is read back first
        except SurveyorError as error:
            where = f"{error} (as the controller found, in the warehouse of `surveyor control`, {self._warehouse})"
            return Answer(int(error.exit_code), dict(error.result), [], where)

    @property
    def _warehouse(self) -> str:
        return self.settings.lake.warehouse

    def _committed(self, plan_id: str, handed: HandedIn) -> Answer:
        lake = self.settings.lake
        plan = read_plan(lake, plan_id)
        self._touched |= {change.topic for change in plan.changes}
        limits = CommitLimits(handed.max_plan_age, handed.max_changes, handed.allow_majority_dead)
        assessment = assess(self.settings, plan, Mode.BATCH, limits, is_ours=True)
        author = Author(f"{handed.holder.user}@{handed.holder.host}", handed.run)
        ledger = apply_plan(
            self.settings, plan, assessment, _UNTIL_RESIGNED, self.control, tell_all=self.tell_all, author=author
        )
        return answer_of(self.settings, plan, assessment, ledger, detailed=handed.detailed)
