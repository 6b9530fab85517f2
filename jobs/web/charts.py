"""Inline SVG charts of the reports and the dashboard: grouped bars, lines, a heat map, and a map of hours.

Each chart has a title for screen readers. Its values are labels and `<title>` texts of shapes. Colours are classes of
the page's style, so they follow the dark and the light theme. A chart fills the available width: heights are in pixels
and horizontal positions in per cent, so text keeps its size. Names and numbers are in the margins that the style
defines. Texts are escaped by Markup.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Final

from markupsafe import Markup

BAR_HEIGHT: Final = 12
GROUP_GAP: Final = 8
MAX_NAME_LETTERS: Final = 17
"""Letters of a name that fit; the full name is in the title."""

Number = int | float
Shown = Callable[[Number], str]


def format_number(value: Number) -> str:
    """Format a number.

    >>> format_number(12345), format_number(0.25)
    ('12,345', '0.25')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def percent(value: Number) -> str:
    """Format a ratio as a percentage.

    >>> percent(0.125)
    '12.5 %'
    """
    return f"{100 * value:.3g} %"


@dataclass(frozen=True, slots=True)
class Group:
    """A name and its bars, one per series."""

    name: str
    values: Sequence[Number]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its legend, and the title above it."""

    title: str
    picture: Markup


_numbers = count(1)


def _picture(title: str, height: Number, parts: Iterator[Markup], kind: str) -> Markup:
    name = f"chart-{next(_numbers)}"
    return Markup(
        '<svg class="chart {kind}" height="{height}" role="img" aria-labelledby="{name}">'
        '<title id="{name}">{title}</title>{parts}</svg>',
    ).format(kind=kind, height=round(height, 1), name=name, title=title, parts=Markup().join(parts))


def _named(name: str, y: Number) -> Markup:
    short = name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…"
    return Markup('<text x="-8" y="{y}" class="end">{short}<title>{name}</title></text>').format(
        y=y, short=short, name=name
    )


def _share(value: Number, whole: Number) -> float:
    return round(100 * value / whole, 2)


def bars(title: str, series: Sequence[str], groups: Sequence[Group], shown: Shown = format_number) -> Chart:
    """Draw a bar for each value of each group, with the series below one another; values must not be negative."""
    most = max((value for group in groups for value in group.values), default=0) or 1
    high = len(series) * BAR_HEIGHT + GROUP_GAP
    height = max(len(groups), 1) * high

    def parts() -> Iterator[Markup]:
        for number, group in enumerate(groups):
            yield _named(group.name, number * high + len(series) * BAR_HEIGHT / 2 + 4)
            for place, (series_name, value) in enumerate(zip(series, group.values, strict=True)):
                y, wide = number * high + place * BAR_HEIGHT, _share(value, most)
                yield Markup(
                    '<rect class="s{place}" x="0" y="{y}" width="{wide}%" height="{bar}">'
                    "<title>{name}: {what} {text}</title></rect>"
                    '<text x="{wide}%" dx="4" y="{base}" class="value">{text}</text>',
                ).format(
                    place=place,
                    y=y,
                    wide=max(wide, 0.2),
                    bar=BAR_HEIGHT - 1.5,
                    name=group.name,
                    what=series_name,
                    text=shown(value),
                    base=y + BAR_HEIGHT - 2.5,
                )

    return Chart(title, legend(series) + _picture(title, height, parts(), "bars"))


def legend(series: Sequence[str]) -> Markup:
    """Return the legend of the series' colours."""
    items = (
        Markup('<li><span class="swatch s{}"></span>{}</li>').format(place, name) for place, name in enumerate(series)
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


HEIGHT: Final = 170
AXIS: Final = 22
LINE: Final = 12
"""Minimum distance in pixels between the labels of two lines."""


def lines(
    title: str,
    places: Sequence[str],
    series: Mapping[str, Sequence[Number | None]],
    shown: Shown = format_number,
    at: Sequence[Number] = (),
) -> Chart:
    """Draw a line for each series over the same places; values must not be negative, and None is a gap.

    `at` are the positions of the places, ascending from 0; without them places are evenly spaced.
    """
    most = max((value for values in series.values() for value in values if value is not None), default=0) or 1
    positions = at or range(len(places))
    last = max(*positions, 1)
    known = {
        name: [
            (_share(position, last), _height(value, most), value)
            for position, value in zip(positions, values, strict=True)
            if value is not None
        ]
        for name, values in series.items()
    }

    def parts() -> Iterator[Markup]:
        for value in (0, most / 2, most):
            y = _height(value, most)
            yield Markup(
                '<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
                '<text x="0" dx="-6" y="{base}" class="end">{text}</text>',
            ).format(y=y, base=round(y + 4, 1), text=shown(value))
        yield Markup(
            '<svg viewBox="0 0 100 {height}" preserveAspectRatio="none" width="100%" height="{height}">'
        ).format(height=HEIGHT)
        for place, (name, points) in enumerate(known.items()):
            yield Markup('<polyline class="l{}" points="{}"><title>{}</title></polyline>').format(
                place, " ".join(f"{x},{y}" for x, y, _ in points), name
            )
        yield Markup("</svg>")
        labels = _spread_labels({name: points[-1][1] for name, points in known.items() if points})
        for place, (name, points) in enumerate(known.items()):
            # a dot marks the end of the line, and the only value of a series of length 1
            if points:
                x, y, value = points[-1]
                yield Markup(
                    '<circle class="s{place}" cx="{x}%" cy="{y}" r="3"><title>{name}: {text}</title></circle>'
                    '<text x="{x}%" dx="8" y="{base}" class="value">{text}</text>',
                ).format(place=place, x=x, y=y, name=name, text=shown(value), base=round(labels[name] + 4, 1))
        yield _axis(places, HEIGHT + AXIS - 5)

    return Chart(title, legend(list(series)) + _picture(title, HEIGHT + AXIS, parts(), "lines"))


def _height(value: Number, most: Number) -> float:
    """Return the vertical position of a value in a line chart, in pixels from the top."""
    return round(8 + (HEIGHT - 16) * (1 - value / most), 1)


def _spread_labels(heights: Mapping[str, float]) -> dict[str, float]:
    """Move labels down until they do not overlap.

    >>> _spread_labels({"a": 20.0, "b": 15.0, "c": 90.0})
    {'b': 15.0, 'a': 27.0, 'c': 90.0}
    """
    placed = dict[str, float]()
    lowest = float("-inf")
    for name, y in sorted(heights.items(), key=lambda item: item[1]):
        lowest = placed[name] = max(y, lowest + LINE)
    return placed


def _axis(places: Sequence[str], y: Number) -> Markup:
    """Draw the labels of the first and the last place."""
    ends = [("start", 0, places[0]), ("end", 100, places[-1])] if len(places) > 1 else []
    if len(places) == 1:
        ends = [("start", 0, places[0])]
    return Markup().join(
        Markup('<text class="axis {}" x="{}%" y="{}">{}</text>').format(anchor, x, y, text) for anchor, x, text in ends
    )


CELL_HEIGHT: Final = 18
NARROW_PLOT: Final = 250
"""Width of a row of cells on a phone, in pixels."""
WIDE_PLOT: Final = 1000
"""Width of a row of cells on a desktop, in pixels; a label is drawn if it fits."""
LETTER_WIDTH: Final = 7
"""Width of a letter of a cell's label, in pixels."""
MAX_OPACITY: Final = 0.55
"""Opacity of the darkest cell, on which a label in the text colour is still readable."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of the heat map; `absence` is why it may be missing, for example "gone"."""

    value: int
    absence: str = ""

    @property
    def label(self) -> str:
        """The text in the cell.

        >>> Cell(0).label, Cell(0, "gone").label, Cell(3, "gone").label
        ('0', 'gone', '3, gone')
        """
        return ", ".join(
            filter(None, [format_number(self.value) if self.value or not self.absence else "", self.absence])
        )


@dataclass(frozen=True, slots=True)
class CellRow:
    """A name and its cells, one per place."""

    name: str
    cells: Sequence[Cell]


def heat_map(
    title: str, unit: str, rows: Sequence[CellRow], places: Sequence[str], absences: Mapping[str, str]
) -> Chart:
    """Draw a row of cells for each name, darker for larger values; equal adjacent cells are merged.

    `absences` maps each kind of absence, which has its own style, to its meaning.
    """
    most = max((cell.value for row in rows for cell in row.cells), default=0) or 1
    height = len(rows) * CELL_HEIGHT

    def parts() -> Iterator[Markup]:
        yield _HATCH
        for number, row in enumerate(rows):
            yield _named(row.name, number * CELL_HEIGHT + CELL_HEIGHT - 5)
            for first, end in _runs(row.cells):
                yield _cell(row, (first, end), places, number * CELL_HEIGHT, most)
        yield _axis(places, height + AXIS - 6)

    meanings = (
        Markup('<li><span class="swatch {kind}"></span>{absence}: {meaning}</li>').format(
            kind=_class(absence), absence=absence, meaning=meaning
        )
        for absence, meaning in absences.items()
    )
    key = Markup(
        '<ul class="legend"><li>0 <span class="shade-key" aria-hidden="true"></span> {most} {unit}</li>{meanings}</ul>',
    ).format(most=format_number(most), unit=unit, meanings=Markup().join(meanings))
    return Chart(title, key + _picture(title, height + AXIS, parts(), "shades"))


_HATCH: Final = Markup(
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatch" x1="0" x2="0" y1="0" y2="6"/></pattern>',
)


def _class(absence: str) -> str:
    """Return the CSS class of an absence.

    >>> _class("not there"), _class("")
    ('not-there', '')
    """
    return absence.replace(" ", "-")


def _cell(row: CellRow, run: tuple[int, int], places: Sequence[str], y: int, most: int) -> Markup:
    """Draw equal adjacent cells as one, with the label if it fits."""
    first, end = run
    cell = row.cells[first]
    spanned = places[first] if end - first == 1 else f"{places[first]} to {places[end - 1]}"
    x, wide = _share(first, len(places)), _share(end - first, len(places))
    title = Markup("<title>{}, {}: {}</title>").format(row.name, spanned, cell.label)
    place = Markup('x="{x}%" y="{y}" width="{wide}%" height="{high}"').format(x=x, y=y, wide=wide, high=CELL_HEIGHT - 1)
    shapes = [
        Markup('<rect class="shade" {place} fill-opacity="{depth}">{title}</rect>').format(
            place=place, depth=round(0.06 + (MAX_OPACITY - 0.06) * cell.value / most, 3), title=title
        )
    ]
    if cell.absence:
        shapes = shapes if cell.value else []
        shapes.append(
            Markup('<rect class="{kind}" {place}>{title}</rect>').format(
                kind=_class(cell.absence), place=place, title=title
            )
        )
    letters = LETTER_WIDTH * (len(cell.label) + 1)
    if WIDE_PLOT * wide / 100 >= letters:
        shapes.append(
            Markup('<text class="middle value{tight}" x="{x}%" y="{y}">{label}</text>').format(
                tight="" if NARROW_PLOT * wide / 100 >= letters else " tight",
                x=round(x + wide / 2, 2),
                y=y + CELL_HEIGHT - 5,
                label=cell.label,
            )
        )
    return Markup().join(shapes)


def _runs(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Return the start and end of each run of equal values.

    >>> list(_runs([3, 3, 1]))
    [(0, 2), (2, 3)]
    """
    first = 0
    for number in range(1, len(values) + 1):
        if number == len(values) or values[number] != values[first]:
            yield first, number
            first = number


_HOURS_OF_NAME: Final = 9
_HOURS_OF_NAME_ON_A_PHONE: Final = 30
"""Hours of a week that are as wide as the name of a day."""
LEVELS: Final = 12
"""Shades of a map of hours."""
MAX_MAP_HEIGHT: Final = 720
"""Height up to which the rows of a map of hours are as high as those of a heat map, in pixels."""
MIN_ROW_HEIGHT: Final = 4
MIN_LABEL_DISTANCE: Final = 13
"""Pixels between the labels of two rows."""
MAX_TITLED_CELLS: Final = 3_000
"""Cells of a map of hours up to which each has its value as a title; of more cells each row has one."""


@dataclass(frozen=True, slots=True)
class HourRow:
    """A name and its values by hour; None is a gap."""

    name: str
    values: Sequence[float | None]


def hour_map(title: str, rows: Sequence[HourRow], hours: Sequence[datetime], shown: Shown) -> Chart:
    """Draw a row of cells for each name, a cell for each hour, darker for larger values; gaps stay blank.

    Cells of the same shade are one path, so that the map of hundreds of rows is small. Many rows are low, and not each
    has its label.
    """
    most = max((value for row in rows for value in row.values if value is not None), default=0.0)
    high = max(MIN_ROW_HEIGHT, min(CELL_HEIGHT, MAX_MAP_HEIGHT // max(len(rows), 1)))
    height = len(rows) * high
    labelled = -(-MIN_LABEL_DISTANCE // high)

    def parts() -> Iterator[Markup]:
        yield Markup(
            '<svg viewBox="0 0 {wide} {height}" preserveAspectRatio="none" width="100%" height="{height}" '
            'shape-rendering="crispEdges">'
        ).format(wide=len(hours), height=height)
        for level, path in sorted(_paths(rows, most, high).items()):
            yield Markup('<path class="shade" fill-opacity="{opacity}" d="{path}"/>').format(
                opacity=round(0.08 + 0.87 * level / LEVELS, 2), path=path
            )
        yield Markup("</svg>")
        yield from _day_marks(hours, height)
        for number, row in enumerate(rows):
            if number % labelled == 0:
                yield _named(row.name, number * high + min(high, MIN_LABEL_DISTANCE) / 2 + 4)
        yield from _titles(rows, hours, high, shown)

    key = Markup(
        '<ul class="legend"><li>0 <span class="shade-key deep" aria-hidden="true"></span> {most}</li>'
        "<li>blank: not known</li></ul>"
    ).format(most=shown(most))
    return Chart(title, key + _picture(title, height + AXIS, parts(), "hours"))


def _paths(rows: Sequence[HourRow], most: float, high: int) -> dict[int, str]:
    """Return a path of rectangles for each shade, an hour wide and a row high.

    >>> _paths([HourRow("a", [0.0, 9.0, 9.0, None])], 9.0, 5)
    {0: 'M0 0h1v4h-1z', 12: 'M1 0h2v4h-2z'}
    """
    paths: dict[int, list[str]] = {}
    for number, row in enumerate(rows):
        shades = [None if value is None else round(LEVELS * value / (most or 1.0)) for value in row.values]
        for first, end in _runs(shades):
            if (shade := shades[first]) is not None:
                wide = end - first
                paths.setdefault(shade, []).append(f"M{first} {number * high}h{wide}v{high - 1}h-{wide}z")
    return {shade: "".join(parts) for shade, parts in paths.items()}


def _day_marks(hours: Sequence[datetime], height: Number) -> Iterator[Markup]:
    """Draw a line at each midnight with the day below, where there is room; on a phone for every second day."""
    midnights = [number for number, hour in enumerate(hours) if hour.hour == 0]
    for place, number in enumerate(midnights):
        x = _share(number, len(hours))
        yield Markup('<line class="day" x1="{x}%" x2="{x}%" y1="0" y2="{end}"/>').format(x=x, end=height + 4)
        if (room := len(hours) - number) >= _HOURS_OF_NAME:
            yield Markup('<text class="axis{tight}" x="{x}%" dx="3" y="{y}">{day}</text>').format(
                tight=" tight" if place % 2 or room < _HOURS_OF_NAME_ON_A_PHONE else "",
                x=x,
                y=height + AXIS - 6,
                day=f"{hours[number]:%a %d}",
            )


def _titles(rows: Sequence[HourRow], hours: Sequence[datetime], high: int, shown: Shown) -> Iterator[Markup]:
    """Return shapes over the cells whose titles are values: the value of each cell, or the most of each row."""
    is_small = len(rows) * len(hours) <= MAX_TITLED_CELLS
    for number, row in enumerate(rows):
        values = {place: value for place, value in enumerate(row.values) if value is not None}
        if values and not is_small:
            peak = max(values, key=lambda place: (values[place], -place))
            values = {peak: values[peak]}
        for place, value in values.items():
            first, wide = (place, 1) if is_small else (0, len(hours))
            yield Markup(
                '<rect class="over" x="{x}%" y="{y}" width="{wide}%" height="{high}">'
                "<title>{name}, {most}{hour} UTC: {value}</title></rect>"
            ).format(
                x=_share(first, len(hours)),
                y=number * high,
                wide=_share(wide, len(hours)),
                high=high,
                name=row.name,
                most="" if is_small else "most at ",
                hour=f"{hours[place]:%a %Y-%m-%d %H:%M}",
                value=shown(value),
            )
