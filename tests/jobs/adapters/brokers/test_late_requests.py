"""A change is sent right after its call, or not at all: the lease that was checked before it may be over soon."""

import time
from dataclasses import dataclass
from typing import Any

import pytest
from kafka.net.connection import SaslReauthenticator

from jobs.adapters.brokers import admin_client
from jobs.adapters.brokers.admin_client import LateRequestError, connected_admin
from jobs.adapters.delta.warehouse_lease import MARGIN_SECONDS
from tests.jobs.support.kafka.paged_brokers import PagedCluster

CHANGE = "45"
"""AlterPartitionReassignments, as the simulated brokers note it."""

TARGETS: dict[tuple[str, int], list[int] | None] = {("topic-00000", 0): [2, 1]}


@dataclass
class SlowCluster(PagedCluster):
    """New connections wait so long for their first answer."""

    delay: float = 0.0

    def _versions(self, version: int, body: bytes) -> Any:  # noqa: ANN401 - kafka-python is untyped
        time.sleep(self.delay)
        return super()._versions(version, body)

    def changes(self) -> int:
        return [name for _, name in self.asked].count(CHANGE)


@pytest.fixture
def cluster() -> SlowCluster:
    made = SlowCluster(topics=1, partitions=1)
    made.start()
    return made


def test_a_change_that_waited_for_its_connection_is_not_sent(
    cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "SEND_SECONDS", 0.2)
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        cluster.delay = 0.5
        with pytest.raises(LateRequestError, match="so nothing was requested"):
            connected.reassign(TARGETS)
        time.sleep(2 * cluster.delay)
        assert cluster.changes() == 0
        assert connected.reassign(TARGETS) == {("topic-00000", 0): 0}
        assert cluster.changes() == 1


def test_what_changes_nothing_may_wait(cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "SEND_SECONDS", 0.2)
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        cluster.delay = 0.5
        assert connected.reassignments() == {}


def test_a_change_waits_for_no_new_login_of_its_connection(
    cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python keeps requests while a connection authenticates again, which a slow broker prolongs."""
    monkeypatch.setattr(admin_client, "SEND_SECONDS", 0.2)
    logs_in_until = 0.0
    monkeypatch.setattr(
        SaslReauthenticator, "is_reauthenticating", property(lambda _: time.monotonic() < logs_in_until)
    )
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        assert connected.reassignments() == {}
        logs_in_until = time.monotonic() + 0.5
        with pytest.raises(LateRequestError):
            connected.reassign(TARGETS)
        assert cluster.changes() == 0
        assert connected.reassign(TARGETS) == {("topic-00000", 0): 0}


def test_a_change_of_a_suspended_machine_is_not_sent(cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock may stand still meanwhile."""
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        wall, began = time.time, time.time()
        monkeypatch.setattr(time, "time", lambda: wall() + (60 if wall() > began + 0.2 else 0))
        cluster.delay = 0.4
        with pytest.raises(LateRequestError):
            connected.reassign(TARGETS)
    assert cluster.changes() == 0


def test_the_lease_lasts_until_a_change_is_sent() -> None:
    assert admin_client.SEND_SECONDS <= MARGIN_SECONDS
