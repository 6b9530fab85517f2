"""Output of `surveyor doctor`: each finding, the advice below it, and the totals."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.checks.common_checks import CheckResult, CheckStatus
from jobs.checks.doctor import run_checks
from jobs.core.errors import ExitCode
from jobs.runtime.console import CommandResult, wrapped
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from schemas.text import pluralise

_MARKS: Final = {CheckStatus.FINE: "ok", CheckStatus.WARNING: "WARN", CheckStatus.FAULT: "FAULT"}
_LABEL_WIDTH: Final = 25
"""Width of a finding's mark and name."""

_COMMAND: Final = re.compile(r"`surveyor [^`]+`|(?:^|(?<=; ))surveyor [^;]+")
_NO_BREAK: Final = "\x00"


def show_checks(settings: Settings) -> ExitCode:
    """Run the checks and print the findings; return ERROR if there is a fault."""
    findings = [*run_checks(settings)]
    counts = Counter(finding.status for finding in findings)
    result = {
        "cluster": settings.cluster,
        "faults": counts[CheckStatus.FAULT],
        "warnings": counts[CheckStatus.WARNING],
        "findings": [finding.to_json() for finding in findings],
    }
    emit(settings, CommandResult(result, *lines(findings), "", _verdict(counts)))
    return ExitCode.ERROR if counts[CheckStatus.FAULT] else ExitCode.DONE


def lines(findings: Sequence[CheckResult]) -> Iterator[str]:
    """Return the findings as lines of 80 columns."""
    for finding in findings:
        yield from wrapped(finding.found, f"{_MARKS[finding.status]:7}{finding.check}".ljust(_LABEL_WIDTH))
        if finding.advice is not None:
            yield from _wrapped_advice(finding.advice)


def _wrapped_advice(advice: str) -> Iterator[str]:
    """Wrap an advice around its commands, each of which stays on one line, to be copied."""
    unbroken = _COMMAND.sub(lambda command: command[0].replace(" ", _NO_BREAK), advice)
    for line in wrapped(unbroken, " " * (_LABEL_WIDTH - 3) + "-> "):
        yield line.replace(_NO_BREAK, " ")


def _verdict(counts: Counter[CheckStatus]) -> str:
    faults, warnings = counts[CheckStatus.FAULT], counts[CheckStatus.WARNING]
    if not faults and not warnings:
        return "no problems found"
    return f"{pluralise(faults, 'fault')}, {pluralise(warnings, 'warning')}"
