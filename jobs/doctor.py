"""`surveyor doctor`: check the environment, and suggest a remedy for each problem."""

from jobs.core.errors import ExitCode
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def doctor(settings: Settings) -> ExitCode:
    """Check the machine, warehouse, ZooKeeper or quorum, permissions, clock and brokers."""
    from jobs.console_output.doctor import show_checks

    return show_checks(settings)


if __name__ == "__main__":
    run_as_script(doctor)
