"""`surveyor sizes`: how many bytes each broker holds of each partition, by log dir. No JVM."""

from collections.abc import Iterator

from jobs.basics.units import shown_bytes
from jobs.runtime.console import Result, finish, say
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings
from jobs.survey.sizes import listed, silent_lines, take_sizes


def _warnings(result: Result) -> Iterator[str]:
    if result["silent"]:
        lines = silent_lines({row["broker_id"]: row["reason"] for row in result["silent"]})
        yield f"{len(lines)} brokers did not answer, their last sizes are kept:\n  {listed(lines)}"
    if result["failed_log_dirs"]:
        lines = [f"broker {row['broker_id']}: {row['log_dir']}: {row['error']}" for row in result["failed_log_dirs"]]
        yield f"{len(lines)} log dirs could not be read by their brokers:\n  {listed(lines)}"


@command
def sizes(settings: Settings) -> None:
    """Ask every live broker how many bytes it holds of which partition, into the table `sizes`."""
    result = take_sizes(settings)
    for warning in _warnings(result):
        say(f"surveyor: {warning}")
    future = f", {result['future']} of them on their way to another log dir" if result["future"] else ""
    counts = f"{result['replicas']} replicas of {result['topics']} topics on {result['brokers']} brokers{future}"
    finish(settings, result, f"sizes of {settings.cluster}: {shown_bytes(result['bytes'])} in {counts}")


if __name__ == "__main__":
    run_alone(sizes)
