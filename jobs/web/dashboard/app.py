"""The script that Streamlit runs for whoever opens the dashboard, and again with each click.

In: `--warehouse`, `--cluster` and `--max-plan-age-hours`, after `--`. It chooses a cluster, a snapshot and a page, and
shows what `sections` has for them.
"""

import argparse
import sys
from datetime import UTC, datetime
from typing import Final

import streamlit as st

from jobs.adapters.delta.warehouse import Row
from jobs.core.errors import SurveyorError
from jobs.core.units import format_duration
from jobs.web.dashboard.cache import SnapshotRef, clusters, snapshots
from jobs.web.dashboard.parts import plain
from jobs.web.dashboard.sections import CLUSTER, PAGES
from jobs.web.render import shown_time

# Keys of what Streamlit keeps for a visitor: where the slider stands, and the cluster and snapshot newest before.
SLIDER: Final = "snapshot"
NEWEST: Final = "newest"


def main() -> None:
    """Show the page that is chosen."""
    told = _told()
    st.set_page_config(page_title="Surveyor", layout="wide")
    try:
        _show(told)
    except SurveyorError as error:
        st.error(plain(error))


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--max-plan-age-hours", type=float, required=True)
    return parser.parse_args(sys.argv[1:])


def _show(told: argparse.Namespace) -> None:
    known = clusters(told.warehouse)
    with st.sidebar:
        first = known.index(told.cluster) if told.cluster in known else 0
        cluster = st.selectbox("Cluster", known, index=first, key="cluster")
        page = st.radio("Page", list(PAGES), key="page")
        snapshot = _chosen(cluster, snapshots(told.warehouse, cluster))
    st.set_page_config(page_title=f"{page}, {cluster} - Surveyor")
    st.title(plain(f"Cluster {cluster}" if page == CLUSTER else f"{page} - cluster {cluster}"))
    age = format_duration(max((datetime.now(UTC) - snapshot["taken_at"]).total_seconds(), 0))
    known_id = f" (id {snapshot['cluster_id']})" if snapshot["cluster_id"] else ""
    st.text(f"snapshot {snapshot['snapshot_id']}{known_id} taken {shown_time(snapshot['taken_at'])} UTC, {age} old")
    PAGES[page](SnapshotRef(told.warehouse, cluster, snapshot["snapshot_id"]), told.max_plan_age_hours)


def _chosen(cluster: str, taken: list[Row]) -> Row:
    """Slide through history; the newest unless somebody slides. One snapshot leaves nothing to choose."""
    by_id = {row["snapshot_id"]: row for row in taken}
    _follow(cluster, list(by_id))
    return by_id[st.select_slider("Snapshot", list(by_id), key=SLIDER)] if len(by_id) > 1 else taken[0]


def _follow(cluster: str, numbers: list[int]) -> None:
    """Put the slider on the newest snapshot where it stood on the newest before, of another cluster, or on none."""
    kept = st.session_state
    here, newest = kept.get(NEWEST, (None, None))
    if here != cluster or kept.get(SLIDER) not in numbers or kept[SLIDER] == newest:
        kept[SLIDER] = numbers[-1]
    kept[NEWEST] = cluster, numbers[-1]


if __name__ == "__main__":
    main()
