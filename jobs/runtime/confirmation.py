"""Questions on the terminal, and the approval of a write by them. Only commands ask; services take an `Approve`."""

import sys
import termios
from contextlib import suppress

import typer

from jobs.core import status_line
from jobs.core.errors import RefusedError
from jobs.runtime.approval import Approve, Review, warning_lines
from jobs.runtime.console import CommandResult, log
from jobs.runtime.output import show
from jobs.runtime.settings import Settings
from schemas.enums import PlanStatus


def approval(*, yes: bool) -> Approve | None:
    """Return what approves a write: the terminal, or None if `--yes` was given."""
    return None if yes else ask


def ask(review: Review) -> bool:
    """Show a review on the terminal and ask; without a terminal --apply is enough, except for what is refused then."""
    if not is_terminal():
        for line in [*review.notes, *warning_lines(review.warnings)]:
            log(line)
        if review.unattended_refusal is not None:
            raise RefusedError(review.unattended_refusal)
        return True
    for line in review.lines:
        log(line)
    if review.expected_word is None:
        return confirm(review.question)
    return typed_answer(review.question) == review.expected_word


def show_review(settings: Settings, planned: CommandResult, *, yes: bool) -> bool:
    """Print the review of a plan that is about to be committed; return whether the user need not be shown it again.

    A program does not get it, and a question is not answered by what stdout has, unless that is a terminal, too. A plan
    whose commit has begun was shown before; the commit shows what is still due.
    """
    is_shown = settings.for_people and planned.fields["status"] == PlanStatus.PLANNED
    if is_shown:
        for line in planned.lines:
            show(line)
        sys.stdout.flush()
    return is_shown and (yes or not is_terminal() or is_terminal_output())


def is_terminal() -> bool:
    """Return whether stdin is a terminal, so that the user can be asked."""
    return sys.stdin.isatty()


def is_terminal_output() -> bool:
    """Return whether stdout is a terminal, so that the user sees it."""
    return sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Ask for yes or no on the terminal; the end of input (Ctrl-D) means no."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return typer.confirm(question, err=True)
    except typer.Abort:
        log("")  # the cursor is still behind the question
        return False


def typed_answer(question: str) -> str:
    """Ask for a word on the terminal; the end of input (Ctrl-D) means an empty word."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return str(typer.prompt(question, default="", show_default=False, err=True)).strip()
    except typer.Abort:
        log("")
        return ""


def _discard_typed_keys() -> None:
    """Discard keys that were pressed before the question was shown."""
    with suppress(OSError, ValueError, termios.error):  # not a terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
