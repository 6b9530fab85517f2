"""ZooKeeper read in bulk: in the order asked, by multiRead or without, whole whatever connections do meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Create as KazooCreate
from kazoo.protocol.serialization import GetData
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from jobs.adapters.zookeeper.connection import commit, connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_operations import ANY_VERSION, Check, Create, Delete, Op, SetData, add
from jobs.adapters.zookeeper.multi_read import (
    _MULTI_READ_SUPPORT,
    FIRST_BATCH_ZNODES,
    MAX_BATCH_ZNODES,
    MAX_REQUEST_BYTES,
    REQUESTS_IN_FLIGHT,
    _batches,
    _MultiRead,
    _within_request_size,
    children_of,
    read_many,
    supports_multi_read,
)
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.core.errors import UnreadableError
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI_READ, Loss, ZooKeeperProxy

NAMES = ("10", "9", "b", "a", "é")


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Ports come back: what was found out about another test's proxy is not true of this one's."""
    _MULTI_READ_SUPPORT.clear()


@pytest.fixture
def old(zookeeper_hosts: str) -> Iterator[ZooKeeperProxy]:
    """A server before 3.6."""
    with ZooKeeperProxy(zookeeper_hosts, knows_multi_read=False) as running:
        yield running


def test_reads_in_the_order_asked(bare_tree: KafkaTree) -> None:
    for name in "abc":
        bare_tree.write(f"/{name}", name.encode())

    znodes = read_many(bare_tree.client, ["/c", "/a", "/b", "/a"])

    assert [(znode.path, znode.data) for znode in znodes] == [("/c", b"c"), ("/a", b"a"), ("/b", b"b"), ("/a", b"a")]


def test_absent_znodes_have_no_stat(bare_tree: KafkaTree) -> None:
    bare_tree.write("/there", b"1")

    znodes = read_many(bare_tree.client, ["/gone", "/there", "/gone/deeper"])

    assert [znode.version for znode in znodes] == [None, 0, None]
    assert znodes[0] == Znode("/gone", None, None)


@pytest.mark.parametrize("count", [MAX_BATCH_ZNODES, MAX_BATCH_ZNODES + 1, 3 * MAX_BATCH_ZNODES + 7])
def test_reads_more_than_a_batch(bare_tree: KafkaTree, count: int) -> None:
    bare_tree.write("/even", b"")
    paths = ["/even" if number % 2 == 0 else f"/odd-{number}" for number in range(count)]

    znodes = read_many(bare_tree.client, paths)

    assert [znode.path for znode in znodes] == paths
    assert {number % 2 for number, znode in enumerate(znodes) if znode.stat} == {0}


def test_null_and_empty_data_are_distinguished(bare_tree: KafkaTree) -> None:
    multi = bare_tree.client.transaction()
    add(multi, [Create("/null")])
    multi.create("/empty", b"")
    commit(multi)

    assert [znode.data for znode in read_many(bare_tree.client, ["/null", "/empty"])] == [None, b""]


def test_bulk_and_single_reads_agree(bare_tree: KafkaTree) -> None:
    bare_tree.write("/znode", b"x" * 10_000)

    assert read_many(bare_tree.client, ["/znode"]) == [read(bare_tree.client, "/znode")]


def test_children_are_sorted_and_empty_without_a_znode(bare_tree: KafkaTree) -> None:
    for name in NAMES:
        bare_tree.write(f"/parent/{name}", b"")

    assert children_of(bare_tree.client, ["/gone", "/parent", "/parent/a"]) == [[], sorted(NAMES), []]


READINGS: dict[str, Callable[[KazooClient], object]] = {
    "few": lambda client: read_many(
        client, ["/large-1", "/gone", "/parent", "/parent/a", "/null", "/large-1"], resume=True
    ),
    "many": lambda client: read_many(client, [f"/parent/{name}" for name in (*NAMES, "gone", "c")] * 170, resume=True),
    "large": lambda client: read_many(client, [f"/large-{number}" for number in range(20)], resume=True),
    "children": lambda client: children_of(client, ["/parent", "/gone", "/parent/a", "/"] * 100, resume=True),
    "nothing": lambda client: read_many(client, [], resume=True),
}


@pytest.fixture
def laid_out(bare_tree: KafkaTree) -> KafkaTree:
    for name in NAMES:
        bare_tree.write(f"/parent/{name}", name.encode())
    for number in range(20):
        bare_tree.write(f"/large-{number}", bytes([number]) * 200_000)
    multi = bare_tree.client.transaction()
    add(multi, [Create("/null")])
    commit(multi)
    return bare_tree


def test_servers_before_multi_read_are_read_one_by_one(laid_out: KafkaTree, old: ZooKeeperProxy) -> None:
    with connected(ZooKeeperEndpoint(old.hosts)) as client:
        assert (supports_multi_read(laid_out.client), supports_multi_read(client)) == (True, False)
        results = {name: reading(client) for name, reading in READINGS.items()}

    assert results == {name: reading(laid_out.client) for name, reading in READINGS.items()}
    assert old.unknown == 1


@pytest.mark.parametrize("name", READINGS)
def test_an_ensemble_of_mixed_versions_is_read_whole(laid_out: KafkaTree, proxy: ZooKeeperProxy, name: str) -> None:
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        assert supports_multi_read(client)
        proxy.knows_multi_read = False

        assert READINGS[name](client) == READINGS[name](laid_out.client)
    assert proxy.unknown <= 1  # found out by the first request, which goes alone


@pytest.mark.parametrize("knows_multi_read", [True, False])
def test_a_forbidden_znode_is_said(bare_tree: KafkaTree, proxy: ZooKeeperProxy, knows_multi_read: bool) -> None:  # noqa: FBT001 - a parameter
    bare_tree.write("/secret", b"")
    bare_tree.client.set_acls("/secret", [make_digest_acl("another", "user", all=True)])
    proxy.knows_multi_read = knows_multi_read

    with pytest.raises(UnreadableError, match=r"denies Surveyor permission to read /secret \(NoAuth\).* let the ACL"):
        read_through(proxy, ["/", "/secret"])


def read_through(proxy: ZooKeeperProxy, paths: Sequence[str]) -> list[Znode]:
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        return read_many(client, paths, resume=True)


def sizes(client: KazooClient, paths: Sequence[str]) -> list[int]:
    """How many znodes each request asks for, and that they are the ones asked for."""
    batches = [list(batch) for batch, _ in _batches(client, GetData, paths)]
    assert [path for batch in batches for path in batch] == list(paths)
    return [len(batch) for batch in batches]


def test_batch_size_follows_response_size(bare_tree: KafkaTree) -> None:
    bare_tree.write("/small", b"")
    bare_tree.write("/large", b"x" * 60_000)
    first = FIRST_BATCH_ZNODES  # its answer has their sizes

    assert sizes(bare_tree.client, ["/small"] * (first + MAX_BATCH_ZNODES + 1)) == [
        FIRST_BATCH_ZNODES,
        MAX_BATCH_ZNODES,
        1,
    ]
    assert sizes(bare_tree.client, ["/large"] * (first + 40)) == [FIRST_BATCH_ZNODES, 17, 17, 6]


def test_a_request_asks_for_one_znode_at_least(bare_tree: KafkaTree) -> None:
    bare_tree.write("/huge", b"x" * 900_000)

    assert sizes(bare_tree.client, ["/huge"] * (FIRST_BATCH_ZNODES + 3)) == [FIRST_BATCH_ZNODES, 1, 1, 1]


@pytest.mark.parametrize(
    ("chroot", "path", "fit"),
    [
        ("", "/" + "p" * 999, 517),
        ("/" + "c" * 1000, "/p", 515),
        ("/chroot", "/" + "é" * 999, 259),
        ("", "/" + "p" * MAX_REQUEST_BYTES, 1),
    ],
)
def test_a_request_stays_below_what_servers_take(chroot: str, path: str, fit: int) -> None:
    bounded = _within_request_size(chroot, [path] * 600)

    assert len(bounded) == fit
    if fit > 1:
        assert (
            MAX_REQUEST_BYTES - 3000 < len(_MultiRead(GetData, (chroot + path,) * fit).serialize()) < MAX_REQUEST_BYTES
        )


def test_long_paths_are_read_in_several_requests(bare_tree: KafkaTree) -> None:
    name = "n" * 20_000
    paths = [f"/{name}{number}" for number in range(60)]
    for path in paths[::7]:
        bare_tree.write(path, path[-2:].encode())

    znodes = read_many(bare_tree.client, paths)

    assert sizes(bare_tree.client, paths) == [FIRST_BATCH_ZNODES, 26, 24]
    assert [znode.data for znode in znodes] == [path[-2:].encode() if path in paths[::7] else None for path in paths]


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("deliver", [True, False])
def test_what_a_lost_connection_left_unanswered_is_asked_again(
    bare_tree: KafkaTree,
    proxy: ZooKeeperProxy,
    nth: int,
    deliver: bool,  # noqa: FBT001 - a parameter
) -> None:
    """The first request of all is the one that finds out whether the server knows multiRead."""
    paths = lay_out_many(bare_tree)
    loss = proxy.lose(Loss(MULTI_READ, nth=nth, deliver=deliver))

    assert read_through(proxy, paths) == read_many(bare_tree.client, paths)
    assert loss.happened.is_set()


def test_session_loss_reaches_a_caller_without_resume(proxy: ZooKeeperProxy) -> None:
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        assert supports_multi_read(client)
        proxy.lose(Loss(MULTI_READ))
        with pytest.raises(ConnectionLoss):
            read_many(client, ["/znode"])


def test_a_session_that_ends_in_mid_read_changes_nothing(bare_tree: KafkaTree, proxy: ZooKeeperProxy) -> None:
    paths = lay_out_many(bare_tree)
    with connected(ZooKeeperEndpoint(proxy.hosts)) as client:
        assert supports_multi_read(client)
        session = client.client_id
        loss = proxy.lose(Loss(MULTI_READ, nth=3, then=ZooKeeperProxy.expire_session))

        assert read_many(client, paths, resume=True) == read_many(bare_tree.client, paths)
        assert loss.happened.is_set()
        assert client.client_id != session


def lay_out_many(tree: KafkaTree) -> list[str]:
    """More than is in flight at a time: about fifty fit into a response; every third is absent."""
    paths = [f"/znode-{number}" for number in range(FIRST_BATCH_ZNODES + 60 * REQUESTS_IN_FLIGHT)]
    for number, path in enumerate(paths):
        if number % 3:
            tree.write(path, b"x" * 30_000)
    return paths


CASES: Final[list[tuple[Op, Callable[[TransactionRequest], object]]]] = [
    (Check("/a", 3), lambda multi: multi.check("/a", 3)),
    (Check("/a", ANY_VERSION), lambda multi: multi.check("/a", -1)),
    (Create("/a/b", b""), lambda multi: multi.create("/a/b")),
    (Create("/a", b"1"), lambda multi: multi.create("/a", b"1")),
    (Create("/a", b"1", ephemeral=True), lambda multi: multi.create("/a", b"1", ephemeral=True)),
    (Create("/a_", b"1", sequence=True), lambda multi: multi.create("/a_", b"1", sequence=True)),
    (SetData("/a", b"1", 2), lambda multi: multi.set_data("/a", b"1", 2)),
    (SetData("/a", b"1"), lambda multi: multi.set_data("/a", b"1")),
    (Delete("/a", 2), lambda multi: multi.delete("/a", 2)),
    (Delete("/a"), lambda multi: multi.delete("/a")),
]


@pytest.mark.parametrize("chroot", ["", "/kafka"])
@pytest.mark.parametrize(("op", "by_kazoo"), CASES)
def test_it_is_what_kazoo_makes(op: Op, by_kazoo: Callable[[TransactionRequest], object], chroot: str) -> None:
    client = KazooClient(f"127.0.0.1:1{chroot}")
    ours, theirs = client.transaction(), client.transaction()

    add(ours, [op])
    by_kazoo(theirs)

    assert [(type(one), *one) for one in ours.operations] == [(type(one), *one) for one in theirs.operations]


def test_a_znode_without_data_is_null() -> None:
    """As Kafka makes parents; kazoo takes bytes only."""
    multi = KazooClient("127.0.0.1:1/kafka").transaction()

    add(multi, [Create("/a")])

    assert multi.operations == [KazooCreate("/kafka/a", None, OPEN_ACL_UNSAFE, 0)]
