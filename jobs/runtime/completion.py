"""Names that a shell completes: clusters, plans and topics, as the tables have them. No JVM, and never a message.

In: what stands on the command line already, the environment included, and how the name begins. What is not there, or
cannot be read, completes to nothing: whoever presses Tab is not to be told what is wrong with a warehouse.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from jobs.adapters.delta.lake import Lake
    from jobs.runtime.settings import Conf

Completed = list[tuple[str, str]]
"""Names, each with what a shell may show beside it."""

_PLANS_OFFERED: Final = 50


def clusters(ctx: typer.Context, incomplete: str) -> Completed:
    """Clusters of the --conf file and of the warehouse."""

    def known(conf: "Conf", lake: "Lake") -> Iterable[tuple[str, str]]:
        seen = lake.clusters() if lake.exists() else []
        return [(name, "") for name in sorted({*conf.clusters, *seen})]

    return _completed(ctx, incomplete, known)


def plans(ctx: typer.Context, incomplete: str) -> Completed:
    """Plans by their names, those without one by their ids, the newest first."""

    def known(_: "Conf", lake: "Lake") -> Iterable[tuple[str, str]]:
        rows = sorted(lake.rows("plans"), key=lambda row: row["created_at"], reverse=True)[:_PLANS_OFFERED]
        for row in rows:
            for name in row.get("names") or [row["name"] or row["plan_id"]]:
                yield name, f"{row['kind']}, {row['status']}"

    return _completed(ctx, incomplete, known)


def topics(ctx: typer.Context, incomplete: str) -> Completed:
    """Topics of the last snapshot."""

    def known(_: "Conf", lake: "Lake") -> Iterable[tuple[str, str]]:
        return [(name, "") for name in sorted(lake.read("topics", columns=["topic"])["topic"].to_pylist())]

    return _completed(ctx, incomplete, known)


def _completed(
    ctx: typer.Context, incomplete: str, known: Callable[["Conf", "Lake"], Iterable[tuple[str, str]]]
) -> Completed:
    with suppress(Exception):
        return [(name, text) for name, text in known(*_where(ctx.params)) if name.startswith(incomplete)]
    return []


def _where(typed: dict[str, Any]) -> tuple["Conf", "Lake"]:
    """The conf, and the tables of the cluster that the command line names."""
    from jobs.runtime.lazy_commands import spare_pandas  # noqa: PLC0415 - only who presses Tab needs all this

    spare_pandas()
    from jobs.adapters.delta.lake import Lake  # noqa: PLC0415 - as above
    from jobs.runtime.settings import DEFAULT_WAREHOUSE, load_conf  # noqa: PLC0415 - as above

    conf = load_conf(typed.get("conf_path"))
    folder = typed.get("warehouse") or conf.warehouse or DEFAULT_WAREHOUSE
    return conf, Lake(folder, typed.get("cluster") or "default")
