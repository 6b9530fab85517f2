"""`surveyor sizes`: how many bytes each broker holds of each partition, by log dir. No JVM."""

from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def sizes(settings: Settings) -> None:
    """Ask every live broker how many bytes it holds of which partition."""
    from jobs.snapshots.sizes import report_sizes

    report_sizes(settings)


if __name__ == "__main__":
    run_alone(sizes)
