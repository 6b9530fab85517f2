"""Hooks of mkdocs.yml: links that leave docs/ become text, and diagrams are drawn only if Mermaid is installed.

The site is offline, so it has no address to which a link to a source file could lead. Without `mermaid.min.js` (see
`make site`) the theme would load it from a CDN, so a diagram is then shown as its source.
"""

import re
from pathlib import Path
from typing import Any, Final

MERMAID: Final = Path(__file__).parents[2] / "build" / "scripts" / "mermaid.min.js"
"""Where `make site` puts it."""


def without_links_outside(markdown: str, path: str) -> str:
    """Return a page in which links to files outside docs/ are text.

    >>> without_links_outside("[the README](../README.md), [modes](modes.md)", "safety.md")
    'the README, [modes](modes.md)'
    >>> without_links_outside("[modes](../modes.md), [a test](../../tests/a.py)", "decisions/004-two-modes.md")
    '[modes](../modes.md), a test'
    """
    depth = path.count("/") + 1
    outside = re.compile(rf"\[([^\]]+)\]\((?:\.\./){{{depth}}}[^)]*\)")
    return outside.sub(r"\1", markdown)


def on_config(config: Any) -> Any:  # noqa: ANN401 - MkDocs is not installed where the types are checked
    """Show diagrams as text if Mermaid is missing."""
    if not MERMAID.is_file():
        config.extra_javascript.clear()
        config.mdx_configs["pymdownx.superfences"] = {}
    return config


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 - as above
    """Drop links that leave docs/."""
    return without_links_outside(markdown, str(page.file.src_uri))
