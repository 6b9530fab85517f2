"""Plans without Spark: rows made in Python, stored under the id of their content."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import rmtree
from typing import Any

import msgspec
from msgspec.structs import asdict

from jobs.adapters.delta.warehouse import Warehouse, quote_literal
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.repositories.plans.plans_reader import read_plan
from schemas.enums import NO_VERSION, Action, OperationKind, PlanKind, PlanStatus
from schemas.plan_digest import plan_header
from schemas.rows import Change, Operation, PlanRecord, Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import decode_assignment, decode_state
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path
from tests.plan_digest import plan_id
from tests.typed_rows import typed

CLUSTER = "default"


def election(tree: KafkaTree, topic: str, partition: int, leader: int, **columns: Any) -> Row:  # noqa: ANN401
    """Return a change of one partition's leader, computed from the tree."""
    data, stat = tree.client.get(f"/brokers/topics/{topic}")
    assignment = decode_assignment(data)
    replicas = assignment.partitions[partition]
    state_data, state_stat = tree.client.get(state_path(topic, partition))
    state = decode_state(state_data)
    same: Row = {"replicas": replicas, "adding": [], "removing": [], "isr": state.isr, "leader_recovery_state": 0}
    change = typed(
        topic=topic,
        partition=partition,
        action=Action.ELECT_PREFERRED.value,
        **{f"{name}_{side}": value for name, value in same.items() for side in ("before", "after")},
        leader_before=state.leader,
        leader_after=leader,
        leader_epoch_before=state.leader_epoch,
        leader_epoch_after=state.leader_epoch + 1,
        controller_epoch_before=state.controller_epoch,
        state_version=state_stat.version,
        topic_version=stat.version,
        topic_id=assignment.topic_id,
        leader_and_isr_to=replicas,
        requires_live=[leader],
    )
    return asdict(change) | columns


def creation(topic: str, partition: int, replicas: list[int], topic_id: str | None = TOPIC_ID) -> Row:
    """Return a partition of a new topic: all replicas live, the first one leads."""
    change = typed(
        topic=topic,
        partition=partition,
        action=Action.CREATE.value,
        replicas_after=replicas,
        leader_after=replicas[0],
        isr_after=replicas,
        leader_epoch_after=0,
        leader_recovery_state_after=0,
        state_version=NO_VERSION,
        topic_version=NO_VERSION,
        topic_id=topic_id,
        is_new=True,
        leader_and_isr_to=replicas,
        requires_live=replicas,
    )
    return asdict(change)


def topic_creation(topic: str, config: dict[str, str] | None = None, topic_id: str | None = TOPIC_ID) -> Row:
    data = json.dumps({"topic_id": topic_id, "config": config or {}}, sort_keys=True)
    return {"sequence": 0, "kind": OperationKind.CREATE_TOPIC.value, "topic": topic, "data": data}


def lose_commits(warehouse: Warehouse) -> None:
    """Delete the whole table, like a restore of a warehouse without it; its single rows cannot be deleted."""
    rmtree(warehouse.path("commits"))
    warehouse.ensure_tables()


def _as_row(row: Row | Change | Operation) -> Row:
    return row if isinstance(row, dict) else asdict(row)


def plan_record(plan_id: str = "5f", **columns: Any) -> PlanRecord:  # noqa: ANN401 - columns of `plans`
    """Return a planned reassignment."""
    made = {"snapshot_id": 1, "kind": PlanKind.REASSIGN.value, "status": PlanStatus.PLANNED.value}
    return PlanRecord(plan_id=plan_id, **{"created_at": datetime.now(UTC), **made, **columns})


def store_plan(
    warehouse: Warehouse,
    tree: KafkaTree,
    changes: Sequence[Row | Change],
    operations: Sequence[Row | Operation] = (),
    **columns: Any,  # noqa: ANN401 - columns of `plans`
) -> Plan:
    """Store a plan made now from the tree; `columns` override columns of `plans`."""
    lay_tables(warehouse)
    state = read_cluster(tree.client)
    plan: Row = {
        "cluster": warehouse.cluster,
        "name": None,
        "snapshot_id": 1,
        "kind": PlanKind.ELECT.value,
        "parameters": "{}",
        "created_at": datetime.now(UTC),
        "status": "planned",
        "changes": len(changes),
        "rejected": 0,
        "moves": 0,
        "cluster_id": state.cluster_id,
        "brokers": [{"broker_id": broker, "broker_epoch": epoch} for broker, epoch in sorted(state.live.items())],
        **columns,
    }
    rows = {"changes": [*map(_as_row, changes)], "operations": [*map(_as_row, operations)], "rejections": list[Row]()}
    plan["plan_id"] = plan_id(plan_header(msgspec.convert({**plan, "plan_id": ""}, PlanRecord)), rows)
    where = f"plan_id = {quote_literal(plan['plan_id'])}"
    for table, its_rows in rows.items():
        warehouse.replace(table, [{**row, "plan_id": plan["plan_id"]} for row in its_rows], where)
    warehouse.replace("plans", [plan], where)
    return read_plan(warehouse, plan["plan_id"])
