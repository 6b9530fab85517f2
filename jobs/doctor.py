"""`surveyor doctor`: check the environment, and suggest a remedy for each problem."""

from jobs.runtime.console import CommandResult
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def doctor(settings: Settings) -> CommandResult:
    """Check the machine, warehouse, ZooKeeper or quorum, permissions, clock and brokers."""
    from jobs.checks.doctor import run_checks
    from jobs.console_output.check_findings import report_doctor

    return report_doctor(settings, [*run_checks(settings)])


if __name__ == "__main__":
    run_as_script(doctor)
