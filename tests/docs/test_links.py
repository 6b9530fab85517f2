"""Links between the pages lead somewhere: the file is there, and so is the heading."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.markdown import ROOT, anchors, links, pages


def _broken(page: Path, link: str) -> str | None:
    """Say what a link lacks, None where it leads somewhere; pages of others are not asked."""
    if "://" in link:
        return None
    file, _, anchor = unquote(link).partition("#")
    target = page if not file else page.parent / file
    if not target.exists():
        return f"{link}: there is no {file}"
    if anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
        return f"{link}: no heading of {target.name} has that anchor"
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = (_broken(page, link) for link in links(page.read_text(encoding="utf-8")))
    assert [reason for reason in broken if reason is not None] == []


@pytest.mark.parametrize(
    ("index", "folder"),
    [("README.md", "docs"), ("docs/index.md", "docs"), ("docs/decisions/index.md", "docs/decisions")],
)
def test_an_index_links_to_every_page(index: str, folder: str) -> None:
    file = ROOT / index
    linked = {(file.parent / link.partition("#")[0]).resolve() for link in links(file.read_text(encoding="utf-8"))}
    assert set(ROOT.joinpath(folder).glob("*.md")) - linked - {file} == set()


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    page = ROOT / "docs" / "commands.md"
    assert _broken(page, "nosuch.md") == "nosuch.md: there is no nosuch.md"
    assert _broken(page, "#nosuch") == "#nosuch: no heading of commands.md has that anchor"
    assert _broken(page, "../README.md") is None
