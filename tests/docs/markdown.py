"""Markdown: written for the generated pages, and read for the tests of all pages.

What is read is what GitHub would see: code blocks, links, headings and their anchors.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[2]
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


def pages() -> list[Path]:
    """Return every page that people read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code(text: str) -> str:
    return f"`{text}`"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Write a table; a bar within a cell would end it.

    >>> print(table(["a", "b"], [["1|2", ""]]))
    | a | b |
    |---|---|
    | 1\|2 | |
    """
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in escaped)


def code_blocks(text: str) -> Iterator[str]:
    """Yield the text of each block of code, fenced or indented; a picture is none."""
    for token in _MARKDOWN.parse(text):
        if token.type in {"fence", "code_block"} and token.info != "mermaid":
            yield token.content


def code_spans(text: str) -> Iterator[str]:
    """Yield code within sentences and tables."""
    return (token.content for token in _inline(text) if token.type == "code_inline")


def links(text: str) -> Iterator[str]:
    """Yield where links lead."""
    return (str(token.attrs["href"]) for token in _inline(text) if token.type == "link_open")


def anchors(text: str) -> set[str]:
    r"""Return the anchors of the headings, as GitHub makes them.

    >>> sorted(anchors("# A `plan`, twice\n\n## Again\n\n## Again"))
    ['a-plan-twice', 'again', 'again-1']
    """
    tokens = _MARKDOWN.parse(text)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    counts: Counter[str] = Counter()
    unique = set()
    for title in titles:
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        unique.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
        counts[anchor] += 1
    return unique


def _inline(text: str) -> Iterator[Token]:
    for token in _MARKDOWN.parse(text):
        yield from token.children or ()
