"""The Python Data Source `zookeeper`: Spark splits a znode tree into ranges that executors read in parallel.

`spark.read.format("zookeeper").option("zookeeper", "host:port/chroot").load()` returns one row per topic, partition
and znode that could not be decoded (`READ`); the reader decodes with `schemas.znode_codecs`. With
`.option("path", "/brokers/topics")` it returns the raw znodes below that path (`ZNODES`), `depth` levels of them
(default 1). `tasks` is the number of ranges. `config` is the connection's configuration file (`--zookeeper-config`),
which must exist on every host that runs an executor. Every connection calls `sync` first, and the ranges are spread
over the servers of the ensemble.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat
from msgspec import Struct
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from jobs.adapters.zookeeper.cluster_state import TOPICS as TOPICS_PATH
from jobs.adapters.zookeeper.connection import connected, sync, with_retries
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_read import children_of, read_many
from jobs.adapters.zookeeper.topics import TopicRows, read_topic_rows
from jobs.adapters.zookeeper.znode_reads import Znode, children
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.garbage_collection import gc_paused
from schemas.tables import PARTITIONS, QUARANTINE, TOPICS

ZNODES_PER_TASK: Final = 250
"""Topics, or first-level znodes, that a task reads if the number of tasks is not given."""

_FIELDS_BY_KIND: Final[dict[str, tuple[StructField, ...]]] = {
    "topic": tuple(
        TOPICS[name] for name in ("topic", "topic_version", "understood", "assignment_understood", "topic_id", "config")
    ),
    "partition": tuple(
        PARTITIONS[name]
        for name in (
            "topic",
            "topic_version",
            "understood",
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
    ),
    "quarantine": tuple(QUARANTINE[name] for name in ("path", "data", "reason", "blocks", "mend")),
    "partition of KRaft": tuple(PARTITIONS[name] for name in ("eligible_leader_replicas", "last_known_elr")),
    "task": (StructField("read_seconds", DoubleType()), StructField("decode_seconds", DoubleType())),
}

READ: Final = StructType(
    [
        StructField("kind", StringType(), metadata={"comment": ", ".join(_FIELDS_BY_KIND)}),
        *{field.name: field for fields in _FIELDS_BY_KIND.values() for field in fields}.values(),
    ],
)
"""Rows of a cluster; columns of other kinds are null. A row of kind `task` has the durations of a read."""

ZNODES: Final = StructType(
    [
        StructField("path", StringType(), metadata={"comment": "from the chroot"}),
        StructField("data", BinaryType(), metadata={"comment": "unchanged; null if a znode has none"}),
        StructField("version", IntegerType(), metadata={"comment": "number of times its data was set"}),
        StructField("czxid", LongType(), metadata={"comment": "transaction that created it"}),
        StructField("mzxid", LongType(), metadata={"comment": "transaction that last set its data"}),
        StructField("ephemeral_owner", LongType(), metadata={"comment": "session it goes with, 0 for none"}),
        StructField("children", IntegerType(), metadata={"comment": "how many znodes are directly below"}),
    ],
)
"""Any znodes, undecoded."""


@dataclass
class NameBatch(InputPartition):
    """The first-level znodes that one task reads; `number` is the index of the task."""

    number: int
    names: tuple[str, ...]


class ZooKeeperDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "zookeeper"

    def schema(self) -> StructType:
        return ZNODES if "path" in self.options else READ

    def reader(self, schema: StructType) -> "_Reader":  # noqa: ARG002 - Spark's signature
        options = {str(name).lower(): str(value) for name, value in self.options.items()}
        if "zookeeper" not in options:
            raise UnreadableError('no ZooKeeper given: .option("zookeeper", "HOST:PORT[,...][/chroot]")')
        config = Path(options["config"]) if "config" in options else None
        endpoint, tasks = (
            ZooKeeperEndpoint(options["zookeeper"], config),
            _number(options, "tasks", "into how many ranges to split"),
        )
        if "path" in options:
            path = options["path"].strip("/")
            depth = _number(options, "depth", "how many levels below the path to read") or 1
            return ZnodeReader(endpoint, f"/{path}" if path else "", tasks, depth)
        return TopicReader(endpoint, TOPICS_PATH, tasks)


class _Reader(DataSourceReader):
    """Splits the children of `path` into tasks; a subclass turns the share of a task into rows."""

    def __init__(self, endpoint: ZooKeeperEndpoint, path: str, tasks: int | None = None) -> None:
        self.endpoint, self.path, self.tasks = endpoint, path, tasks

    def partitions(self) -> Sequence[InputPartition]:
        with connected(self.endpoint) as client:
            return self.shares(client)

    def shares(self, client: KazooClient) -> list[NameBatch]:
        """List the children of `path`, and divide them among the tasks."""
        names = with_retries(lambda: self.list_names(client))
        size = ZNODES_PER_TASK if self.tasks is None else max(1, ceil(len(names) / self.tasks))
        shares = [tuple(names[start : start + size]) for start in range(0, len(names), size)] or [()]
        return [NameBatch(number, share) for number, share in enumerate(shares)]

    def list_names(self, client: KazooClient) -> list[str]:
        sync(client)
        return children(client, self.path or "/") or []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, NameBatch) or not partition.names:
            return
        with gc_paused(), connected(self.endpoint, first_server=partition.number) as client:
            with_retries(lambda: sync(client))
            yield from self.batches(client, partition.names)

    def batches(self, client: KazooClient, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class TopicReader(_Reader):
    """Reads and decodes topics and their partitions."""

    def batches(self, client: KazooClient, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for reading in read_topic_rows(client, names):
            for kind, rows in _by_kind(reading).items():
                if rows:
                    yield _batch(rows, {field.name for field in _FIELDS_BY_KIND[kind]}, READ, kind=kind)


class ZnodeReader(_Reader):
    """Reads raw znodes, `depth` levels below the path."""

    def __init__(self, endpoint: ZooKeeperEndpoint, path: str, tasks: int | None, depth: int) -> None:
        super().__init__(endpoint, path, tasks)
        self.depth = depth

    def list_names(self, client: KazooClient) -> list[str]:
        sync(client)
        names = children(client, self.path or "/")
        if names is None:
            raise UnreadableError(
                f"{self.path or '/'} does not exist at {self.endpoint}; check the chroot and .option('path')"
            )
        return names

    def batches(self, client: KazooClient, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        level = [f"{self.path}/{name}" for name in names]
        for depth in range(self.depth):
            znodes = read_many(client, level, resume=True)
            rows = [_RawZnode.of(znode, znode.stat) for znode in znodes if znode.stat is not None]
            yield _batch(rows, set(ZNODES.names), ZNODES)
            if depth + 1 < self.depth:
                below = zip(level, children_of(client, level, resume=True), strict=True)
                level = [f"{path}/{name}" for path, child_names in below for name in child_names]


def _number(options: Mapping[str, str], name: str, meaning: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f'.option("{name}", {text!r}), expected {meaning}, 1 or more')
    return int(text)


def _by_kind(reading: TopicRows) -> dict[str, Sequence[object]]:
    return {
        "topic": reading.topics,
        "partition": reading.partitions,
        "quarantine": reading.quarantine,
        "task": [reading],
    }


class _RawZnode(Struct, frozen=True, kw_only=True):
    """A row of ZNODES."""

    path: str
    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    children: int

    @classmethod
    def of(cls, znode: Znode, stat: ZnodeStat) -> Self:
        return cls(
            path=znode.path,
            data=znode.data,
            version=stat.version,
            czxid=stat.czxid,
            mzxid=stat.mzxid,
            ephemeral_owner=stat.ephemeralOwner,
            children=stat.numChildren,
        )


def _batch(rows: Sequence[object], columns_present: set[str], schema: StructType, **same: str) -> pa.RecordBatch:
    """Make a batch of `schema`: attributes of the rows, columns with one constant, and null columns."""
    arrow = to_arrow_schema(schema)
    columns = []
    for field in arrow:
        if field.name in same:
            columns.append(pa.repeat(same[field.name], len(rows)).cast(field.type))
        elif field.name in columns_present:
            columns.append(pa.array(map(attrgetter(field.name), rows), field.type, size=len(rows)))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=arrow)
