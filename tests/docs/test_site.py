"""mkdocs.yml has every page in its navigation, and loads nothing from elsewhere."""

import re
from typing import Final

from tests.docs.markdown import ROOT

CONFIG: Final = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_navigation_has_every_page() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"([\w/-]+\.md)$", CONFIG.partition("\nnav:")[2], re.MULTILINE)) == pages


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert "://" not in CONFIG
