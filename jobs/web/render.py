"""Renders pages from templates: self-contained HTML files with style, script and data, without external resources.

All data from a cluster is escaped: text by the templates, SVG by Markup, rows by `embedded_table`. In addition, the
content security policy allows only the one script with the given hash and loads nothing else.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jobs.core.units import format_age
from jobs.web.charts import Chart, format_number
from schemas.rows import Row, Snapshot

_PACKAGE: Final = "jobs.web"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure of the page; `mood` is good, warn, bad or empty."""

    name: str
    value: str
    mood: str = ""


def fact(name: str, value: int | None, mood: str = "") -> Fact:
    """Return a count, which has a mood only if it is not 0."""
    return Fact(name, "unknown" if value is None else format_number(value), mood if value else "")


def alarming(name: str, value: int, mood: str) -> Fact:
    """Return a count that should be 0, which has the mood good if it is 0."""
    return Fact(name, format_number(value), mood if value else "good")


def shown_time(time: datetime | None) -> str:
    """Format a time in UTC."""
    return "" if time is None else time.astimezone(UTC).strftime(_TIME)


def snapshot_header(cluster: str, snapshot: Snapshot, now: datetime, *, is_deleted: bool = False) -> Row:
    """Return cluster, snapshot id, time and age; time and age are empty if the snapshot was deleted."""
    known = {"cluster": cluster, "cluster_id": snapshot.cluster_id, "snapshot_id": snapshot.snapshot_id}
    if is_deleted:
        return {**known, "taken_at": "", "iso": "", "age": "", "made_at": shown_time(now)}
    age = format_age(snapshot.taken_at, now)
    iso = snapshot.taken_at.astimezone(UTC).isoformat()
    return {**known, "taken_at": shown_time(snapshot.taken_at), "iso": iso, "age": age, "made_at": shown_time(now)}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["number"] = format_number
    return environment


def _own(file: str) -> str:
    return files(_PACKAGE).joinpath("templates", file).read_text(encoding="utf-8")


def render_part(template: str, **shown: Any) -> Markup:  # noqa: ANN401 - the variables of the template
    """Render a part of a page, which escapes its texts."""
    return Markup(_environment().get_template(template).render(**shown))  # noqa: S704 - escaped by the template


def framed_charts(charts: Sequence[Chart]) -> Markup:
    """Render charts for a frame, in colours that are readable on light and dark pages."""
    return render_part("charts.html", style=Markup(_own("style.css")), charts=charts)  # noqa: S704 - a file of ours


def render(template: str, **shown: Any) -> str:  # noqa: ANN401 - the variables of the template
    """Render a page; raise UndefinedError if a variable of the template is missing."""
    script = _own("tables.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(_own("style.css")),  # noqa: S704 - a file of ours
            script=Markup(script),  # noqa: S704 - a file of ours
            script_source=Markup(f"'sha256-{digest}'"),  # noqa: S704 - made here
            **shown,
        )
    )
