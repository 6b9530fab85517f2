"""The pages of the dashboard: cluster, brokers, load, leader history, plans and commits."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import pyarrow as pa
import streamlit as st
from markupsafe import Markup

from jobs.core.arrow_rows import values_of
from jobs.repositories.log_sizes import stored_volume
from jobs.repositories.plan_change_counts import count_changes
from jobs.sql_views.database import structs_of
from jobs.sql_views.views import BrokerLeadership, ClusterSummary
from jobs.web.cluster_page import broker_name, health_facts
from jobs.web.dashboard.cache import (
    SnapshotRef,
    commit,
    fleet_rows,
    partitions_on,
    plan,
    plans_and_commits,
    sections,
    views,
)
from jobs.web.dashboard.cache import load as load_of
from jobs.web.dashboard.components import cards, charts, plain_text, table
from jobs.web.fleet_page import fleet_facts, fleet_table
from jobs.web.plan_page import (
    brokers_section,
    changes_table,
    figures_of_page,
    operations_table,
    parameters_text,
    rejections_table,
    sums_of,
    warnings_of,
)
from jobs.web.render import Fact, alarming, fact


def cluster(place: SnapshotRef, _: float) -> None:
    """Show the health of the cluster and its history."""
    cards(health_facts(structs_of(ClusterSummary, views(place)["health"])[0]))
    parts = sections(place)
    charts(*parts["brokers"]["charts"])
    if parts["brokers"]["cut"]:
        st.caption(f"The charts show the {parts['brokers']['cut']} brokers that lead most.")
    if parts["imbalance"]["chart"]:
        charts(parts["imbalance"]["chart"])
    st.subheader("Offline and under-replicated partitions")
    table(parts["trouble"], "unhealthy partitions", "trouble")


def brokers(place: SnapshotRef, _: float) -> None:
    """Show a broker and its partitions."""
    rows = structs_of(BrokerLeadership, views(place)["leadership"])
    if not rows:
        st.info("This snapshot has no broker.")
        return
    by_id = {row.broker_id: row for row in rows}
    broker = st.selectbox("Broker", list(by_id), format_func=lambda number: broker_name(by_id[number]), key="broker")
    row = by_id[broker]
    st.text(f"host {row.host or 'unknown'}, rack {row.rack or 'none'}{'' if row.registered else ', gone'}")
    cards(
        [
            Fact("registered", "yes" if row.registered else "no, gone", "good" if row.registered else "bad"),
            fact("leaders", row.leaders),
            fact("preferred", row.preferred),
            fact("replicas", row.replicas),
            alarming("out of sync", row.out_of_sync, "warn"),
        ]
    )
    table(partitions_on(place, broker), f"partitions of broker {broker}", f"broker-{broker}")


def load(place: SnapshotRef, _: float) -> None:
    """Show the load of brokers by hour, and the hottest partitions."""
    page = load_of(place)
    if page is None:
        st.info("No load is known before this time. Run `surveyor load sample --every 5m` and `surveyor load rollup`.")
        return
    st.text(page.about)
    cards(page.facts)
    for note in page.notes:
        st.warning(plain_text(note))
    for drawn in page.maps:
        charts(drawn.chart)
        if drawn.cut:
            st.caption(drawn.cut)
    table(page.brokers.rows, "brokers", "load-brokers")
    table(page.partitions.rows, "hottest partitions", "load-partitions")


def leaders(place: SnapshotRef, _: float) -> None:
    """Show the leader history."""
    history = sections(place)["leaders"]
    if history["chart"]:
        charts(history["chart"])
    if history["cut"]:
        st.caption(history["cut"])
    table(history["table"].rows, "leaders of partitions", "leaders")


def plans(place: SnapshotRef, max_age_hours: float) -> None:
    """Show the plans, and the details of one of them."""
    listed = plans_and_commits(place)["plans"]
    table(listed, "plans", "plans")
    if listed.num_rows:
        names = dict(values_of(listed, "plan", "names"))
        chosen = st.selectbox(
            "Plan", list(names), format_func=lambda plan_id: f"{plan_id} {names[plan_id]}", key="plan"
        )
        _plan(place, chosen, max_age_hours)


def _plan(place: SnapshotRef, plan_id: str, max_age_hours: float) -> None:
    chosen = plan(place.uri, place.cluster, plan_id)
    st.subheader(plain_text(f"Plan {chosen.row.title}: {chosen.row.kind}, {chosen.row.status}"))
    for warning in warnings_of(chosen, datetime.now(UTC), max_age_hours):
        st.warning(plain_text(warning))
    copied = stored_volume(chosen.summaries.warehouse, chosen.changes)
    cards(sums_of(chosen, count_changes(chosen.changes), copied, None))
    figures = figures_of_page(chosen.row, copied, None)
    for rows_shown in ([span._asdict() for span in figures.spans], figures.waves):
        if rows_shown:
            st.dataframe(pa.Table.from_pylist(rows_shown), hide_index=True, width="content")
    for note in figures.notes:
        st.text(note)
    st.caption("Command and parameters")
    if chosen.row.command:
        st.code(chosen.row.command, language="shell")
    st.code(parameters_text(chosen.row.parameters), language="json")
    changed = brokers_section(chosen)
    for note in changed["notes"]:
        st.caption(note)
    charts(*changed["charts"])
    table(changed["table"].rows, "brokers", f"brokers-{plan_id}")
    table(changes_table(chosen).rows, "changes", f"changes-{plan_id}")
    for island in (operations_table(chosen), rejections_table(chosen)):
        if island.total:
            table(island.rows, island.name, f"{island.name}-{plan_id}")


def commits(place: SnapshotRef, _: float) -> None:
    """Show the commits, and the rows of one of them."""
    listed = plans_and_commits(place)["commits"]
    table(listed, "commits", "commits")
    if listed.num_rows:
        attempts = list(values_of(listed, "plan", "attempt"))
        plan_id, attempt = st.selectbox("Commit", attempts, format_func=lambda one: f"{one[0]}, attempt {one[1]}")
        rows = commit(place.uri, place.cluster, plan_id, attempt)
        table(rows, "rows of this commit", f"commit-{plan_id}-{attempt}")


def fleet(uri: str) -> None:
    """Show the newest snapshots of all clusters, the worst first, with a link to the page of each."""
    rows = fleet_rows(uri)
    cards(fleet_facts(rows))
    st.html(_TABLE + fleet_table(rows, datetime.now(UTC), lambda name: f"?{urlencode({'cluster': name})}"))


_TABLE: Final = Markup("""<style>
.fleet { border-collapse: collapse; font-size: .9rem; }
.fleet th, .fleet td { padding: .25rem .7rem; border-bottom: 1px solid rgba(128, 128, 128, .35); text-align: left; }
.fleet .number { text-align: right; font-variant-numeric: tabular-nums; }
.fleet .bad { color: #e5484d; font-weight: 600; } .fleet .warn { color: #d29922; font-weight: 600; }
</style>""")

FLEET: Final = "Fleet"
"""The page of all clusters, which a warehouse of several has."""

CLUSTER: Final = "Cluster"

PAGES: Final[Mapping[str, Callable[[SnapshotRef, float], None]]] = {
    CLUSTER: cluster,
    "Brokers": brokers,
    "Load": load,
    "Leader history": leaders,
    "Plans": plans,
    "Commits": commits,
}
"""The pages by title; each is shown for a cluster at a snapshot."""
