"""A plan handed in to `surveyor control`, which is the controller to stay: it carries it out, and answers.

A commit that is interrupted takes its plan back, unless it is begun; then the controller carries it out nevertheless.
"""

import time
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import connected, read_latest, with_retries
from jobs.adapters.zookeeper.controllership import session_of
from jobs.adapters.zookeeper.plan_submission import path_of, resident, submit, withdraw
from jobs.advice.plans import after_commit
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError
from jobs.core.signals import raise_on_signal
from jobs.execution.admin.lease import this_process
from jobs.execution.preflight import Preflight
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.repository import Plan, record_submission
from jobs.runtime.console import emit_result, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.text import pluralise
from schemas.submitted_plan import PlanResult, SubmittedPlan, decode_submitted, encode_submitted, submission_of
from schemas.znodes import MalformedZnodeError

_POLL_SECONDS: Final = 0.2


def submit_and_wait(
    settings: Settings, plan: Plan, preflight: Preflight, limits: CommitLimits, *, detailed: bool
) -> ExitCode:
    """Let the controller carry a plan out, and show what it answered."""
    log(f"  mode {preflight.mode} ({preflight.why}); {pluralise(len(preflight.pending), 'row', 'is', 'are')} due")
    handed = SubmittedPlan(
        holder=this_process("commit", plan.plan_id),
        max_plan_age=limits.max_plan_age,
        max_changes=limits.max_changes,
        allow_majority_dead=limits.allow_majority_dead,
        detailed=detailed,
        run=this_actor().run,
    )
    is_asked = False
    try:
        with connected(settings.zookeeper) as client, progress(f"{preflight.resident_controller} carries it out"):
            is_asked = True
            answer = _submit(settings, client, plan, handed)
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
    emit_result(settings, answer.result, *answer.lines, steps=steps)
    return ExitCode(answer.exit_code)


def _submit(settings: Settings, client: KazooClient, plan: Plan, handed: SubmittedPlan) -> PlanResult:
    data = encode_submitted(handed)
    record_submission(settings.lake, plan, submission_of(session_of(client), data))
    submit(client, plan.plan_id, data)
    try:
        with raise_on_signal():
            return _await_result(client, plan)
    except KeyboardInterrupt:
        if withdraw(client, plan.plan_id, 0):
            raise
        raise SurveyorError(
            f"interrupted, but the controller has begun with plan {plan.title} and carries it out: "
            f"`surveyor show commits {plan.plan_id}` tells what came of it",
        ) from None


def _await_result(client: KazooClient, plan: Plan) -> PlanResult:
    """Wait for the answer; raise SurveyorError once nobody is there any more who would give one."""
    while True:
        znode = with_retries(lambda: read_latest(client, path_of(plan.plan_id)))
        if znode.data is None:
            raise SurveyorError(
                f"{path_of(plan.plan_id)} is gone, and with it the answer: our session ended; commit the plan again, "
                "what is written is found so",
            )
        try:
            handed = decode_submitted(znode.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{znode.path} was overwritten by another client of ZooKeeper ({error}): "
                f"`surveyor show commits {plan.plan_id}` shows what came of the plan"
            ) from None
        if handed.answer is not None:
            return handed.answer
        if with_retries(lambda: resident(client)) is None:
            how_far = "was done with" if handed.is_begun else "came to"
            raise SurveyorError(
                f"the controller went out of office before it {how_far} plan {plan.title}: commit it again, what is "
                "written is found so",
            )
        time.sleep(_POLL_SECONDS)
