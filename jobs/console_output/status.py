"""Text and JSON of `surveyor status`, once or repeatedly; `jobs.checks.cluster_status` reads the figures."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

import msgspec

from jobs.advice.next_steps import PLANS_SHOWN, ClusterSituation, UncommittedPlan
from jobs.checks.cluster_status import ClusterStatus, CredentialsCheck, read_status
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.status_line import escape_control_chars
from jobs.core.units import format_age, format_duration
from jobs.runtime.console import CommandResult, Result, wrapped
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.output import write_json
from jobs.runtime.settings import Settings
from jobs.snapshots.fleet_health import FIGURES_SHOWN, WORST_BY, ReportedHealth, figures_of
from jobs.snapshots.health import Health
from schemas.enums import NO_CONTROLLER
from schemas.metadata_names import MetadataNames
from schemas.text import abbreviate, pluralise

LABEL_WIDTH: Final = 18
"""Width of the labels."""


def status_result(settings: Settings, snapshot_id: int | None) -> CommandResult:
    """Return the status; raise UnreadableError if the cluster cannot be read."""
    status = read_status(settings, snapshot_id)
    return CommandResult(status.json, *lines(status))


def status_of_fleet(settings: Settings, parallel: int | None) -> CommandResult:
    """Return the status of each cluster."""
    return run_on_fleet(settings, parallel, _status_of_member, STATUS_SUMMARY)


def _status_of_member(settings: Settings) -> CommandResult:
    status = read_status(settings, None)
    return CommandResult(status.json, steps=status.steps)


def _fleet_figures(status: Result) -> Result:
    last = status["last_snapshot"]
    return {
        **msgspec.structs.asdict(figures_of(msgspec.convert(status, ReportedHealth))),
        "due": len(status["due"]),
        "snapshot_age": last and format_duration(max(last["age_seconds"], 0)),
        "snapshot_age_seconds": last and round(last["age_seconds"]),
    }


STATUS_SUMMARY: Final = FleetSummary(
    title="status", figures=_fleet_figures, shown=(*FIGURES_SHOWN, "moving", "due", "snapshot_age"), worst_by=WORST_BY
)


def watch_status(settings: Settings, every: float) -> None:
    """Show the status every `every` seconds until interrupted, repainted on a terminal, else in consecutive blocks.

    A read error at the first time is raised, as without watching. Later read errors are shown, and reading is retried.
    """
    if not settings.for_people:
        form = "--json" if settings.as_json else "-o yaml"
        raise UsageError(f"--watch repeats the output, and {form} is one object; give one of the two")
    if not every:
        raise UsageError("--watch: expected more than 0s")
    credentials = CredentialsCheck(settings)
    block = _block(settings, read_status(settings, None, credentials))
    while True:
        redraw(block)
        settings.pace.clock.sleep(every)
        try:
            block = _block(settings, read_status(settings, None, credentials))
        except UnreadableError as error:
            block = [
                f"{_format_time(datetime.now(UTC))}  cannot read the cluster; trying again",
                *wrapped(str(error), ""),
            ]


def _block(settings: Settings, status: ClusterStatus) -> list[str]:
    write_json(status.json, as_json=False, result_file=settings.result_file)
    return list(lines(status))


def redraw(block: list[str]) -> None:
    """Overwrite the previous block on a terminal; elsewhere print a block and an empty line."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H" + "".join(f"{escape_control_chars(line)}\x1b[K\n" for line in block) + "\x1b[J")
    else:
        sys.stdout.write(escape_control_chars("\n".join(block)) + "\n\n")
    sys.stdout.flush()


def lines(status: ClusterStatus) -> Iterator[str]:
    """Return the status as lines of at most 80 columns."""
    yield from wrapped(f"cluster {status.settings.cluster}, {status.source}, {_when(status)}", "")
    for label, value in _figures(status):
        yield from wrapped(value, label.ljust(LABEL_WIDTH))
    steps = status.steps
    yield "" if steps else "nothing is due"
    for command, group in groupby(steps, lambda step: step.command):
        for step in group:
            yield from wrapped(step.what, "due  ")
        if command is not None:
            yield f"     {command}"  # never wrapped, so that it can be copied
    yield from _uncommitted_lines(status.uncommitted)


def _uncommitted_lines(plans: Sequence[UncommittedPlan]) -> Iterator[str]:
    """Return the plans that may be committed or discarded, after what is due."""
    if plans:
        yield ""
    for plan in plans[:PLANS_SHOWN]:
        yield from wrapped(plan.review.what, "open ")
        yield f"     {plan.review.command}"
        if plan.discard is not None:
            yield f"     {plan.discard.command}    # {plan.discard.what}"
    if len(plans) > PLANS_SHOWN:
        yield f"open {len(plans) - PLANS_SHOWN} more plans: surveyor show plans"


def _when(status: ClusterStatus) -> str:
    if status.taken_at is None:
        return _format_time(status.situation.now)
    return f"taken {_format_time(status.taken_at)}, {format_age(status.taken_at, status.situation.now)} ago"


def _figures(status: ClusterStatus) -> Iterator[tuple[str, str]]:
    health = status.situation.health
    controller = _controller(health, status.surveyor_id, status.situation.names)
    yield "controller", controller + _stale_epoch_note(status.situation)
    yield "brokers", _brokers(health)
    if health.gone:
        brokers = [f"{broker} (in {pluralise(count, 'partition')})" for broker, count in sorted(health.gone.items())]
        yield "gone", abbreviate(brokers)
    yield "partitions", f"{health.partitions} in {pluralise(health.topics, 'topic')}"
    if vanished := status.situation.vanished:
        gone = f"{len(vanished.topics)} of {vanished.of} since snapshot {vanished.snapshot_id}"
        yield "topics gone", f"{gone}: {abbreviate(vanished.topics)}"
    yield "offline", str(health.offline)
    moved = health.moving_under_replicated
    yield "under-replicated", f"{health.under_replicated}{f' ({moved} of them move)' * bool(moved)}"
    assumed = f" ({_ASSUMED})" if status.min_isr_assumed else ""
    yield "under min ISR", f"{health.under_min_isr}{assumed}"
    waiting = sum(not entry.is_empty for entry in health.stalled)
    plans = [shlex.quote(plan.row.command_name) for plan in status.situation.moving_plans]
    by = "".join(f", by plan {plan}: `surveyor verify {plan}`" for plan in plans)
    yield "moving", f"{health.moving}{f' ({waiting} of them wait for a broker)' * bool(waiting)}{by}"
    for label, count, shown in _exceptional_figures(health):
        if count:
            yield label, shown
    if down := [name for name in health.throttled_brokers if name.isdecimal() and int(name) not in health.live]:
        note = "limits nothing while a broker is down; when it starts, `surveyor cancel --throttles` can remove it"
        yield "throttled, down", f"{abbreviate(down)}: a throttle that {note}"
    if drained := [*_drains(status.situation)]:
        ids = ",".join(map(str, sorted(status.situation.drained.intersection(health.live))))
        yield "drained", f"{abbreviate(drained)}; `surveyor plan undrain --brokers {ids}` ends it"
    if status.credentials_fault is not None:
        yield "credentials", f"no request to brokers is possible: {status.credentials_fault}"
    for warning in status.warnings:
        yield "not known", warning
    yield "imbalance", _imbalance(health)
    yield "last snapshot", _last_snapshot(status)


_ASSUMED: Final = "assuming Kafka's default min.insync.replicas=1"


def _exceptional_figures(health: Health) -> Iterator[tuple[str, int, str]]:
    """Return figures that are usually zero, which are omitted then."""
    yield "without state", health.without_state, str(health.without_state)
    outside = health.leader_outside_isr
    yield "led outside ISR", outside, _named(health, "leader_outside_isr", outside)
    yield "not understood", health.not_understood, _named(health, "not_understood", health.not_understood)
    configs = health.configs_not_understood
    yield "configs unread", configs, f"{pluralise(configs, 'topic')}: no unclean election by them, min ISR unknown"
    waits = health.deletion_waits_for
    for_broker = f", waiting for {'brokers' if len(waits) > 1 else 'broker'} {abbreviate(waits)}" if waits else ""
    yield "topics to delete", health.deleting_topics, f"{health.deleting_topics}{for_broker}"


def _drains(situation: ClusterSituation) -> Iterator[str]:
    """Format each live drained broker with the age and the author of its drain; one that is down has its own advice.

    >>> from types import SimpleNamespace as Named
    >>> row = Named(broker_id=2, since=0.0, plan_id="5f")
    >>> status = Named(drained=[row], drained_by={"5f": "ann@ops1"})
    >>> health = Named(live=[1, 2])
    >>> list(_drains(Named(warehouse_status=status, health=health, age_of=lambda since: 300.0)))
    ['2 since 5 min by ann@ops1']
    """
    for row in situation.warehouse_status.drained:
        if row.broker_id not in situation.health.live:
            continue
        author = situation.warehouse_status.drained_by.get(row.plan_id or "")
        by = f" by {author}" if author else ""
        yield f"{row.broker_id} since {format_duration(max(situation.age_of(row.since), 0))}{by}"


def _named(health: Health, kind: str, count: int) -> str:
    """Format a number of partitions with the names of the first few.

    >>> from types import SimpleNamespace as Named
    >>> _named(Named(named={"not_understood": ["orders-0", "orders-1"]}), "not_understood", 7)
    '7: orders-0, orders-1, ...'
    """
    names = health.named.get(kind, [])
    if not count or not names:
        return str(count)
    return f"{count}: {', '.join(names)}{', ...' * (count > len(names))}"


def _controller(health: Health, surveyor_id: int, names: MetadataNames) -> str:
    """Format the controller and its epoch.

    >>> from types import SimpleNamespace as Named
    >>> from schemas.metadata_names import IN_KRAFT, IN_ZOOKEEPER
    >>> _controller(Named(controller_id=2, controller_epoch=7, live=[2]), 99, IN_ZOOKEEPER)
    'broker 2, epoch 7'
    >>> _controller(Named(controller_id=99, controller_epoch=None, live=[2]), 99, IN_ZOOKEEPER)
    'Surveyor, as 99, epoch not understood'
    >>> _controller(Named(controller_id=3000, controller_epoch=7, live=[2]), 99, IN_KRAFT)
    'node 3000, epoch 7'
    >>> _controller(Named(controller_id=None, controller_epoch=None, live=[2]), 99, IN_KRAFT)
    'unknown, epoch unknown'
    """
    unread = "not understood" if names.has_znodes else "unknown"
    epoch = unread if health.controller_epoch is None else str(health.controller_epoch)
    if health.controller_id is None:
        name = unread
    elif health.controller_id == NO_CONTROLLER:
        name = "none"
    elif health.controller_id in health.live:
        name = f"broker {health.controller_id}"
    elif not names.has_znodes:
        name = f"node {health.controller_id}"
    elif health.controller_id == surveyor_id:
        name = f"Surveyor, as {surveyor_id}"
    else:
        name = f"{health.controller_id}, not registered as a broker"
    return f"{name}, epoch {epoch}"


def _stale_epoch_note(situation: ClusterSituation) -> str:
    """Return a note if the controller's epoch is earlier than one that brokers have received."""
    epoch, latest = situation.health.controller_epoch, situation.latest_epoch
    return "" if epoch is None or epoch >= latest else f", earlier than the latest known, {latest}"


def _brokers(health: Health) -> str:
    not_understood = health.not_understood_brokers
    understood = f"; not understood: {abbreviate(not_understood)}" if not_understood else ""
    return f"{len(health.live)} live, {len(health.gone)} gone{understood}"


def _imbalance(health: Health) -> str:
    """Format the most imbalanced live broker, and the number of partitions that prefer missing brokers."""
    live = set(health.live)
    rows = [row for row in health.imbalance if row.broker_id in live]
    waits = sum(row.not_led for row in health.imbalance if row.broker_id not in live)
    of_gone = f"{pluralise(waits, 'partition', 'prefers', 'prefer')} brokers that are gone" if waits else ""
    if not any(row.not_led for row in rows):
        return f"none; {of_gone or 'preferred replicas lead all partitions'}"
    worst = max(rows, key=lambda row: (row.ratio, -row.broker_id))
    above = sum(row.exceeds for row in rows)
    waiting = f"; {of_gone}" if of_gone else ""
    return (
        f"{worst.not_led} of {worst.preferred_partitions} partitions not led by their preferred replica, "
        f"broker {worst.broker_id} ({worst.ratio:.0%}); {above} above {worst.threshold:.0%}{waiting}"
    )


def _last_snapshot(status: ClusterStatus) -> str:
    recent = status.situation.warehouse_status
    if recent.snapshot is None:
        return "not known" if recent.fault else "none"
    return f"{recent.snapshot.snapshot_id}, {format_age(recent.snapshot.taken_at, status.situation.now)} ago"


def _format_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%d %H:%M:%S UTC")
