"""Snapshots without ZooKeeper and Spark: rows as `surveyor snapshot` writes them."""

import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.adapters.delta.warehouse import Warehouse
from schemas.rows import Row
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.rows.empty_tables import lay_tables

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

Partitions = Mapping[tuple[str, int], Row]


def broker(broker_id: int, epoch: int, **columns: Any) -> Row:  # noqa: ANN401 - columns of `brokers`
    port = 9092 + broker_id
    endpoint = {"listener": "INSIDE", "security_protocol": "PLAINTEXT", "host": "h", "port": port}
    return {
        "broker_id": broker_id,
        "broker_epoch": epoch,
        "host": "h",
        "port": port,
        "endpoints": [endpoint],
        "rack": None,
        "understood": True,
        **columns,
    }


def topic(name: str, **columns: Any) -> Row:  # noqa: ANN401 - columns of `topics`
    return {
        "topic": name,
        "topic_id": f"{name}-id",
        "topic_version": 0,
        "config": {},
        "deletion_requested": False,
        "understood": True,
        **columns,
    }


def partition(replicas: Sequence[int], **columns: Any) -> Row:  # noqa: ANN401 - columns of `partitions`
    """Return a partition whose first replica leads, all in sync."""
    return {
        "topic_version": 0,
        "replicas": list(replicas),
        "adding_replicas": [],
        "removing_replicas": [],
        "leader": replicas[0],
        "isr": list(replicas),
        "leader_epoch": 5,
        "partition_state": "Online",
        **columns,
    }


class Cluster:
    """A cluster that a test changes between snapshots."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.brokers: list[Row] = []
        self.topics: list[Row] = []
        self.partitions: dict[tuple[str, int], Row] = {}
        self.quarantine: list[Row] = []
        self.security: list[Row] = []
        self.broker_configs: list[Row] = []
        self.controller: Row = {"controller_id": 0, "controller_epoch": 7}
        self._last: Partitions = {}
        self._id = 0
        lay_tables(warehouse)

    def copied_to(self, warehouse: Warehouse) -> "Cluster":
        """Return the same cluster in a new warehouse, with all rows of this one."""
        shutil.copytree(self.warehouse.uri, warehouse.uri)
        copy = deepcopy(self)
        copy.warehouse = warehouse
        return copy

    def snapshot(self, age: timedelta = timedelta(0)) -> int:
        """Take a snapshot, `age` before NOW; return its id."""
        self._id += 1
        stamped = {"snapshot_id": self._id}
        of_test = [table for table in ("broker_configs", "security") if getattr(self, table)]
        for table in ("brokers", "topics", "quarantine", *of_test):
            self.warehouse.replace(table, [{**row, **stamped} for row in getattr(self, table)])
        self._write_partitions(self._changed())
        event = {"kind": "LeaderChanged", "subject": f"of {self._id}"}
        skew = {"broker_id": 0, "preferred_partitions": 1, "not_led": 0, "ratio": 0.0, "exceeds": False}
        self.warehouse.replace("events", [{**event, **stamped}], f"snapshot_id = {self._id}")
        self.warehouse.replace("imbalance", [{**skew, **stamped}], f"snapshot_id = {self._id}")
        versions = {name: self.warehouse.version(name) for name in SPARK_SCHEMAS}
        row = {**stamped, **self.controller, "taken_at": NOW - age, "versions": versions}
        self.warehouse.replace("snapshots", [row], f"snapshot_id = {self._id}")
        return self._id

    def _changed(self) -> list[Row]:
        changed = []
        for topic_, number in sorted({*self.partitions, *self._last}):
            before, after = self._last.get((topic_, number)), self.partitions.get((topic_, number))
            if before != after:
                row = after or {**(before or {}), "partition_state": "NonExistent"}
                changed.append({**row, "topic": topic_, "partition": number, "snapshot_id": self._id})
        self._last = dict(self.partitions)
        return changed

    def _write_partitions(self, changed: Sequence[Row]) -> None:
        self.warehouse.replace("partition_history", changed, f"snapshot_id = {self._id}")
        for row in changed:
            where = f"topic = '{row['topic']}' AND partition = {row['partition']}"
            self.warehouse.replace("partitions", [] if row["partition_state"] == "NonExistent" else [row], where)
