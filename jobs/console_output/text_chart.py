"""Charts as text, of characters that every terminal has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

COLUMNS: Final = 64
ROWS: Final = 8

MARKS: Final = "o*"
"""One for each series; later ones cover earlier ones."""

Point = tuple[float, float]


def text_chart(series: Mapping[str, Sequence[Point]], ends: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a chart of points (x, y), of each column the highest; `ends` label the least and most x.

    >>> before, after = [(0, 1.0), (5, 1.5), (10, 1.2)], [(0, 1.0), (5, 1.1), (10, 1.1)]
    >>> for line in text_chart({"before": before, "after": after}, ("Mon", "Sun")):
    ...     print(line)
    1.50 |                                o
         |
         |
         |
         |                                                               o
         |
         |                                *                              *
    1.00 |*
          Mon                                                          Sun
          o before  * after
    """
    points = [point for some in series.values() for point in some]
    if not points:
        return
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points, strict=True))
    rows = [[" "] * COLUMNS for _ in range(ROWS)]
    for mark, some in zip(MARKS, series.values(), strict=False):
        highest: dict[int, int] = {}
        for x, y in some:
            column = _place(x, left, right, COLUMNS)
            highest[column] = max(_place(y, low, high, ROWS), highest.get(column, 0))
        for column, row in highest.items():
            rows[-1 - row][column] = mark
    labels = [f"{high:.2f}", *[""] * (ROWS - 2), f"{low:.2f}"]
    margin = max(map(len, labels))
    for label, cells in zip(labels, rows, strict=True):
        yield f"{label:>{margin}} |{''.join(cells)}".rstrip()
    indent = " " * (margin + 2)
    yield f"{indent}{ends[0]}{ends[1]:>{COLUMNS - len(ends[0])}}"
    yield indent + "  ".join(f"{mark} {name}" for mark, name in zip(MARKS, series, strict=False))


def _place(value: float, least: float, most: float, places: int) -> int:
    """Return the place of a value among some that span from `least` to `most`.

    >>> _place(1.5, 1, 2, 5), _place(3, 3, 3, 5)
    (2, 0)
    """
    return round((value - least) / (most - least) * (places - 1)) if most > least else 0
