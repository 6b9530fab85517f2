"""The load of brokers before and after a plan as text: a line per resource that changes, its source, and warnings."""

from collections.abc import Iterator
from typing import Final

from jobs.console_output.plan_figures import Span, limit_warnings
from jobs.core.units import format_bytes
from planner.load.load_figures import (
    RESOURCE_NAMES,
    UNEVEN,
    WIDENED,
    LoadFigures,
    ResourceEffect,
    stored_load,
    worst_of,
)
from planner.placement.plan_figures import PlannedLoads, figures_in
from schemas.enums import EVERY_HOUR
from schemas.rows import PlanRecord
from schemas.text import pluralise


def load_spans(plan: PlanRecord) -> Iterator[Span]:
    """Return the least and the most loaded broker as multiples of the mean, and the load of the most loaded one.

    By capacity they are multiples of the share of a broker. Of each resource it is the window in which a broker is
    furthest above it.

    >>> from datetime import datetime
    >>> effect = {"window": "Mon 20:00", "mean": [100, 100], "broker": [7, 3], "changes": True}
    >>> effects = [{"resource": "out", "most": [148, 113], "least": [62, 81], **effect},
    ...     {"resource": "out", "most": [120, 121], "least": [80, 79], **effect, "window": "Tue 09:00"},
    ...     {"resource": "disk", "most": [2048, 2048], "least": [0, 0], **effect, "mean": [1024, 1024]},
    ...     {"resource": "in", "most": [1, 1], "least": [1, 1], **effect, "changes": False}]
    >>> import msgspec
    >>> made = {"plan_id": "5f", "snapshot_id": 1, "kind": "reassign", "status": "planned", "created_at": datetime.min}
    >>> figures = {"effects": effects, "loads": "profile default, version 3", "partitions": 3, "partitions_total": 4}
    >>> plan = PlanRecord(**made, figures=msgspec.json.encode(figures).decode())
    >>> for line in load_lines(plan):
    ...     print(line)
    bytes out per broker 0.62..1.48 (148 B/s), Mon 20:00 → 0.79..1.21 (121 B/s), Tue 09:00, times the mean
    disk per broker 0.00..2.00 (2.0 KiB) → 0.00..2.00 (2.0 KiB) times the mean, Mon 20:00
    load from profile default, version 3, hours in UTC; 3 of 4 partitions have one, and only they count here
    >>> loads = {"source": "", "resources": [], "known": 3, "assumed": 1}
    >>> by_load = msgspec.json.encode({"figures": {"loads": loads}}).decode()
    >>> for line in load_notes(msgspec.structs.replace(plan, parameters=by_load)):
    ...     print(line)
    load from profile default, version 3, hours in UTC; 3 of 4 partitions have one, 1 count as the mean of their topic
    """
    load = stored_load(plan)
    for resource, effects in load.by_resource.items() if load else ():
        worst = worst_of(effects, 0), worst_of(effects, 1)
        if worst[0] is None or worst[1] is None:
            continue
        before, after = (_side(resource, effect, side) for side, effect in enumerate(filter(None, worst)))
        windows = ["" if effect.window == EVERY_HOUR else f", {effect.window}" for effect in filter(None, worst)]
        name, scale = f"{RESOURCE_NAMES[resource]} per broker", f"times {effects[0].scale}"
        if windows[0] == windows[1]:
            yield Span(name, before, f"{after} {scale}{windows[1]}")
        else:
            yield Span(name, f"{before}{windows[0]}", f"{after}{windows[1]}, {scale}")


def load_notes(plan: PlanRecord) -> Iterator[str]:
    """Return where the loads are from, and how many partitions have none; nothing if the plan changes no load."""
    load = stored_load(plan)
    if load is None or not load.by_resource:
        return
    figures = figures_in(plan.options)
    if planned := figures.loads if figures else None:
        mean = f", {planned.assumed} count as the mean of their topic" if planned.assumed else ""
        others = mean + (f", {planned.without_load} as 0" if planned.without_load else "")
    else:
        others = ", and only they count here"
    some = f"; {load.partitions} of {load.partitions_total} partitions have one{others}"
    zone = ", hours in UTC" if any(effect.window != EVERY_HOUR for effect in load.effects) else ""
    yield f"load from {load.loads}{zone}{some if load.partitions < load.partitions_total else ''}"


def load_lines(plan: PlanRecord) -> Iterator[str]:
    """Return the load before and after as text lines."""
    yield from (span.line for span in load_spans(plan))
    yield from load_notes(plan)


def load_warnings(plan: PlanRecord) -> Iterator[str]:
    """Warn of partitions without a load, of limits that are not met, and of a most loaded broker that gets more.

    >>> from datetime import datetime
    >>> import msgspec
    >>> common = {"window": "always", "mean": [100, 100], "least": [50, 50], "broker": [7, 3], "changes": True}
    >>> effects = [{"resource": "out", "most": [113, 148], **common}, {"resource": "in", "most": [102, 109], **common},
    ...     {"resource": "disk", "most": [148, 149], **common}]
    >>> made = {"plan_id": "5f", "snapshot_id": 1, "kind": "reassign", "status": "planned", "created_at": datetime.min}
    >>> list(load_warnings(PlanRecord(**made, figures=msgspec.json.encode({"effects": effects}).decode())))
    ['bytes out become less even: broker 3 gets 1.48 times the mean, and now the most of a broker is 1.13']
    """
    figures = figures_in(plan.options)
    yield from no_load_warnings(figures.loads if figures else None)
    yield from limit_warnings(figures)
    budget, balance = plan.options.get("budget"), figures and figures.load_balance
    if budget is not None and balance and balance.bytes > budget:
        copies, most = format_bytes(balance.bytes), format_bytes(budget)
        yield f"the plan copies {copies}, and the budget is {most}: the goal requires these copies"
    if figures and figures.without_room:
        yield figures.without_room
    load = stored_load(plan) or LoadFigures()
    for resource, effects in load.by_resource.items():
        before, after = worst_of(effects, 0), worst_of(effects, 1)
        if before is None or after is None:
            continue
        now, then = before.worst[0] or 0, after.worst[1] or 0
        if then > UNEVEN and then - now > WIDENED:
            window = "" if after.window == EVERY_HOUR else f" on {after.window} UTC"
            become = "become" if resource in _PLURAL else "becomes"
            yield (
                f"{RESOURCE_NAMES[resource]} {become} less even: broker {after.broker[1]} gets {then:.2f} times "
                f"{after.scale}{window}, and now the most of a broker is {now:.2f}"
            )


def no_load_warnings(loads: PlannedLoads | None) -> Iterator[str]:
    """Warn of partitions that count as none because no load of their topic is known.

    >>> list(no_load_warnings(PlannedLoads(source="", resources=[], without_load=50, topics_without_load=1)))[0][:58]
    '50 partitions of 1 topic have no load and count as 0: run '
    """
    if loads and loads.without_load:
        partitions, topics = pluralise(loads.without_load, "partition"), pluralise(loads.topics_without_load, "topic")
        have = "has no load and counts" if loads.without_load == 1 else "have no load and count"
        yield (
            f"{partitions} of {topics} {have} as 0: run `surveyor load sample`, `surveyor load rollup` and "
            "`surveyor load profile`, or import loads by `surveyor load import`"
        )


_PLURAL: Final = frozenset({"in", "out"})


def _side(resource: str, effect: ResourceEffect, side: int) -> str:
    least, most = effect.best[side] or 0, effect.worst[side] or 0
    return f"{least:.2f}..{most:.2f} ({_amount(resource, effect.most[side])})"


def _amount(resource: str, load: float) -> str:
    if resource == "cpu":
        return f"{load:.0f} %"
    return format_bytes(load) + ("" if resource == "disk" else "/s")
