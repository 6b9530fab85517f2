"""Pages that are partly generated: `make docs` writes the part between their marks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.docs.command_line import commands_page
from tests.docs.markdown import ROOT
from tests.docs.tables_page import tables_page

BEGIN, END = "<!-- begin: make docs -->", "<!-- end: make docs -->"

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "tables.md": tables_page,
}


def path_of(page: str) -> Path:
    return ROOT / "docs" / page


def renewed(page: str) -> str:
    """Return a page with its generated part as the code now makes it."""
    before, begin, rest = path_of(page).read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/{page} has no part between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{GENERATED[page]()}\n\n{END}{after}"
