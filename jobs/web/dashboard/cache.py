"""Cached reads of the dashboard, so that an interaction does not read the tables again.

Rows of a snapshot never change and are cached by its id. Growing data, such as plans and commits, is read again after
some seconds. Arrow tables are immutable, so all sessions share them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.settings import CapacityConf, ClusterConf, Settings
from jobs.sql_views.database import Summaries
from jobs.web.cluster_page import (
    brokers_section,
    commits,
    imbalance_section,
    leaders_section,
    plans,
    unhealthy_partitions,
)
from jobs.web.embedded_table import masked_column
from jobs.web.fleet_page import FleetRow, HealthAtSnapshot, newest_health, rows_of
from jobs.web.load_page import LoadPage, load_page
from jobs.web.plan_page import PlanTables
from jobs.web.snapshot_views import summaries, until_of

CACHE_SECONDS: Final = 5
"""Lifetime of cached data that can grow."""
LOAD_CACHE_SECONDS: Final = 60
"""Lifetime of cached loads, which change every hour."""
CACHED_SNAPSHOTS: Final = 12
"""Snapshots in the cache."""
CACHED_CLUSTERS: Final = 1_000
"""Clusters whose health is in the cache."""
ROWS_SHOWN: Final = 1_000
"""Rows of a table shown at once; a search finds the others."""


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """One snapshot of one cluster in a warehouse."""

    uri: str
    cluster: str
    snapshot_id: int
    capacity: str = "{}"
    """Section `capacity` of the configuration file, as JSON."""

    @property
    def settings(self) -> Settings:
        conf = ClusterConf(capacity=msgspec.json.decode(self.capacity, type=CapacityConf))
        return Settings(self.cluster, self.uri, conf)

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.uri, self.cluster)

    @property
    def summaries(self) -> Summaries:
        """The views at the snapshot."""
        return summaries(self.warehouse, find_snapshot(self.warehouse, self.snapshot_id))


@st.cache_resource(ttl=CACHE_SECONDS, show_spinner=False)
def clusters(uri: str) -> list[str]:
    """Return the names of the clusters of a warehouse."""
    return Warehouse(uri, "").clusters()


@st.cache_resource(ttl=CACHE_SECONDS, show_spinner=False)
def fleet_rows(uri: str) -> list[FleetRow]:
    """Return the rows of the page of all clusters, the worst first."""
    warehouses = [Warehouse(uri, name) for name in clusters(uri)]
    return rows_of(warehouses, lambda one: _health(SnapshotRef(uri, one.cluster, find_snapshot(one).snapshot_id)))


@st.cache_resource(max_entries=CACHED_CLUSTERS, show_spinner=False)
def _health(place: SnapshotRef) -> HealthAtSnapshot:
    """Return the health of a cluster at a snapshot, which takes seconds for a million partitions."""
    warehouse = place.warehouse
    return newest_health(warehouse, find_snapshot(warehouse, place.snapshot_id), ClusterConf().imbalance_threshold)


@st.cache_resource(ttl=CACHE_SECONDS, show_spinner=False)
def snapshots(uri: str, cluster: str) -> pa.Table:
    """Return snapshot_id, taken_at and cluster_id of the snapshots of a cluster, the oldest first."""
    columns = ["snapshot_id", "taken_at", "cluster_id"]
    return Warehouse(uri, cluster).read("snapshots", columns=columns).sort_by("snapshot_id")


@st.cache_resource(max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def views(place: SnapshotRef) -> dict[str, pa.Table]:
    """Return views of health and brokers, which depend on the snapshot only; rows as in `jobs.sql_views`."""
    at = place.summaries
    return {name: at.table(name) for name in ("health", "leadership")}


@st.cache_resource(max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def partitions_on(place: SnapshotRef, broker: int) -> pa.Table:
    """Return the partitions of a broker, with its role in each."""
    return place.summaries.query(
        f"""
        SELECT
            named(topic, partition) AS partition,
            CASE WHEN leader = {broker} THEN 'leads' WHEN list_contains(isr, {broker}) THEN 'in sync'
                 ELSE 'out of sync' END AS part,
            partition_state || if(is_deleting, ', being deleted', '') AS state,
            led_by(leader) AS leader, listed(replicas) AS replicas, listed(isr) AS isr
        FROM partition_health WHERE list_contains(replicas, {broker}) OR leader = {broker}
        ORDER BY topic, partition_health.partition
        """,  # noqa: S608 - a number
        "partition_health",
    )


@st.cache_resource(max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def sections(place: SnapshotRef) -> dict[str, Any]:
    """Return charts and tables as in the report: brokers, imbalance, leader history and unhealthy partitions."""
    at = place.summaries
    return {
        "brokers": brokers_section(at),
        "imbalance": imbalance_section(at),
        "leaders": leaders_section(at),
        "trouble": unhealthy_partitions(at).rows,
    }


@st.cache_resource(ttl=LOAD_CACHE_SECONDS, max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def load(place: SnapshotRef) -> LoadPage | None:
    """Return the load of a cluster in the last hour before the next snapshot; in the newest one for the newest."""
    snapshot = find_snapshot(place.warehouse, place.snapshot_id)
    return load_page(place.settings, snapshot, datetime.now(UTC), until_of(place.warehouse, snapshot))


@st.cache_resource(ttl=CACHE_SECONDS, max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def plans_and_commits(place: SnapshotRef) -> dict[str, pa.Table]:
    """Return the plans and commits of a cluster up to a snapshot; up to now for the newest."""
    at = place.summaries
    return {"plans": plans(at).rows, "commits": commits(at).rows}


@st.cache_resource(ttl=CACHE_SECONDS, max_entries=CACHED_SNAPSHOTS, show_spinner=False)
def commit(uri: str, cluster: str, plan_id: str, attempt: int) -> pa.Table:
    """Return the outcome of each row in one commit of a plan, with secrets in messages masked."""
    warehouse = Warehouse(uri, cluster)
    at = Summaries(warehouse, find_snapshot(warehouse), {"commits": ("plan_id", "=", plan_id)})
    rows = at.query(f"SELECT * FROM commit_rows WHERE attempt = {attempt}", "commit_rows")  # noqa: S608 - a number
    columns = ["committed_at", "action", "topic", "partition", "outcome", "state_version_after", "message"]
    return masked_column(rows.select(columns), "message")


@st.cache_resource(ttl=60, max_entries=4, show_spinner=False)
def plan(uri: str, cluster: str, plan_id: str) -> PlanTables:
    """Return a plan, verified against its id."""
    return PlanTables.read(Warehouse(uri, cluster), plan_id)


def search_rows(rows: pa.Table, words: str) -> pa.Table:
    """Keep the rows that contain every word in some column, ignoring case."""
    for word in words.split():
        columns = [pc.match_substring(column.cast(pa.string()), word, ignore_case=True) for column in rows.columns]
        matches = columns[0]
        for column in columns[1:]:
            matches = pc.or_kleene(matches, column)
        rows = rows.filter(pc.fill_null(matches, False))  # noqa: FBT003 - Arrow's
    return rows
