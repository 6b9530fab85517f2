"""Commit of a plan in the process that has made it: the approval, the waves, a verification, and how to undo it.

The plan is stored before, so a process that ends at any time leaves a plan that `surveyor commit` continues.
"""

import re
from typing import Final

from jobs.advice.plans import undo_steps
from jobs.console_output.verification import Verification, verification_result
from jobs.core.errors import ExitCode, SurveyorError
from jobs.core.polling import poll_until
from jobs.execution.admin.reassignment_options import ReassignmentOptions
from jobs.execution.commit import commit_plan
from jobs.execution.commit_options import CommitOptions, commit_limits, hold_seconds
from jobs.execution.verification import verify_stored
from jobs.repositories.plans.plans_reader import find_plan
from jobs.runtime.approval import Approve
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult, warn
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import with_full_commands
from planner.reassignment.reassignment_status import ReassignmentStatus

SHOWN_SECONDS: Final = 15.0
"""Seconds for accepted changes to show in the cluster: topics are deleted, and leaders announced, after the answer."""


def commit_planned(
    settings: Settings,
    planned: CommandResult,
    mode: Mode,
    running: ReassignmentOptions,
    *,
    approve: Approve | None,
    max_changes: int | None,
    reviewed: bool,
    detailed: bool,
) -> CommandResult:
    """Commit the plan that `planned` shows and verify it; the result has the fields of all three together.

    `reviewed` as in CommitOptions. An error of the commit has the plan's fields too. The exit code is that of the
    commit, or RUNNING for a plan of which something is still in progress.
    """
    name = planned.fields["name"] or planned.fields["plan_id"]
    options = CommitOptions(
        mode=mode,
        limits=commit_limits(settings, max_changes),
        hold=hold_seconds(settings, None),
        approve=approve,
        apply=True,
        running=running,
        reviewed=reviewed,
        detailed=detailed,
    )
    try:
        committed = commit_plan(settings, name, options)
    except SurveyorError as error:
        error.result = planned.fields | {"status": find_plan(settings.warehouse, name).status} | error.result
        of_plan = re.compile(rf"`surveyor (\w+ (?:{planned.fields['plan_id']}|{re.escape(name)})\b[^`]*)`")
        error.args = (with_full_commands(settings, str(error), of_plan),)
        raise
    committed.fields = planned.fields | committed.fields
    committed.warnings = [*(planned.warnings or ()), *(committed.warnings or ())]
    if committed.exit_code not in {ExitCode.DONE, ExitCode.STALE}:
        return committed
    try:
        verification = _verify(settings, name, SHOWN_SECONDS if committed.exit_code == ExitCode.DONE else 0.0)
    except SurveyorError as error:  # it must not hide what was committed
        warn(f"how far plan {name} has come is unknown: {error}")
        return committed
    verified = verification_result(settings, verification, everything=False)
    is_running = committed.exit_code == ExitCode.DONE and verification.counts[ReassignmentStatus.IN_PROGRESS] > 0
    shown = [verified] if verification.is_complete else [committed, verified]
    steps = dict.fromkeys(step for result in shown for step in result.steps or ())
    return CommandResult(
        committed.fields | verified.fields,
        *(line for result in shown for line in result.lines),
        steps=[*steps, *undo_steps(settings, verification.plan)],
        warnings=[*committed.warnings, *verification.warnings],
        exit_code=ExitCode.RUNNING if is_running else committed.exit_code,
    )


def _verify(settings: Settings, plan: str, timeout_seconds: float) -> Verification:
    """Verify a plan until it is complete, for at most `timeout_seconds`."""
    return poll_until(
        lambda: verify_stored(settings, plan, 0.0, in_full=True),
        lambda verification: verification.is_complete,
        timeout_seconds,
    )
