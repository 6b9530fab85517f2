"""The demo from beginning to end: a warehouse, an embedded cluster, the steps, and the records that were read back."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.migrating_cluster import MigratingCluster
from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import stop_session
from jobs.core.errors import ExitCode, RefusedError
from jobs.core.option_sources import WAREHOUSE
from jobs.core.signals import raise_on_signal
from jobs.demo_scenario.kraft import KRaftScenario
from jobs.demo_scenario.load import LoadScenario
from jobs.demo_scenario.migration import MigrationScenario
from jobs.demo_scenario.scenario import DemoScenario, Run
from jobs.demo_scenario.zookeeper import BROKER_SETTINGS, ZooKeeperScenario
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.console import CommandResult
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings

INTERRUPTED: Final = "interrupted: the servers of the demo are stopped; the same command starts a new demo"


class Demo(Enum):
    """The demos: a ZooKeeper cluster, a KRaft cluster, a migration from one to the other, and uneven load."""

    ZOOKEEPER = auto()
    KRAFT = auto()
    MIGRATION = auto()
    LOAD = auto()


def run_demo(settings: Settings, run: Run, demo: Demo, *, pauses: bool) -> ExitCode:
    """Run the demo; it fails unless every acknowledged record is read back.

    `run` executes a Surveyor command line in this process. If it pauses, each step waits for Enter.
    """
    os.environ.pop(REMOTE, None)  # the demo runs on this host only
    try:
        with (
            raise_on_signal(),
            _warehouse(settings) as warehouse,
            _scenario(demo, run, settings.cluster, warehouse, pauses=pauses) as scenario,
        ):
            acked, read_back = scenario.execute()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    lost = acked - read_back
    result = {"acked": len(acked), "read": len(acked & read_back), "lost": len(lost)}
    emit(settings, CommandResult(result, "records " + " ".join(f"{name}={count}" for name, count in result.items())))
    return ExitCode.ERROR if lost or not acked else ExitCode.DONE


@contextmanager
def _scenario(demo: Demo, run: Run, name: str, warehouse: str, *, pauses: bool) -> Iterator[DemoScenario]:
    """Start the cluster, and yield the steps for it."""
    match demo:
        case Demo.ZOOKEEPER:
            with EmbeddedCluster(3, overrides=BROKER_SETTINGS) as cluster:
                yield ZooKeeperScenario(run, name, warehouse, pauses, cluster)
        case Demo.KRAFT:
            with EmbeddedKRaftCluster(3) as quorum:
                yield KRaftScenario(run, name, warehouse, pauses, quorum)
        case Demo.LOAD:
            with EmbeddedKRaftCluster(3) as brokers:
                yield LoadScenario(run, name, warehouse, pauses, brokers)
        case Demo.MIGRATION:
            with MigratingCluster(3) as migrating:
                yield MigrationScenario(run, name, warehouse, pauses, migrating)


@contextmanager
def _warehouse(settings: Settings) -> Iterator[str]:
    """Yield the given warehouse, else a temporary one that is deleted afterwards.

    Raises RefusedError if the given one has snapshots under this name: the demo starts another cluster.
    """
    if WAREHOUSE in settings.places:
        warehouse = settings.warehouse
        if warehouse.exists() and last_snapshot(warehouse) is not None:
            raise RefusedError(
                f"{warehouse.uri} has snapshots of cluster {warehouse.cluster!r}, and the demo starts a new cluster; "
                "give another folder with --warehouse, or another name with --cluster"
            )
        yield settings.warehouse_uri
        return
    with tempfile.TemporaryDirectory(prefix="surveyor-demo-", ignore_cleanup_errors=True) as folder:
        try:
            yield folder
        finally:
            stop_session()
