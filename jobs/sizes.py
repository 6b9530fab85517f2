"""`surveyor sizes`: record the bytes of each replica by broker and log dir."""

from jobs.runtime.console import CommandResult
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def sizes(settings: Settings) -> CommandResult:
    """Record the size of each replica as reported by the live brokers."""
    from jobs.snapshots.sizes import report_sizes

    return report_sizes(settings)


if __name__ == "__main__":
    run_as_script(sizes)
