"""What is used of disks: by log dir where the tables know it, else of all log dirs of a broker together.

`surveyor sizes` records the log dirs of brokers, and the logs in each. The growth of a log dir is that of the replicas
in it. Its capacity is that of its volume, or the one that a file states for it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import places_of, values_of
from jobs.repositories.capacities import LOG_DIRS
from jobs.repositories.loads import DAY, HOUR, LoadWindow, partition_growth
from jobs.repositories.log_dirs import reported_log_dirs
from planner.load.disk_forecast import Disk, volumes_of
from planner.load.resources import DISK
from schemas.rows import BrokerLoad, ReplicaLog


class _StatedDisks(NamedTuple):
    """The bytes of a broker's disks by log dir, None for all of them, and the source that states them."""

    source: str
    amounts: dict[str | None, float]


class _Logs(NamedTuple):
    """The logs in a log dir: their bytes, and the bytes per second by which they grow."""

    size: float
    growth: float | None


def read_disks(
    warehouse: Warehouse,
    window: LoadWindow,
    loads: Sequence[BrokerLoad],
    capacities: pa.Table,
    growth: Mapping[int, float],
) -> list[Disk]:
    """Return the disks of brokers with loads at the end of a window, by broker.

    `capacities` are as `broker_capacities` returns them, and `growth` has bytes per second by broker. Log dirs that
    were reported more than a day before or after the end of the window are not used. If the capacity of a broker is
    unknown, its log dirs of known size count.
    """
    stated = dict[int, _StatedDisks]()
    of_disks = capacities.filter(pc.equal(capacities["resource"], DISK))
    for broker, log_dir, amount, source in values_of(of_disks, "broker_id", "log_dir", "capacity", "source"):
        stated.setdefault(broker, _StatedDisks(source, {})).amounts[log_dir] = amount
    by_log_dir = _by_log_dir(warehouse, window, {load.broker_id: stated.get(load.broker_id) for load in loads}, growth)
    return [
        disk
        for load in loads
        for disk in by_log_dir.get(load.broker_id) or _whole_broker(load, stated.get(load.broker_id), growth)
    ]


def _whole_broker(load: BrokerLoad, stated: _StatedDisks | None, growth: Mapping[int, float]) -> Iterator[Disk]:
    capacity = sum(stated.amounts.values()) if stated else 0
    if load.size_bytes is not None and capacity > 0:
        grown = growth.get(load.broker_id)
        yield Disk(broker_id=load.broker_id, used=load.size_bytes, capacity=capacity, growth=grown)


_NO_LOGS: Final = _Logs(0.0, None)


def _by_log_dir(
    warehouse: Warehouse, window: LoadWindow, stated: Mapping[int, _StatedDisks | None], growth: Mapping[int, float]
) -> dict[int, list[Disk]]:
    """Return the disks of brokers of which the log dirs are known.

    The only volume of a broker with all its log dirs grows as the broker does; logs are read of other brokers.
    """
    if window.newest is None:
        return {}
    end = window.newest + HOUR
    in_days = (("taken_at", ">=", end - DAY), ("taken_at", "<=", end + DAY))
    reported = [row for row in reported_log_dirs(warehouse, *in_days) if row.broker_id in stated]
    ages = {row.broker_id: (end - row.taken_at).total_seconds() for row in reported}
    by_source = {broker: of for broker in ages if (of := stated[broker]) and of.source != LOG_DIRS}
    by_file = {broker: of for broker, of in by_source.items() if None not in of.amounts}
    volumes = [volume for volume in volumes_of(reported) if volume.broker_id not in by_source]
    counts = Counter(row.broker_id for row in reported)
    whole = {volume.broker_id for volume in volumes if len(volume.log_dirs) == counts[volume.broker_id]}
    logs = _logs(warehouse, window, by_file.keys() | {volume.broker_id for volume in volumes} - whole)
    found = defaultdict[int, list[Disk]](list)
    for broker, paths, total, usable in volumes:
        if usable is not None:
            known = [rate for path in paths if (rate := logs.get((broker, path), _NO_LOGS).growth) is not None]
            grown = growth.get(broker) if broker in whole else sum(known) if known else None
            found[broker].append(
                Disk(
                    broker_id=broker,
                    log_dirs=paths,
                    used=total - usable,
                    capacity=total,
                    growth=grown,
                    age=ages[broker],
                )
            )
    for broker, of in by_file.items():
        for path, amount in of.amounts.items():
            used, grown = logs.get((broker, str(path)), _NO_LOGS)
            found[broker].append(
                Disk(
                    broker_id=broker, log_dirs=(str(path),), used=used, capacity=amount, growth=grown, age=ages[broker]
                )
            )
    return found


def _logs(warehouse: Warehouse, window: LoadWindow, brokers: Collection[int]) -> dict[tuple[int, str], _Logs]:
    """Return what is known of the logs by broker and log dir."""
    if not brokers:
        return {}
    columns = ["broker_id", "log_dir", "topic", "partition", "bytes"]
    logs = warehouse.read(
        ReplicaLog.TABLE, ("is_future", "=", False), ("broker_id", "in", sorted(brokers)), columns=columns
    )
    measured = partition_growth(warehouse, window)
    growth = pa.nulls(logs.num_rows, pa.float64())
    if measured is not None:
        growth = measured.rows["growth"].take(places_of(logs, measured.rows))
    grouped = logs.append_column("growth", growth).group_by(["broker_id", "log_dir"])
    rows = grouped.aggregate([("bytes", "sum"), ("growth", "sum")])
    return {
        (broker, path): _Logs(size, grown)
        for broker, path, size, grown in values_of(rows, "broker_id", "log_dir", "bytes_sum", "growth_sum")
    }
