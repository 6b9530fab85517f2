"""What a command says when it cannot go on, and the exit code that goes with it.

Every error names what was found, where, what was expected and what to do next; `jobs.cli` prints it as
one message on stderr, never as a stack trace. The codes are a contract with schedulers and scripts. What keeps a plan
from being made is collected as faults, so that all of it is said at once.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final


class ExitCode(IntEnum):
    """The documented exit codes of every command."""

    DONE = 0
    """Done; also when nothing was due, with rejections and with quarantined znodes."""
    ERROR = 1
    USAGE = 2
    CHANGES = 10
    """Changes are present (only under --detailed-exitcode)."""
    FENCED = 20
    """Another controller took over: nothing more was written."""
    STALE = 21
    """Nothing was applied because rows were stale; under --detailed-exitcode also if only some were."""
    UNREADABLE = 22
    """Nothing could be read."""
    REFUSED = 23
    """Limits, lint, a KRaft migration or a broker that is not understood."""
    MISSING = 24
    """Java, jars, or a Spark Connect server are missing."""
    RUNNING = 25
    """Replicas still move: --max-wait is over, or the commit was interrupted; the same command goes on."""
    INTERRUPTED = 130
    """Ctrl-C. Whatever was begun, the same command goes on."""
    TERMINATED = 143
    """The same by SIGTERM."""


class SurveyorError(Exception):
    """One clear message and its exit code."""

    exit_code = ExitCode.ERROR

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = result or {}
        """What had been done before, for programs."""


class UsageError(SurveyorError):
    """The command line, a configuration or an input file is not what was expected."""

    exit_code = ExitCode.USAGE


class FencedError(SurveyorError):
    """/controller_epoch is no longer ours: another controller took over."""

    exit_code = ExitCode.FENCED


class UnreadableError(SurveyorError):
    """The cluster, or what the command needs of the warehouse, could not be read."""

    exit_code = ExitCode.UNREADABLE


class RefusedError(SurveyorError):
    """Surveyor understood the request and will not do it."""

    exit_code = ExitCode.REFUSED


class StillRunningError(SurveyorError):
    """What was asked for goes on in the cluster, and nobody waits for it any more."""

    exit_code = ExitCode.RUNNING


class MissingError(SurveyorError):
    """A program or file that Surveyor needs on this machine is missing."""

    exit_code = ExitCode.MISSING


Fault = tuple[type[SurveyorError], str]
"""What is raised where there is no other, and with which words."""


MAX_FAULTS_SHOWN: Final = 50


def raise_any(faults: Iterable[Fault]) -> None:
    """Raise the faults, if there are any: UsageError where one of them cannot be meant, else RefusedError."""
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
