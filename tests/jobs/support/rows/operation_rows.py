"""Plans for existing topics, made in Python from a tree."""

import json

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import OperationKind, PlanKind
from schemas.rows import Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import decode_assignment
from tests.jobs.support.rows.plan_rows import creation, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


def _topic_id(tree: KafkaTree, topic: str) -> str | None:
    return tree.assignment(topic).topic_id


def _operation(kind: OperationKind, topic: str, data: Row, sequence: int = 0) -> Row:
    return {"sequence": sequence, "kind": kind.value, "topic": topic, "data": json.dumps(data, sort_keys=True)}


def alteration(
    warehouse: Warehouse, tree: KafkaTree, topic: str, before: dict[str, str | None], after: dict[str, str | None]
) -> Plan:
    data = {"topic_id": _topic_id(tree, topic), "before": before, "after": after}
    operation = _operation(OperationKind.ALTER_CONFIG, topic, data)
    return store_plan(warehouse, tree, [], [operation], kind=PlanKind.CONFIG.value)


def deletion(warehouse: Warehouse, tree: KafkaTree, *topics: str) -> Plan:
    operations = [
        _operation(OperationKind.DELETE_TOPIC, topic, {"topic_id": _topic_id(tree, topic)}, number)
        for number, topic in enumerate(topics)
    ]
    return store_plan(warehouse, tree, [], operations, kind=PlanKind.DELETE.value)


def expansion(warehouse: Warehouse, tree: KafkaTree, topic: str, added: list[list[int]]) -> Plan:
    """Return an operation that adds partitions to the existing ones."""
    data, stat = tree.client.get(f"/brokers/topics/{topic}")
    assignment = decode_assignment(data)
    existing = len(assignment.partitions)
    changes = [
        creation(topic, partition, replicas, assignment.topic_id) | {"topic_version": stat.version}
        for partition, replicas in enumerate(added, existing)
    ]
    total = {"existing": existing, "partitions": existing + len(added), "topic_id": assignment.topic_id}
    operation = _operation(OperationKind.EXPAND_TOPIC, topic, total)
    return store_plan(warehouse, tree, changes, [operation], kind=PlanKind.EXPAND.value)
