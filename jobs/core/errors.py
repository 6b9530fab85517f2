"""Errors of commands, and their exit codes.

Every message says what was found, where, what was expected and what to do next. `jobs.cli` prints it as one message on
stderr, never as a stack trace. The exit codes are a contract with schedulers and scripts. Errors that prevent a plan
are collected as faults and reported together.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final


class ExitCode(IntEnum):
    """The documented exit codes of every command."""

    DONE = 0
    """Done, also if there was nothing to do, with rejections or with quarantined znodes."""
    ERROR = 1
    USAGE = 2
    CHANGES = 10
    """Changes are present (only under --detailed-exitcode), or something prevents a migration to KRaft."""
    FENCED = 20
    """Another controller took over: nothing more was written."""
    STALE = 21
    """Nothing was applied because rows were stale; with --detailed-exitcode also if only some rows were stale."""
    UNREADABLE = 22
    """Nothing could be read, or not enough to know whether a restart is safe."""
    REFUSED = 23
    """Limits, lint, a KRaft migration, a broker whose registration cannot be decoded, or an unsafe restart."""
    MISSING = 24
    """Java, jars, or a Spark Connect server are missing."""
    RUNNING = 25
    """Replicas still move after --max-wait or an interruption; the same command continues."""
    INTERRUPTED = 130
    """Ctrl-C; the same command continues unfinished work."""
    TERMINATED = 143
    """SIGTERM; the same command continues unfinished work."""


WORST_FIRST: Final = (
    ExitCode.MISSING,
    ExitCode.ERROR,
    ExitCode.USAGE,
    ExitCode.UNREADABLE,
    ExitCode.REFUSED,
    ExitCode.CHANGES,
    ExitCode.DONE,
)
"""The codes with which the work on one cluster of several can end; a command on all ends with the first of them.

Faults that prevent the work on every cluster come first, then unexpected errors, invalid input, and faults that are
expected to end by themselves.
"""


class SurveyorError(Exception):
    """A message for the user, and its exit code.

    `advice`, if there is any, ends the message: what to do next.
    """

    exit_code = ExitCode.ERROR

    def __init__(self, message: str, result: dict[str, Any] | None = None, advice: str = "") -> None:
        super().__init__(f"{message}; {advice}" if advice else message)
        self.reason = message
        """The message without the advice, for a process that follows no advice."""
        self.advice = advice
        self.result = result or {}
        """Result of the work before the error, for the JSON output."""


class UsageError(SurveyorError):
    """The command line, a configuration or an input file is invalid."""

    exit_code = ExitCode.USAGE


class FencedError(SurveyorError):
    """Another controller took over, so /controller_epoch has changed."""

    exit_code = ExitCode.FENCED


class UnreadableError(SurveyorError):
    """The cluster, or a part of the warehouse that the command needs, cannot be read."""

    exit_code = ExitCode.UNREADABLE


class NoAnswerError(UnreadableError):
    """No server answers; one may later."""


class RefusedError(SurveyorError):
    """The request is valid, and Surveyor refuses it."""

    exit_code = ExitCode.REFUSED


class StillRunningError(SurveyorError):
    """The requested moves continue in the cluster, and the command no longer waits for them."""

    exit_code = ExitCode.RUNNING


class LeaseHeldError(RefusedError):
    """Another process has the lease."""


class LeaseLostError(SurveyorError):
    """The lease was lost, so nothing more is written."""

    exit_code = ExitCode.RUNNING


class SnapshotLeaseLostError(LeaseLostError):
    """The lease of snapshots was lost, so the snapshot is not completed."""

    exit_code = ExitCode.ERROR


class MissingError(SurveyorError):
    """A program or file that Surveyor needs on this machine is missing."""

    exit_code = ExitCode.MISSING


Fault = tuple[type[SurveyorError], str]
"""The class and message of an error that is raised if it is the only one."""


MAX_FAULTS_SHOWN: Final = 50


def raise_any(faults: Iterable[Fault]) -> None:
    """Raise the faults, if any, as one error.

    A single fault is raised as its own class. Several are raised as UsageError if one of them is one, else as
    RefusedError.
    """
    listed = list(faults)
    if not listed:
        return
    kind, message = listed[0]
    if len(listed) > 1:
        kind = UsageError if any(kind is UsageError for kind, _ in listed) else RefusedError
        lines = [f"{len(listed)} faults, nothing was planned:", *(text for _, text in listed[:MAX_FAULTS_SHOWN])]
        lines += [f"... and {len(listed) - MAX_FAULTS_SHOWN} more"] if len(listed) > MAX_FAULTS_SHOWN else []
        message = "\n  ".join(lines)
    raise kind(message)


def first_line(error: Exception) -> str:
    r"""Return the first line of an error's message, 500 characters at most; the error's class if it has no message.

    >>> first_line(OSError("no space left\nwhile writing")), first_line(TimeoutError())
    ('no space left', 'TimeoutError')
    """
    return str(error).partition("\n")[0][:500] or type(error).__name__
