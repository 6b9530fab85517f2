"""Advice on the load of brokers: limits, disks that fill up, hot partitions, and load that no plan by counts sees."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from jobs.core.units import format_bytes, format_duration
from jobs.measurement.load_summary import LoadFindings
from jobs.repositories.loads import DAY, HOUR
from jobs.runtime.suggestions import Suggestion
from planner.load.findings import CPU, DISK, IN, OUT, AboveLimit, FillingDisk, HotPartition, Unevenness
from schemas.text import partition_name, pluralise

RESOURCE_NAMES: Final = {DISK: "disk", IN: "network in", OUT: "network out", CPU: "CPU"}

_BYTES: Final = {IN: "bytes in", OUT: "bytes out", CPU: "CPU"}

_SPLIT: Final = "no move makes it smaller, only more partitions or other keys"

EVEN_OUT: Final = "plan reassign --rebalance --by-load"


def load_steps(findings: LoadFindings, now: datetime, *, is_settled: bool = True) -> Iterator[Suggestion]:
    """Return a line for each kind of finding; a plan is suggested only if the cluster is settled: nothing moves."""
    plan = EVEN_OUT if is_settled else None
    yield from _old_loads(findings, now)
    if findings.full_soon:
        hour = findings.times.hour
        yield Suggestion(_full(findings.full_soon, now if hour is None else hour + HOUR), plan)
    if findings.above_limits:
        yield Suggestion(_above(findings.above_limits), plan)
    if findings.hidden_by_counts:
        yield Suggestion(_hidden(findings.hidden_by_counts), plan)
    if findings.hot_partitions:
        yield Suggestion(_hot(findings.hot_partitions), "show load --by partition")


def _old_loads(findings: LoadFindings, now: datetime) -> Iterator[Suggestion]:
    """Say that sampling has stopped, or the computation of loads from samples."""
    sampled_at, age = findings.times.sampled_at, findings.times.age(now)
    if sampled_at is None:
        return
    if now - sampled_at > DAY:
        silence = format_duration((now - sampled_at).total_seconds())
        yield Suggestion(f"no load was sampled for {silence}", "load sample --every 5m")
    elif age is not None and age > DAY / timedelta(seconds=1):
        yield Suggestion(f"the newest load is {format_duration(age)} old, and newer samples wait", "load rollup")


def _above(found: list[AboveLimit]) -> str:
    """Name the broker that is furthest above a limit, and count the others.

    >>> first = AboveLimit(broker_id=3, resource="in", share=0.92, limit_share=0.8)
    >>> _above([first]), _above([first, first])
    ('broker 3 uses 92% of its network in, and its limit is 80%', 'broker 3 uses 92% of its network in, and its limit \
is 80%; 1 other limit is exceeded')
    """
    first = found[0]
    resource = RESOURCE_NAMES[first.resource]
    others = pluralise(len(found) - 1, "other limit", "is exceeded", "are exceeded")
    text = (
        f"broker {first.broker_id} uses {first.share:.0%} of its {resource}, and its limit is {first.limit_share:.0%}"
    )
    return f"{text}; {others}" if len(found) > 1 else text


def _full(found: list[FillingDisk], measured_at: datetime) -> str:
    """Name the disk that is full first, with the time, and count the others.

    >>> disk = FillingDisk(broker_id=4, seconds=259_200.0, share=0.7, growth=2**20)
    >>> _full([disk], datetime(2026, 11, 30, 14, 20))
    'broker 4: its disk is full on Thursday, 2026-12-03 14:00 UTC; it is 70% full and grows by 3.5 GiB an hour'
    """
    first = found[0]
    others = f"; {pluralise(len(found) - 1, 'other disk', 'is', 'are')} full within 7 days" if len(found) > 1 else ""
    if not first.seconds:
        return f"broker {first.broker_id}: its disk is full{others}"
    at = measured_at + timedelta(seconds=first.seconds)
    grows = f"it is {first.share:.0%} full and grows by {format_bytes(first.growth * 3600)} an hour"
    return f"broker {first.broker_id}: its disk is full on {at:%A, %Y-%m-%d %H:00} UTC; {grows}{others}"


def _hot(found: list[HotPartition]) -> str:
    """Name the partition with the largest share of its leader's load, and count the others.

    >>> hot = HotPartition(topic="orders", partition=7, broker_id=3, resource="out", share=0.412)
    >>> _hot([hot])
    'orders-7 alone is 41% of the bytes out of broker 3: no move makes it smaller, only more partitions or other keys'
    """
    first = found[0]
    name = partition_name(first.topic, first.partition)
    more = pluralise(len(found) - 1, "other broker", "has such a partition", "have such partitions")
    others = f"; {more}" if len(found) > 1 else ""
    share = f"{first.share:.0%} of the {_BYTES[first.resource]} of broker {first.broker_id}"
    return f"{name} alone is {share}: {_SPLIT}{others}"


def _hidden(found: Unevenness) -> str:
    """Name the broker with the most load.

    >>> _hidden(Unevenness(resource="out", broker_id=3, ratio=1.41))
    'leaders and replicas are even and load is not: broker 3 has 1.41 times the mean of bytes out'
    """
    ratio = f"{found.ratio:.2f} times the mean of {_BYTES[found.resource]}"
    return f"leaders and replicas are even and load is not: broker {found.broker_id} has {ratio}"
