"""The views as docs/pages.md shows them, read from the files that pages run."""

from collections.abc import Iterator

from jobs.sql_views.views import VIEWS, View
from tests.docs.markdown import code


def views_page() -> str:
    """Show every view: what it reads, and its query."""
    return "\n\n".join(part for view in VIEWS.values() for part in _view(view))


def _view(view: View) -> Iterator[str]:
    yield f"### {view.name}"
    yield f"Reads {', '.join(map(code, [*view.reads, *view.views]))}."
    yield f"```sql\n{view.sql.strip()}\n```"
