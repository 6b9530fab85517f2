"""Capacities of brokers in a file: CSV, or one of Cruise Control's.

CSV has the columns `broker`, `resource` and `capacity`, and may have `log_dir` and `limit_share`. Capacities are bytes
of `disk`, bytes per second of `in` and `out`, replication included, percent of all cores of `cpu`, and a number of
`replicas`. Broker -1 is every broker without a row of its own. An empty capacity withdraws what was imported before.

Cruise Control's files (`BrokerCapacityConfigFileResolver`) have DISK in MB of 2^20 bytes, NW_IN and NW_OUT in KB of
2^10 bytes per second, as its `HolderUtils` converts what brokers report. CPU is in percent, or the number of cores,
which stand for 100 percent. A DISK by log dir is a capacity of each log dir.
"""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from jobs.core.errors import UsageError
from jobs.core.text_decoding import read_text_file, refuse_open_quote
from jobs.measurement.load_files import refuse_unknown_columns
from jobs.repositories.capacities import EVERY_BROKER, Capacity
from planner.load.resources import CPU, REPLICAS, RESOURCES
from schemas.text import pluralise

COLUMNS: Final = ("broker", "resource", "capacity", "log_dir", "limit_share")

ALL_CORES_PERCENT: Final = 100.0

_CSV: Final = "broker,resource,capacity"
_CRUISE_CONTROL: Final = (
    '{"brokerCapacities":[{"brokerId":"-1","capacity":{"DISK":"100000","CPU":"100","NW_IN":"10000","NW_OUT":"10000"}}]}'
)
"""Examples of the files, for messages."""

_DISK, _CPU = "DISK", "CPU"
_UNITS: Final = {_DISK: ("disk", 2.0**20), _CPU: ("cpu", 1.0), "NW_IN": ("in", 2.0**10), "NW_OUT": ("out", 2.0**10)}
"""Resource of each of Cruise Control's, and the bytes or percent of its unit."""

_MAX_BROKER: Final = 2**31 - 1


class _BrokerCapacity(Struct):
    brokerId: str | int  # noqa: N815 - Cruise Control's
    capacity: dict[str, str | float | dict[str, str | float]]


class _BrokerCapacities(Struct):
    brokerCapacities: list[_BrokerCapacity]  # noqa: N815 - Cruise Control's


def read_capacity_file(path: Path) -> list[Capacity]:
    """Read a file of capacities; raise UsageError for the first fault."""
    text = read_text_file(path)
    is_json = text.lstrip().startswith("{")
    rows = list(_of_cruise_control(path, text) if is_json else _of_csv(path, text))
    if not rows:
        raise UsageError(f"{path} has no capacity; expected {_CSV}, or {_CRUISE_CONTROL}")
    places: dict[tuple[int, str | None, str], str] = {}
    for place, row in rows:
        key = (row.broker_id, row.log_dir, row.resource)
        if key in places:
            name = "every broker" if row.broker_id == EVERY_BROKER else f"broker {row.broker_id}"
            raise UsageError(f"{path} {place} repeats {row.resource} of {name}, which {places[key]} has; say it once")
        places[key] = place
    for (broker, log_dir, resource), place in places.items():
        if log_dir is not None and (broker, None, resource) in places:
            raise UsageError(
                f"{path} {place} has the disk of a log dir, and {places[broker, None, resource]} that of the whole "
                "broker; give one of the two"
            )
    return [row for _, row in rows]


def _of_csv(path: Path, text: str) -> Iterator[tuple[str, Capacity]]:
    """Yield the capacities with their lines."""
    refuse_open_quote(path, text)
    reader = csv.reader(io.StringIO(text))
    columns = [name.strip() for name in next(reader, [])]
    refuse_unknown_columns(str(path), columns, COLUMNS)
    missing = [name for name in COLUMNS[:3] if name not in columns]
    if missing:
        raise UsageError(f"{path} has no column {missing[0]}; expected {_CSV}, and maybe log_dir, limit_share")
    for fields in reader:
        place = f"line {reader.line_num}"
        if not fields:
            continue
        if len(fields) != len(columns):
            count, expected = pluralise(len(fields), "field"), f"{len(columns)}: {', '.join(columns)}"
            raise UsageError(f"{path} {place} has {count}, expected {expected}")
        row = dict(zip(columns, map(str.strip, fields), strict=True))
        yield place, _capacity_of(f"{path} {place}", row)


def _capacity_of(place: str, row: dict[str, str]) -> Capacity:
    resource, log_dir = row["resource"], row.get("log_dir") or None
    if resource not in {*RESOURCES, REPLICAS}:
        raise UsageError(f"{place}: resource is {resource!r}, expected one of {', '.join((*RESOURCES, REPLICAS))}")
    if log_dir is not None and resource != "disk":
        raise UsageError(f"{place}: {resource} has a log_dir, expected one of disk only")
    share = row.get("limit_share")
    most = ALL_CORES_PERCENT if resource == CPU else math.inf
    amount = _amount(place, "capacity", row["capacity"], most) if row["capacity"] else None
    if resource == REPLICAS and amount is not None and not amount.is_integer():
        raise UsageError(f"{place}: capacity is {row['capacity']!r}, expected a whole number of replicas")
    return Capacity(
        _broker(place, row["broker"]),
        log_dir,
        resource,
        amount,
        _amount(place, "limit_share", share, 1.0) if share else None,
    )


def _broker(place: str, text: str | int) -> int:
    try:
        broker = int(text)
    except ValueError:
        broker = EVERY_BROKER - 1
    if not EVERY_BROKER <= broker <= _MAX_BROKER:
        raise UsageError(f"{place}: broker is {text!r}, expected an id, or {EVERY_BROKER} for every other broker")
    return broker


def _amount(place: str, name: str, text: str | float, limit: float = math.inf) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not (0 < amount <= limit and math.isfinite(amount)):
        expected = "a finite number above 0" if limit == math.inf else f"a number above 0, {limit:g} at most"
        raise UsageError(f"{place}: {name} is {text!r}, expected {expected}")
    return amount


def _of_cruise_control(path: Path, text: str) -> Iterator[tuple[str, Capacity]]:
    """Yield the capacities with their entries."""
    try:
        entries = msgspec.json.decode(text, type=_BrokerCapacities).brokerCapacities
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}; expected {_CRUISE_CONTROL}") from None
    for number, entry in enumerate(entries, 1):
        place = f"{path} entry {number}"
        broker = _broker(place, entry.brokerId)
        for name, stated in entry.capacity.items():
            if name not in _UNITS:
                raise UsageError(f"{place}: resource is {name!r}, expected one of {', '.join(_UNITS)}")
            resource, unit = _UNITS[name]
            for log_dir, amount in _parts(place, name, stated):
                row = Capacity(broker, log_dir, resource, _amount(place, name, amount) * unit, None)
                yield f"entry {number}", row


def _parts(place: str, name: str, stated: str | float | dict[str, str | float]) -> list[tuple[str | None, str | float]]:
    """Return the amounts of a resource by log dir, None for the whole broker."""
    if not isinstance(stated, dict):
        return [(None, stated)]
    if name == _DISK and stated:
        return [*stated.items()]
    if name == _CPU and stated.keys() == {"num.cores"}:
        _amount(place, "num.cores", stated["num.cores"])
        return [(None, ALL_CORES_PERCENT)]
    raise UsageError(f"{place}: {name} is {stated}, expected a number, num.cores of CPU, or log dirs of DISK")
