"""The id of a plan once more in plain Python, for the ids that Spark and Arrow make: object by object."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas.plan_digest import HASHED, LINE_END, SEPARATOR, cell, plan_id_of

Row = Mapping[str, Any]
Line = tuple[str, str]
"""A topic and the text of one of its rows."""


def lines(table: str, rows: Iterable[Row]) -> Iterator[Line]:
    """Return the line of each row of a table, with its topic."""
    columns = HASHED[table]
    return ((cell(row["topic"]), SEPARATOR.join(cell(row[column]) for column in columns)) for row in rows)


def by_topic(lined: Iterable[Line]) -> Iterator[tuple[str, str]]:
    """Each topic with the text of its rows: their lines, sorted."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for topic, line in lined:
        grouped[topic].append(line)
    return ((topic, LINE_END.join(sorted(its))) for topic, its in grouped.items())


def plan_id(header: str, tables: Mapping[str, Iterable[Row]]) -> str:
    """Return the id of a plan: 16 hexadecimal digits."""
    return plan_id_of(header, {table: by_topic(lines(table, rows)) for table, rows in tables.items()})
