"""Reassignments and elections that tools ask for while Surveyor is the controller."""

from typing import Final

import pytest

from jobs.controller.admin_apis.reassignments import _merge
from jobs.controller.admin_apis.requests import AdminApiContext, AdminError
from schemas.znode_codecs import TopicPartition, encode_partitions
from tests.jobs.controller.admin_apis.clients import AdminClient
from tests.jobs.support.controllers.resident import put_isr, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

REASSIGN: Final = "/admin/reassign_partitions"


def test_a_move_is_listed(admin: AdminClient) -> None:
    assert admin.reassign({("orders", 0): [0, 2]}) == {("orders", 0): (0, None)}

    listed = {("orders", 0): ((0, 2, 1), (2,), (1,))}
    asked = (None, {"orders": [0]}, {"orders": [1], "none": [0]})
    assert [admin.reassignments() if of is None else admin.reassignments(of) for of in asked] == [listed, listed, {}]


def test_a_move_ends(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.reassign({("orders", 0): [0, 2]}) == {("orders", 0): (0, None)}

    put_isr(tree, "orders", [0, 1, 2])
    run_until_quiet(admin.controller)

    assert admin.reassignments() == {}
    assert admin.controller.context.partitions["orders", 0].replicas == [0, 2]


def test_a_move_is_cancelled(tree: KafkaTree, admin: AdminClient) -> None:
    admin.reassign({("orders", 0): [2, 0]})

    assert admin.reassign({("orders", 0): None, ("orders", 1): None}) == {
        ("orders", 0): (0, None),
        ("orders", 1): (85, "no reassignment of this partition is in progress"),
    }
    run_until_quiet(admin.controller)
    assert admin.reassignments() == {}
    assert admin.controller.context.partitions["orders", 0].replicas == [0, 1]
    assert tree.client.exists(REASSIGN) is None


def test_a_move_is_replaced(tree: KafkaTree, admin: AdminClient) -> None:
    admin.reassign({("orders", 0): [2, 1]})

    assert admin.reassign({("orders", 0): [2, 0]}) == {("orders", 0): (0, None)}
    assert admin.reassignments()["orders", 0][0][:2] == (2, 0)
    assert tree.state("orders").leader == 0


def test_moves_are_refused(tree: KafkaTree, admin: AdminClient) -> None:
    answers = admin.reassign({
        ("orders", 0): [0, 0],
        ("orders", 1): [],
        ("orders", 9): [0],
        ("none", 0): [0],
    })  # fmt: skip

    assert {key: code for key, (code, _) in answers.items()} == {
        ("orders", 0): 39,
        ("orders", 1): 39,
        ("orders", 9): 3,
        ("none", 0): 3,
    }
    assert admin.reassign({("orders", 0): [0, 7]})[("orders", 0)][0] == 39
    assert tree.client.exists(REASSIGN) is None


def test_a_move_that_changes_nothing_succeeds(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.reassign({("orders", 0): [0, 1]}) == {("orders", 0): (0, None)}
    run_until_quiet(admin.controller)
    assert tree.client.exists(REASSIGN) is None


def test_other_requests_in_the_znode_are_kept(tree: KafkaTree, admin: AdminClient) -> None:
    """A request waits for broker 7; a tool's request for another partition is added."""
    tree.write(REASSIGN, encode_partitions([TopicPartition("orders", 1, [7, 1])]))
    run_until_quiet(admin.controller)

    assert admin.reassign({("orders", 0): [0, 2]}) == {("orders", 0): (0, None)}
    assert [*admin.controller.context.requested("reassign")] != []  # type: ignore[arg-type]
    assert admin.reassignments().keys() == {("orders", 0)}


def test_preferred_leaders_are_elected(tree: KafkaTree, admin: AdminClient) -> None:
    tree.unregister(0)
    run_until_quiet(admin.controller)
    assert tree.state("orders").leader == 1
    assert admin.elect(0, [("orders", 0)])["orders", 0][0] == 80
    tree.register(0)
    run_until_quiet(admin.controller)
    put_isr(tree, "orders", [1, 0])
    admin.controller.reader.refresh_partitions({("orders", 0)})

    answers = admin.elect(0, [("orders", 0), ("orders", 1), ("none", 0)])

    assert {key: code for key, (code, _) in answers.items()} == {("orders", 0): 0, ("orders", 1): 84, ("none", 0): 3}
    assert tree.state("orders").leader == 0
    assert admin.elect(0, None) == {}  # all are led by their preferred replicas


def test_an_unclean_election_is_left_to_a_plan(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.elect(1, [("orders", 0)])["orders", 0][0] == 84
    for broker in (0, 1):
        tree.unregister(broker)
    run_until_quiet(admin.controller)

    code, message = admin.elect(1, [("orders", 0)])["orders", 0]

    assert (code, tree.state("orders").leader) == (83, -1)
    assert message is not None
    assert "surveyor plan recover" in message


@pytest.mark.parametrize(("attempt", "waiting"), [("set", 4_000), ("create", 0)])
def test_a_request_that_zookeeper_would_not_take_is_not_sent(
    tree: KafkaTree, admin: AdminClient, attempt: str, waiting: int
) -> None:
    """It would close our connection over it."""
    moves = [TopicPartition("orders" * 30, number, [7, 8, 9]) for number in range(8_000)]
    if waiting:
        tree.write(REASSIGN, encode_partitions(moves[:waiting]))
    before = tree.client.exists(REASSIGN)
    api_context = AdminApiContext(admin.controller.control, admin.controller.context, list, lambda: None, lambda: None)

    refusal = _merge(api_context, REASSIGN, moves[waiting:])

    assert refusal is not None
    assert (refusal.error, tree.client.exists(REASSIGN)) == (AdminError.POLICY_VIOLATION, before)
    assert f"cannot {attempt} /admin/reassign_partitions" in str(refusal.message)
