"""The lease of a cluster: one holder at a time, in any warehouse; nothing is written once it is lost."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kazoo.security import READ_ACL_UNSAFE
from msgspec.structs import replace

from jobs.adapters.clusters.interface import Lease
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.connection import sync, with_retries
from jobs.adapters.zookeeper.lease_znode import LEASE, ZnodeLease, current_holder
from jobs.core.errors import LeaseHeldError, LeaseLostError, RefusedError
from jobs.execution.admin.connections import LeaseGuardedAdmin
from jobs.runtime.settings import Settings
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.controllers.throttled_tree import ConfigBrokers, own_lease
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import ZooKeeperProxy


@pytest.fixture
def lease(settings: Settings) -> Iterator[Lease]:
    with own_lease(settings, "p1", "commit") as lease:
        yield lease


def other(tree: KafkaTree, tmp_path: Path, plan_id: str = "p2") -> AbstractContextManager[Lease]:
    """A process with another warehouse on the same cluster."""
    return own_lease(settings_of(str(tmp_path / "other"), tree.hosts), plan_id, "cancel")


@pytest.mark.usefixtures("no_lease_waits")
def test_refusal_names_the_holder(tree: KafkaTree, lease: ZnodeLease, tmp_path: Path) -> None:
    holder = f"{lease.holder.user}@{lease.holder.host} (process {lease.holder.pid}) since {lease.holder.since}"

    with (
        pytest.raises(LeaseHeldError, match="only one process may at a time: wait until it is done") as refused,
        other(tree, tmp_path),
    ):
        pytest.fail("two at once")
    assert f"{holder}, for `surveyor commit p1` has the lease of this cluster (/surveyor/commit)" in str(refused.value)
    assert refused.value.exit_code == 23
    lease.refuse_lost()


@pytest.mark.usefixtures("no_lease_waits", "lease")
def test_of_the_same_plan_says_to_interrupt_it(tree: KafkaTree, tmp_path: Path) -> None:
    with pytest.raises(LeaseHeldError, match="interrupt it and run this again"), other(tree, tmp_path, "p1"):
        pytest.fail("two at once")


def test_waits_until_it_is_released(
    tree: KafkaTree, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_lease(settings, "p1", "commit") as first:
        threading.Timer(0.5, first.release).start()
        with other(tree, tmp_path) as second:
            second.refuse_lost()
            assert isinstance(second, ZnodeLease)
            assert current_holder(tree.client) == second.holder
    assert (
        "waiting for it, 12 s at most: the lease of a killed process ends within this time" in capsys.readouterr().err
    )
    assert current_holder(tree.client) is None


def test_nothing_is_written_without_it(tree: KafkaTree, lease: ZnodeLease, tmp_path: Path) -> None:
    brokers = ConfigBrokers(tree)
    throttler = LeaseGuardedAdmin(brokers, lease)
    throttler.alter_override("broker", "1", {"a": "b"})
    tree.client.delete(LEASE)

    with other(tree, tmp_path), pytest.raises(LeaseLostError, match="`surveyor cancel p2` has it now"):
        throttler.alter_override("broker", "1", {"a": "c"})
    assert brokers.alterations == [("broker", "1")]


@pytest.mark.usefixtures("tree")
def test_lost_with_the_session(proxy: ZooKeeperProxy, tmp_path: Path) -> None:
    behind = settings_of(str(tmp_path), proxy.hosts)
    with own_lease(behind, "p1", "commit") as lease:
        lease.refuse_lost()
        proxy.expire_session()
        with pytest.raises(LeaseLostError, match="was lost"):
            lease.refuse_lost()


def test_lease_of_an_ended_session_is_not_deleted(proxy: ZooKeeperProxy, tree: KafkaTree, tmp_path: Path) -> None:
    """Another process has it by then."""
    behind = settings_of(str(tmp_path / "mine"), proxy.hosts)
    with own_lease(behind, "p1", "commit") as lease:
        proxy.expire_session()
        assert isinstance(lease, ZnodeLease)
        with other(tree, tmp_path) as theirs:
            with_retries(lambda: sync(lease.client))
            lease.release()
            theirs.refuse_lost()
            assert tree.client.exists(LEASE) is not None


def test_zookeeper_denies_the_lease(tree: KafkaTree, settings: Settings) -> None:
    tree.client.create("/surveyor", acl=READ_ACL_UNSAFE)

    with ZooKeeperCluster(settings.zookeeper_endpoint) as cluster:
        foreseen = cluster.lease_refusal()
    with (
        pytest.raises(RefusedError, match=r"NoAuth.*--zookeeper-config a user.*commit_lease = false") as refused,
        own_lease(settings, "p1", "commit"),
    ):
        pytest.fail("it cannot be created")
    assert foreseen == str(refused.value)


def test_no_lease_if_disabled_in_the_conf(tree: KafkaTree, settings: Settings) -> None:
    without = Settings("default", settings.warehouse_uri, replace(settings.conf, commit_lease=False))

    with own_lease(without, "p1", "commit") as first, own_lease(without, "p2", "commit") as second:
        first.refuse_lost()
        second.refuse_lost()
    assert tree.client.exists("/surveyor") is None


@pytest.mark.usefixtures("no_lease_waits")
def test_manually_created_lease_stops_commits(tree: KafkaTree, settings: Settings) -> None:
    tree.write(LEASE, b"upgrade tonight")

    with (
        pytest.raises(LeaseHeldError, match=r"upgrade tonight.*was created manually"),
        own_lease(settings, "p", "commit"),
    ):
        pytest.fail("it is held")
