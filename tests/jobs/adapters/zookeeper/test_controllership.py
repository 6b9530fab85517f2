"""The controllership: taken over by one multi, fenced by the controller epoch, released by the end of the session."""

import re
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError
from kazoo.security import make_acl

from jobs.adapters.zookeeper import cluster_state
from jobs.adapters.zookeeper import controllership as module
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import (
    Controllership,
    ControllershipHeldError,
    OvertakenError,
    SessionLostError,
    controllership,
    current_controller,
    take_over,
)
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_operations import SetData
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.core.errors import FencedError, RefusedError, SurveyorError
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, in_parallel
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

OURS = 2147483647
THEIRS = 1000


@pytest.fixture
def other(zookeeper_hosts: str) -> Iterator[KazooClient]:
    with connected(ZooKeeperEndpoint(zookeeper_hosts)) as client:
        yield client


def test_takes_over_where_there_never_was_a_controller(bare_tree: KafkaTree) -> None:
    bare_tree.lay_out()

    with controllership(bare_tree.endpoint, OURS) as held:
        assert (held.epoch, held.epoch_version) == (1, 0)
        assert bare_tree.client.get("/controller_epoch")[0] == b"1"


def test_takes_over_from_a_live_controller(tree: KafkaTree) -> None:
    with controllership(tree.endpoint, OURS) as held:
        epoch, stat = tree.client.get("/controller_epoch")
        assert (held.epoch, held.epoch_version) == (8, stat.version)
        assert epoch == b"8"


def test_controller_znode_is_kafkas_and_ephemeral(tree: KafkaTree) -> None:
    with controllership(tree.endpoint, OURS) as held:
        data, stat = tree.client.get("/controller")
        assert re.fullmatch(
            rb'\{"version":2,"brokerid":2147483647,"timestamp":"\d{13}","kraftControllerEpoch":-1}', data
        )
        assert stat.ephemeralOwner == held.client.client_id[0]


def test_hands_back_by_ending_the_session(tree: KafkaTree) -> None:
    with controllership(tree.endpoint, OURS):
        assert current_controller(tree.client) == OURS

    assert tree.client.exists("/controller") is None
    assert current_controller(tree.client) == -1


def test_hands_back_after_an_error(tree: KafkaTree) -> None:
    with pytest.raises(ValueError, match="oops"), controllership(tree.endpoint, OURS):
        raise ValueError("oops")

    assert tree.client.exists("/controller") is None


@pytest.mark.parametrize(
    ("znode", "data", "sign"),
    [
        (
            "/controller",
            b'{"version":1,"brokerid":3000,"timestamp":"1"}',
            "it was created manually.* No broker .*delete /controller",
        ),
        (
            "/controller",
            b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}',
            "migration to KRaft is in progress .*kraftControllerEpoch 4",
        ),
        (
            "/migration",
            b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1}',
            "migration to KRaft is in progress .*controller 3000",
        ),
    ],
)
def test_refuses_during_a_migration(bare_tree: KafkaTree, znode: str, data: bytes, sign: str) -> None:
    bare_tree.lay_out()
    bare_tree.write(znode, data)
    before = bare_tree.dump()

    with pytest.raises(RefusedError, match=sign):
        take_over(bare_tree.client, OURS)
    assert bare_tree.dump() == before


def test_refuses_a_kraft_controllers_epoch(tree: KafkaTree) -> None:
    tree.client.set("/controller", b'{"version":2,"brokerid":0,"timestamp":"1","kraftControllerEpoch":4}')

    with pytest.raises(RefusedError, match="kraftControllerEpoch 4"):
        take_over(tree.client, OURS)


def test_current_controller_is_read_after_a_sync(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an ensemble may not have heard yet that we have resigned: with `sync` it does."""
    sync = KazooClient.sync_async

    def catch_up(client: KazooClient, path: str) -> object:
        if tree.client.exists("/controller"):
            tree.client.delete("/controller")
        return sync(client, path)

    monkeypatch.setattr(KazooClient, "sync_async", catch_up)

    assert current_controller(tree.client) == -1


def test_refuses_the_id_of_a_broker(tree: KafkaTree) -> None:
    with pytest.raises(RefusedError, match="broker 2 exists: choose another controller_id"):
        take_over(tree.client, 2)


def test_refuses_where_another_surveyor_is_in_control(tree: KafkaTree, other: KazooClient) -> None:
    messages: list[str] = []
    with (
        controllership(tree.endpoint, OURS) as held,
        pytest.raises(RefusedError, match="another Surveyor"),
    ):
        take_over(other, OURS, messages.append, release_timeout=0.5)
    assert len(messages) == 1
    assert f"waiting up to 0.5 s for another Surveyor (session 0x{held.session:x}, id {OURS})" in messages[0]


def test_takes_nothing_over_that_rests_on_an_earlier_controller(tree: KafkaTree) -> None:
    before, intended = tree.dump(), list[int]()

    with pytest.raises(OvertakenError, match="another controller took over in the meantime, with epoch 7"):
        take_over(tree.client, OURS, record_intent=intended.append, expected_epoch=6)
    assert (tree.dump(), intended) == (before, [])

    assert take_over(tree.client, OURS, record_intent=intended.append, expected_epoch=7).epoch == 8
    assert intended == [8]


@pytest.mark.parametrize(
    ("znode", "data"),
    [("/controller", b"what?"), ("/controller_epoch", b"what?"), ("/controller_epoch", b"2147483647")],
)
def test_refuses_what_it_cannot_read(tree: KafkaTree, znode: str, data: bytes) -> None:
    """Nor after the last epoch: brokers could not decode the next one, so no broker could become the controller."""
    tree.client.set(znode, data)
    before = tree.dump()

    with pytest.raises(RefusedError, match=f"{znode} could not be decoded"):
        take_over(tree.client, OURS)
    assert tree.dump() == before


def test_forbidden_take_over_is_named(tree: KafkaTree, other: KazooClient) -> None:
    tree.client.set_acls("/controller_epoch", [make_acl("world", "anyone", read=True)])

    with pytest.raises(
        SurveyorError,
        match=r"nothing was written.*denies Surveyor permission to set /controller_epoch \(NoAuth\).*--mode admin",
    ):
        take_over(other, OURS)
    assert tree.client.get("/controller_epoch")[0] == b"7"


def test_later_take_over_fences_the_earlier(tree: KafkaTree, other: KazooClient) -> None:
    first = take_over(tree.client, THEIRS)
    second = take_over(other, OURS)

    assert second.epoch == first.epoch + 1
    with pytest.raises(FencedError, match="after our epoch 8"):
        first.commit([SetData("/cluster/id", b"theirs")])
    with pytest.raises(FencedError, match="after our epoch 8"):
        first.refuse_fenced()


def test_multi_that_fails_elsewhere_is_not_fenced(tree: KafkaTree) -> None:
    held = take_over(tree.client, OURS)

    refused = held.commit([SetData("/cluster/id", b"", version=99)])

    assert refused is not None
    assert (refused.path, type(refused.error)) == ("/cluster/id", BadVersionError)
    held.refuse_fenced()


def test_racing_take_overs_get_one_epoch_each(tree: KafkaTree, other: KazooClient) -> None:
    first, second = in_parallel(
        partial(take_over, tree.client, THEIRS),
        partial(take_over, other, OURS),
    )

    last = max(first, second, key=lambda held: held.epoch)
    assert sorted([first.epoch, second.epoch]) == [8, 9]
    assert tree.client.get("/controller_epoch")[0] == b"9"
    assert read_cluster(other).controller.broker_id == last.controller_id
    last.refuse_fenced()


def test_a_take_over_between_two_reads_is_not_replaced(
    tree: KafkaTree, other: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two standbys that follow a broker, one is the controller, also if the other one reads at that time."""
    winners: list[Controllership] = []

    def read_slowly(client: KazooClient, path: str) -> Znode:
        znode = read(client, path)
        if client is tree.client and path in {"/controller", "/controller_epoch"} and not winners:
            winners.append(take_over(other, OURS))
        return znode

    monkeypatch.setattr(cluster_state, "read", read_slowly)

    with pytest.raises(ControllershipHeldError):
        take_over(tree.client, OURS, release_timeout=0.5)
    winners[0].refuse_fenced()
    assert (len(winners), tree.client.get("/controller_epoch")[0]) == (1, b"8")


def test_gives_up_where_others_always_come_first(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_then_lose(client: KazooClient) -> object:
        state = read_cluster(client)
        tree.touch("/controller_epoch")
        return state

    monkeypatch.setattr(module, "read_cluster", read_then_lose)

    with pytest.raises(SurveyorError, match="changed hands during each of 5 attempts"):
        take_over(tree.client, OURS)
    assert tree.client.get("/controller_epoch")[0] == b"7"


def test_recognises_its_own_take_over_whose_answer_was_lost(tree: KafkaTree, proxy: ZooKeeperProxy) -> None:
    loss = proxy.lose(Loss(MULTI))

    with controllership(ZooKeeperEndpoint(proxy.hosts), OURS) as held:
        assert loss.happened.is_set()
        assert held.epoch == 8
        assert tree.client.get("/controller_epoch")[0] == b"8"
        held.refuse_fenced()


@pytest.mark.usefixtures("tree")
def test_tries_again_where_the_take_over_itself_was_lost(proxy: ZooKeeperProxy) -> None:
    loss = proxy.lose(Loss(MULTI, deliver=False))

    with controllership(ZooKeeperEndpoint(proxy.hosts), OURS) as held:
        assert loss.happened.is_set()
        assert held.epoch == 8
        held.refuse_fenced()


def test_says_so_when_the_session_ends_during_the_take_over(tree: KafkaTree, proxy: ZooKeeperProxy) -> None:
    proxy.lose(Loss(MULTI, then=ZooKeeperProxy.expire_session))

    with pytest.raises(SessionLostError, match="commit again"), controllership(ZooKeeperEndpoint(proxy.hosts), OURS):
        pass
    assert tree.client.exists("/controller") is None


@pytest.mark.usefixtures("tree", "short_responses")
def test_waiting_for_a_stopped_zookeeper_ends(proxy: ZooKeeperProxy) -> None:
    proxy.lose(Loss(MULTI, then=ZooKeeperProxy.refuse))

    with pytest.raises(SessionLostError), controllership(ZooKeeperEndpoint(proxy.hosts), OURS):
        pass


def test_held_includes_the_time_of_a_late_response(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    now, commit_takeover = [0.0], module._commit_takeover  # noqa: SLF001

    def late(*arguments: Any) -> bool:  # noqa: ANN401 - those of the original
        is_taken = commit_takeover(*arguments)
        now[0] += 20.0
        return is_taken

    monkeypatch.setattr(module, "_commit_takeover", late)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    with controllership(tree.endpoint, OURS) as held:
        assert held.held() == 20.0


def test_held_counts_from_the_take_over(tree: KafkaTree) -> None:
    held: Controllership = take_over(tree.client, OURS)

    assert 0 <= held.held() < 5
