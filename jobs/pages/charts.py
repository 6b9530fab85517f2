"""Charts as SVG that stands in the page itself: bars by group, lines, and a map of shades.

Each chart is a picture with a title that screen readers say; its values stand beside bars or in the `<title>` of what
is drawn. Its colours are classes of the page's style, so they follow its dark and light theme. Widths are units of a
view box that the page scales; texts are escaped by Markup.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from markupsafe import Markup

WIDTH: Final = 420
LABEL: Final = 120
"""Room to the left for names."""
VALUE: Final = 62
"""Room to the right for numbers."""
BAR: Final = 11
GAP: Final = 7
LETTERS: Final = 17
"""Letters of a name that have room; all of it is in its title."""

Number = int | float
Shown = Callable[[Number], str]


def plainly(value: Number) -> str:
    """Write a number for people.

    >>> plainly(12345), plainly(0.25)
    ('12,345', '0.25')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def percent(value: Number) -> str:
    """Write a ratio.

    >>> percent(0.125)
    '12.5 %'
    """
    return f"{100 * value:.3g} %"


@dataclass(frozen=True, slots=True)
class Group:
    """A name and its bars, one a series."""

    name: str
    values: Sequence[Number]


_numbers = count(1)


def _picture(title: str, height: Number, parts: Iterator[Markup], kind: str) -> Markup:
    name = f"chart-{next(_numbers)}"
    return Markup(
        '<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}">'
        '<title id="{name}">{title}</title>{parts}</svg>',
    ).format(kind=kind, width=WIDTH, height=round(height, 1), name=name, title=title, parts=Markup().join(parts))


def _named(name: str, y: Number) -> Markup:
    short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    return Markup('<text x="{x}" y="{y}" class="end">{short}<title>{name}</title></text>').format(
        x=LABEL - 8, y=y, short=short, name=name
    )


def bars(title: str, series: Sequence[str], groups: Sequence[Group], shown: Shown = plainly) -> Markup:
    """Draw a bar for each value of each group, the series below one another; values at least 0."""
    most = max((value for group in groups for value in group.values), default=0) or 1
    high = len(series) * BAR + GAP

    def parts() -> Iterator[Markup]:
        for number, group in enumerate(groups):
            top = number * high
            yield _named(group.name, top + len(series) * BAR / 2 + 4)
            for place, (what, value) in enumerate(zip(series, group.values, strict=True)):
                y, long = top + place * BAR, (WIDTH - LABEL - VALUE) * value / most
                yield Markup(
                    '<rect class="s{place}" x="{x}" y="{y}" width="{long}" height="{bar}">'
                    "<title>{name}: {what} {text}</title></rect>"
                    '<text x="{after}" y="{base}" class="value">{text}</text>',
                ).format(
                    place=place,
                    x=LABEL,
                    y=y,
                    long=round(max(long, 0.5), 1),
                    bar=BAR - 1.5,
                    name=group.name,
                    what=what,
                    text=shown(value),
                    after=round(LABEL + long + 4, 1),
                    base=y + BAR - 2.5,
                )

    return legend(series) + _picture(title, max(len(groups), 1) * high, parts(), "bars")


def legend(series: Sequence[str]) -> Markup:
    """Name the colours of series."""
    items = (
        Markup('<li><span class="swatch s{}"></span>{}</li>').format(place, name) for place, name in enumerate(series)
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


HEIGHT: Final = 150
AXIS: Final = 22


def lines(title: str, places: Sequence[str], series: Mapping[str, Sequence[Number]], shown: Shown = plainly) -> Markup:
    """Draw a line for each series over the same places, from left to right; values at least 0, null is no point."""
    left, wide = LABEL - 50, WIDTH - LABEL + 40
    most = max((value for values in series.values() for value in values if value is not None), default=0) or 1
    last = max(len(places) - 1, 1)

    def at(number: int, value: Number) -> tuple[float, float]:
        return round(left + wide * number / last, 1), round(8 + (HEIGHT - 8) * (1 - value / most), 1)

    def parts() -> Iterator[Markup]:
        for value in (0, most / 2, most):
            _, y = at(0, value)
            yield Markup(
                '<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>'
                '<text x="{x}" y="{base}" class="end">{text}</text>',
            ).format(left=left, right=left + wide, y=y, x=left - 6, base=round(y + 4, 1), text=shown(value))
        for place, (name, values) in enumerate(series.items()):
            points = [(number, value) for number, value in enumerate(values) if value is not None]
            yield Markup('<polyline class="l{}" points="{}"><title>{}</title></polyline>').format(
                place, " ".join("{},{}".format(*at(*point)) for point in points), name
            )
            # one snapshot is a line of no length: a dot shows it, and where the line ends
            if points:
                x, y = at(*points[-1])
                yield Markup('<circle class="s{}" cx="{}" cy="{}" r="3"><title>{}: {}</title></circle>').format(
                    place, x, y, name, shown(points[-1][1])
                )
        yield _axis(places, left, wide, HEIGHT + AXIS - 5)

    return legend(list(series)) + _picture(title, HEIGHT + AXIS, parts(), "lines")


def _axis(places: Sequence[str], left: Number, wide: Number, y: Number) -> Markup:
    """Name the first place and the last one."""
    ends = [("start", left, places[0]), ("end", left + wide, places[-1])] if len(places) > 1 else []
    if len(places) == 1:
        ends = [("start", left, places[0])]
    return Markup().join(
        Markup('<text class="{}" x="{}" y="{}">{}</text>').format(anchor, x, y, text) for anchor, x, text in ends
    )


CELL: Final = 16


def shades(title: str, rows: Sequence[Group], places: Sequence[str]) -> Markup:
    """Draw a row of cells for each group, a cell a place, the darker the larger its value; equal neighbours are one."""
    wide = WIDTH - LABEL
    most = max((value for row in rows for value in row.values), default=0) or 1

    def parts() -> Iterator[Markup]:
        for number, row in enumerate(rows):
            yield _named(row.name, number * CELL + CELL - 4)
            for first, end in _runs(row.values):
                value = row.values[first]
                spanned = places[first] if end - first == 1 else f"{places[first]} to {places[end - 1]}"
                yield Markup(
                    '<rect class="shade" x="{x}" y="{y}" width="{long}" height="{high}" fill-opacity="{depth}">'
                    "<title>{name}, {spanned}: {value}</title></rect>",
                ).format(
                    x=round(LABEL + wide * first / len(places), 2),
                    y=number * CELL,
                    long=round(wide * (end - first) / len(places), 2),
                    high=CELL - 1,
                    depth=round(0.06 + 0.94 * value / most, 3),
                    name=row.name,
                    spanned=spanned,
                    value=plainly(value),
                )
        yield _axis(places, LABEL, wide, len(rows) * CELL + AXIS - 6)

    key = Markup(
        '<p class="key">0 <span class="shade-key" aria-hidden="true"></span> {} partitions led</p>',
    ).format(plainly(most))
    return key + _picture(title, len(rows) * CELL + AXIS, parts(), "shades")


def _runs(values: Sequence[Number]) -> Iterator[tuple[int, int]]:
    """Where equal values begin and end.

    >>> list(_runs([3, 3, 1]))
    [(0, 2), (2, 3)]
    """
    first = 0
    for number in range(1, len(values) + 1):
        if number == len(values) or values[number] != values[first]:
            yield first, number
            first = number
