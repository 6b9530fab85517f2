"""A connection to ZooKeeper: its chroot, single reads, and the message if no server answers."""

import operator
import time

import pytest

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession, connected, with_retries
from jobs.adapters.zookeeper.controllership import session_of
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_read import _MULTI_READ_SUPPORT, read_many, supports_multi_read
from jobs.adapters.zookeeper.znode_reads import children, read, read_latest
from jobs.core.errors import UnreadableError
from jobs.core.polling import poll_until
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import SYNC, Loss, ZooKeeperProxy


def test_chroot_is_kept(bare_tree: KafkaTree) -> None:
    bare_tree.write("/znode", b"below")
    server, _, chroot = bare_tree.hosts.partition("/")

    with connected(ZooKeeperEndpoint(server)) as client:
        assert read_many(client, [f"/{chroot}/znode"])[0].data == b"below"
        assert read(client, "/znode").stat is None


def test_children_are_in_order(bare_tree: KafkaTree) -> None:
    for name in ("10", "9", "b", "a"):
        bare_tree.write(f"/parent/{name}", b"")

    assert children(bare_tree.client, "/parent") == ["10", "9", "a", "b"]
    assert children(bare_tree.client, "/absent") is None


def test_no_server_is_unreadable_soon() -> None:
    started = time.monotonic()

    with pytest.raises(UnreadableError, match=r"no ZooKeeper answered at 127\.0\.0\.1:.* check --zookeeper") as raised:
        enter(f"127.0.0.1:{free_port()}/kafka", timeout=1.0)
    assert raised.value.exit_code == 22
    assert time.monotonic() - started < 8


def test_unknown_host_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match=r"no ZooKeeper answered at nowhere\.invalid"):
        enter("nowhere.invalid:2181", timeout=0.5)


def enter(hosts: str, timeout: float) -> None:
    with connected(ZooKeeperEndpoint(hosts), timeout):
        pass


@pytest.mark.parametrize("below", ["", "/absent"])
def test_wrong_chroot_is_unreadable(zookeeper_hosts: str, below: str) -> None:
    with (
        connected(ZooKeeperEndpoint(zookeeper_hosts + below)) as client,
        pytest.raises(UnreadableError, match=f"{below}: no Kafka cluster"),
    ):
        read_cluster(client)


def test_connection_lost_in_a_sync_is_unreadable(proxy: ZooKeeperProxy) -> None:
    proxy.lose(Loss(SYNC))

    with (
        pytest.raises(UnreadableError, match=r"stopped answering \(ConnectionLoss\)"),
        connected(ZooKeeperEndpoint(proxy.hosts)) as client,
    ):
        read_cluster(client)


@pytest.mark.usefixtures("tree")
def test_command_outlives_its_first_session(proxy: ZooKeeperProxy) -> None:
    """Also if the session ends between two uses, and nothing has noticed it yet."""
    with ZooKeeperSession(ZooKeeperEndpoint(proxy.hosts)) as zookeeper:
        with zookeeper.connected() as client:
            first = session_of(client)
            proxy.expire_session()
            assert with_retries(lambda: read_latest(client, "/controller_epoch")).data == b"7"
            second = session_of(client)
        proxy.expire_session()
        with zookeeper.connected() as client:
            assert read(client, "/controller_epoch").data == b"7"
            third = session_of(client)
    assert len({first, second, third}) == 3


def test_command_whose_server_is_gone_is_unreadable(proxy: ZooKeeperProxy) -> None:
    with ZooKeeperSession(ZooKeeperEndpoint(proxy.hosts), 1.0) as zookeeper:
        with zookeeper.connected() as client:
            proxy.cut()
            poll_until(lambda: client.connected, operator.not_, 5.0)
        with pytest.raises(UnreadableError, match="no ZooKeeper answered at"), zookeeper.connected():
            pass


@pytest.mark.usefixtures("short_responses")
@pytest.mark.parametrize("knows_multi_read", [True, False])
def test_server_that_is_gone_for_good_is_unreadable(
    tree: KafkaTree,
    proxy: ZooKeeperProxy,
    knows_multi_read: bool,  # noqa: FBT001 - a parameter
) -> None:
    _MULTI_READ_SUPPORT.clear()
    proxy.knows_multi_read = knows_multi_read
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        assert supports_multi_read(client) is knows_multi_read

    with pytest.raises(UnreadableError, match=r"stopped answering \((OperationTimeoutError|ConnectionLoss)\)"):
        read_after_losing_it(proxy)
    assert tree.client.exists("/controller")


def read_after_losing_it(proxy: ZooKeeperProxy) -> None:
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        loss = proxy.lose(Loss(SYNC, then=ZooKeeperProxy.refuse))
        client.sync_async("/")
        assert loss.happened.wait(5)
        read_many(client, ["/controller"])
