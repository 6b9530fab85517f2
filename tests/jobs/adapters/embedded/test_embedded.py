"""Real servers: they start, keep their port and id, say why they cannot, and are gone whenever their owner is."""

import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from jobs.adapters.embedded import processes
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.processes import four_letter_word
from jobs.adapters.embedded.servers import EmbeddedKafka, EmbeddedZooKeeper
from jobs.core.errors import SurveyorError
from tests.jobs.support.kafka.real_cluster import create_topics

OWNER = """\
import signal, time
from jobs.adapters.embedded.cluster import EmbeddedCluster
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
with EmbeddedCluster(1) as cluster:
    print(cluster.folder, cluster.zookeeper_server.pid, cluster.brokers[0].pid, flush=True)
    time.sleep(60)
"""


def is_gone(pid: int) -> bool:
    """Also true of a zombie, as a container may have no process that reaps orphans."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pids: list[int], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not all(map(is_gone, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        yield listener.getsockname()[1]


def test_zookeeper_serves_and_ends_with_its_block(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        pid = server.pid
        assert "Mode: standalone" in four_letter_word(server.port, "srvr")
    assert pid is not None
    assert is_gone(pid)


@pytest.mark.parametrize("milliseconds", [2_000, 6_000, 60_000])
def test_session_timeouts_are_granted_as_asked(zookeeper_hosts: str, milliseconds: int) -> None:
    client = KazooClient(zookeeper_hosts, timeout=milliseconds / 1000)
    client.start()
    granted = client.client_id and client._session_timeout  # noqa: SLF001 - kazoo shows it nowhere else
    client.stop()
    client.close()

    assert granted == milliseconds


def test_killed_broker_is_forgotten_when_its_session_is_ended(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Only its own: a twin that has the id, but another port, leaves the registration where it is."""
    broker = cluster.brokers[1]
    broker.kill()
    EmbeddedKafka(cluster.zookeeper_server.connect, 1, tmp_path).expire()
    before = broker.is_registered()
    broker.expire()
    after = broker.is_registered()
    broker.expire()
    broker.restart()

    assert (before, after, broker.is_ready()) == (True, False, True)


def test_added_broker_has_its_rack_and_overrides(cluster: EmbeddedCluster) -> None:
    broker = cluster.add_broker(3, rack="b")
    ready = broker.is_ready()
    broker.kill()
    del cluster.brokers[3]

    assert ready
    assert "broker.rack=b\n" in (broker.folder / "server.properties").read_text()


def test_registered_id_is_refused(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    twin = EmbeddedKafka(cluster.zookeeper_server.connect, 0, tmp_path)
    twin.session_timeout_ms = 500

    with pytest.raises(SurveyorError, match=r"broker 0 is registered .*/brokers/ids/0.*choose another id"):
        twin.start()


def test_failing_broker_names_its_log(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    broker = EmbeddedKafka(cluster.zookeeper_server.connect, 9, tmp_path, overrides={"num.io.threads": "none"})

    with (
        pytest.raises(SurveyorError, match=r"(?s)broker-9 ended with exit code 1.*Invalid value none") as raised,
        broker,
    ):
        pass
    assert str(tmp_path / "broker-9.log") in str(raised.value)


def test_broker_without_zookeeper_says_so(tmp_path: Path) -> None:
    port = free_port()
    broker = EmbeddedKafka(f"127.0.0.1:{port}", 0, tmp_path)
    broker.connect_seconds = 0.5

    with pytest.raises(SurveyorError, match=f"ZooKeeper at 127.0.0.1:{port} does not answer"):
        broker.start()


def test_late_server_names_its_log(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.start()

    with pytest.raises(SurveyorError, match=r"zookeeper is not ready after 0 s.*zookeeper.log"):
        server.wait_ready(timeout=0)
    server.kill()


def test_port_that_was_asked_for_must_be_free(tmp_path: Path, taken_port: int) -> None:
    server = EmbeddedZooKeeper(tmp_path, port=taken_port)

    with pytest.raises(SurveyorError, match=f"port {taken_port} .* is in use by another process: stop"):
        server.start()


def test_no_port_is_found_twice() -> None:
    """Broker 1 looks for one while broker 0, which has its own, does not listen yet."""
    ports = set()
    for _ in range(3):
        random.seed(7)
        ports.add(free_port())

    assert len(ports) == 3


@pytest.fixture
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are taken between our look at them and the server's."""
    monkeypatch.setattr(processes, "is_free", lambda _port: True)


def moves_from(taken_port: int, server: EmbeddedZooKeeper | EmbeddedKafka) -> None:
    server.port = taken_port  # as if chosen when it was free
    with server:
        assert server.port != taken_port
        if isinstance(server, EmbeddedZooKeeper):
            assert four_letter_word(server.port, "ruok") == "imok"


def test_port_of_our_choice_is_given_up(tmp_path: Path, taken_port: int) -> None:
    moves_from(taken_port, EmbeddedZooKeeper(tmp_path))


@pytest.mark.usefixtures("unnoticed")
def test_port_is_given_up_that_the_server_finds_taken(tmp_path: Path, taken_port: int) -> None:
    moves_from(taken_port, EmbeddedZooKeeper(tmp_path))


@pytest.mark.usefixtures("unnoticed")
def test_broker_moves_when_its_port_is_taken(cluster: EmbeddedCluster, tmp_path: Path, taken_port: int) -> None:
    moves_from(taken_port, EmbeddedKafka(cluster.zookeeper_server.connect, 8, tmp_path))


def test_server_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    thread = Thread(target=server.__enter__)
    thread.start()
    thread.join()
    time.sleep(0.2)
    running = server.is_running()
    server.kill()

    assert running


@pytest.mark.parametrize(("number", "tidied"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGKILL, False)])
def test_servers_are_gone_when_their_owner_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, *, tidied: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        assert owner.stdout
        folder, *pids = owner.stdout.readline().decode().split()
        owner.send_signal(number)
        owner.wait(10)

    assert wait_until_gone([int(pid) for pid in pids])
    assert Path(folder).exists() is not tidied


def test_failed_block_keeps_the_logs_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="oops"), EmbeddedCluster(0) as cluster:
        raise ValueError("oops")

    assert f"kept in {cluster.folder}" in capsys.readouterr().err
    assert (cluster.folder / "zookeeper" / "zookeeper.log").exists()


HEAP = "320m"

BEGINS_WITH_A_HYPHEN = "-AABAgMEBQYHCAkKCwwNDg"
"""An id as one cluster in 64 has it in ZooKeeper, which a migrated cluster keeps."""


def test_a_node_alone_keeps_its_topics_over_a_restart() -> None:
    cluster = EmbeddedKRaftCluster(1, heap=HEAP)
    node = cluster.nodes[1]
    node.cluster_id = BEGINS_WITH_A_HYPHEN
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        create_topics(admin, NewTopic("orders", 2, 1))
        pid = node.pid
        node.restart()
        assert node.pid != pid
        metadata = admin.list_topics(timeout=90)
        assert metadata.cluster_id == BEGINS_WITH_A_HYPHEN
        assert len(metadata.topics["orders"].partitions) == 2
    assert not node.is_running()
    assert not cluster.folder.exists()
