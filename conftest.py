"""What every test may use: one session of an engine for each worker, also in the doctests."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from jobs.adapters.embedded.processes import Server
from jobs.adapters.spark import connect
from jobs.adapters.spark.engine_choice import ENGINE, Engine, Place
from jobs.adapters.spark.session import start_session
from tests.spark_settings import JVM_OPTIONS, QUICK_JVM, own_session

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30  # noqa: S108 - as Linux has it
"""Where files cost no disk, and the bytes that must be free there for it to be used."""


def _in_memory() -> dict[str, str]:
    """Temporary folders in memory: tests write small files without end, and ZooKeeper waits for each to be on disk."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return {"TMPDIR": str(MEMORY)} if usable else {}


# one thread does for tables of a few rows: an eighth of the processor time of tests that do nothing but read and write
QUICK: Final = {JVM_OPTIONS: QUICK_JVM, "TOKIO_WORKER_THREADS": "1", "RUST_LOG": "warn,sail=error"}
for name, value in (QUICK | _in_memory()).items():
    os.environ.setdefault(name, value)
EMBEDDED: Final = os.environ.get(ENGINE) != Engine.SPARK
"""Whether tests use the embedded engine, as users do on one machine.

SURVEYOR_ENGINE=spark runs those of the transforms and of loads again, and those that are about Spark (marker `jvm`).
"""

tempfile.tempdir = None  # code that has read it before reads it again

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a run that a script began in the background: the commands that tests interrupt would not hear of it, either
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

pytest.register_assert_rewrite("tests.jobs.stories.control_acts", "tests.jobs.support")
"""Acts and checks that several tests share say what they compared, as tests do."""

FIXTURES = {
    "zookeeper": {"zookeeper_server", "ensemble"},
    "spark": {"spark"},
    "browser": {"browser"},
    "objects": {"s3_address", "careless_store", "refusing_store", "hdfs_server", "azure_server", "gcs_server"},
    "kerberos": {"kdc"},
    "package": {"checkout", "distribution"},
    "torture": {"proxy", "ensemble"},
}
"""The marker that a test gets for a fixture it uses, itself or by way of others."""

CLASSES = {
    "brokers": {"EmbeddedCluster", "EmbeddedKafka", "EmbeddedKRaftCluster"},
    "zookeeper": {"EmbeddedZooKeeper", "Ensemble"},
}
"""The marker that a module's tests get for a server class, or a subclass of it, which the module names."""

BROKERS = "_brokers.py"
"""The end of the names of files whose tests have the marker `brokers`."""

SERVERS: Final = frozenset({"brokers", "zookeeper", "browser", "objects", "kerberos", "package"})
"""The markers of tests that start a server or a browser, or build the package."""

UNIT = "unit"

FIRST: Final = pytest.mark.first("no server is started")
"""The marker of the tests that `make test` runs, with the reason; the others are left to `make test-rest`."""

REPEATS: Final = os.environ.get("REPEATS") == "all"
"""Whether tests run that do the same again, with another version, store or setting."""

WAITS = re.compile(r"_brokers\.py|/stories/|/test_spark_clusters\.py|/test_interrupts\.py|_killed\.py")
"""Files whose tests mostly wait for servers and processes of their own."""

LONG: Final = (
    *("dags_brokers", "kraft_plans_brokers", "bare_environment", "spark_clusters", "demo", "listen_brokers"),
    *("standby", "whole_job_on_stores", "moves_brokers", "leadership_brokers", "placement_brokers", "kraft_brokers"),
    *("control_brokers", "pages_brokers", "kraft_secured_plans_brokers", "rounds_at_once", "catalog"),
    *("runbook_brokers", "kraft_restarts_brokers", "load_accuracy_brokers", "migration_brokers", "stock_life_brokers"),
)
"""Files of more than a minute, `test_` left out, which begin first, the longest of them before the others: no worker is
left alone with one at the end.
"""

TWO_VERSIONS = "test_leadership_brokers.py"
"""Its tests run on clusters of two protocol versions, and nothing else is shared."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the servers that it uses; a test that uses none is run first, and is a unit without Spark."""
    if item.get_closest_marker("repeat"):
        item.add_marker("torture")
        item.add_marker(pytest.mark.skipif(not REPEATS, reason="a repeat: REPEATS=all runs it"))
    markers = {marker for marker in (*FIXTURES, *CLASSES) if item.get_closest_marker(marker)}
    markers |= set() if item.get_closest_marker(UNIT) else _used_by(item)
    for marker in sorted(markers) or [UNIT]:
        item.add_marker(marker)
    if not markers & SERVERS and not item.get_closest_marker("repeat"):
        item.add_marker(FIRST)
    if any(not marker.args for marker in item.iter_markers(FIRST.name)):
        raise pytest.UsageError(f"{item.nodeid}: the marker `first` lacks its reason")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other engine."""
    chosen = [item for item in items if (not _needs_jvm(item) if EMBEDDED else _on_spark(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in {*chosen}])
    items[:] = chosen


def _needs_jvm(item: pytest.Item) -> bool:
    """Return whether a test starts a session of Spark in this process, which has one engine."""
    markers = {marker.name for marker in item.iter_markers()}
    return "jvm" in markers or {"spark", "objects"} <= markers


def _on_spark(item: pytest.Item) -> bool:
    rooms = "tests/planner/", "planner/", "tests/jobs/measurement/"
    is_of_transform = item.nodeid.startswith(rooms) and item.get_closest_marker("spark")
    return _needs_jvm(item) or bool(is_of_transform)


def _used_by(item: pytest.Item) -> set[str]:
    if isinstance(item, pytest.DoctestItem):
        return {"spark"} if item.name.startswith("planner") else set()
    fixtures, named = set(getattr(item, "fixturenames", ())), vars(getattr(item, "module", item)).values()
    classes = {base.__name__ for value in named if isinstance(value, type) for base in value.__mro__}
    by_name = {"brokers"} if item.path.name.endswith(BROKERS) else set()
    by_fixture = {marker for marker, some in FIXTURES.items() if some & fixtures}
    return by_name | by_fixture | {marker for marker, some in CLASSES.items() if some & classes}


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that starts a server, also by a fixture of its module, lacks a marker, and `make test` would run it."""
    with pytest.MonkeyPatch.context() as patch:
        if not any(item.get_closest_marker(marker) for marker in SERVERS):
            patch.setattr(Server, "start", _refuse)
        if item.get_closest_marker(UNIT):
            patch.setattr(connect, "begin_embedded", _refuse_engine)
            patch.setattr(SparkSession.Builder, "getOrCreate", _refuse_engine)
        return (yield)


def _refuse(server: Server) -> None:
    raise AssertionError(f"{server.name} started by a test without a marker of {', '.join(sorted(SERVERS))}")


def _refuse_engine(*_: object) -> None:
    raise AssertionError("the engine was started by a test without the fixture `spark`")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if EMBEDDED:
        yield start_session("surveyor-tests", place=Place(Engine.EMBEDDED))
        return
    with own_session() as session:
        yield session


@pytest.fixture(autouse=True)
def _doctests(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.startswith("planner"):
        names: dict[str, Any] = {"spark": request.getfixturevalue("spark"), "F": F}
        request.node.dtest.globs.update(names)
