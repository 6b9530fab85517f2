"""Shell completion of clusters, plans, topics, brokers and snapshots from the warehouse, without a JVM.

A missing or unreadable warehouse completes to nothing and without a message, because pressing Tab must not print
errors.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import typer

from schemas.rows import PlanRecord

if TYPE_CHECKING:
    from jobs.adapters.delta.warehouse import Warehouse
    from jobs.runtime.settings import Conf

Completed = list[tuple[str, str]]
"""Names, each with the help text that a shell may show."""

Completer = Callable[[typer.Context, str], Completed]

_MAX_OFFERED: Final = 50
"""Maximum number of plans or snapshots, the newest ones."""


def clusters(ctx: typer.Context, incomplete: str) -> Completed:
    """Complete clusters of the --conf file and of the warehouse."""

    def known(conf: "Conf", warehouse: "Warehouse") -> Iterable[tuple[str, str]]:
        stored = warehouse.clusters() if warehouse.exists() else []
        return [(name, "") for name in sorted({*conf.clusters, *stored})]

    return _completed(ctx, incomplete, known)


def plans(ctx: typer.Context, incomplete: str) -> Completed:
    """Complete plans by alias, or by id if they have none, the newest first."""

    def known(_: "Conf", warehouse: "Warehouse") -> Iterable[tuple[str, str]]:
        rows = sorted(warehouse.typed_rows(PlanRecord), key=attrgetter("created_at"), reverse=True)[:_MAX_OFFERED]
        for row in rows:
            for name in row.all_names or [row.plan_id]:
                yield name, f"{row.kind}, {row.status}"

    return _completed(ctx, incomplete, known)


def topics(ctx: typer.Context, incomplete: str) -> Completed:
    """Complete topics of the latest snapshot."""

    def known(_: "Conf", warehouse: "Warehouse") -> Iterable[tuple[str, str]]:
        return [(name, "") for name in sorted(warehouse.read("topics", columns=["topic"])["topic"].to_pylist())]

    return _completed(ctx, incomplete, known)


def brokers(ctx: typer.Context, incomplete: str) -> Completed:
    """Complete brokers of the latest snapshot, including unregistered preferred leaders."""

    def known(_: "Conf", warehouse: "Warehouse") -> Iterable[tuple[str, str]]:
        at = ("snapshot_id", "=", max(warehouse.read("snapshots", columns=["snapshot_id"])["snapshot_id"].to_pylist()))
        preferred = warehouse.read("imbalance", at, columns=["broker_id"])["broker_id"].to_pylist()
        stored = warehouse.read("brokers", columns=["broker_id", "host"])
        hosts = (host or "" for host in stored["host"].to_pylist())
        live = dict(zip(stored["broker_id"].to_pylist(), hosts, strict=True))
        return [(str(broker), live.get(broker, "gone")) for broker in sorted({*live, *preferred})]

    return _completed(ctx, incomplete, known)


def snapshots(ctx: typer.Context, incomplete: str) -> Completed:
    """Complete snapshots, with their time in UTC, the newest first."""

    def known(_: "Conf", warehouse: "Warehouse") -> Iterable[tuple[str, str]]:
        taken = warehouse.read("snapshots", columns=["snapshot_id", "taken_at"]).sort_by(
            [("snapshot_id", "descending")]
        )
        newest = taken.slice(0, _MAX_OFFERED)
        times = [f"{taken_at:%F %T}" for taken_at in newest["taken_at"].to_pylist()]
        return list(zip(map(str, newest["snapshot_id"].to_pylist()), times, strict=True))

    return _completed(ctx, incomplete, known)


def comma_separated(one: Completer) -> Completer:
    """Complete the last of several comma-separated names, and offer no name twice."""

    def complete(ctx: typer.Context, incomplete: str) -> Completed:
        before, comma, last = incomplete.rpartition(",")
        return [(before + comma + name, text) for name, text in one(ctx, last) if name not in before.split(",")]

    return complete


def _completed(
    ctx: typer.Context, incomplete: str, candidates: Callable[["Conf", "Warehouse"], Iterable[tuple[str, str]]]
) -> Completed:
    with suppress(Exception):
        return [(name, text) for name, text in candidates(*_where(ctx)) if name.startswith(incomplete)]
    return []


def _where(ctx: typer.Context) -> tuple["Conf", "Warehouse"]:
    """Return the conf, and the warehouse of the cluster on the command line."""
    from jobs.runtime.lazy_commands import spare_pandas  # noqa: PLC0415 - only needed for completion

    spare_pandas()
    from jobs.adapters.delta.warehouse import Warehouse  # noqa: PLC0415 - as above
    from jobs.runtime.settings import DEFAULT_WAREHOUSE, Sources, load_conf  # noqa: PLC0415 - as above
    from jobs.runtime.suggestions import typed_options  # noqa: PLC0415 - as above

    given = ctx.params
    conf = load_conf(given.get("conf_path"))
    sources = Sources(typed_options(ctx), given.get("conf_path"))
    folder = sources.prefer("warehouse", given.get("warehouse"), conf.warehouse, notify=lambda _: None)
    return conf, Warehouse(folder or DEFAULT_WAREHOUSE, given.get("cluster") or "default")
