"""Real servers: they start, keep their port and id, say why they cannot, and are gone whenever their owner is."""

import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.protocol.admin import DescribeQuorumRequest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from jobs.adapters.brokers.fanout import ask_brokers
from jobs.adapters.embedded import processes
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster, EmbeddedKRaftNode
from jobs.adapters.embedded.processes import accepts, four_letter_word, free_port
from jobs.adapters.embedded.servers import EmbeddedKafka, EmbeddedZooKeeper
from jobs.core.errors import SurveyorError
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.zookeeper.ensemble import Ensemble

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


def test_max_buffer_bounds_a_request(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, max_buffer=4_000) as server, pytest.raises(ConnectionLoss):
        create_znode(server.connect, b"x" * 5_000)


def create_znode(connect: str, data: bytes) -> None:
    client = KazooClient(connect)
    client.start()
    try:
        client.create("/large", data)
    finally:
        client.stop()
        client.close()


def test_cluster_is_ready_in_its_block(cluster: EmbeddedCluster) -> None:
    ready = {broker_id: broker.is_ready() for broker_id, broker in cluster.brokers.items()}

    assert ready == {0: True, 1: True, 2: True}
    assert cluster.bootstrap.split(",") == [f"127.0.0.1:{broker.port}" for broker in cluster.brokers.values()]


def test_killed_broker_restarts_as_the_same(cluster: EmbeddedCluster) -> None:
    broker = cluster.brokers[1]
    port, pid = broker.port, broker.pid

    broker.kill()
    assert not accepts(port)
    broker.restart()

    assert (broker.port, broker.is_ready(), broker.pid == pid) == (port, True, False)


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


def test_stopped_broker_leaves_zookeeper_at_once(cluster: EmbeddedCluster) -> None:
    broker = cluster.brokers[2]

    broker.stop()
    registered = broker.is_registered()
    broker.restart()

    assert (registered, broker.is_ready()) == (False, True)


def test_added_broker_has_its_rack_and_overrides(cluster: EmbeddedCluster) -> None:
    broker = cluster.add_broker(3, rack="b")
    ready = broker.is_ready()
    broker.kill()
    del cluster.brokers[3]

    assert ready
    assert "broker.rack=b\n" in (broker.folder / "server.properties").read_text()


def test_registered_id_is_refused(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.adapters.embedded.servers.SESSION_TIMEOUT_MS", 500)
    twin = EmbeddedKafka(cluster.zookeeper_server.connect, 0, tmp_path)

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


def test_broker_without_zookeeper_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.adapters.embedded.servers.CONNECT_SECONDS", 0.5)
    port = free_port()

    with pytest.raises(SurveyorError, match=f"ZooKeeper at 127.0.0.1:{port} does not answer"):
        EmbeddedKafka(f"127.0.0.1:{port}", 0, tmp_path).start()


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


@pytest.mark.parametrize("late", [False, True])
def test_port_of_our_choice_is_given_up(
    tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """`late`: it is taken between our look at it and the server's."""
    monkeypatch.setattr(processes, "free_port", iter([taken_port, free_port()]).__next__)
    if late:
        monkeypatch.setattr(processes, "is_free", lambda _port: True)

    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.port != taken_port
        assert four_letter_word(server.port, "ruok") == "imok"


def test_broker_moves_when_its_port_is_taken(
    cluster: EmbeddedCluster, tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "free_port", iter([taken_port, free_port()]).__next__)
    monkeypatch.setattr(processes, "is_free", lambda _port: True)

    with EmbeddedKafka(cluster.zookeeper_server.connect, 8, tmp_path) as broker:
        assert broker.port != taken_port


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


@contextmanager
def client_of(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=10, connection_retry={"max_tries": -1}, command_retry={"max_tries": -1})
    client.start()
    yield client
    client.stop()
    client.close()


def test_one_leads_and_two_follow(ensemble: Ensemble) -> None:
    assert sorted(map(str, ensemble.modes().values())) == ["follower", "follower", "leader"]
    assert ensemble.connect == ",".join(f"127.0.0.1:{server.port}" for server in ensemble.servers.values())


def test_a_write_through_one_is_read_through_another(ensemble: Ensemble) -> None:
    path = f"/{uuid4().hex}"
    one, other = ensemble.followers()
    with client_of(one.connect) as writer, client_of(other.connect) as reader:
        writer.create(path, b"written")
        reader.sync(path)
        assert reader.get(path)[0] == b"written"


def test_the_client_goes_on_when_the_leader_dies(ensemble: Ensemble) -> None:
    path = f"/{uuid4().hex}"
    with client_of(ensemble.connect) as client:
        client.create(path, b"before")
        session = client.client_id
        old = ensemble.leader()
        old.kill()
        new = ensemble.leader()
        client.retry(client.set, path, b"after")
        assert (new is old, client.client_id == session, client.get(path)[0]) == (False, True, b"after")
    old.restart()
    assert ensemble.leader() is new


def test_a_killed_server_comes_back_with_what_it_missed(ensemble: Ensemble) -> None:
    path = f"/{uuid4().hex}"
    server = ensemble.followers()[0]
    port, pid = server.port, server.pid
    server.kill()
    assert server.number not in ensemble.modes()
    with client_of(ensemble.connect) as client:
        client.create(path, b"missed")
    server.restart()
    with client_of(server.connect) as client:
        client.sync(path)
        assert client.get(path)[0] == b"missed"
    assert (server.port, server.pid == pid, server.mode) == (port, False, "follower")


def test_a_minority_serves_no_client(ensemble: Ensemble) -> None:
    last, *others = ensemble.servers.values()
    for server in others:
        server.kill()
    with pytest.raises(TimeoutError, match=r"no ZooKeeper leads after 0\.5 s: \{1: "):
        ensemble.leader(timeout=0.5)
    for server in others:
        server.start()
    for server in others:
        server.wait_ready()
    assert ensemble.leader().is_running()
    assert last.is_running()


def test_nothing_is_left_running(tmp_path: Path) -> None:
    with Ensemble(tmp_path) as ensemble:
        servers = list(ensemble.servers.values())
        pids = [server.pid for server in servers]
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False] * 3
    assert [accepts(server.port) for server in servers] == [False] * 3


HEAP = "320m"


def _quorum_leader(node: EmbeddedKRaftNode) -> int:
    host, _, port = node.address.partition(":")
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, int(port))
    broker = Broker(broker_id=node.node_id, broker_epoch=0, endpoints=[endpoint], understood=True)
    request = DescribeQuorumRequest(topics=[("__cluster_metadata", [(0,)])])
    answers, _ = ask_brokers([broker], {}, 20.0, lambda ask, _: ask(request))
    leaders = [answer.topics[0].partitions[0].leader_id for answer in answers.values()]
    return next(iter(leaders), -1)


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


def test_a_quorum_elects_another_leader() -> None:
    with EmbeddedKRaftCluster(3, heap=HEAP) as cluster:
        leader = _quorum_leader(cluster.nodes[1])
        cluster.nodes[leader].kill()
        other = next(node for node in cluster.nodes.values() if node.node_id != leader)
        assert eventually(lambda: _quorum_leader(other) not in {leader, -1})
