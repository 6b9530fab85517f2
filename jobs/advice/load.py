"""Advice on the load of brokers: limits, disks that fill up, hot partitions, and load that no plan by counts sees."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from jobs.core.units import format_bytes, format_duration
from jobs.measurement.load_summary import LoadFindings, without_load_text
from jobs.repositories.loads import DAY, HOUR, WEEK
from jobs.runtime.suggestions import Suggestion
from planner.load.disk_forecast import FillingDisk
from planner.load.findings import AboveLimit, HotPartition, Unevenness
from planner.load.resources import CPU, DISK, IN, OUT, REPLICAS
from schemas.text import partition_name, pluralise

RESOURCE_NAMES: Final = {DISK: "disk", IN: "network in", OUT: "network out", CPU: "CPU", REPLICAS: "allowed replicas"}

_BYTES: Final = {IN: "bytes in", OUT: "bytes out", CPU: "CPU"}

_SPLIT: Final = "no move makes it smaller, only more partitions or other keys"

EVEN_OUT: Final = "plan reassign --rebalance --by-load"


def load_steps(findings: LoadFindings, now: datetime, *, is_settled: bool = True) -> Iterator[Suggestion]:
    """Return a line for each kind of finding.

    A plan is suggested only if the cluster is settled: nothing moves; and if sizes are known, without which it is
    refused.
    """

    def plan(shares: list[tuple[float, float]]) -> str | None:
        """Return the plan for disks that are too full, by their share and limit, or for all loads."""
        relief = [limit for share, limit in shares if share > limit]
        even = f"{EVEN_OUT} --relieve {100 * min(relief):g}%" if relief and len(relief) == len(shares) else EVEN_OUT
        return even if is_settled and findings.has_sizes and findings.times.window is not None else None

    yield from _old_loads(findings, now)
    if findings.without_load:
        sample = None if findings.times.are_imported else "load sample"
        yield Suggestion(without_load_text(findings.without_load), sample)
    if is_settled and findings.needs_plan and not findings.has_sizes:
        yield Suggestion("the sizes of logs are not known, and plans by load need them", "sizes")
    if findings.full_soon:
        hour = findings.times.hour
        broker = findings.full_soon[0].broker_id
        shares = [
            (one.share, one.limit_share)
            for one in findings.above_limits
            if (one.broker_id, one.resource) == (broker, DISK)
        ]
        yield Suggestion(_full(findings.full_soon, now if hour is None else hour + HOUR), plan(shares))
    if findings.above_limits:
        shares = [(one.share if one.resource == DISK else 0, one.limit_share) for one in findings.above_limits]
        yield Suggestion(_above(findings.above_limits), plan(shares))
    if findings.hidden_by_counts:
        yield Suggestion(_hidden(findings.hidden_by_counts), plan([]))
    if findings.hot_partitions:
        is_known = not findings.without_load
        yield Suggestion(_hot(findings.hot_partitions, is_known=is_known), "show load --by partition")


def _old_loads(findings: LoadFindings, now: datetime) -> Iterator[Suggestion]:
    """Say that sampling has stopped, or the computation of loads from samples, or that imported loads are old."""
    sampled_at, age = findings.times.sampled_at, findings.times.age(now)
    if sampled_at is None or findings.times.are_imported:
        if age is not None and age > WEEK / timedelta(seconds=1):
            yield Suggestion(f"the newest load is {format_duration(age)} old, and was imported")
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
    >>> [_disk_name(names) for names in (("/d1",), ("/d1", "/d2"))]
    ['/d1', 'the volume of /d1, /d2']
    """
    first = found[0]
    disk = f"broker {first.broker_id}: {_disk_name(first.log_dirs)}"
    others = f"; {pluralise(len(found) - 1, 'other disk', 'is', 'are')} full within 7 days" if len(found) > 1 else ""
    if not first.seconds:
        return f"{disk} is full{others}"
    at = measured_at + timedelta(seconds=first.seconds)
    grows = f"it is {first.share:.0%} full and grows by {format_bytes(first.growth * 3600)} an hour"
    return f"{disk} is full on {at:%A, %Y-%m-%d %H:00} UTC; {grows}{others}"


def _disk_name(log_dirs: Sequence[str]) -> str:
    names = ", ".join(log_dirs)
    return f"the volume of {names}" if len(log_dirs) > 1 else names or "its disk"


def _hot(found: list[HotPartition], *, is_known: bool = True) -> str:
    """Name the partition with the largest share of its leader's load, and count the others.

    `is_known`: the load of all partitions is known.

    >>> hot = HotPartition(topic="orders", partition=7, broker_id=3, resource="out", share=0.412)
    >>> _hot([hot])
    'orders-7 alone is 41% of the bytes out of broker 3: no move makes it smaller, only more partitions or other keys'
    """
    first = found[0]
    name = partition_name(first.topic, first.partition)
    more = pluralise(len(found) - 1, "other broker", "has such a partition", "have such partitions")
    others = f"; {more}" if len(found) > 1 else ""
    share = (
        f"{first.share:.0%} of the {'' if is_known else 'known '}{_BYTES[first.resource]} of broker {first.broker_id}"
    )
    return f"{name} alone is {share}: {_SPLIT}{others}"


def _hidden(found: Unevenness) -> str:
    """Name the broker with the most load.

    >>> _hidden(Unevenness(resource="out", broker_id=3, ratio=1.41))
    'leaders and replicas are even and load is not: broker 3 has 1.41 times its share of bytes out'
    """
    ratio = f"{found.ratio:.2f} times its share of {_BYTES[found.resource]}"
    return f"leaders and replicas are even and load is not: broker {found.broker_id} has {ratio}"
