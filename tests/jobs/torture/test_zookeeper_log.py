"""ZooKeeper's own log: it contains each write with its session, and nothing that was refused."""

from kazoo.client import KazooClient

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from tests.jobs.torture.zookeeper_log import CHECK, CREATE, DELETE, SET, Op, transactions


def test_each_write_is_there_with_its_session(zookeeper_server: EmbeddedZooKeeper, zookeeper_hosts: str) -> None:
    client = KazooClient(zookeeper_hosts)
    client.start()
    client.create("/a", b"made", ephemeral=True)
    client.set("/a", b"changed")
    refused, multi = client.transaction(), client.transaction()
    refused.set_data("/a", b"never", version=7)
    multi.check("/a", 1)
    multi.set_data("/a", b"at once")
    multi.create("/b", b"")
    multi.delete("/b")
    refused.commit()
    multi.commit()
    session, chroot = client.client_id[0], client.chroot
    client.stop()
    client.close()

    written = [
        transaction
        for transaction in transactions([zookeeper_server.folder / "data"])
        if transaction.session == session
    ]

    assert [transaction.ops for transaction in written] == [
        (Op(CREATE, f"{chroot}/a", b"made"),),
        (Op(SET, f"{chroot}/a", b"changed", 1),),
        (
            Op(CHECK, f"{chroot}/a", b"", 1),
            Op(SET, f"{chroot}/a", b"at once", 2),
            Op(CREATE, f"{chroot}/b"),
            Op(DELETE, f"{chroot}/b"),
        ),
    ]
