"""`surveyor snapshot`: store a snapshot of one cluster, or of every cluster of the --conf file, in the Delta tables."""

from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, Parallel
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def snapshot(
    settings: Settings,
    *,
    fleet: Fleet = False,
    parallel: Parallel = None,
) -> CommandResult:
    """Store a snapshot of the cluster's metadata in the Delta tables."""
    from jobs.snapshots.snapshot import snapshot_fleet, snapshot_one

    return snapshot_fleet(settings, parallel) if fleet else snapshot_one(settings)


if __name__ == "__main__":
    run_as_script(snapshot)
