"""The Python Data Source `zookeeper`: Spark splits a cluster's topics into ranges, executors read them in parallel.

`spark.read.format("zookeeper").option("zookeeper", "host:port/chroot").load()` gives one row a topic, one a partition
and one a znode that could not be understood (`READ`). Decoding is that of `schemas.znodes`, in the reader. A topic
that vanishes between listing and reading is no row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import Schema
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from jobs.adapters.cluster import CONFIGS as CONFIGS_PATH
from jobs.adapters.cluster import TOPICS as TOPICS_PATH
from jobs.adapters.zookeeper import Znode, children, connected, read_many, sync
from schemas.tables import PARTITIONS, QUARANTINE, TOPICS
from schemas.znodes import (
    Assignment,
    MalformedZnodeError,
    check_topic_name,
    decode_assignment,
    decode_config,
    decode_state,
    printable,
)

TOPICS_A_TASK: Final = 250
"""Topics that one task reads: small enough to spread, large enough that connecting does not matter."""

_TOPIC_COLUMNS: Final = ("topic", "topic_id", "topic_version", "config", "understood")
_PARTITION_COLUMNS: Final = (
    "partition",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader",
    "isr",
    "leader_epoch",
    "controller_epoch",
    "state_version",
    "leader_recovery_state",
)

READ: Final = StructType(
    [
        StructField("kind", StringType(), metadata={"comment": "topic, partition or quarantine"}),
        *(TOPICS[name] for name in _TOPIC_COLUMNS),
        *(PARTITIONS[name] for name in _PARTITION_COLUMNS),
        *(QUARANTINE[name] for name in ("path", "data", "reason")),
    ],
)
"""What the source reads; the columns of other kinds are null."""

Row = dict[str, Any]


@dataclass
class TopicRange(InputPartition):
    """The topics one task reads."""

    topics: tuple[str, ...]


class ZooKeeperDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "zookeeper"

    def schema(self) -> StructType:
        return READ

    def reader(self, schema: StructType) -> "ZooKeeperReader":  # noqa: ARG002 - Spark's signature
        return ZooKeeperReader(str(self.options["zookeeper"]))


class ZooKeeperReader(DataSourceReader):
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def partitions(self) -> Sequence[InputPartition]:
        with connected(self.hosts) as client:
            sync(client)
            topics = children(client, TOPICS_PATH) or []
        starts = range(0, len(topics), TOPICS_A_TASK)
        return [TopicRange(tuple(topics[start : start + TOPICS_A_TASK])) for start in starts] or [TopicRange(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TopicRange) or not partition.topics:
            return
        schema = pa.schema(Schema.from_json(READ.json()).to_arrow())
        with connected(self.hosts) as client:
            sync(client)
            topics = read_many(client, [f"{TOPICS_PATH}/{topic}" for topic in partition.topics])
            configs = read_many(client, [f"{CONFIGS_PATH}/{topic}" for topic in partition.topics])
            rows, states = _topics(topics, configs)
            znodes = read_many(client, [path for path, _ in states])
        for znode, (_, row) in zip(znodes, states, strict=True):
            rows += _partition(znode, row)
        yield from pa.Table.from_pylist(rows, schema=schema).to_batches()


def _topics(topics: Sequence[Znode], configs: Sequence[Znode]) -> tuple[list[Row], list[tuple[str, Row]]]:
    """Decode topics: their rows, and for each partition the path of its state and what is known of it so far."""
    rows: list[Row] = []
    states: list[tuple[str, Row]] = []
    for znode, config_znode in zip(topics, configs, strict=True):
        if znode.stat is None:
            continue
        topic = znode.path.rsplit("/", 1)[1]
        row: Row = {"kind": "topic", "topic": topic, "topic_version": znode.version, "understood": True}
        rows.append(row)
        try:
            row["config"] = {} if config_znode.stat is None else decode_config(config_znode.data)
        except MalformedZnodeError as error:
            row["understood"] = False
            rows.append(_quarantined(config_znode, error))
        try:
            check_topic_name(topic)
            assignment = decode_assignment(znode.data)
        except MalformedZnodeError as error:
            row["understood"] = False
            rows.append(_quarantined(znode, error))
            continue
        row["topic_id"] = assignment.topic_id
        states += _assigned(row, assignment)
    return rows, states


def _assigned(topic: Row, assignment: Assignment) -> Iterator[tuple[str, Row]]:
    for partition, replicas in sorted(assignment.partitions.items()):
        row = {
            "kind": "partition",
            "topic": topic["topic"],
            "topic_version": topic["topic_version"],
            "understood": topic["understood"],
            "partition": partition,
            "replicas": replicas,
            "adding_replicas": assignment.adding_replicas.get(partition, []),
            "removing_replicas": assignment.removing_replicas.get(partition, []),
        }
        yield f"{TOPICS_PATH}/{topic['topic']}/partitions/{partition}/state", row


def _partition(znode: Znode, row: Row) -> list[Row]:
    """Complete a partition by its state; one that is not understood stays, marked, beside its quarantine row."""
    if znode.stat is None:
        return [row]
    try:
        state = decode_state(znode.data)
    except MalformedZnodeError as error:
        return [row | {"understood": False}, _quarantined(znode, error)]
    complete = row | {
        "leader": state.leader,
        "isr": state.isr,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "state_version": znode.version,
        "leader_recovery_state": state.leader_recovery_state,
    }
    return [complete]


def _quarantined(znode: Znode, error: MalformedZnodeError) -> Row:
    return {"kind": "quarantine", "path": znode.path, "data": printable(znode.data), "reason": str(error)}
