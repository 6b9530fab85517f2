"""`surveyor doctor`: what is in the way of Surveyor here, and what to do about it. No JVM."""

from jobs.core.errors import ExitCode
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def doctor(settings: Settings) -> ExitCode:
    """Check machine, warehouse, ZooKeeper, permissions, clock and brokers; say what to do."""
    from jobs.console_output.doctor import show_checks

    return show_checks(settings)


if __name__ == "__main__":
    run_alone(doctor)
