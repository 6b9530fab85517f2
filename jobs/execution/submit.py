"""A plan handed in to `surveyor control`, which is the controller to stay: it carries it out, and answers.

A commit that is interrupted takes its plan back, unless it is begun; then the controller carries it out nevertheless.
"""

import time
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import connected, persistently, read_latest
from jobs.adapters.zookeeper.controllership import session_of
from jobs.adapters.zookeeper.plan_submission import hand_in, path_of, resident, withdraw
from jobs.advice.plans import after_commit
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError
from jobs.core.signals import unwinding
from jobs.execution.admin.lease import this_process
from jobs.execution.preflight import Assessment
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.actor import this_author
from jobs.repositories.plans.repository import Plan, record_submission
from jobs.runtime.console import finish, say
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.text import counted
from schemas.submitted_plan import Answer, HandedIn, decode_handed_in, encode_handed_in, submission_of
from schemas.znodes import MalformedZnodeError

_PAUSE: Final = 0.2


def hand_in_and_wait(
    settings: Settings, plan: Plan, assessment: Assessment, limits: CommitLimits, *, detailed: bool
) -> ExitCode:
    """Let the controller carry a plan out, and show what it answered."""
    say(f"  mode {assessment.mode} ({assessment.why}); {counted(len(assessment.due), 'row', 'is', 'are')} due")
    handed = HandedIn(
        holder=this_process("commit", plan.plan_id),
        max_plan_age=limits.max_plan_age,
        max_changes=limits.max_changes,
        allow_majority_dead=limits.allow_majority_dead,
        detailed=detailed,
        run=this_author().run,
    )
    is_asked = False
    try:
        with connected(settings.zookeeper) as client, progress(f"{assessment.in_office} carries it out"):
            is_asked = True
            answer = _answered(settings, client, plan, handed)
    except UnreadableError as lost:
        if not is_asked:
            raise
        raise SurveyorError(
            f"{lost}. Plan {plan.title} may have been handed in, and the controller have begun with it: "
            f"`surveyor show commits {plan.plan_id}` tells what came of it; commit it again, what is written is "
            "found so",
        ) from lost
    if answer.error is not None:
        error = SurveyorError(answer.error, answer.result)
        error.exit_code = ExitCode(answer.exit_code)
        raise error
    steps = after_commit(settings, plan.called, answer.result["status"], answer.result)
    finish(settings, answer.result, *answer.lines, steps=steps)
    return ExitCode(answer.exit_code)


def _answered(settings: Settings, client: KazooClient, plan: Plan, handed: HandedIn) -> Answer:
    data = encode_handed_in(handed)
    record_submission(settings.lake, plan, submission_of(session_of(client), data))
    hand_in(client, plan.plan_id, data)
    try:
        with unwinding():
            return _awaited(client, plan)
    except KeyboardInterrupt:
        if withdraw(client, plan.plan_id, 0):
            raise
        raise SurveyorError(
            f"interrupted, but the controller has begun with plan {plan.title} and carries it out: "
            f"`surveyor show commits {plan.plan_id}` tells what came of it",
        ) from None


def _awaited(client: KazooClient, plan: Plan) -> Answer:
    """Wait for the answer; raise SurveyorError once nobody is there any more who would give one."""
    while True:
        znode = persistently(lambda: read_latest(client, path_of(plan.plan_id)))
        if znode.data is None:
            raise SurveyorError(
                f"{path_of(plan.plan_id)} is gone, and with it the answer: our session ended; commit the plan again, "
                "what is written is found so",
            )
        try:
            handed = decode_handed_in(znode.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{znode.path} was overwritten by another client of ZooKeeper ({error}): "
                f"`surveyor show commits {plan.plan_id}` shows what came of the plan"
            ) from None
        if handed.answer is not None:
            return handed.answer
        if persistently(lambda: resident(client)) is None:
            how_far = "was done with" if handed.is_begun else "came to"
            raise SurveyorError(
                f"the controller went out of office before it {how_far} plan {plan.title}: commit it again, what is "
                "written is found so",
            )
        time.sleep(_PAUSE)
