"""Operations as values become those that kazoo makes itself, below the chroot."""

from collections.abc import Callable
from typing import Final

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol.serialization import Create as KazooCreate
from kazoo.security import OPEN_ACL_UNSAFE

from jobs.adapters.zookeeper.multi import ANY_VERSION, Check, Create, Delete, Op, SetData, add

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
