"""What `surveyor doctor` says: a line for each finding, what to do below it, and the verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from jobs.advice.doctor import Finding, State, check_up
from jobs.core.errors import ExitCode
from jobs.runtime.console import finish, wrapped
from jobs.runtime.settings import Settings
from planner.text import counted

_MARKS: Final = {State.FINE: "ok", State.WARNING: "WARN", State.FAULT: "FAULT"}
_LABEL: Final = 25
"""Columns that mark and name of a finding have."""


def show_checkup(settings: Settings) -> ExitCode:
    """Look, and say what is in the way; ERROR where something is that nothing works with."""
    findings = [*check_up(settings)]
    counts = Counter(finding.state for finding in findings)
    result = {
        "cluster": settings.cluster,
        "faults": counts[State.FAULT],
        "warnings": counts[State.WARNING],
        "findings": [asdict(finding) for finding in findings],
    }
    finish(settings, result, *lines(findings), "", _verdict(counts))
    return ExitCode.ERROR if counts[State.FAULT] else ExitCode.DONE


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Write them for people, in lines of 80 columns."""
    for finding in findings:
        yield from wrapped(finding.found, f"{_MARKS[finding.state]:7}{finding.check}".ljust(_LABEL))
        if finding.advice is not None:
            yield from wrapped(finding.advice, " " * (_LABEL - 3) + "-> ")


def _verdict(counts: Counter[State]) -> str:
    faults, warnings = counts[State.FAULT], counts[State.WARNING]
    if not faults and not warnings:
        return "nothing is in the way"
    return f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}"
