"""ZooKeeper read in bulk: in the order asked, absent znodes included; and what is said when nobody answers."""

import time

import pytest

from jobs.adapters.cluster import read_cluster
from jobs.adapters.multi_read import BATCH, read_many
from jobs.adapters.ports import free_port
from jobs.adapters.zookeeper import Znode, children, commit, connected, create_null, read
from jobs.errors import UnreadableError
from tests.jobs.kafka_tree import KafkaTree
from tests.jobs.zookeeper_proxy import MULTI_READ, SYNC, Loss, ZooKeeperProxy


def test_reads_in_the_order_asked(bare_tree: KafkaTree) -> None:
    for name in "abc":
        bare_tree.write(f"/{name}", name.encode())

    found = read_many(bare_tree.client, ["/c", "/a", "/b", "/a"])

    assert [(znode.path, znode.data) for znode in found] == [("/c", b"c"), ("/a", b"a"), ("/b", b"b"), ("/a", b"a")]


def test_absent_znodes_have_no_stat(bare_tree: KafkaTree) -> None:
    bare_tree.write("/there", b"1")

    found = read_many(bare_tree.client, ["/gone", "/there", "/gone/deeper"])

    assert [znode.version for znode in found] == [None, 0, None]
    assert found[0] == Znode("/gone", None, None)


def test_reads_nothing_when_asked_for_nothing(bare_tree: KafkaTree) -> None:
    assert read_many(bare_tree.client, []) == []


@pytest.mark.parametrize("count", [BATCH, BATCH + 1, 3 * BATCH + 7])
def test_reads_more_than_a_batch(bare_tree: KafkaTree, count: int) -> None:
    bare_tree.write("/even", b"")
    paths = ["/even" if number % 2 == 0 else f"/odd-{number}" for number in range(count)]

    found = read_many(bare_tree.client, paths)

    assert [znode.path for znode in found] == paths
    assert {number % 2 for number, znode in enumerate(found) if znode.stat} == {0}


def test_null_and_empty_data_are_told_apart(bare_tree: KafkaTree) -> None:
    multi = bare_tree.client.transaction()
    create_null(multi, "/null")
    multi.create("/empty", b"")
    commit(multi)

    assert [znode.data for znode in read_many(bare_tree.client, ["/null", "/empty"])] == [None, b""]


def test_bulk_and_single_reads_agree(bare_tree: KafkaTree) -> None:
    bare_tree.write("/znode", b"x" * 10_000)

    assert read_many(bare_tree.client, ["/znode"]) == [read(bare_tree.client, "/znode")]


def test_large_answers_arrive_whole(bare_tree: KafkaTree) -> None:
    paths = [f"/large-{number}" for number in range(20)]
    for path in paths:
        bare_tree.write(path, b"x" * 200_000)

    assert {len(znode.data or b"") for znode in read_many(bare_tree.client, paths)} == {200_000}


def test_chroot_is_kept(bare_tree: KafkaTree) -> None:
    bare_tree.write("/znode", b"below")
    server, _, chroot = bare_tree.hosts.partition("/")

    with connected(server) as client:
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
    assert time.monotonic() - started < 3


def test_unknown_host_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match=r"no ZooKeeper answered at nowhere\.invalid"):
        enter("nowhere.invalid:2181", timeout=0.5)


def enter(hosts: str, timeout: float) -> None:
    with connected(hosts, timeout):
        pass


@pytest.mark.parametrize("below", ["", "/absent"])
def test_wrong_chroot_is_unreadable(zookeeper: str, below: str) -> None:
    with connected(zookeeper + below) as client, pytest.raises(UnreadableError, match=f"{below}: no Kafka cluster"):
        read_cluster(client, zookeeper + below)


@pytest.mark.parametrize("op", [SYNC, MULTI_READ])
def test_connection_lost_while_reading_is_unreadable(tree: KafkaTree, proxy: ZooKeeperProxy, op: int) -> None:
    proxy.lose(Loss(op))

    with (
        pytest.raises(UnreadableError, match=r"stopped answering \(ConnectionLoss\)"),
        connected(proxy.hosts) as client,
    ):
        read_cluster(client, tree.hosts)


def test_server_that_is_gone_for_good_is_unreadable(
    tree: KafkaTree, proxy: ZooKeeperProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.adapters.zookeeper.PATIENCE", 0.5)

    with pytest.raises(UnreadableError, match="stopped answering"):
        read_after_losing_it(proxy)
    assert tree.client.exists("/controller")


def read_after_losing_it(proxy: ZooKeeperProxy) -> None:
    with connected(proxy.hosts) as client:
        loss = proxy.lose(Loss(SYNC, then=ZooKeeperProxy.refuse))
        client.sync_async("/")
        assert loss.happened.wait(5)
        read_many(client, ["/controller"])
