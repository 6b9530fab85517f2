"""Three ZooKeeper servers: one leads, all return the same, and clients survive the loss of the leader."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from jobs.adapters.embedded.processes import accepts
from tests.jobs.support.zookeeper.ensemble import Ensemble


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
