"""The brokers' log dirs as they were last reported: which are usable, their bytes, and which brokers are cordoned."""

from collections import Counter
from collections.abc import Iterable

import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from planner.load.disk_forecast import volumes_of
from schemas.rows import LogDir


def usable_bytes(warehouse: Warehouse) -> dict[int, int]:
    """Return the bytes left on the disks of each broker that reported them to `surveyor sizes`."""
    found = Counter[int]()
    for disk in volumes_of(reported_log_dirs(warehouse)):
        if disk.usable_bytes is not None:
            found[disk.broker_id] += disk.usable_bytes
    return found


def total_bytes(log_dirs: Iterable[LogDir]) -> dict[int, int]:
    """Return the size of the disks of each broker that reported that of some log dir."""
    found = Counter[int]()
    for disk in volumes_of(log_dirs):
        found[disk.broker_id] += disk.total_bytes
    return found


def reported_log_dirs(warehouse: Warehouse, *filters: Filter) -> list[LogDir]:
    """Return the log dirs that brokers reported to `surveyor sizes`."""
    return decode_rows(LogDir, warehouse.read(LogDir.TABLE, *filters)) if warehouse.has(LogDir.TABLE) else []


def cordoned_brokers(warehouse: Warehouse) -> set[int]:
    """Return the brokers whose log dirs are all cordoned, so that they take no new replicas."""
    if not warehouse.has("log_dirs"):
        return set()
    reported = warehouse.read("log_dirs", columns=["broker_id", "cordoned"])
    is_open = pc.invert(pc.fill_null(reported["cordoned"], fill_value=False))
    return {*reported["broker_id"].to_pylist()} - {*reported.filter(is_open)["broker_id"].to_pylist()}
