"""The figures of an optimised plan as text lines."""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from jobs.core.units import format_bytes
from planner.load.load_figures import SHARES
from planner.placement.plan_figures import (
    PlanFigures,
    RackCrowding,
    WaveFigures,
    away_from_one,
    crowded_racks_in,
    figures_in,
)
from schemas.rows import PlanRecord
from schemas.text import BROKERS_SHOWN, WAVES_SHOWN, join_ids, pluralise

STEPS_SHOWN: Final = 4
"""Steps between elections alone and the whole plan, each with its bytes and the most loaded broker after it."""

PARTITIONS_SHOWN: Final = 3
"""Oversized partitions named in a plan's text."""


class Span(NamedTuple):
    """A quantity that a plan changes: its minimum and maximum, or a count, before and after."""

    name: str
    before: str
    after: str

    @property
    def line(self) -> str:
        """The quantity in one line."""
        return f"{self.name} {self.before} → {self.after}"


def figure_lines(plan: PlanRecord) -> Iterator[str]:
    """Return a plan's figures as text lines.

    >>> figures = {"lower_bound": 3, "bound": "3 replicas have to be copied", "left": 0, "held": 0,
    ...     "replicas_per_broker": [[0, 4], [1, 3]], "leaders_per_broker": [[0, 1], [0, 1]],
    ...     "led_per_broker": [[0, 3], [0, 1]],
    ...     "uneven": "--max-moves 3 allows no more copies that would help",
    ...     "leaders_given_up": {"leaders_per_broker": [1, 1], "reorders": 7},
    ...     "replicas_per_rack": {"a": [3, 9], "b": [6, 0]}, "racks_given_up": ["b"], "fewer_racks": 4,
    ...     "most_in_one_rack": {"most": [2, 3], "worse": 2, "uneven": 0, "fixable": [5, 4]}}
    >>> import json
    >>> from datetime import datetime
    >>> made = {"plan_id": "5f", "snapshot_id": 1, "kind": "reassign", "status": "planned", "created_at": datetime.min}
    >>> for line in figure_lines(PlanRecord(**made, moves=3, parameters=json.dumps({"figures": figures}))):
    ...     print(line)
    moves 3 (lower bound 3: 3 replicas have to be copied)
    replicas per broker 0..4 → 1..3
    preferred leaders per broker 0..1 → 0..1
    leaders per broker 0..3 → 0..1
    with --reorder-leaders 1..1: 7 more partitions would change their order
    replicas per rack a 3 → 9, b 6 → 0
    most replicas of a partition in one rack 2 → 3
    4 partitions have more in one rack than necessary (now 5): `plan reassign --fix-racks` spreads them
    racks given up b: 4 partitions are in fewer racks than now
    replicas stay uneven: --max-moves 3 allows no more copies that would help
    """
    figures = figures_in(plan.options)
    if figures is None:
        return
    yield from balance_lines(figures) if figures.load_balance else _bound(plan, figures)
    yield from _hour_notes(plan, figures)
    yield from (span.line for span in broker_spans(figures))
    yield from _share_notes(figures)
    yield from _reorder_notes(figures)
    if racks := [f"{rack} {old} → {new}" for rack, (old, new) in figures.replicas_per_rack.items() if old != new]:
        yield f"replicas per rack {', '.join(racks)}"
    yield from (span.line for span in _per_rack_spans(figures) if span.before != span.after)
    yield from _rack_notes(figures)
    yield from _uneven_notes(figures)
    yield from byte_lines(figures)
    if figures.waves is not None:
        yield from _wave_lines(figures.waves)
    yield from _undone_notes(figures)


def notes(plan: PlanRecord) -> Iterator[str]:
    """Return the notes without a number before and after: the lower bound of moves, and what is left undone."""
    if figures := figures_in(plan.options):
        yield from balance_lines(figures) if figures.load_balance else _bound(plan, figures)
        yield from _hour_notes(plan, figures)
        yield from _share_notes(figures)
        yield from _reorder_notes(figures)
        yield from _rack_notes(figures)
        yield from _uneven_notes(figures)
        if figures.moves_bytes is not None:
            yield f"moves {format_bytes(figures.moves_bytes)}"
            yield from _size_lines(figures)
        yield from _undone_notes(figures)


def planned_bytes(plan: PlanRecord) -> int | None:
    """Return the bytes that a plan copies by the sizes that it was made with, None if it was made without sizes."""
    figures = figures_in(plan.options)
    return figures.moves_bytes if figures else None


def broker_spans(figures: PlanFigures) -> Iterator[Span]:
    """Return the minimum and maximum replicas, preferred leaders and leaders per broker."""
    spans = {
        "replicas per broker": figures.replicas_per_broker,
        "preferred leaders per broker": figures.leaders_per_broker,
        "leaders per broker": figures.led_per_broker,
    }
    for name, span in spans.items():
        if span is not None:
            yield Span(name, *(f"{low}..{high}" for low, high in span))


def rack_spans(figures: PlanFigures) -> Iterator[Span]:
    """Return the replicas of each rack, and the maximum of one partition in a rack."""
    for rack, counts in figures.replicas_per_rack.items():
        yield Span(f"replicas in rack {rack}", *map(str, counts))
    yield from _per_rack_spans(figures)


def _per_rack_spans(figures: PlanFigures) -> Iterator[Span]:
    if figures.most_in_one_rack is not None and figures.replicas_per_rack:
        yield Span("most replicas of a partition in one rack", *map(str, figures.most_in_one_rack.most))


def byte_spans(figures: PlanFigures) -> Iterator[Span]:
    """Return the minimum and maximum bytes per broker, also as multiples of the mean, if sizes are known.

    >>> held = {"bytes_per_broker": [[0, 0], [5, 7]], "bytes_by_broker": {"3": [0, 5], "4": [0, 7]}}
    >>> for span in byte_spans(figures_in({"figures": {**held, "brokers_counted": [3, 4]}})):
    ...     print(span.line)  # brokers that hold nothing before
    bytes per broker 0 B..0 B → 5 B..7 B
    multiples of the mean - → 0.83..1.17
    """
    if figures.bytes_per_broker is None:
        return
    spans = (f"{format_bytes(low)}..{format_bytes(high)}" for low, high in figures.bytes_per_broker)
    yield Span("bytes per broker", *spans)
    counted = [figures.bytes_by_broker[str(broker)] for broker in figures.brokers_counted or ()]
    means = [sum(held) / len(counted) for held in zip(*counted, strict=True)]
    if any(means):
        multiples = zip(figures.bytes_per_broker, means, strict=True)
        sides = (f"{low / mean:.2f}..{high / mean:.2f}" if mean else "-" for (low, high), mean in multiples)
        yield Span("multiples of the mean", *sides)


def _bound(plan: PlanRecord, figures: PlanFigures) -> Iterator[str]:
    if figures.bound:
        yield f"moves {plan.moves} (lower bound {figures.lower_bound}: {figures.bound})"


def balance_lines(figures: PlanFigures) -> Iterator[str]:
    """Return the bytes of a plan by load with their lower bound, and the most loaded broker before and after.

    >>> worst = [{"multiple": m, "broker": 3, "resource": "out Mon 20:00"} for m in (1.44, 1.13, 1.07)]
    >>> sides = dict(zip(("worst_before", "worst_by_elections", "worst_after"), worst))
    >>> bounds = {"must_leave": {"2": 9, "3": 2 << 40}, "must_arrive": {}, "outside": [], "worst_bound": 1.02}
    >>> equal = [(1 << 40) + 1, 10, 538, 1.09], [(5 << 39) - 1, 205, 538, 1.07]
    >>> fewer = (0, 0, 538, 1.13), (1 << 40, 9, 537, 1.1)
    >>> front = [*fewer, (1 << 40, 9, 538, 1.09), *equal, (5 << 39, 206, 538, 1.07)]
    >>> balance = {"bytes": 5 << 39, "bytes_bound": 2 << 40, "elections": 538, "front": front, **sides, **bounds}
    >>> balance["oversized"] = [("clicks-0", "out Mon 20:00"), ("clicks-0", "out Tue 09:00")]
    >>> for line in balance_lines(figures_in({"figures": {"load_balance": balance}})):
    ...     print(line)
    copies 2.5 TiB (at least 2.0 TiB: 2.0 TiB must leave broker 3, 9 B must leave broker 2), elections 538
    most loaded broker 1.44 (3, out Mon 20:00) → 1.07 (3, out Mon 20:00) of the mean, at best 1.02
    by elections alone 1.13 · 1.0 TiB: 1.09
    clicks-0 alone has more out than a broker should have: give the topic more partitions
    """
    balance = figures.load_balance
    if balance is None:
        return
    parts = (("must leave", balance.must_leave), ("must arrive at", balance.must_arrive))
    due = [
        f"{format_bytes(size)} {verb} broker {broker}"
        for verb, by in parts
        for broker, size in sorted(by.items(), key=itemgetter(1), reverse=True)[:2]
    ]
    because = f": {', '.join(due)}" if due else ""
    bound = f" (at least {format_bytes(balance.bytes_bound)}{because})" if balance.bytes_bound else ""
    yield f"copies {format_bytes(balance.bytes)}{bound}, elections {balance.elections}"
    before, after = (
        f"{worst.multiple:.2f} ({worst.broker}, {worst.resource})"
        for worst in (balance.worst_before, balance.worst_after)
    )
    at_best = "" if balance.worst_bound is None else f", at best {balance.worst_bound:.2f}"
    yield f"most loaded broker {before} → {after} of {SHARES[balance.by_capacity]}{at_best}"
    least_bytes = {round(worst, 2): size for size, _, _, worst in reversed(balance.front) if size}
    elected, last = (round(load.multiple, 2) for load in (balance.worst_by_elections, balance.worst_after))
    passed = [worst for worst in sorted(least_bytes, reverse=True) if last < worst < elected]
    by_bytes = {format_bytes(least_bytes[worst]): worst for worst in passed}  # the lowest of equal bytes
    steps = [f"{size}: {worst:.2f}" for size, worst in by_bytes.items()]
    is_copied_first = bool(balance.front and balance.front[0][0])  # what must move, before any election
    helps = elected < round(balance.worst_before.multiple, 2) and not is_copied_first
    elections = [f"by elections alone {elected:.2f}"] if helps else []
    if shown := [*elections, *steps[-STEPS_SHOWN:]]:
        yield " · ".join(shown)
    oversized = dict.fromkeys((name, resource.split(" ", 1)[0]) for name, resource in balance.oversized)
    for name, resource in [*oversized][:PARTITIONS_SHOWN]:  # in one window or several
        yield f"{name} alone has more {resource} than a broker should have: give the topic more partitions"


def limit_warnings(figures: PlanFigures | None) -> Iterator[str]:
    """Warn of limits that are not met after a plan; no multiple is rounded to 1, as if the limit were met.

    >>> sides = {f"worst_{side}": {"multiple": 1.1, "broker": 3, "resource": "out"}
    ...     for side in ("before", "by_elections", "after")}
    >>> bounds = {"bytes": 0, "bytes_bound": 0, "worst_bound": 1.0, "must_leave": {}, "must_arrive": {}, "outside": []}
    >>> exceeded = [{"multiple": multiple, "broker": 3, "resource": name}
    ...     for multiple, name in ((1.0001, "disk"), (1.1, "out"), (0.9999, "leaders of a"))]
    >>> balance = {"elections": 0, "front": [], "exceeded": exceeded, "exceeded_total": 25, **sides, **bounds}
    >>> for warning in limit_warnings(figures_in({"figures": {"load_balance": balance}})):
    ...     print(*warning.split(", ")[1:], sep=" | ")
    broker 3 out 1.10 | broker 3 leaders of a 0.99 times the limit | and 22 more
    >>> for line in balance_lines(figures_in({"figures": {"load_balance": balance}})):
    ...     print(line)  # elections alone do not help
    copies 0 B, elections 0
    most loaded broker 1.10 (3, out) → 1.10 (3, out) of the mean, at best 1.00
    """
    if figures and figures.load_balance and (exceeded := figures.load_balance.exceeded):
        loads = [f"broker {load.broker} {load.resource} {away_from_one(load.multiple, 2):.2f}" for load in exceeded]
        shown = loads[:BROKERS_SHOWN]
        others = max(figures.load_balance.exceeded_total, len(loads)) - len(shown)
        more = f", and {others} more" if others else ""
        yield f"limits are not met after the plan: {', '.join(shown)} times the limit{more}"


def _hour_notes(plan: PlanRecord, figures: PlanFigures) -> Iterator[str]:
    """Return the loads that a plan is for, and whether the hour in which it was made is one of theirs.

    >>> from datetime import datetime
    >>> made = {"plan_id": "5f", "snapshot_id": 1, "kind": "reassign", "status": "planned"}
    >>> loads = {"source": "profile default, version 3", "resources": ["disk", "out Mon 20:00", "out Tue 09:00"]}
    >>> for hour in (3, 20):
    ...     plan = PlanRecord(**made, created_at=datetime(2026, 11, 30, hour, 59))
    ...     print(*_hour_notes(plan, figures_in({"figures": {"loads": loads}})))
    planned for Mon 20:00, Tue 09:00 UTC (profile default, version 3), not for Mon 03:00, when it was made
    planned for Mon 20:00, Tue 09:00 UTC (profile default, version 3)
    """
    if figures.loads is None:
        return
    windows, hour = figures.loads.windows, f"{plan.created_at:%a %H}:00"
    if not windows:
        yield f"planned for {figures.loads.source}"
        return
    other = "" if hour in windows else f", not for {hour}, when it was made"
    yield f"planned for {', '.join(windows)} UTC ({figures.loads.source}){other}"


def _share_notes(figures: PlanFigures) -> Iterator[str]:
    """Return the largest share of leaders after the plan.

    >>> share = {"broker_id": 3, "leaders": 98, "partitions": 480}
    >>> list(_share_notes(figures_in({"figures": {"largest_share": share}})))
    ['largest share: broker 3 leads 98 of 480 (20 %)']
    """
    if (share := figures.largest_share) is not None:
        percent = round(100 * share.leaders / max(share.partitions, 1))
        yield f"largest share: broker {share.broker_id} leads {share.leaders} of {share.partitions} ({percent} %)"


def _reorder_notes(figures: PlanFigures) -> Iterator[str]:
    if (given_up := figures.leaders_given_up) and not figures.load_balance:
        low, high = given_up.leaders_per_broker
        yield f"with --reorder-leaders {low}..{high}: {given_up.reorders} more partitions would change their order"


def _uneven_notes(figures: PlanFigures) -> Iterator[str]:
    if figures.uneven:
        subject = "loads" if figures.load_balance else "replicas" if figures.moves_bytes is None else "bytes"
        yield f"{subject} stay uneven: {figures.uneven}"


def _undone_notes(figures: PlanFigures) -> Iterator[str]:
    """Return what a plan does not do as its options ask.

    >>> others = {"broker_id": 3, "successor": 4, "replicas": 2, "of": 9}
    >>> list(_undone_notes(figures_in({"figures": {"other_successors": [others]}})))
    ['2 of 9 replicas of broker 3 go to others than 4, which has one already or would crowd its rack']
    """
    for one in figures.other_successors:
        cause = f"others than {one.successor}, which has one already or would crowd its rack"
        yield f"{one.replicas} of {pluralise(one.of, 'replica')} of broker {one.broker_id} go to {cause}"
    if figures.left:
        yield f"{figures.left} moves left out by --max-moves; plan again after this"
    if figures.held:
        yield (
            f"{pluralise(figures.held, 'partition')} left unchanged, because a dead broker has a replica; "
            "give it to --remove-brokers"
        )


def _rack_notes(figures: PlanFigures) -> Iterator[str]:
    """Return notes on partitions with more replicas in a rack than needed, and on racks given up."""
    before, after = (figures.most_in_one_rack or RackCrowding()).fixable
    if after:
        yield (
            f"{pluralise(after, 'partition', 'has', 'have')} more in one rack than necessary (now {before}): "
            "`plan reassign --fix-racks` spreads them"
        )
    if given_up := figures.racks_given_up:
        yield (
            f"racks given up {', '.join(given_up)}: "
            f"{pluralise(figures.fewer_racks, 'partition', 'is', 'are')} in fewer racks than now"
        )


def rack_warnings(options: Mapping[str, Any]) -> Iterator[str]:
    """Warn of racks that a plan gives up, of partitions that it crowds into one, and of racks that it does not know.

    >>> figures = {"most_in_one_rack": {"most": [2, 4], "worse": 2, "uneven": 1, "avoidable": 1}, "racks_unknown": [9],
    ...     "racks_given_up": ["a", "c"], "fewer_racks": 4}
    >>> for warning in rack_warnings({"figures": figures}):
    ...     print(warning)
    racks a, c are given up: 4 partitions are in fewer racks than now; most replicas of a partition in one rack 2 → 4
    1 partition gets more replicas in one rack than necessary: `surveyor plan reassign --fix-racks` spreads them
    2 partitions get more replicas in one rack than now: the brokers left in other racks are too few
    1 partition has more replicas in one rack than an even share: the brokers in other racks are too few; add some there
    broker 9: its rack is unknown, because no snapshot contains its registration; its replicas count as in no rack
    """
    figures = figures_in(options) or PlanFigures()
    crowding = figures.most_in_one_rack or RackCrowding()
    before, after = crowding.most
    if (given_up := figures.racks_given_up) and (figures.fewer_racks or after > before):
        are = "rack " + given_up[0] + " is" if len(given_up) == 1 else f"racks {', '.join(given_up)} are"
        fewer = pluralise(figures.fewer_racks, "partition", "is", "are")
        crowd = f"; most replicas of a partition in one rack {before} → {after}" if after > before else ""
        yield f"{are} given up: {fewer} in fewer racks than now{crowd}"
    elif fewer_racks := figures.fewer_racks:
        yield f"{pluralise(fewer_racks, 'partition', 'is', 'are')} in fewer racks than now"
    if avoidable := crowding.avoidable:
        gets = pluralise(avoidable, "partition", "gets", "get")
        yield f"{gets} more replicas in one rack than necessary: `surveyor plan reassign --fix-racks` spreads them"
    if worse := crowding.worse:
        gets = pluralise(worse, "partition", "gets", "get")
        yield f"{gets} more replicas in one rack than now: the brokers left in other racks are too few"
    if uneven := crowding.uneven:
        has = pluralise(uneven, "partition", "has", "have")
        yield (
            f"{has} more replicas in one rack than an even share: the brokers in other racks are too few; "
            "add some there"
        )
    if unknown := figures.racks_unknown:
        ids = join_ids(unknown)
        yield (
            f"broker {ids}: its rack is unknown, because no snapshot contains its registration; "
            "its replicas count as in no rack"
        )
    yield from options.get("rack_warnings", ())
    if crowded := crowded_racks_in(options):
        yield (
            f"{pluralise(crowded.partitions, 'new partition', 'has', 'have')} up to {crowded.most} replicas in "
            f"one rack; the minimum is {crowded.least}: {crowded.instead}"
        )


def still_held_lines(figures: PlanFigures | None) -> Iterator[str]:
    """Return a line for each broker to be emptied that still holds replicas after the plan.

    >>> held = [{"broker_id": 3, "replicas": 4, "topics": {"orders": 3, "audit": 1}}]
    >>> list(still_held_lines(figures_in({"figures": {"still_held": held}})))
    ['broker 3 still holds 4 replicas after this plan, so it is not empty: orders 3, audit 1']
    """
    for held in figures.still_held if figures else ():
        topics = ", ".join(f"{topic} {count}" for topic, count in held.topics.items())
        more = f" and {pluralise(held.others, 'other topic')}" if held.others else ""
        replicas = pluralise(held.replicas, "replica")
        yield f"broker {held.broker_id} still holds {replicas} after this plan, so it is not empty: {topics}{more}"


def _wave_lines(waves: WaveFigures) -> Iterator[str]:
    """Return the moves of each wave.

    >>> waves = WaveFigures(count=2, fewest=2, moves=[4, 1], most_in=[2, 1], most_out=[1, 1])
    >>> list(_wave_lines(waves))
    ['waves 2 (at least 2)', 'replicas copied by wave 4, 1', 'most into a broker 2, 1', 'most out of one 1, 1']
    """
    yield f"waves {waves.count} (at least {waves.fewest})"
    counts = {
        "replicas copied by wave": waves.moves,
        "most into a broker": waves.most_in,
        "most out of one": waves.most_out,
    }
    for title, by_wave in counts.items():
        more = ", ..." if waves.count > WAVES_SHOWN else ""
        yield f"{title} {join_ids(by_wave[:WAVES_SHOWN])}{more}"


def byte_lines(figures: PlanFigures) -> Iterator[str]:
    """Return the figures in bytes as text lines.

    >>> figures = {"moves_bytes": 2048, "bytes_per_broker": [[0, 4096], [2048, 2048]], "brokers_counted": [0, 1],
    ...     "bytes_by_broker": {"0": [4096, 2048], "1": [0, 2048]},
    ...     "sizes": {"source": "table", "digest": "9f", "known": 3, "assumed": 1}}
    >>> for line in byte_lines(figures_in({"figures": figures})):
    ...     print(line)
    moves 2.0 KiB
    bytes per broker 0 B..4.0 KiB → 2.0 KiB..2.0 KiB
    multiples of the mean 0.00..2.00 → 1.00..1.00
    bytes by broker 0: 4.0 KiB → 2.0 KiB, 1: 0 B → 2.0 KiB
    sizes from the table, digest 9f; 1 of 4 partitions have none and count as the mean of their topic, or of all
    """
    if figures.moves_bytes is None:
        return
    yield f"moves {format_bytes(figures.moves_bytes)}"
    yield from (span.line for span in byte_spans(figures))
    changed = {name: span for name, span in figures.bytes_by_broker.items() if span[0] != span[1]}
    if changed:
        listed = [
            f"{name}: {' → '.join(map(format_bytes, span))}" for name, span in list(changed.items())[:BROKERS_SHOWN]
        ]
        more = [f"and {len(changed) - BROKERS_SHOWN} more"] if len(changed) > BROKERS_SHOWN else []
        yield f"bytes by broker {', '.join([*listed, *more])}"
    yield from _size_lines(figures)


def _size_lines(figures: PlanFigures) -> Iterator[str]:
    """Return where the sizes are from, and how many are assumed."""
    if (sizes := figures.sizes) is None:
        return
    whole = sizes.known + sizes.assumed
    none = f"; {sizes.assumed} of {whole} partitions have none and count as the mean of their topic, or of all"
    yield f"sizes from the {sizes.source}, digest {sizes.digest}{none if sizes.assumed else ''}"
