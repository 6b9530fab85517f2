"""The figures of an optimised plan as text lines."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jobs.core.units import format_bytes
from planner.placement.plan_figures import Figures, figures_in
from schemas.rows import PlanRecord
from schemas.text import BROKERS_SHOWN, WAVES_SHOWN, join_ids, pluralise


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
    4 partitions have more in one rack than needed (now 5): `plan reassign --fix-racks` spreads them
    racks given up b: 4 partitions are in fewer racks than now
    replicas stay uneven: --max-moves 3 allows no more copies that would help
    """
    figures = figures_in(plan)
    if not figures:
        return
    yield _bound(plan, figures)
    yield from (span.line for span in broker_spans(figures))
    yield from _reorder_notes(figures)
    if figures["replicas_per_rack"]:
        racks = (f"{rack} {before} → {after}" for rack, (before, after) in figures["replicas_per_rack"].items())
        yield f"replicas per rack {', '.join(racks)}"
    yield from (span.line for span in _per_rack_spans(figures))
    yield from _rack_notes(figures)
    yield from _uneven_notes(figures)
    yield from byte_lines(figures)
    if "waves" in figures:
        yield from _wave_lines(figures["waves"])
    yield from _undone_notes(figures)


def notes(plan: PlanRecord) -> Iterator[str]:
    """Return the notes without a number before and after: the lower bound of moves, and what is left undone."""
    if figures := figures_in(plan):
        yield _bound(plan, figures)
        yield from _reorder_notes(figures)
        yield from _rack_notes(figures)
        yield from _uneven_notes(figures)
        if "moves_bytes" in figures:
            yield f"moves {format_bytes(figures['moves_bytes'])}"
            yield _sizes_line(figures["sizes"])
        yield from _undone_notes(figures)


def broker_spans(figures: Figures) -> Iterator[Span]:
    """Return the minimum and maximum replicas, preferred leaders and leaders per broker."""
    names = {
        "replicas_per_broker": "replicas per broker",
        "leaders_per_broker": "preferred leaders per broker",
        "led_per_broker": "leaders per broker",  # missing in plans of older versions
    }
    for key, name in names.items():
        if figures.get(key):
            yield Span(name, *(f"{low}..{high}" for low, high in figures[key]))


def rack_spans(figures: Figures) -> Iterator[Span]:
    """Return the replicas of each rack, and the maximum of one partition in a rack."""
    for rack, counts in figures.get("replicas_per_rack", {}).items():
        yield Span(f"replicas in rack {rack}", *map(str, counts))
    yield from _per_rack_spans(figures)


def _per_rack_spans(figures: Figures) -> Iterator[Span]:
    most = figures.get("most_in_one_rack")  # missing in plans of older versions
    if most and figures["replicas_per_rack"]:
        yield Span("most replicas of a partition in one rack", *map(str, most["most"]))


def byte_spans(figures: Figures) -> Iterator[Span]:
    """Return the minimum and maximum bytes per broker, if sizes are known."""
    if "bytes_per_broker" in figures:
        spans = (f"{format_bytes(low)}..{format_bytes(high)}" for low, high in figures["bytes_per_broker"])
        yield Span("bytes per broker", *spans)


def _bound(plan: PlanRecord, figures: Figures) -> str:
    return f"moves {plan.moves} (lower bound {figures['lower_bound']}: {figures['bound']})"


def _reorder_notes(figures: Figures) -> Iterator[str]:
    if given_up := figures.get("leaders_given_up"):
        low, high = given_up["leaders_per_broker"]
        yield f"with --reorder-leaders {low}..{high}: {given_up['reorders']} more partitions would change their order"


def _uneven_notes(figures: Figures) -> Iterator[str]:
    if figures.get("uneven"):
        yield f"replicas stay uneven: {figures['uneven']}"


def _undone_notes(figures: Figures) -> Iterator[str]:
    if figures["left"]:
        yield f"{figures['left']} moves left out by --max-moves; plan again after this"
    if figures["held"]:
        yield (
            f"{pluralise(figures['held'], 'partition')} left unchanged, because a dead broker has a replica; "
            "give it to --remove-brokers"
        )


def _rack_notes(figures: Figures) -> Iterator[str]:
    """Return notes on partitions with more replicas in a rack than needed, and on racks given up."""
    most = figures.get("most_in_one_rack")
    if most and most["fixable"][1]:
        before, after = most["fixable"]
        yield (
            f"{pluralise(after, 'partition', 'has', 'have')} more in one rack than needed (now {before}): "
            "`plan reassign --fix-racks` spreads them"
        )
    if given_up := figures.get("racks_given_up"):
        yield (
            f"racks given up {', '.join(given_up)}: "
            f"{pluralise(figures['fewer_racks'], 'partition', 'is', 'are')} in fewer racks than now"
        )


def rack_warnings(options: Mapping[str, Any]) -> Iterator[str]:
    """Warn of racks that a plan gives up, of partitions that it crowds into one, and of racks that it does not know.

    >>> figures = {"most_in_one_rack": {"most": [2, 4], "worse": 2, "uneven": 1, "avoidable": 1}, "racks_unknown": [9],
    ...     "racks_given_up": ["a", "c"], "fewer_racks": 4}
    >>> for warning in rack_warnings({"figures": figures}):
    ...     print(warning)
    racks a, c are given up: 4 partitions are in fewer racks than now; most replicas of a partition in one rack 2 → 4
    1 partition gets more replicas in one rack than so many need: `surveyor plan reassign --fix-racks` spreads them
    2 partitions get more replicas in one rack than now: the brokers left in other racks are too few
    1 partition has more replicas in one rack than an even share: the brokers in other racks are too few; add some there
    broker 9: its rack is unknown, because no snapshot contains its registration; its replicas count as in no rack
    """
    figures = options.get("figures", {})
    most = figures.get("most_in_one_rack", {})
    if given_up := figures.get("racks_given_up"):
        are = "rack " + given_up[0] + " is" if len(given_up) == 1 else f"racks {', '.join(given_up)} are"
        fewer = pluralise(figures["fewer_racks"], "partition", "is", "are")
        in_one = most.get("most", [0, 0])
        crowd = f"; most replicas of a partition in one rack {in_one[0]} → {in_one[1]}" if in_one[1] > in_one[0] else ""
        yield f"{are} given up: {fewer} in fewer racks than now{crowd}"
    elif fewer_racks := figures.get("fewer_racks"):
        yield f"{pluralise(fewer_racks, 'partition', 'is', 'are')} in fewer racks than now"
    if avoidable := most.get("avoidable"):
        gets = pluralise(avoidable, "partition", "gets", "get")
        yield f"{gets} more replicas in one rack than so many need: `surveyor plan reassign --fix-racks` spreads them"
    if worse := most.get("worse"):
        gets = pluralise(worse, "partition", "gets", "get")
        yield f"{gets} more replicas in one rack than now: the brokers left in other racks are too few"
    if uneven := most.get("uneven"):
        has = pluralise(uneven, "partition", "has", "have")
        yield (
            f"{has} more replicas in one rack than an even share: the brokers in other racks are too few; "
            "add some there"
        )
    if unknown := figures.get("racks_unknown"):
        ids = join_ids(unknown)
        yield (
            f"broker {ids}: its rack is unknown, because no snapshot contains its registration; "
            "its replicas count as in no rack"
        )
    if crowded := options.get("crowded"):
        yield (
            f"{pluralise(crowded['partitions'], 'new partition', 'has', 'have')} up to {crowded['most']} replicas in "
            f"one rack, where {crowded['least']} can be: {crowded['instead']}"
        )


def still_held_lines(figures: Figures) -> Iterator[str]:
    """Return a line for each broker to be emptied that still holds replicas after the plan.

    >>> held = [{"broker_id": 3, "replicas": 4, "topics": {"orders": 3, "audit": 1}}]
    >>> list(still_held_lines({"still_held": held}))
    ['broker 3 still holds 4 replicas after this plan, so it is not empty: orders 3, audit 1']
    """
    for held in figures.get("still_held", []):
        topics = ", ".join(f"{topic} {count}" for topic, count in held["topics"].items())
        more = f" and {pluralise(held['others'], 'other topic')}" if held.get("others") else ""
        replicas = pluralise(held["replicas"], "replica")
        yield f"broker {held['broker_id']} still holds {replicas} after this plan, so it is not empty: {topics}{more}"


def _wave_lines(waves: Figures) -> Iterator[str]:
    """Return the moves of each wave.

    >>> figures = {"count": 2, "fewest": 2, "moves": [4, 1], "most_in": [2, 1], "most_out": [1, 1]}
    >>> list(_wave_lines(figures))
    ['waves 2 (at least 2)', 'replicas copied by wave 4, 1', 'most into a broker 2, 1', 'most out of one 1, 1']
    """
    yield f"waves {waves['count']} (at least {waves['fewest']})"
    titles = {"moves": "replicas copied by wave", "most_in": "most into a broker", "most_out": "most out of one"}
    for name, title in titles.items():
        more = ", ..." if waves["count"] > WAVES_SHOWN else ""
        yield f"{title} {join_ids(waves[name][:WAVES_SHOWN])}{more}"


def byte_lines(figures: Figures) -> Iterator[str]:
    """Return the figures in bytes as text lines.

    >>> figures = {"moves_bytes": 2048, "bytes_per_broker": [[0, 4096], [2048, 2048]],
    ...     "bytes_by_broker": {"0": [4096, 2048], "1": [0, 2048]},
    ...     "sizes": {"source": "table", "digest": "9f", "known": 3, "assumed": 1}}
    >>> for line in byte_lines(figures):
    ...     print(line)
    moves 2.0 KiB
    bytes per broker 0 B..4.0 KiB → 2.0 KiB..2.0 KiB
    bytes by broker 0: 4.0 KiB → 2.0 KiB, 1: 0 B → 2.0 KiB
    sizes from the table, digest 9f; 1 of 4 partitions have none and count as the mean of their topic, or of all
    """
    if "moves_bytes" not in figures:
        return
    yield f"moves {format_bytes(figures['moves_bytes'])}"
    yield from (span.line for span in byte_spans(figures))
    changed = {name: span for name, span in figures["bytes_by_broker"].items() if span[0] != span[1]}
    if changed:
        listed = [
            f"{name}: {' → '.join(map(format_bytes, span))}" for name, span in list(changed.items())[:BROKERS_SHOWN]
        ]
        more = [f"and {len(changed) - BROKERS_SHOWN} more"] if len(changed) > BROKERS_SHOWN else []
        yield f"bytes by broker {', '.join([*listed, *more])}"
    yield _sizes_line(figures["sizes"])


def _sizes_line(sizes: Figures) -> str:
    line = f"sizes from the {sizes['source']}, digest {sizes['digest']}"
    if not sizes["assumed"]:
        return line
    whole = sizes["known"] + sizes["assumed"]
    return f"{line}; {sizes['assumed']} of {whole} partitions have none and count as the mean of their topic, or of all"
