"""What `make bench` prints: tables for people, Markdown for bench/figures.md, or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from bench.figures import Cost, Figure, growths
from jobs.runtime.console import format_cell, table
from schemas.rows import Row


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of a run."""

    machine: Mapping[str, Any]
    figures: Sequence[Figure]
    costs: Sequence[Cost]
    failed: Sequence[str] = ()
    """What could not be measured."""

    @property
    def tables(self) -> dict[str, list[Row]]:
        """Rows by title; a table without any is left out."""
        tables = {
            "ratios: below 1 is quicker than the baseline": [figure.row for figure in self.figures],
            "what a snapshot costs": [cost.row for cost in self.costs],
            "cost per partition at two sizes: above 1 it grows": growths(self.costs),
        }
        return {title: list(map(_for_people, rows)) for title, rows in tables.items() if rows}

    @property
    def missed(self) -> list[str]:
        ratios = [figure.measured for figure in self.figures if figure.met is False]
        grown = [f"µs/partition of {row['snapshot']}" for row in growths(self.costs) if not row["met"]]
        return [*ratios, *grown, *(f"{name} (not measured)" for name in self.failed)]

    @property
    def verdict(self) -> str:
        return (
            "\n".join([f"TARGETS MISSED: {len(self.missed)}", *self.missed])
            if self.missed
            else "All targets in these tables met."
        )

    @property
    def where(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.machine.items())

    def show(self) -> None:
        # wider than most terminals: rather wrapped there than cut off
        console = Console(width=180, highlight=False)
        for title, rows in self.tables.items():
            console.print(table(title, list(rows[0]), rows), "")
        console.print(self.where, self.verdict, sep="\n", markup=False, soft_wrap=True)

    def markdown(self) -> str:
        tables = (f"**{title}**\n\n{_markdown(rows)}" for title, rows in self.tables.items())
        return "\n\n".join([self.where, *tables, self.verdict.replace("\n", "\n- ")])

    def json(self) -> str:
        rows = {
            "figures": [figure.row for figure in self.figures],
            "costs": [cost.row for cost in self.costs],
            "growth": growths(self.costs),
        }
        tables = {name: list(map(_for_programs, section)) for name, section in rows.items()}
        content = {"machine": _for_programs(self.machine), **tables, "missed": self.missed}
        return json.dumps(content)


def _for_people(row: Row) -> Row:
    target = row.get("target")
    return row if target is None else {**row, "target": f"≤ {target:g}"}


def _for_programs(row: Mapping[str, Any]) -> Row:
    return {name.replace("µs/", "microseconds per ").replace(" ", "_"): value for name, value in row.items()}


def _markdown(rows: Sequence[Row]) -> str:
    columns = list(rows[0])
    rules = ["---:" if _numeric(rows, column) else "---" for column in columns]
    cells = [[format_cell(row[column]) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rules, *cells))


def _numeric(rows: Sequence[Row], column: str) -> bool:
    return all(isinstance(row[column], int | float | None) and not isinstance(row[column], bool) for row in rows)
