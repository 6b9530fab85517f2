"""Replica sizes by broker and log dir, requested from the brokers and stored.

The response of a broker replaces its rows in the table `sizes`. Rows of brokers that do not respond are kept, with the
time at which they were measured.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from jobs.adapters.brokers.log_dirs import LogDirs, read_log_dirs
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import UnreadableError
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from jobs.core.units import Part, format_bytes
from jobs.repositories.snapshots import refuse_other_cluster_id
from jobs.runtime.console import CommandResult, Summary, warn
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from schemas.columns import TABLE_COLUMNS
from schemas.text import by_reason, pluralise

MAX_LISTED: Final = 20
"""Brokers and log dirs listed on stderr; --json lists all."""


class SilentBroker(Struct, frozen=True, kw_only=True):
    """A broker without a response."""

    broker_id: int
    reason: str


class FailedLogDir(Struct, frozen=True, kw_only=True):
    """A log dir that its broker could not read."""

    broker_id: int
    log_dir: str
    error: str


class StoredSizes(Summary, frozen=True, kw_only=True):
    """Summary of the stored sizes: counts, brokers without a response and failed log dirs; fields as in the JSON."""

    brokers: int
    topics: int
    replicas: int
    future: int
    """Replicas that move to another log dir."""
    bytes: int
    silent: list[SilentBroker]
    failed_log_dirs: list[FailedLogDir]


def take_sizes(settings: Settings) -> StoredSizes:
    """Request and store the sizes.

    Raise UnreadableError if no broker responded, and OtherClusterError if another cluster has the name; then
    nothing is stored.
    """
    with settings.connect() as cluster:
        cluster_id, registered = cluster.read_brokers()
    refuse_other_cluster_id(settings.warehouse, cluster_id, settings.address)
    brokers = [row for row in registered if row.is_live]
    counts: Counter[str] = Counter()

    def detail() -> Part:
        return Part(counts["brokers"], len(brokers), f"have responded, {pluralise(counts['replicas'], 'replica')}")

    def count(log_dirs: LogDirs) -> None:
        counts.update(brokers=1, replicas=log_dirs.logs.num_rows)

    with progress("asking brokers for their log dirs", detail):
        log_dirs, silent = read_log_dirs(brokers, settings.conf.command_config, count)
    if not log_dirs:
        raise UnreadableError(no_response_message(silent, settings.address_option, "its log dirs"))
    logs = pa.concat_tables([log_dirs[broker].logs for broker in sorted(log_dirs)])
    with progress("writing sizes"):
        store_sizes(settings.warehouse, log_dirs, logs)
        dirs = [row for broker in sorted(log_dirs) for row in log_dirs[broker].dirs]
        settings.warehouse.replace("log_dirs", dirs, _of_brokers(log_dirs))
    return _stored(log_dirs, silent, logs)


def store_sizes(warehouse: Warehouse, brokers: Collection[int], logs: pa.Table) -> None:
    """Replace the rows of these brokers by `logs`, which are rows of SIZES without a cluster; idempotent."""
    warehouse.ensure_tables()
    rows = logs.append_column("cluster", pa.repeat(pa.scalar(warehouse.cluster), logs.num_rows))
    warehouse.replace_by("sizes", rows.select(TABLE_COLUMNS["sizes"].names), _of_brokers(brokers))


def _of_brokers(brokers: Collection[int]) -> str:
    return f"broker_id IN ({', '.join(map(str, sorted(brokers)))})"


def no_response_message(silent: Mapping[int, str], address_option: str, requested: str) -> str:
    """Return the message if no broker reported what was requested, with the reasons by broker id."""
    if not silent:
        return f"no broker is registered; start brokers, or check {address_option}"
    return (
        f"none of {pluralise(len(silent), 'broker')} reported {requested}:\n  {listed(by_reason(silent))}\n"
        f"nothing was stored; check {option_name(COMMAND_CONFIG)} and the network connection to the brokers"
    )


def _stored(log_dirs: Mapping[int, LogDirs], silent: Mapping[int, str], logs: pa.Table) -> StoredSizes:
    return StoredSizes(
        brokers=len(log_dirs),
        topics=pc.count_distinct(logs["topic"]).as_py(),
        replicas=logs.num_rows,
        future=pc.sum(logs["is_future"]).as_py() or 0,
        bytes=pc.sum(logs["bytes"]).as_py() or 0,
        silent=[SilentBroker(broker_id=broker, reason=reason) for broker, reason in silent.items()],
        failed_log_dirs=[
            FailedLogDir(broker_id=broker, log_dir=log_dir, error=error)
            for broker in sorted(log_dirs)
            for log_dir, error in log_dirs[broker].failed.items()
        ],
    )


def listed(lines: Collection[str]) -> str:
    """Return the first lines for stderr, and the number of the others."""
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return "\n  ".join([*list(lines)[:MAX_LISTED], *more])


def report_sizes(settings: Settings) -> CommandResult:
    """Request the sizes, log warnings, and return a summary."""
    stored = take_sizes(settings)
    for warning in _warnings(stored):
        warn(warning)
    future = f", {stored.future} of them moving to another log dir" if stored.future else ""
    counts = (
        f"{pluralise(stored.replicas, 'replica')} of {pluralise(stored.topics, 'topic')} on "
        f"{pluralise(stored.brokers, 'broker')}{future}"
    )
    steps = [
        suggestion(settings, "show the sizes", "show", "sizes"),
        suggestion(settings, "balance the bytes", "plan", "reassign", "--rebalance", "--by-size"),
    ]
    return CommandResult(
        stored.json, f"sizes of {settings.cluster}: {format_bytes(stored.bytes)} in {counts}", steps=steps
    )


def _warnings(stored: StoredSizes) -> Iterator[str]:
    if stored.silent:
        lines = by_reason({row.broker_id: row.reason for row in stored.silent})
        brokers = pluralise(len(stored.silent), "broker")
        yield f"{brokers} did not respond, their last sizes are kept:\n  {listed(lines)}"
    if stored.failed_log_dirs:
        lines = [f"broker {row.broker_id}: {row.log_dir}: {row.error}" for row in stored.failed_log_dirs]
        yield f"{pluralise(len(lines), 'log dir')} could not be read by their brokers:\n  {listed(lines)}"
