"""Output of `surveyor migration check`: each finding with what to do about it, and whether a migration may begin."""

from collections import Counter
from dataclasses import asdict

from jobs.advice.doctor import CheckStatus
from jobs.advice.migration_check import migration_checks, read_facts
from jobs.console_output.doctor import lines
from jobs.core.errors import ExitCode
from jobs.runtime.console import CommandResult
from jobs.runtime.settings import Settings
from schemas.text import pluralise


def report_check(settings: Settings) -> CommandResult:
    """Run the checks; the exit code is CHANGES if a fault was found."""
    findings = [*migration_checks(settings, read_facts(settings))]
    counts = Counter(finding.state for finding in findings)
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
        "findings": [asdict(finding) for finding in findings],
    }
    code = ExitCode.CHANGES if faults else ExitCode.DONE
    return CommandResult(fields, *lines(findings), "", verdict, exit_code=code)
