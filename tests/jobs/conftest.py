"""What the tests of the committer share: a Kafka tree without Kafka, a proxy in front of it, and a warehouse."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, take_over
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.runtime.pace import Pace
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.documented_commands import ROOT
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.commands.user_shell import bare
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.controllers.throttled_tree import answer_as_admin
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import CLUSTER
from tests.jobs.support.zookeeper.fenced_writes import OURS, Multis
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot
from tests.jobs.support.zookeeper.zookeeper_proxy import ZooKeeperProxy

NOT_CLONED: Final = ignore_patterns(".git", ".venv*", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")

DISK: Final = "/var/tmp"  # noqa: S108 - a gigabyte, which is too much for temporary folders in memory

PACKAGE_INDEX: Final = ("PIP_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "SSL_CERT_FILE")
"""Variables that say where this machine has its packages from; `make dist` may need them, and nothing else does."""


@pytest.fixture(scope="session")
def checkout() -> Iterator[Path]:
    """A copy of this checkout in which `make dist` was run, with an environment as `make setup` makes it."""
    with tempfile.TemporaryDirectory(prefix="surveyor-checkout-", dir=DISK) as temporary:
        folder = copytree(ROOT, Path(temporary, "surveyor"), ignore=NOT_CLONED)
        index = {name: value for name, value in os.environ.items() if name.startswith(PACKAGE_INDEX)}
        done = bare("make dist", folder, Path.home(), **index)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / ".venv").symlink_to(ROOT / ".venv")
        yield folder


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip that `make dist` makes for `--py-files`."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(Path(__file__).parents[2])]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel.rename(wheel.with_suffix(".zip"))


@pytest.fixture
def fake_brokers() -> Iterator[FakeBrokers]:
    """What listens where the tree registers a broker."""
    with FakeBrokers() as listening:
        yield listening


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def bare_tree(zookeeper_hosts: str, fake_brokers: FakeBrokers) -> Iterator[KafkaTree]:
    """An empty tree."""
    client = KazooClient(zookeeper_hosts)
    client.start()
    yield KafkaTree(zookeeper_hosts, client, fake_brokers)
    client.stop()
    client.close()


@pytest.fixture
def tree(bare_tree: KafkaTree) -> KafkaTree:
    """Brokers 0, 1 and 2 are registered and take control requests; broker 0 is the controller with epoch 7."""
    bare_tree.lay_out()
    bare_tree.elect(0, epoch=7)
    return bare_tree


@pytest.fixture
def controller(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> KafkaController:
    """It carries out requested reassignments one step at a time in the test's tree."""
    made = KafkaController(tree)
    answer_as_admin(made, monkeypatch)
    return made


@pytest.fixture(scope="module")
def module_tree(zookeeper_server: EmbeddedZooKeeper) -> Iterator[KafkaTree]:
    """An empty tree, shared by a module's tests."""
    hosts = new_chroot(zookeeper_server.connect)
    with connected(ZooKeeperEndpoint(hosts)) as client:
        yield KafkaTree(hosts, client)


@pytest.fixture
def proxy(zookeeper_hosts: str) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper_hosts) as running:
        yield running


@pytest.fixture
def short_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response of ZooKeeper may take half a second."""
    monkeypatch.setattr("jobs.adapters.zookeeper.connection.CONNECT_TIMEOUT_SECONDS", 0.5)


@pytest.fixture
def multis(monkeypatch: pytest.MonkeyPatch) -> Multis:
    made = Multis()
    monkeypatch.setattr("jobs.adapters.zookeeper.controllership.commit", made.send)
    return made


@pytest.fixture
def client(tree: KafkaTree) -> Iterator[KazooClient]:
    with connected(tree.endpoint) as ours:
        yield ours


@pytest.fixture
def control(client: KazooClient) -> Controllership:
    return take_over(client, OURS)


@pytest.fixture
def proxied(proxy: ZooKeeperProxy) -> Iterator[Controllership]:
    """A controllership whose connection the proxy can cut."""
    with connected(ZooKeeperEndpoint(proxy.hosts)) as ours:
        yield take_over(ours, OURS)


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions that Spark is not to be started for."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("jobs.planning.plan_draft.start_session", refuse)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"), CLUSTER)


@pytest.fixture
def empty_tables(warehouse: Warehouse) -> None:
    """All tables of the warehouse exist."""
    lay_tables(warehouse)


@pytest.fixture
def pace() -> Pace:
    """The pace of commands; a test with a parameter `pace` has another one."""
    return NO_TAKEOVER


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions can be asked."""
    monkeypatch.setattr("jobs.runtime.confirmation.is_terminal", lambda: True)


@pytest.fixture
def surveyor(warehouse: Warehouse, pace: Pace) -> Surveyor:
    """The command line on this warehouse."""
    return Surveyor(warehouse, pace)
