"""Weights for the optimiser: bytes of one replica of each partition, from a file or from the table `sizes`.

From the table, the largest current log of a partition's assigned replicas counts, leader or follower. If the partition
has moved since the sizes were taken, the largest log of its former replicas counts. A partition without a size counts
as the mean of its topic, or of all partitions if its topic has none. Counting it as empty would be wrong: it fills
brokers whether its size is known or not. The plan records a digest of the weights, so equal weights give the same plan
id.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct
from msgspec.structs import asdict

from jobs.adapters.delta.table_schemas import schema_of
from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError, UsageError
from jobs.core.text_decoding import read_text_file, refuse_open_quote
from jobs.core.units import format_age
from jobs.planning.placement.partition_arrays import NamedPartitions
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.copy_volume import largest_logs
from jobs.runtime.console import log, warn
from jobs.runtime.input_files import Number, Version, read_json, refuse_repeated
from planner.placement.types import NO_BROKER, Ints, PlacementPartitions
from schemas.text import MAX_PARTITIONS_NAMED, pluralise

UNKNOWN_SIZE: Final = -1
"""Weight of a partition without a size."""

MAX_CLUSTER_BYTES: Final = 2**62
"""Bytes of a whole cluster above which sums would not be exact."""

DIGEST_LENGTH: Final = 16


HEADER: Final = ["topic", "partition", "bytes"]
"""First line of a CSV file of sizes, and the columns that it is read into."""

MAX_PARTITION_BYTES: Final = 2**60
"""Bytes of a partition above which a typing error is assumed: an exbibyte."""

EXAMPLE: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"bytes":1024}]}'

SIZE_SCHEMA: Final = schema_of("sizes", "topic", "partition", "bytes")


class _Size(Struct):
    topic: str
    partition: Number
    bytes: Annotated[int, Meta(ge=0, le=MAX_PARTITION_BYTES)]


class _Sizes(Struct):
    """A file of sizes."""

    partitions: list[_Size]
    version: Version = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """The source of weights: a file as `read_size_file` returns it, else the table."""

    path: Path | None = None
    file: pa.Table | None = None

    def weighed(self, tables: PlanningTables, cluster: NamedPartitions) -> tuple[NamedPartitions, dict[str, Any]]:
        """Return the partitions with their weights, and the figures about them for the plan.

        Raise RefusedError if a file names only unknown partitions, and if no size is known at all.
        """
        if self.file is None:
            sizes, about = _largest_logs(tables, cluster)
            if about:
                log(f"surveyor: {about}")
        else:
            sizes = _of_file(self.file, cluster, f"{self.path} and snapshot {tables.snapshot.snapshot_id}")
        weights, assumed = fill_unknown(sizes, cluster.partitions.topic)
        _refuse_too_large(weights, cluster.partitions)
        if assumed:
            log(
                f"surveyor: {assumed} of {len(weights)} partitions have no size; each counts as the mean of its topic, "
                "or of all if its topic has none",
            )
        origin = {"source": "table" if self.file is None else "file", "digest": digest(weights, cluster.partitions)}
        weighed = replace(cluster, partitions=replace(cluster.partitions, weights=weights))
        return weighed, {"sizes": {**origin, "known": len(weights) - assumed, "assumed": assumed}}


def fill_unknown(sizes: Ints, topic: Ints, elsewhere: int | None = None) -> tuple[Ints, int]:
    """Fill unknown sizes with the mean of the topic, rounded up; also return the number filled.

    In topics without a known size they become `elsewhere`, or the mean of all if it is None.

    >>> weights, assumed = fill_unknown(np.array([10, -1, 20, -1]), np.array([0, 0, 0, 1]))
    >>> weights.tolist(), assumed
    ([10, 15, 20, 15], 2)
    >>> fill_unknown(np.array([10, -1, 20, -1]), np.array([0, 0, 0, 1]), elsewhere=0)[0].tolist()
    [10, 15, 20, 0]
    """
    has = sizes != UNKNOWN_SIZE
    if not has.any():
        raise RefusedError("no partition has a known size; run `surveyor sizes`, or give a file with --sizes")
    sums, counts = np.zeros((2, int(topic.max()) + 1), dtype=np.int64)
    np.add.at(sums, topic[has], sizes[has])
    np.add.at(counts, topic[has], 1)
    of_all = -(-int(sizes[has].sum()) // int(has.sum())) if elsewhere is None else elsewhere
    means = np.where(counts > 0, -(-sums // np.maximum(counts, 1)), of_all)
    return np.where(has, sizes, means[topic]), int((~has).sum())


def digest(weights: Ints, partitions: PlacementPartitions) -> str:
    """Hash the weights in the order of topic and partition, independent of the order they were read in."""
    ordered = weights[np.lexsort((partitions.partition, partitions.topic))]
    return hashlib.sha256(ordered.astype("<i8").tobytes()).hexdigest()[:DIGEST_LENGTH]


def known_sizes(tables: PlanningTables, cluster: NamedPartitions) -> Ints | None:
    """Return the bytes of a replica of each partition by the table `sizes`; None if it has none of them."""
    sizes, _ = _largest_logs(tables, cluster)
    return None if (sizes == UNKNOWN_SIZE).all() else fill_unknown(sizes, cluster.partitions.topic)[0]


def _largest_logs(tables: PlanningTables, cluster: NamedPartitions) -> tuple[Ints, str]:
    """Return the size of the largest log of each partition, and how old these sizes are."""
    logs = tables.warehouse.read(
        "sizes", ("is_future", "=", False), columns=["topic", "partition", "broker_id", "bytes", "taken_at"]
    )
    rows = rows_of(logs, cluster.names)
    known = pa.array(rows != NO_BROKER)
    logs, rows = logs.filter(known), rows[rows != NO_BROKER]
    assigned = (cluster.partitions.replicas[rows] == logs["broker_id"].to_numpy()[:, None]).any(axis=1)
    count, about = cluster.names.num_rows, ""
    if len(rows):
        is_current = np.bincount(rows[assigned], minlength=count) > 0
        counts = assigned | ~is_current[rows]
        taken = pc.min_max(logs["taken_at"].filter(pa.array(counts))).as_py()
        moved = len(np.unique(rows[~is_current[rows]]))
        have = pluralise(moved, "partition", "has", "have")
        of_moved = f"; {have} moved since, and the size of a former replica counts" if moved else ""
        times = f"from {taken['min']:%Y-%m-%d %H:%M:%S} to {taken['max']:%Y-%m-%d %H:%M:%S} UTC"
        about = f"sizes taken {times}, the oldest {format_age(taken['min'])} ago{of_moved}"
    return largest_logs(rows, assigned, logs["bytes"].to_numpy(), count), about


def _of_file(sizes: pa.Table, cluster: NamedPartitions, where: str) -> Ints:
    rows = rows_of(sizes, cluster.names)
    unknown = np.flatnonzero(rows == NO_BROKER)
    if len(unknown):
        is_known = rows != NO_BROKER
        names = [
            f"{row['topic']}-{row['partition']}"
            for row in sizes.take(pa.array(unknown[:MAX_PARTITIONS_NAMED])).to_pylist()
        ]
        more = f" and {len(unknown) - MAX_PARTITIONS_NAMED} more" if len(unknown) > MAX_PARTITIONS_NAMED else ""
        reason = f"{where} do not agree: the snapshot has no {', '.join(names)}{more}"
        if not is_known.any():
            raise RefusedError(f"{reason}; take them out of the file, or take a new `surveyor snapshot`")
        warn(f"{reason}; these sizes are left out")
        rows, sizes = rows[is_known], sizes.filter(pa.array(is_known))
    return _max_by_row(rows, sizes["bytes"].to_numpy(), cluster.names.num_rows)


def _max_by_row(rows: Ints, sizes: Ints, count: int) -> Ints:
    largest = np.full(count, UNKNOWN_SIZE, dtype=np.int64)
    np.maximum.at(largest, rows, sizes)
    return largest


def _refuse_too_large(weights: Ints, partitions: PlacementPartitions) -> None:
    replicas = (partitions.replicas != NO_BROKER).sum(axis=1)
    if float((weights.astype(np.float64) * replicas).sum()) > MAX_CLUSTER_BYTES:
        raise RefusedError(
            f"the sizes total more than {MAX_CLUSTER_BYTES} bytes, more than a cluster holds; check their unit"
        )


def read_size_file(path: Path) -> pa.Table:
    """Read the file of --sizes, bytes of one replica of each partition, strictly; return topic, partition and bytes.

    CSV has the header `topic,partition,bytes`. JSON looks like Kafka's own files, as in EXAMPLE. Text that begins with
    `{` is JSON, anything else CSV. Raise UsageError with the place for values that are malformed, negative or beyond
    Kafka's limits, and RefusedError for a partition that is named twice.
    """
    text = read_text_file(path)
    is_json = text.lstrip().startswith("{")
    sizes = read_json(path, _Sizes, EXAMPLE).partitions if is_json else list(_csv(path, text))
    refuse_repeated(path, [(size.topic, size.partition) for size in sizes])
    if not sizes:
        raise UsageError(f"{path} has no sizes: expected a line {','.join(HEADER)} and one for each partition, or JSON")
    return pa.Table.from_pylist([asdict(size) for size in sizes], schema=SIZE_SCHEMA)


def _csv(path: Path, text: str) -> Iterator[_Size]:
    refuse_open_quote(path, text)
    try:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = next(lines, [])
        if header != HEADER:
            raise UsageError(f"{path} begins with {','.join(header)!r}; expected {','.join(HEADER)}, or JSON")
        for line in lines:
            if line:
                yield _size(path, lines.line_num, line)
    except csv.Error as error:
        raise UsageError(f"{path} is neither CSV nor JSON: {error}") from None


def _size(path: Path, number: int, line: Sequence[str]) -> _Size:
    if len(line) != len(HEADER) or not line[0]:
        raise UsageError(f"{path}, line {number}: {','.join(line)!r}; expected {','.join(HEADER)}, as in orders,0,1024")
    topic, partition, size = line
    return _Size(
        topic=topic,
        partition=_number(path, number, "partition", partition, 2**31 - 1),
        bytes=_number(path, number, "bytes", size, MAX_PARTITION_BYTES),
    )


def _number(path: Path, line: int, name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > most or len(text) > 20:  # noqa: PLR2004
        raise UsageError(f"{path}, line {line}: {name} {text[:40]!r}; expected a whole number from 0 to {most}")
    return int(text)
