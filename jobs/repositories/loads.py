"""Loads of brokers, partitions and groups by hour, as `surveyor load rollup` and `surveyor load import` store them.

Table `broker_load` has a row for each broker and hour, so it tells which hours have loads. A window is some of these
hours, and other tables are read for these hours only: a million partitions have as many rows in each.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.units import parse_period
from jobs.repositories.snapshots import last_snapshot, table_as_of
from schemas.rows import BrokerLoad, GroupLoad, PartitionLoad, PartitionSample, ProfiledLoad

NOW: Final = "now"
"""The window of the newest hour of which at least COVERED_SECONDS were sampled."""

PEAK: Final = "peak"
"""The window of the hour with most bytes in and out during the last WEEK."""

HOUR: Final = timedelta(hours=1)
WEEK: Final = timedelta(days=7)

COVERED_SECONDS: Final = 1800.0
"""Sampled seconds from which the load of an hour is complete enough to be shown."""

IMPORTED: Final = "imported"
"""The method of loads that no sample was taken for."""

_RATES: Final = ("records_in", "bytes_in", "bytes_out")

_PARTITION_COLUMNS: Final = (
    *("topic", "partition", "leader", *_RATES, "max_5min", "size_bytes", "covered_seconds", "samples"),
    *("method", "flags"),
)

_KEY: Final = ["topic", "partition"]


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """The hours whose loads count, the oldest first; none for imported loads of every hour."""

    hours: tuple[datetime, ...] = ()
    span: int = 1
    """Hours from the beginning to the end of the window; those without loads are not in `hours`."""

    @property
    def newest(self) -> datetime | None:
        return self.hours[-1] if self.hours else None

    @property
    def filters(self) -> list[Filter]:
        """The filters of rows by hour."""
        return [("hour", "in", list(self.hours))] if len(self.hours) == 1 else _between(self.hours)


def _between(hours: tuple[datetime, ...]) -> list[Filter]:
    return [("hour", ">=", hours[0]), ("hour", "<=", hours[-1])] if hours else [("hour", "is", None)]
