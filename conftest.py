"""What every test may use: one Spark session for the whole run, also in the doctests."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from jobs.adapters.embedded.processes import Server
from tests.record_app_cds import environment
from tests.shared_spark import own_session, session_of_run

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30  # noqa: S108 - as Linux has it
"""Where files cost no disk, and the bytes that must be free there for it to be used."""


def _in_memory() -> dict[str, str]:
    """Temporary folders in memory: tests write small files without end, and ZooKeeper waits for each to be on disk."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return {"TMPDIR": str(MEMORY)} if usable else {}


# one thread does for tables of a few rows: an eighth of the processor time of tests that do nothing but read and write
for name, value in (environment() | _in_memory() | {"TOKIO_WORKER_THREADS": "1"}).items():
    os.environ.setdefault(name, value)
tempfile.tempdir = None  # code that has read it before reads it again

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a run that a script began in the background: the commands that tests interrupt would not hear of it, either
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

pytest.register_assert_rewrite("tests.jobs.stories.control_acts", "tests.jobs.support")
"""Acts and checks that several tests share say what they compared, as tests do."""

FIXTURES = {
    "brokers": {"cluster"},
    "zookeeper": {"zookeeper_server", "ensemble"},
    "spark": {"spark"},
    "browser": {"browser"},
    "objects": {"object_store", "careless_store", "refusing_store", "hdfs_folder"},
    "torture": {"proxy", "ensemble"},
}
"""The marker that a test gets for a fixture it uses, itself or by way of others."""

SERVERS = {
    "brokers": {"EmbeddedCluster", "EmbeddedKafka", "EmbeddedKRaftCluster"},
    "zookeeper": {"EmbeddedZooKeeper", "Ensemble"},
}
"""The marker that a module's tests get for a server class which the module names."""

UNIT = "unit"

REPEATS: Final = os.environ.get("REPEATS") == "all"
"""Whether tests run that do the same again, with another version, store or setting."""

WAITS = re.compile(r"_brokers\.py|/stories/|/test_spark_clusters\.py|/test_interrupts\.py|_killed\.py")
"""Files whose tests mostly wait for servers and processes of their own."""

LONG: Final = (
    *("dags_brokers", "kraft_plans_brokers", "bare_environment", "spark_clusters", "demo", "listen_brokers"),
    *("standby", "whole_job_on_stores", "moves_brokers", "leadership_brokers", "placement_brokers", "kraft_brokers"),
    *("control_brokers", "pages_brokers", "kraft_secured_plans_brokers", "rounds_at_once", "catalog"),
    *("runbook_brokers", "kraft_restarts_brokers", "migration_brokers", "stock_life_brokers"),
)
"""Files of more than a minute, `test_` left out, which begin first, the longest of them before the others: no worker is
left alone with one at the end.
"""

TWO_VERSIONS = "test_leadership_brokers.py"
"""Its tests run on clusters of two protocol versions, and nothing else is shared."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the servers that it uses; a test that uses none is a unit."""
    if item.get_closest_marker("repeat"):
        item.add_marker("torture")
        item.add_marker(pytest.mark.skipif(not REPEATS, reason="a repeat: REPEATS=all runs it"))
    markers = {marker for marker in (*FIXTURES, *SERVERS) if item.get_closest_marker(marker)} | _used_by(item)
    for marker in sorted(markers) or [UNIT]:
        item.add_marker(marker)


def _used_by(item: pytest.Item) -> set[str]:
    if isinstance(item, pytest.DoctestItem):
        return {"spark"} if item.name.startswith("planner") else set()
    fixtures, names = set(getattr(item, "fixturenames", ())), vars(getattr(item, "module", item)).keys()
    by_fixture = {marker for marker, some in FIXTURES.items() if some & fixtures}
    return by_fixture | {marker for marker, some in SERVERS.items() if some & names}


def _rank(scope: str) -> int:
    """The place of a file among the long ones, or after them."""
    name = Path(scope.partition("[")[0]).stem.removeprefix("test_")
    return LONG.index(name) if name in LONG else len(LONG)


class ByFileAndCluster(LoadFileScheduling):
    """Gives a worker a whole file, as its tests share servers; a file with clusters of two versions goes to two.

    Stories on real servers take longest and mostly wait. Every other worker takes those first and the rest takes them
    last, so that at any time some workers compute while others wait. Of each kind the long ones come first, whatever
    the order in which pytest-randomly has put the files.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        return f"{file}[{test.partition('[')[2]}" if file.endswith(TWO_VERSIONS) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = self.nodes.index(node) % 2 == 0
        first = min(self.workqueue, key=lambda scope: (bool(WAITS.search(scope)) != waits, _rank(scope)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:  # noqa: ANN401 - xdist's
    if gone := {*LONG} - {path.stem.removeprefix("test_") for path in config.rootpath.joinpath("tests").rglob("*.py")}:
        raise pytest.UsageError(f"LONG in conftest.py names files that are not there: {', '.join(sorted(gone))}")
    return ByFileAndCluster(config, log)


@pytest.fixture(autouse=True)
def _starts_no_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that starts a server lacks a marker, and `make quick` would run it."""
    if request.node.get_closest_marker(UNIT):
        monkeypatch.setattr(Server, "start", _refuse)


def _refuse(server: Server) -> None:
    raise AssertionError(f"{server.name} started by a test without the marker `brokers` or `zookeeper`")


@pytest.fixture(autouse=True)
def _one_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every command that a test runs in the worker uses the session of the run, whichever test comes first.

    A session of its own would keep the fixture `spark` of later tests from connecting to the run's.
    """
    get_or_create = SparkSession.Builder.getOrCreate

    def connect_first(builder: SparkSession.Builder) -> SparkSession:
        if request.node.get_closest_marker(UNIT):
            raise AssertionError("Spark started by a test without the fixture `spark`")
        patch.undo()
        request.getfixturevalue("spark")
        return get_or_create(builder)

    with pytest.MonkeyPatch.context() as patch:
        if "spark" not in request.fixturenames and not isinstance(request.node, pytest.DoctestItem):
            patch.setattr(SparkSession.Builder, "getOrCreate", connect_first)
        yield


@pytest.fixture(scope="session")
def spark(worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    alone = worker_id == "master"
    with own_session() if alone else session_of_run(tmp_path_factory.getbasetemp().parent) as session:
        yield session


@pytest.fixture(autouse=True)
def _doctests(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.startswith("planner"):
        names: dict[str, Any] = {"spark": request.getfixturevalue("spark"), "F": F}
        request.node.dtest.globs.update(names)
