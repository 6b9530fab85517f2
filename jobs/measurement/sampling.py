"""One sample of a cluster, requested from its brokers and stored."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final, NoReturn

from msgspec import Struct

from jobs.adapters.brokers.admin_client import read_properties
from jobs.core.errors import RefusedError, UnreadableError, UsageError, first_line
from jobs.core.units import Part
from jobs.measurement.partition_leaders import least_ends, read_leaders
from jobs.measurement.partition_samples import GROUPS, LOG_DIRS, BrokerAnswer, sample_partitions
from jobs.measurement.sample_store import store_sample
from jobs.repositories.loads import newest_sample
from jobs.repositories.snapshots import last_snapshot, refuse_other_cluster_id
from jobs.runtime.console import CommandResult, Summary, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from jobs.snapshots.sizes import SilentBroker, listed, no_response_message
from schemas.text import by_reason, pluralise

MIN_PERIOD_SECONDS: Final = 1.0
"""Seconds between two samples at least."""


class MissingPartitions(Struct, frozen=True, kw_only=True):
    """Partitions without a sample for one reason."""

    partitions: int
    reason: str


class MissingGroup(Struct, frozen=True, kw_only=True):
    """A group without a sample."""

    group_id: str
    reason: str


class Refusal(Struct, frozen=True, kw_only=True):
    """A part of a sample that a broker did not report, other than the offsets of partitions."""

    broker_id: int
    subject: str
    reason: str


class StoredSample(Summary, frozen=True, kw_only=True):
    """Summary of a stored sample; fields as in the JSON."""

    stored_at: datetime
    brokers: int
    topics: int
    partitions: int
    missing: list[MissingPartitions]
    groups: int
    """Groups that were read, also those without an offset."""
    group_offsets: int
    """Positions of groups in partitions."""
    missing_groups: list[MissingGroup]
    silent: list[SilentBroker]
    refusals: list[Refusal]


def take_sample(settings: Settings) -> StoredSample:
    """Request and store a sample.

    Raise UnreadableError if no broker responded, and OtherClusterError if another cluster has the name; then
    nothing is stored.
    """
    warehouse, config = settings.warehouse, read_properties(settings.conf.command_config)
    with settings.connect() as cluster:
        cluster_id, registered = cluster.read_brokers()
        refuse_other_cluster_id(warehouse, cluster_id, settings.address)
        brokers = [row for row in registered if row.is_live]
        with progress("reading the leaders of partitions"):
            leaders = read_leaders(warehouse, cluster)
        counts: Counter[str] = Counter()

        def detail() -> Part:
            return Part(
                counts["brokers"], len(brokers), f"have responded, {pluralise(counts['partitions'], 'partition')}"
            )

        def count(answer: BrokerAnswer) -> None:
            counts.update(brokers=1, partitions=len(answer.rows))

        with progress("asking brokers for offsets and sizes", detail), ThreadPoolExecutor(1) as pool:
            ends = pool.submit(least_ends, warehouse, leaders)  # while brokers are asked
            sampled = sample_partitions(cluster, brokers, config, leaders, count, ends=ends.result)
    if not sampled.answers:
        raise UnreadableError(no_response_message(sampled.silent, settings.address_option, "its offsets"))
    readings = [answer.groups for answer in sampled.answers.values()]
    stored_at = datetime.now(UTC)
    with progress("writing the sample"):
        group_offsets = store_sample(warehouse, sampled, stored_at)
    return StoredSample(
        stored_at=stored_at,
        brokers=len(sampled.answers),
        topics=sampled.topics,
        partitions=sampled.partitions,
        groups=sum(len(reading.groups) for reading in readings),
        group_offsets=group_offsets,
        missing=[MissingPartitions(partitions=count, reason=reason) for reason, count in sampled.missing.items()],
        silent=[SilentBroker(broker_id=broker, reason=reason) for broker, reason in sampled.silent.items()],
        refusals=[
            Refusal(broker_id=broker, subject=subject, reason=reason)
            for broker, answer in sampled.answers.items()
            for subject, reason in answer.refusals.items()
        ],
        missing_groups=[
            MissingGroup(group_id=group, reason=reason)
            for reading in readings
            for group, reason in reading.refused.items()
        ],
    )


def report_sample(settings: Settings) -> CommandResult:
    """Take a sample, log warnings, and return a summary."""
    is_first = newest_sample(settings.warehouse) is None
    stored = take_sample(settings)
    return _reported(settings, stored, [*_steps(settings, is_first=is_first)])


def _steps(settings: Settings, *, is_first: bool) -> Iterator[Suggestion]:
    """Yield what a rollup needs, or the rollup."""
    has_snapshot = last_snapshot(settings.warehouse) is not None
    if not has_snapshot:
        yield suggestion(settings, "record the replicas, which a rollup needs", "snapshot")
    if is_first:
        yield suggestion(settings, "take more samples: load is known between two", "load", "sample", "--every", "5m")
    elif has_snapshot:
        yield suggestion(settings, "sum up the samples by hours", "load", "rollup")


def _reported(settings: Settings, stored: StoredSample, steps: Sequence[Suggestion] = ()) -> CommandResult:
    for warning in _warnings(stored):
        log(f"surveyor: {warning}", logging.WARNING)
    counts = (
        f"{pluralise(stored.partitions, 'partition')} of {pluralise(stored.topics, 'topic')} on "
        f"{pluralise(stored.brokers, 'broker')}, {pluralise(stored.groups, 'group')}"
    )
    at = stored.stored_at.strftime("%Y-%m-%d %H:%M:%S")
    return CommandResult(stored.json, f"sample of {settings.cluster} at {at} UTC: {counts}", steps=steps)


def sample_repeatedly(
    settings: Settings,
    period: float,
    show: Callable[[CommandResult], None],
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> NoReturn:
    """Take a sample now, and at each multiple of `period` seconds since 1970 until a signal ends the process.

    `show` gets the result of each sample. One that fails is a warning, and the next one is taken at its time. Raise
    UsageError or RefusedError for a failure that each later sample would have, too.
    """
    if settings.as_json or not settings.for_people:
        raise UsageError("--every repeats the output, and --json is one object; give one of the two")
    if period < MIN_PERIOD_SECONDS:
        raise UsageError(f"--every: expected at least {MIN_PERIOD_SECONDS:.0f}s")
    while True:
        try:
            show(_reported(settings, take_sample(settings)))
        except (UsageError, RefusedError):
            raise
        except Exception as error:  # noqa: BLE001 - the cluster or the warehouse may work again by the next sample
            log(f"surveyor: no sample was stored: {first_line(error)}", logging.WARNING)
        sleep(period - clock() % period)


def _warnings(stored: StoredSample) -> Iterator[str]:
    if stored.silent:
        lines = by_reason({row.broker_id: row.reason for row in stored.silent})
        brokers = pluralise(len(stored.silent), "broker")
        yield f"{brokers} did not respond, the sample lacks the partitions that they lead:\n  {listed(lines)}"
    for subject in (LOG_DIRS, GROUPS):
        reasons = {row.broker_id: row.reason for row in stored.refusals if row.subject == subject}
        if reasons:
            yield f"{pluralise(len(reasons), 'broker')} did not report {subject}:\n  {listed(by_reason(reasons))}"
    if stored.missing:
        lines = [f"{pluralise(row.partitions, 'partition')}: {row.reason}" for row in stored.missing]
        partitions = pluralise(sum(row.partitions for row in stored.missing), "partition")
        yield f"the sample lacks {partitions}:\n  {listed(lines)}"
    if stored.missing_groups:
        lines = [f"group {row.group_id}: {row.reason}" for row in stored.missing_groups]
        yield f"the sample lacks {pluralise(len(lines), 'group')}:\n  {listed(lines)}"
