"""Output of `surveyor doctor` and `surveyor migration`: findings with advice, and what a migration has changed."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.checks.check_results import CheckResult, CheckStatus
from jobs.core.errors import ExitCode
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import CommandResult, wrapped
from jobs.runtime.settings import Settings
from jobs.snapshots.diff import Difference
from jobs.snapshots.migration_proof import prove
from schemas.text import pluralise

_MARKS: Final = {CheckStatus.FINE: "ok", CheckStatus.WARNING: "WARN", CheckStatus.FAULT: "FAULT"}
_LABEL_WIDTH: Final = 25
"""Width of a finding's mark and name."""

_COMMAND: Final = re.compile(r"`surveyor [^`]+`|(?:^|(?<=; ))surveyor [^;]+")
_NO_BREAK: Final = "\x00"


def report_doctor(settings: Settings, findings: Sequence[CheckResult]) -> CommandResult:
    """Return the findings of the doctor; the exit code is ERROR if there is a fault."""
    counts = Counter(finding.status for finding in findings)
    return _report(settings, findings, _verdict(counts), ExitCode.ERROR if counts[CheckStatus.FAULT] else ExitCode.DONE)


def report_check(settings: Settings, findings: Sequence[CheckResult]) -> CommandResult:
    """Return the findings before a migration; the exit code is CHANGES if a fault was found."""
    counts = Counter(finding.status for finding in findings)
    faults, warnings = counts[CheckStatus.FAULT], counts[CheckStatus.WARNING]
    verdict = (
        f"{pluralise(faults, 'fault', 'prevents', 'prevent')} the migration, or what they name would be lost in it"
        if faults
        else f"nothing prevents the migration; {pluralise(warnings, 'warning')}"
    )
    return _report(settings, findings, verdict, ExitCode.CHANGES if faults else ExitCode.DONE)


def _report(settings: Settings, findings: Sequence[CheckResult], verdict: str, code: ExitCode) -> CommandResult:
    counts = Counter(finding.status for finding in findings)
    result = {
        "cluster": settings.cluster,
        "faults": counts[CheckStatus.FAULT],
        "warnings": counts[CheckStatus.WARNING],
        "findings": [finding.to_json() for finding in findings],
    }
    return CommandResult(result, *_lines(findings), "", verdict, exit_code=code)


def _lines(findings: Sequence[CheckResult]) -> Iterator[str]:
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


def report_proof(settings: Settings, before: int, after: int, *, is_rolled_back: bool) -> CommandResult:
    """Compare two snapshots; the exit code is CHANGES unless everything is still there."""
    warehouse = settings.warehouse
    snapshots = find_snapshot(warehouse, before), find_snapshot(warehouse, after)
    proof = prove(warehouse, *snapshots, is_rolled_back=is_rolled_back)
    lines = [f"  fault: {fault}" for fault in proof.faults]
    lines += [f"  {_difference_line(difference)}" for difference in proof.differences]
    lines += [f"  not known: {subject}" for subject in proof.unknown]
    lines += [f"  queued for deletion before: topic {topic}" for topic in proof.deleted_topics]
    if proof.is_proved:
        verdict = f"snapshot {after} has all that snapshot {before} had"
    else:
        count = pluralise(len(proof.differences), "difference")
        faults = f", {pluralise(len(proof.faults), 'fault')}" if proof.faults else ""
        verdict = f"not proved: {count}, {len(proof.unknown)} unknown{faults}"
        if proof.differences:
            lines.append(f"  your own changes since snapshot {before} are listed, too: undo them, then take another")
    fields = {
        "before": before,
        "after": after,
        "proved": proof.is_proved,
        "faults": proof.faults,
        "differences": [difference._asdict() for difference in proof.differences],
        "unknown": proof.unknown,
        "deleted_topics": proof.deleted_topics,
    }
    code = ExitCode.DONE if proof.is_proved else ExitCode.CHANGES
    return CommandResult(fields, *lines, verdict, exit_code=code)


def _difference_line(difference: Difference) -> str:
    """Format one difference as a line.

    >>> _difference_line(Difference("count", "ACLs", "acls", 3, None))
    'count ACLs: acls 3 -> none'
    """
    before, after = ("none" if value is None else value for value in (difference.before, difference.after))
    return f"{difference.what} {difference.subject}: {difference.column} {before} -> {after}"
