"""`surveyor demo`: the main job on embedded, real servers, told as a story. It fails unless every record comes back."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.spark.session import stop_session
from jobs.basics.errors import ExitCode
from jobs.basics.interrupts import unwinding
from jobs.demonstration.story import Run, Story
from jobs.runtime.console import finish
from jobs.runtime.options import Command, command
from jobs.runtime.settings import DEFAULT_WAREHOUSE, Settings


def demo_command(run: Run) -> Command:
    """Make the command; `run` runs a Surveyor command line in this process."""

    @command
    def demo(settings: Settings) -> ExitCode:
        """Run the whole story on embedded ZooKeeper and real Kafka 3.9 brokers."""
        with unwinding(), _warehouse(settings) as warehouse, EmbeddedCluster(3) as cluster:
            story = Story(run, cluster, settings.cluster, warehouse)
            acked, read_back = story.tell()
        lost = acked - read_back
        result = {"acked": len(acked), "read": len(acked & read_back), "lost": len(lost)}
        finish(settings, result, "records " + " ".join(f"{name}={count}" for name, count in result.items()))
        return ExitCode.ERROR if lost or not acked else ExitCode.DONE

    return demo


@contextmanager
def _warehouse(settings: Settings) -> Iterator[str]:
    """The warehouse asked for, else one that goes with the demo."""
    if settings.warehouse != DEFAULT_WAREHOUSE:
        yield settings.warehouse
        return
    with tempfile.TemporaryDirectory(prefix="surveyor-demo-", ignore_cleanup_errors=True) as folder:
        try:
            yield folder
        finally:
            stop_session()
