"""Output of `surveyor migration`: what prevents a migration, with what to do about it, and what one has changed."""

from collections import Counter

from jobs.checks.common_checks import CheckStatus
from jobs.checks.migration_check import MigrationFacts, migration_checks
from jobs.console_output.doctor import lines
from jobs.core.errors import ExitCode
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import CommandResult
from jobs.runtime.settings import Settings
from jobs.snapshots.diff import Difference
from jobs.snapshots.migration_proof import prove
from schemas.text import pluralise


def report_check(settings: Settings, facts: MigrationFacts) -> CommandResult:
    """Judge the facts; the exit code is CHANGES if a fault was found."""
    findings = [*migration_checks(settings, facts)]
    counts = Counter(finding.status for finding in findings)
    faults, warnings = counts[CheckStatus.FAULT], counts[CheckStatus.WARNING]
    verdict = (
        f"{pluralise(faults, 'fault', 'prevents', 'prevent')} the migration, or what they name would be lost in it"
        if faults
        else f"nothing prevents the migration; {pluralise(warnings, 'warning')}"
    )
    fields = {
        "cluster": settings.cluster,
        "faults": faults,
        "warnings": warnings,
        "findings": [finding.to_json() for finding in findings],
    }
    code = ExitCode.CHANGES if faults else ExitCode.DONE
    return CommandResult(fields, *lines(findings), "", verdict, exit_code=code)


def report_proof(settings: Settings, before: int, after: int, *, is_rolled_back: bool) -> CommandResult:
    """Compare two snapshots; the exit code is CHANGES unless everything is still there."""
    warehouse = settings.warehouse
    snapshots = find_snapshot(warehouse, before), find_snapshot(warehouse, after)
    proof = prove(warehouse, *snapshots, is_rolled_back=is_rolled_back)
    lines = [f"  fault: {fault}" for fault in proof.faults]
    lines += [f"  {_line(difference)}" for difference in proof.differences]
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


def _line(difference: Difference) -> str:
    """Format one difference as a line.

    >>> _line(Difference("count", "ACLs", "acls", 3, None))
    'count ACLs: acls 3 -> none'
    """
    before, after = ("none" if value is None else value for value in (difference.before, difference.after))
    return f"{difference.what} {difference.subject}: {difference.column} {before} -> {after}"
