"""`surveyor snapshot`: one cluster, or every cluster of the --conf file, surveyed into the Delta tables."""

from typing import Annotated

import typer

from jobs.basics.errors import ExitCode, SurveyorError, UsageError
from jobs.runtime.console import Result, finish, say
from jobs.runtime.options import command, run_alone, unexpected
from jobs.runtime.settings import Settings
from jobs.survey.snapshot import take_snapshot
from jobs.views.snapshots import snapshot_line


@command
def snapshot(
    settings: Settings,
    *,
    fleet: Annotated[
        bool, typer.Option("--all", help="Every cluster of the --conf file, one after the other.")
    ] = False,
) -> ExitCode:
    """Read the cluster from ZooKeeper into the Delta tables."""
    if fleet:
        return _snapshot_fleet(settings)
    result = take_snapshot(settings)
    finish(settings, result, snapshot_line(settings.cluster, result))
    return ExitCode.DONE


def _snapshot_fleet(settings: Settings) -> ExitCode:
    """Take each cluster's snapshot; one that fails is reported and spoils no other."""
    if not settings.fleet:
        raise UsageError("--all takes the clusters of the --conf file; give one with [clusters.NAME] sections")
    results = {cluster.cluster: _take_or_report(cluster) for cluster in settings.fleet}
    failed = [result for result in results.values() if "error" in result]
    said = (snapshot_line(name, result) for name, result in results.items() if "error" not in result)
    finish(settings, {"clusters": results, "failed": len(failed)}, *said)
    if len(failed) == len(results):
        return ExitCode(failed[0]["exit_code"])
    return ExitCode.ERROR if failed else ExitCode.DONE


def _take_or_report(settings: Settings) -> Result:
    """Take one cluster's snapshot; whatever goes wrong with it is said and spoils no other."""
    try:
        return take_snapshot(settings, alone=False)
    except Exception as error:  # noqa: BLE001 - the other clusters must have their turn
        said = str(error) if isinstance(error, SurveyorError) else unexpected(error)
        say(f"surveyor: {settings.cluster}: {said}")
        return {"error": said, "exit_code": int(getattr(error, "exit_code", ExitCode.ERROR))}


if __name__ == "__main__":
    run_alone(snapshot)
