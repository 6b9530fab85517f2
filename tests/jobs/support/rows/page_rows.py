"""Warehouses for page tests: a small cluster with a history, and one with very many partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import asdict

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans import arrow_digest
from jobs.repositories.plans.names import Alias
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader
from jobs.repositories.plans.store import store
from schemas.columns import TABLE_COLUMNS
from schemas.enums import Action, PlanKind
from schemas.operation_data import AlteredConfig
from schemas.rows import PlanRecord, Row
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic
from tests.typed_rows import typed

HOSTILE: Final = "<script>alert(1)</script>"
"""A hostile name for anything in a cluster."""
SECRET: Final = "hunter2"  # noqa: S105 - what no page may show
EPOCHS: Final = {0: 10, 1: 11, 2: 12, 3: 13}


def change(topic_: str, number: int, before: Sequence[int], after: Sequence[int], **columns: Any) -> Row:  # noqa: ANN401
    """Return a change of replicas, led by the first of them, all in sync."""
    change = typed(
        topic=topic_,
        partition=number,
        replicas_before=list(before),
        replicas_after=list(after),
        adding_before=[],
        removing_before=[],
        leader_before=before[0],
        leader_after=after[0],
        isr_before=list(before),
        isr_after=list(after),
        state_version=1,
        topic_version=1,
        requires_live=list(after),
        reason="evens out",
    )
    return asdict(change) | columns


def stored_plan(
    warehouse: Warehouse,
    changes: Sequence[Row],
    name: str | None = None,
    operations: Sequence[Row] = (),
    **content: Any,  # noqa: ANN401
) -> PlanRecord:
    """Store a plan under the id of its rows, with one rejection."""
    rejection = {
        "topic": HOSTILE,
        "partition": 7,
        "action": "reassign",
        "code": "ALREADY_ASSIGNED",
        "reason": "as it is",
    }
    rows = InMemoryRows(warehouse=warehouse, changes=changes, rejections=[rejection], operations=operations)
    return store(warehouse, Alias(name), PlanHeader(**{**_content(), **content}), rows)


def _content() -> dict[str, Any]:
    parameters = {"rebalance": True, "sasl.jaas.config": SECRET}
    constants = {"parameters": parameters, "snapshot_id": 3, "cluster_id": "id", "broker_epochs": EPOCHS}
    return {"kind": PlanKind.REASSIGN, **constants}


def lived_in(warehouse: Warehouse) -> Cluster:
    """Store three snapshots of four brokers, a plan with a commit, and a what-if result.

    Broker 2 led orders-0 at first, broker 1 since the second snapshot, in which broker 3 registers. Broker 2 is dead in
    the third, in which orders-1 is offline and the partition of the topic with the hostile name under-replicated.
    """
    cluster = Cluster(warehouse)
    cluster.controller |= {"cluster_id": "id", "quarantined": 0}
    brokers = [broker(number, 10 + number, rack=rack) for number, rack in enumerate(["a", "a", "b", HOSTILE])]
    cluster.brokers = brokers[:3]
    cluster.topics = [topic("orders", config={"sasl.jaas.config": SECRET}), topic(HOSTILE)]
    online = {"understood": True, "under_replicated": False, "under_min_isr": False}
    cluster.partitions = {
        ("orders", 0): partition([2, 1, 0], **online),
        ("orders", 1): partition([2, 3], **online),
        (HOSTILE, 0): partition([0, 3], **online),
    }
    cluster.snapshot(timedelta(hours=2))
    cluster.brokers = brokers
    cluster.partitions[("orders", 0)] = partition([2, 1, 0], **{**online, "leader": 1})
    cluster.snapshot(timedelta(hours=1))
    cluster.brokers = [row for row in brokers if row["broker_id"] != 2]
    bad = {**online, "under_replicated": True}
    cluster.partitions[("orders", 1)] = partition(
        [2, 3], **{**bad, "leader": -1, "isr": [2], "offline_replicas": [2], "partition_state": "Offline"}
    )
    cluster.partitions[(HOSTILE, 0)] = partition([0, 3], **{**bad, "isr": [0]})
    cluster.snapshot()
    _skewed(warehouse)
    _measured(warehouse)
    joined = [{"snapshot_id": 1, "kind": "BrokerJoined", "subject": f"broker {number}"} for number in range(3)]
    later = [(2, "BrokerJoined", "broker 3"), (3, "BrokerFailed", "broker 2")]
    warehouse.append("events", [*joined, *(dict(zip(joined[0], event, strict=True)) for event in later)])
    plan = stored_plan(
        warehouse, [change("orders", 0, [2, 1, 0], [1, 3, 0]), change(HOSTILE, 0, [0, 3], [3, 0])], "grow"
    )
    _commit(warehouse, plan.plan_id)
    loss = {"snapshot_id": 3, "lose": "brokers=1", "lost": [1], "offline": 2, "newly_offline": 1, "leader_skew": 1.5}
    warehouse.append(
        "whatif", [{**loss, "scenario": f"rack {HOSTILE}"}, {**loss, "scenario": "broker 3", "newly_offline": 0}]
    )
    return cluster


def _skewed(warehouse: Warehouse) -> None:
    """Store an imbalance of broker 2 that grows from snapshot to snapshot."""
    common = {"preferred_partitions": 2, "threshold": 0.1}
    rows = [
        {**common, "snapshot_id": number, "broker_id": 2, "not_led": led, "ratio": led / 2, "exceeds": led > 0}
        for number, led in enumerate((0, 1, 2), start=1)
    ]
    warehouse.append("imbalance", rows)


def _measured(warehouse: Warehouse) -> None:
    """Store six hours of load before the third snapshot, and not the one in between; broker 0 carries most of it.

    Two limits are exceeded, all disks grow, and most of the load of broker 0 is one partition.
    """
    hours = [NOW - number * HOUR for number in (6, 5, 4, 2, 1)]
    rows = [
        broker_row(hour, broker_id, (12 - 3 * broker_id + number) * 1e6, size_bytes=10**9 * (1 + number), cpu=30.0)
        for number, hour in enumerate([NOW - 7 * HOUR, *hours])
        for broker_id in (0, 1, 3)
    ]
    warehouse.append("broker_load", rows)
    partitions = [
        partition_row(hours[-1], HOSTILE, 0, 14e6, size_bytes=2**30, flags=["compacted"], method="mean_size"),
        partition_row(hours[-1], "orders", 0, 3e6, size_bytes=2**29, leader=1),
        partition_row(hours[-2], "orders", 0, 3e6, size_bytes=2**29, leader=1),
    ]
    warehouse.append("partition_load", partitions)
    of_disks = {"resource": "disk", "capacity": 10e9, "source": "log_dirs"}
    of_network = {"resource": "in", "capacity": 40e6, "source": "file"}
    capacities = [{"broker_id": broker_id, **one} for broker_id in (0, 1, 3) for one in (of_disks, of_network)]
    warehouse.append("broker_capacity", [{"valid_from": NOW, **row} for row in capacities])


def _commit(warehouse: Warehouse, plan_id: str) -> None:
    """Store an attempt that applied orders-0 and found the other stale, and one that was killed after its intents."""
    common = {"plan_id": plan_id, "who": f"me@{HOSTILE}", "wave": 0, "action": "reassign", "partition": 0}
    altered = f"topic t: sasl.jaas.config is now {SECRET}: another client altered it"
    rows = [
        {"topic": "orders", "attempt": 1, "outcome": "pending", "message": ""},
        {"topic": "orders", "attempt": 1, "outcome": "applied", "message": ""},
        {"topic": HOSTILE, "attempt": 1, "outcome": "stale", "message": altered},
        {"topic": "orders", "attempt": 2, "outcome": "pending", "message": ""},
    ]
    timed = [{**row, "committed_at": NOW + timedelta(minutes=minute)} for minute, row in enumerate(rows)]
    warehouse.append("commits", [{**common, **row} for row in timed])


def config_operation() -> Row:
    """Return an alteration of a topic's configs, one of which must not be displayed."""
    after: dict[str, str | None] = {"retention.ms": "1", "ssl.key.password": SECRET}
    return AlteredConfig(topic_id=None, before={"ssl.key.password": SECRET}, after=after).operation("orders").columns()


@dataclass(frozen=True, slots=True)
class _ArrowRows:
    """The changes of a plan, built by columns."""

    warehouse: Warehouse
    changes: pa.Table

    def summary(self, header: str) -> Row:
        return arrow_digest.summary(header, {"changes": self.changes})

    def write(self, plan_id: str) -> None:
        named = {"cluster": self.warehouse.cluster, "plan_id": plan_id}
        self.warehouse.append_all("changes", _filled("changes", self.changes, named))


def very_many(warehouse: Warehouse, partitions: int, brokers: int = 24) -> PlanRecord:
    """Store a cluster of so many partitions, two of three under-replicated, and a plan that moves all of them."""
    lay_tables(warehouse)
    numbers = range(partitions)
    first, second = ([(number + step) % brokers for number in numbers] for step in (0, 1))
    pairs = list(zip(first, second, strict=True))
    known = {
        "topic": [f"topic-{number % 500:03d}" for number in numbers],
        "partition": [number // 500 for number in numbers],
        "replicas": [list(pair) for pair in pairs],
        "isr": [list(pair[: 1 if number % 3 else 2]) for number, pair in enumerate(pairs)],
        "leader": first,
    }
    common = {"cluster": warehouse.cluster, "snapshot_id": 1}
    online = {"partition_state": "Online", "understood": True, "vanished": False}
    table = _filled("partitions", pa.table(known), common | online)
    under = pa.array([number % 3 > 0 for number in numbers])
    table = table.set_column(table.column_names.index("under_replicated"), "under_replicated", under)
    warehouse.append_all("partitions", table)
    warehouse.append_all("partition_history", table)
    warehouse.append("brokers", [broker(number, number, rack="abc"[number % 3]) for number in range(brokers)])
    versions = {name: warehouse.version(name) for name in TABLE_COLUMNS}
    row = {"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": versions, "controller_id": 0}
    warehouse.append("snapshots", [row])
    return _plan_of_all(warehouse, known)


def _plan_of_all(warehouse: Warehouse, known: Mapping[str, Any]) -> PlanRecord:
    moved = [replicas[::-1] for replicas in known["replicas"]]
    columns = {
        "topic": known["topic"],
        "partition": known["partition"],
        "replicas_before": known["replicas"],
        "replicas_after": moved,
        "leader_before": known["leader"],
        "leader_after": [replicas[0] for replicas in moved],
        "isr_before": known["isr"],
        "isr_after": known["isr"],
        "requires_live": moved,
        "requires_dead": pa.array([[] for _ in moved], pa.list_(pa.int32())),
    }
    constants = {"wave": 0, "action": Action.REASSIGN.value, "is_new": False, "reason": "evens out"}
    changes = _filled("changes", pa.table(columns), constants)
    content = PlanHeader(**{**_content(), "snapshot_id": 1})
    return store(warehouse, Alias("all"), content, _ArrowRows(warehouse, changes))


def _filled(table: str, rows: pa.Table, constants: Mapping[str, Any]) -> pa.Table:
    """Complete a table's columns with the same value in every row, or null."""
    schema = schema_of(table)
    columns = []
    for column in schema:
        if column.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[column.name], column.type), rows.num_rows))
        elif column.name in rows.column_names:
            columns.append(rows[column.name].cast(column.type))
        else:
            columns.append(pa.nulls(rows.num_rows, column.type))
    return pa.table(columns, schema=schema)
