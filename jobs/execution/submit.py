"""Submission of a plan to `surveyor control`, the resident controller, which carries it out and returns the result.

An interrupted commit withdraws its plan. If the controller has begun with it, the controller still carries it out.
"""

import time
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import ZooKeeperSession, read_latest, with_retries
from jobs.adapters.zookeeper.controllership import session_of
from jobs.adapters.zookeeper.plan_submission import path_of, resident, submit, withdraw
from jobs.advice.plans import after_commit
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError
from jobs.core.signals import raise_on_signal
from jobs.execution.preflight import Preflight
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.actor import this_actor, this_process
from jobs.repositories.plans.repository import record_submission
from jobs.runtime.console import CommandResult, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.plan import Plan
from schemas.submitted_plan import PlanResult, SubmittedPlan, decode_submitted, encode_submitted, submission_of
from schemas.text import pluralise
from schemas.znodes import MalformedZnodeError

_POLL_SECONDS: Final = 0.2


def submit_and_wait(
    settings: Settings,
    session: ZooKeeperSession,
    plan: Plan,
    preflight: Preflight,
    limits: CommitLimits,
    *,
    detailed: bool,
) -> CommandResult:
    """Let the resident controller carry out a plan, and show its result."""
    log(f"  mode {preflight.mode} ({preflight.reason}); {pluralise(len(preflight.pending), 'row', 'is', 'are')} due")
    submission = SubmittedPlan(
        holder=this_process("commit", plan.plan_id),
        max_plan_age=limits.max_plan_age,
        max_changes=limits.max_changes,
        allow_majority_dead=limits.allow_majority_dead,
        detailed=detailed,
        run=this_actor().run,
    )
    is_connected = False
    try:
        with session.connected() as client, progress(f"{preflight.resident_controller} carries it out"):
            is_connected = True
            plan_result = _submit(settings, client, plan, submission)
    except UnreadableError as lost_connection:
        if not is_connected:
            raise
        raise SurveyorError(
            f"{lost_connection}. Plan {plan.title} may have been submitted, and the controller may have begun with "
            f"it: `surveyor show commits {plan.plan_id}` shows the result; commit the plan again, which finds what is "
            "already written",
        ) from lost_connection
    if plan_result.error is not None:
        error = SurveyorError(plan_result.error, plan_result.result)
        error.exit_code = ExitCode(plan_result.exit_code)
        raise error
    steps = after_commit(settings, plan.called, plan_result.result["status"], plan_result.result)
    return CommandResult(
        plan_result.result, *plan_result.lines, steps=steps, warnings=[], exit_code=ExitCode(plan_result.exit_code)
    )


def _submit(settings: Settings, client: KazooClient, plan: Plan, submission: SubmittedPlan) -> PlanResult:
    """Record the submission, submit the plan, and wait for its result."""
    data = encode_submitted(submission)
    record_submission(settings.warehouse, plan, submission_of(session_of(client), data))
    submit(client, plan.plan_id, data)
    try:
        with raise_on_signal():
            return _await_result(client, plan)
    except KeyboardInterrupt:
        if withdraw(client, plan.plan_id, 0):
            raise
        raise SurveyorError(
            f"interrupted, but the controller has begun with plan {plan.title} and carries it out: "
            f"`surveyor show commits {plan.plan_id}` shows the result",
        ) from None


def _await_result(client: KazooClient, plan: Plan) -> PlanResult:
    """Wait for the result; raise SurveyorError once no process is left that could return it."""
    while True:
        znode = with_retries(lambda: read_latest(client, path_of(plan.plan_id)))
        if znode.data is None:
            raise SurveyorError(
                f"lost the ZooKeeper session while waiting for the result of plan {plan.title}: "
                f"{path_of(plan.plan_id)} is gone; commit the plan again, which finds what is already written",
            )
        try:
            submission = decode_submitted(znode.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{znode.path} was overwritten by another client of ZooKeeper ({error}): "
                f"`surveyor show commits {plan.plan_id}` shows the result of the plan"
            ) from None
        if submission.answer is not None:
            return submission.answer
        if with_retries(lambda: resident(client)) is None:
            progress_text = "finished" if submission.is_begun else "started"
            raise SurveyorError(
                f"`surveyor control` stopped before it {progress_text} plan {plan.title}: commit the plan again, which "
                "finds what is already written",
            )
        time.sleep(_POLL_SECONDS)
