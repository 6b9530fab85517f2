"""The next steps of requests in /admin, planned in Python from a tree in which all brokers are live.

They are for tests of commits; tests/jobs/execution/test_reconcile_requests.py compares them with the plans made on
Spark. Corresponds to `jobs.planning.reconcile`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.cluster_state import DELETE_TOPICS, PREFERRED_ELECTION, REASSIGN
from schemas.enums import CONFIRMED_UNDER, LEADER_DURING_DELETE, Action, OperationKind, PlanKind
from schemas.notices import STOP_REPLICA
from schemas.response_codes import NO_ERROR
from schemas.rows import Key, Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import TopicPartition, decode_assignment, decode_partitions
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

Steps = tuple[list[Row], list[Row]]
"""Changes and operations."""


def store_steps(warehouse: Warehouse, tree: KafkaTree) -> Plan | None:
    """Store the next steps as a plan; None if there are none."""
    changes, operations = steps_due(warehouse, tree)
    if not (changes or operations):
        return None
    number = len(warehouse.rows("plans")) + 1 if warehouse.has("plans") else 1
    question = {"allow_unclean": False, "requests": True, CONFIRMED_UNDER: _controller_epoch(tree)}
    columns = {
        "kind": PlanKind.RECONCILE.value,
        "parameters": json.dumps(question, sort_keys=True),
        "snapshot_id": number,
    }
    return store_plan(warehouse, tree, changes, operations, **columns)


def steps_due(warehouse: Warehouse, tree: KafkaTree) -> Steps:
    """Return the steps of moves, preferred elections and deletions of existing topics, one change per partition."""
    changes, operations = [], []
    orders = {(order.topic, order.partition): order.replicas or [] for order in _requested(tree, REASSIGN)}
    done: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), order in sorted(orders.items()):
        change = _move(warehouse, tree, (topic, partition), order)
        changes += [] if change is None else [change]
        if change is None or change["action"] == Action.END_REASSIGNMENT:
            done.setdefault(topic, {})[str(partition)] = order
    operations += [_operation(OperationKind.WITHDRAW_REASSIGNMENT, topic, {"orders": of}) for topic, of in done.items()]
    passed: dict[str, list[int]] = {}
    for requested in sorted(
        _requested(tree, PREFERRED_ELECTION), key=lambda requested: (requested.topic, requested.partition)
    ):
        changes += _preferred(tree, requested.topic, requested.partition)
        passed.setdefault(requested.topic, []).append(requested.partition)
    operations += [_operation(OperationKind.WITHDRAW_ELECTION, topic, {"partitions": p}) for topic, p in passed.items()]
    queued = {*tree.client.get_children(DELETE_TOPICS)} & _topics(tree)
    operations += [_deletion(warehouse, tree, topic) for topic in sorted(queued)]
    return changes, [row | {"sequence": number} for number, row in enumerate(operations)]


def _requested(tree: KafkaTree, path: str) -> list[TopicPartition]:
    partitions = decode_partitions(tree.client.get(path)[0]) if tree.client.exists(path) else []
    return [partition for partition in partitions if partition.topic in _topics(tree)]


def _topics(tree: KafkaTree) -> set[str]:
    return {*tree.client.get_children("/brokers/topics")}


def _move(warehouse: Warehouse, tree: KafkaTree, key: Key, order: list[int]) -> Row | None:
    """Start, narrow or end a move; None if the request is fulfilled. Once started, the target counts as in sync."""
    topic, partition = key
    assigned, state = tree.assignment(topic), tree.state(topic, partition)
    replicas = assigned.partitions[partition]
    adding = assigned.adding_replicas.get(partition, [])
    removing = assigned.removing_replicas.get(partition, [])
    target = [broker for broker in replicas if broker not in removing]
    before = {"adding_before": adding, "removing_before": removing, "adding_after": adding, "removing_after": removing}
    same = before | {"leader_and_isr_to": target, "stop_replica_to": []}
    if order != target:
        merged = list(dict.fromkeys([*order, *replicas]))
        added = [broker for broker in order if broker not in replicas or broker in adding]
        return (
            election(tree, topic, partition, state.leader)
            | same
            | {
                "action": Action.START_REASSIGNMENT.value,
                "replicas_after": merged,
                "adding_after": added,
                "removing_after": [broker for broker in replicas if broker not in order],
                "leader_and_isr_to": merged,
                "requires_live": [state.leader, *added],
            }
        )
    if not (adding or removing):
        return None
    assert {*target} <= {*state.isr}, f"{topic}-{partition} copies"
    stopped = {row["broker_id"] for row in _stopped(warehouse, tree, topic, state.leader_epoch)}
    if {*state.isr} == {*target} and state.leader in target and {*removing} <= stopped:
        none = {"replicas_after": target, "adding_after": [], "removing_after": []}
        return election(tree, topic, partition, state.leader) | same | none | {"action": Action.END_REASSIGNMENT.value}
    leader = state.leader if state.leader in target else target[0]
    isr = [broker for broker in state.isr if broker in target]
    narrowed = {"action": Action.NARROW_TO_TARGET.value, "isr_after": isr, "stop_replica_to": removing}
    return election(tree, topic, partition, leader) | same | narrowed


def _preferred(tree: KafkaTree, topic: str, partition: int) -> Iterator[Row]:
    first = tree.assignment(topic).partitions[partition][0]
    if tree.state(topic, partition).leader != first:
        yield election(tree, topic, partition, first) | {"stop_replica_to": []}


def _deletion(warehouse: Warehouse, tree: KafkaTree, topic: str) -> Row:
    """Delete all replicas, and remove the topic once they are deleted."""
    data, stat = tree.client.get(f"/brokers/topics/{topic}")
    assigned = decode_assignment(data)
    replicas = {str(partition): sorted(brokers) for partition, brokers in sorted(assigned.partitions.items())}
    confirmed = {
        (str(row["partition"]), row["broker_id"]) for row in _stopped(warehouse, tree, topic, LEADER_DURING_DELETE)
    }
    known: dict[str, Any] = {"topic_id": assigned.topic_id}
    if {(partition, broker) for partition, brokers in replicas.items() for broker in brokers} <= confirmed:
        known |= {CONFIRMED_UNDER: _controller_epoch(tree), "topic_version": stat.version}
        return _operation(OperationKind.REMOVE_TOPIC, topic, known)
    return _operation(OperationKind.DELETE_REPLICAS, topic, known | {"replicas": replicas})


def _stopped(warehouse: Warehouse, tree: KafkaTree, topic: str, leader_epoch: int) -> list[Row]:
    """Return the confirmations of deleted logs under the last controllership."""
    if not warehouse.has("answers"):
        return []
    of_last = ("controller_epoch", "=", _controller_epoch(tree))
    rows = warehouse.rows(
        "answers", ("api", "=", STOP_REPLICA), ("error", "=", NO_ERROR), of_last, ("topic", "=", topic)
    )
    return [row for row in rows if row["delete_partition"] and row["leader_epoch"] == leader_epoch]


def _controller_epoch(tree: KafkaTree) -> int:
    return int(tree.client.get("/controller_epoch")[0])


def _operation(kind: OperationKind, topic: str, data: Mapping[str, Any]) -> Row:
    return {"sequence": 0, "kind": kind.value, "topic": topic, "data": json.dumps(data, sort_keys=True)}
