"""The report of a cluster: health, leaders, replicas and load by broker, their history, plans and commits.

Every section is built from the views in `jobs.sql_views` at one snapshot. The what-if rows are those stored by
`surveyor whatif`. The result is rendered by the template `cluster.html`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from shlex import quote
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from msgspec import Struct

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.core.arrow_rows import as_rows, values_of
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries, structs_of
from jobs.sql_views.views import BrokerLeadership, ClusterSummary, RecordedLeadership
from jobs.web.charts import Cell, CellRow, Group, bars, heat_map, lines, percent
from jobs.web.embedded_table import EmbeddedTable, masked_column
from jobs.web.load_page import load_page
from jobs.web.render import Fact, alarming, fact, render, snapshot_header
from schemas.enums import NO_CONTROLLER, FailureScenario
from schemas.rows import LossImpact

BROKERS_DRAWN: Final = 100
"""Brokers in a chart."""
SNAPSHOTS_DRAWN: Final = 90
"""Snapshots in a chart over time, the newest ones."""
IMBALANCE_LISTED: Final = 200
"""Snapshots whose imbalance is listed, the newest ones."""
WORST: Final = 10
"""What-if rows for each kind of loss."""

_NO_RACK: Final = "(no rack)"
_UNKNOWN_RACK: Final = "(unknown)"
"""Shown as the rack of an unregistered broker whose last registration is not known, or had no rack."""


class PlacedBroker(Protocol):
    """A broker of a chart."""

    @property
    def broker_id(self) -> int: ...

    @property
    def rack(self) -> str | None:
        """None if it has none or if it is not known."""

    @property
    def registered(self) -> bool: ...


B = TypeVar("B", bound=PlacedBroker)


def cluster_page(settings: Settings, summaries: Summaries, now: datetime) -> str:
    """Return the page as HTML."""
    return render(
        "cluster.html",
        about=snapshot_header(summaries.warehouse.cluster, summaries.snapshot, now),
        health=health_facts(summaries.typed_rows(ClusterSummary)[0]),
        brokers=brokers_section(summaries),
        imbalance=imbalance_section(summaries),
        load=load_page(settings, summaries.snapshot, now, summaries.until),
        leaders=leaders_section(summaries),
        trouble=unhealthy_partitions(summaries),
        plans=plans(summaries),
        commits=commits(summaries),
        is_cut=bool(summaries.only),
        whatif=_whatif(summaries),
    )


def health_facts(summary: ClusterSummary) -> list[Fact]:
    controller = summary.controller_id
    known = "unknown" if controller is None else "none" if controller == NO_CONTROLLER else f"broker {controller}"
    return [
        alarming("partitions offline", summary.offline, "bad"),
        alarming("under min ISR", summary.under_min_isr, "bad"),
        alarming("under-replicated", summary.under_replicated, "warn"),
        alarming("brokers gone with replicas", summary.brokers_gone, "bad"),
        alarming("in quarantine", summary.quarantined or 0, "warn"),
        Fact("controller", known, "" if controller not in {None, NO_CONTROLLER} else "bad"),
        fact("partitions not led by the preferred replica", summary.not_led_by_preferred, "warn"),
        fact("partitions being reassigned", summary.reassigning),
        fact("brokers registered", summary.brokers),
        fact("racks", summary.racks),
        fact("topics", summary.topics),
        *([fact("topics being deleted", summary.deleting_topics)] if summary.deleting_topics else []),
        fact("partitions", summary.partitions),
        *([Fact("sign of a KRaft migration", summary.migration, "warn")] if summary.migration else []),
    ]


def brokers_section(summaries: Summaries) -> dict[str, Any]:
    """Return the charts and the table of the leaders and replicas of brokers and racks."""
    brokers = summaries.typed_rows(BrokerLeadership)
    shown = sorted(brokers, key=attrgetter("leaders", "replicas"), reverse=True)[:BROKERS_DRAWN]
    groups = [Group(broker_name(row), led_and_held(row)) for row in sorted(shown, key=attrgetter("broker_id"))]
    table = summaries.query(
        "SELECT broker_id::VARCHAR AS broker, coalesce(rack, '') AS rack, coalesce(host, '') AS host, "
        "yes_or_no(registered) AS registered, leaders, preferred, replicas, out_of_sync FROM leadership",
        "leadership",
    )
    series = ("partitions led", "replicas held")
    return {
        "charts": [
            bars("Partitions led and replicas held, by broker", series, groups),
            bars("Partitions led and replicas held, by rack", series, by_rack(brokers, led_and_held)),
        ],
        "table": EmbeddedTable("brokers", "Brokers", table, brokers=("broker",), choices=("rack", "registered")),
        "cut": len(shown) if len(shown) < len(brokers) else 0,
    }


def led_and_held(row: BrokerLeadership) -> tuple[int, int]:
    """Return the numbers of partitions that a broker leads and holds a replica of."""
    return row.leaders, row.replicas


def by_rack(brokers: Iterable[B], counts: Callable[[B], Sequence[int]]) -> list[Group]:
    """Sum the counts of brokers by rack; brokers without a rack form one group."""
    sums: dict[str, list[int]] = {}
    for broker in brokers:
        name = broker.rack or (_NO_RACK if broker.registered else _UNKNOWN_RACK)
        values = counts(broker)
        sums[name] = [total + value for total, value in zip(sums.get(name, [0] * len(values)), values, strict=True)]
    return [Group(name, values) for name, values in sorted(sums.items())]


def broker_name(broker: PlacedBroker) -> str:
    """Return the name of a broker, marked as gone if it is not registered, as in `status`."""
    return f"broker {broker.broker_id}{'' if broker.registered else ' (gone)'}"


class OverallImbalance(Struct, frozen=True, kw_only=True):
    """The leader imbalance of all brokers in one snapshot, and the worst broker's imbalance."""

    snapshot_id: int
    taken_at: datetime
    overall: float | None
    worst: float | None
    threshold: float | None


def imbalance_section(summaries: Summaries) -> dict[str, Any]:
    """Return the chart and the table of the leader imbalance over time."""
    by_snapshot = structs_of(
        OverallImbalance,
        summaries.query(
            "SELECT snapshot_id, taken_at, sum(not_led) / sum(preferred_partitions) AS overall, max(ratio) AS worst, "
            "max(threshold) AS threshold FROM imbalance_history GROUP BY ALL ORDER BY snapshot_id",
            "imbalance_history",
        ),
    )
    overall = by_snapshot[-SNAPSHOTS_DRAWN:]
    table = summaries.query(
        """
        SELECT
            snapshot_id AS snapshot, at_second(taken_at) AS taken_at, broker_id::VARCHAR AS broker,
            preferred_partitions, not_led, ratio, yes_or_no(exceeds) AS exceeds
        FROM imbalance_history ORDER BY snapshot_id DESC, imbalance_history.ratio DESC, broker_id
        """,
        "imbalance_history",
    )
    listed = f" of the newest {IMBALANCE_LISTED} snapshots" if len(by_snapshot) == IMBALANCE_LISTED else ""
    caption = f"Imbalance by snapshot and broker{listed}"
    series = {
        "whole cluster": [row.overall for row in overall],
        "worst broker": [row.worst for row in overall],
        "threshold": [row.threshold for row in overall],
    }
    places = [_place(row) for row in overall]
    drawn = {name: values for name, values in series.items() if any(value is not None for value in values)}
    return {
        "chart": lines("Share of partitions not led by their preferred replica", places, drawn, percent)
        if places
        else None,
        "table": EmbeddedTable("imbalance", caption, table, ("broker",), ("exceeds",)),
    }


def _place(row: OverallImbalance | RecordedLeadership) -> str:
    return f"#{row.snapshot_id} {row.taken_at:%Y-%m-%d %H:%M} UTC"


ABSENCES: Final = {"gone": "was registered before", "not there": "was not registered yet"}
"""Values of `presence` in the view `leaders_over_time` for unregistered brokers, and their meaning."""


def leaders_section(summaries: Summaries) -> dict[str, Any]:
    """Return the chart of the leaders of brokers over time, and the table of those of partitions."""
    recorded = structs_of(RecordedLeadership, summaries.newest_rows(RecordedLeadership.VIEW, SNAPSHOTS_DRAWN))
    newest = {row.snapshot_id: _place(row) for row in recorded}
    taken = summaries.query("SELECT count(*) AS taken FROM snapshots")["taken"][0].as_py()
    cells: dict[int, list[Cell]] = defaultdict(list)
    for row in recorded:
        cells[row.broker_id].append(Cell(row.leaders, row.presence if row.presence in ABSENCES else ""))
    most = sorted(cells, key=lambda broker: (-max(cell.value for cell in cells[broker]), broker))[:BROKERS_DRAWN]
    rows = [CellRow(f"broker {broker}", cells[broker]) for broker in sorted(most)]
    left_out = [
        f"the newest {len(newest)} of {taken} snapshots" if len(newest) < taken else "",
        f"the {len(most)} of {len(cells)} brokers that led most" if len(most) < len(cells) else "",
    ]
    cut = " and ".join(filter(None, left_out))
    return {
        "chart": heat_map(
            "Partitions led, by broker and snapshot", "partitions led", rows, list(newest.values()), ABSENCES
        )
        if rows
        else None,
        "cut": f"The chart shows {cut}." if cut else "",
        "table": _leaders_over_time(summaries),
    }


def _leaders_over_time(summaries: Summaries) -> EmbeddedTable:
    """Return the leaders of each partition over time, the newest change first."""
    rows = summaries.query(
        """
        SELECT
            named(topic, partition) AS partition, led_by(leader) AS leader,
            if(changed, led_by(leader_before), '') AS before,
            from_snapshot, if(from_at IS NULL, 'dropped by vacuum', at_second(from_at)) AS from_time,
            until_snapshot, if(until_snapshot IS NULL, 'still', at_second(until_at)) AS until_time,
            if(changed, 'change', 'first seen') AS seen
        FROM leader_history
        """,
        "leader_history",
    )
    more = "`surveyor show history --topic TOPIC` shows all of a topic"
    return EmbeddedTable("leaders", "Leaders of each partition", rows, ("leader", "before"), ("seen",), more)


def unhealthy_partitions(summaries: Summaries) -> EmbeddedTable:
    rows = summaries.query(
        """
        SELECT
            named(topic, partition) AS partition, partition_state AS state, led_by(leader) AS leader,
            listed(replicas) AS replicas, listed(isr) AS isr, listed(missing) AS not_in_sync,
            listed(offline_replicas) AS on_brokers_gone, yes_or_no(under_min_isr) AS under_min_isr
        FROM under_replicated
        """,
        "under_replicated",
    )
    brokers = ("leader", "replicas", "isr", "not_in_sync", "on_brokers_gone")
    more = "`surveyor show partitions --topic TOPIC` shows a topic's"
    return EmbeddedTable("trouble", "Unhealthy partitions", rows, brokers, ("state", "under_min_isr"), more)


def plans(summaries: Summaries) -> EmbeddedTable:
    rows = summaries.query(
        """
        SELECT
            plan_id AS plan, array_to_string(names, ', ') AS names, kind,
            status || if(complete, ', complete', '') AS status,
            at_second(created_at) AS planned_at, snapshot_id AS snapshot,
            plan_summary.changes, operations, moves, rejected, attempts AS commits,
            coalesce(why, '') || if(reasons > 1, ' (and ' || (reasons - 1) || ' other reasons)', '') AS why
        FROM plan_summary
        """,
        "plan_summary",
    )
    more = "`surveyor show plans` shows all"
    return EmbeddedTable("plans", "Plans, the newest first", rows, choices=("kind", "status"), more=more)


def commits(summaries: Summaries) -> EmbeddedTable:
    """Return the commits of the view, the newest first, with secrets in messages masked."""
    rows = summaries.query(
        """
        SELECT
            plan_id AS plan, attempt, kind || coalesce(' of ' || plan_kind, '') AS kind, outcome,
            at_second(ended_at) AS ended_at, applied, stale, fenced, failed, unknown, skipped, pending,
            changes, array_to_string(names, ', ') AS names, who, at_second(began_at) AS began_at, message AS last_word
        FROM commit_log
        """,
        "commit_log",
    )
    shown = masked_column(rows, "last_word")
    title = "Commits and cancellations, the newest first"
    return EmbeddedTable("commits", title, shown, choices=("plan", "kind", "outcome"))


_WHATIF: Final = (
    "scenario",
    "newly_offline",
    "offline",
    "unclean_only",
    "no_replica",
    "newly_under_min_isr",
    "under_min_isr",
    "leaders_moved",
    "max_leaders",
    "most_leaders_on",
    "leader_skew",
)


def _whatif(summaries: Summaries) -> dict[str, Any]:
    """Return the worst rows of each kind of loss, at this snapshot or at the last one simulated before it."""
    number = summaries.snapshot.snapshot_id
    simulated_on = _newest_simulations(summaries.warehouse, number)
    result: dict[str, Any] = {"not_asked": [], "tables": []}
    for lose in FailureScenario:
        newest = simulated_on.get(lose.value)
        if newest is None:
            command = f"surveyor whatif --cluster {quote(summaries.warehouse.cluster)} --lose {lose.value}"
            result["not_asked"].append({"lose": lose.value, "command": command})
            continue
        rows = summaries.warehouse.read("whatif", ("snapshot_id", "=", newest), ("lose", "=", lose.value))
        simulated = decode_rows(LossImpact, rows)
        worst = sorted(range(len(simulated)), key=lambda place: _severity(simulated[place]))[:WORST]
        when = "" if newest == number else f", on snapshot {newest}"
        caption = f"Losing {lose.value}: the worst {len(worst)} of {len(simulated)}{when}"
        result["tables"].append(_losses(lose, rows.take(worst), caption))
    return result


def _newest_simulations(warehouse: Warehouse, until: int) -> dict[str, int]:
    """Return the newest snapshot up to `until` on which each kind of loss was simulated."""
    if not warehouse.has("whatif"):
        return {}
    rows = warehouse.read("whatif", ("snapshot_id", "<=", until), columns=["snapshot_id", "lose"])
    return dict(values_of(rows.group_by("lose").aggregate([("snapshot_id", "max")]), "lose", "snapshot_id_max"))


def _severity(impact: LossImpact) -> tuple[object, ...]:
    """Return the sort key by which the worst loss is first."""
    costs = (impact.newly_offline, impact.offline, impact.under_min_isr, impact.leader_skew or 0)
    return *(-cost for cost in costs), impact.lost


def _losses(lose: FailureScenario, rows: pa.Table, caption: str) -> EmbeddedTable:
    """Return the table of losses; columns that an older version did not have are empty."""
    table = pa.Table.from_pylist(as_rows(rows), schema=schema_of("whatif")).select(list(_WHATIF))
    return EmbeddedTable(f"whatif-{lose.name.lower()}", caption, table, brokers=())
