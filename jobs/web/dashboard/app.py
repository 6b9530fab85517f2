"""The script that Streamlit runs for each session of the dashboard, and again at each interaction.

It lets the user select a cluster, a snapshot and a page, and shows the page from `sections`. Its arguments are
`--warehouse`, `--cluster` and `--max-plan-age-hours`, after `--`.
"""

import argparse
import sys
from datetime import UTC, datetime
from typing import Final

import streamlit as st

from jobs.core.errors import SurveyorError
from jobs.core.units import format_duration
from jobs.web.dashboard.cache import SnapshotRef, clusters, snapshots
from jobs.web.dashboard.parts import plain
from jobs.web.dashboard.sections import CLUSTER, FLEET, PAGES, fleet
from jobs.web.render import shown_time
from schemas.rows import Snapshot

# Keys of the session state: the position of the slider, and the cluster and its newest snapshot at the last run.
SLIDER: Final = "snapshot"
NEWEST: Final = "newest"

# The parameter of the address with the cluster that a link leads to.
LINKED: Final = "cluster"


def main() -> None:
    """Show the selected page."""
    arguments = _arguments()
    st.set_page_config(page_title="Surveyor", layout="wide")
    try:
        _show(arguments)
    except SurveyorError as error:
        st.error(plain(error))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--max-plan-age-hours", type=float, required=True)
    return parser.parse_args(sys.argv[1:])


def _show(arguments: argparse.Namespace) -> None:
    names = clusters(arguments.warehouse)
    with st.sidebar:
        linked = [name for name in (st.query_params.get(LINKED), arguments.cluster) if name in names]
        cluster = st.selectbox("Cluster", names, index=names.index(linked[0]) if linked else 0, key="cluster")
        page = st.radio("Page", [*PAGES, *([FLEET] if len(names) > 1 else [])], key="page")
        snapshot = _chosen(cluster, snapshots(arguments.warehouse, cluster))
    if page == FLEET:
        st.set_page_config(page_title=f"{page} - Surveyor")
        st.title(page)
        fleet(arguments.warehouse)
        return
    st.set_page_config(page_title=f"{page}, {cluster} - Surveyor")
    st.title(plain(f"Cluster {cluster}" if page == CLUSTER else f"{page} - cluster {cluster}"))
    age = format_duration(max((datetime.now(UTC) - snapshot.taken_at).total_seconds(), 0))
    cluster_id = f" (id {snapshot.cluster_id})" if snapshot.cluster_id else ""
    st.text(f"snapshot {snapshot.snapshot_id}{cluster_id} taken {shown_time(snapshot.taken_at)} UTC, {age} old")
    PAGES[page](SnapshotRef(arguments.warehouse, cluster, snapshot.snapshot_id), arguments.max_plan_age_hours)


def _chosen(cluster: str, taken: list[Snapshot]) -> Snapshot:
    """Return the snapshot selected by the slider, by default the newest; a single snapshot has no slider."""
    by_id = {row.snapshot_id: row for row in taken}
    _follow(cluster, list(by_id))
    return by_id[st.select_slider("Snapshot", list(by_id), key=SLIDER)] if len(by_id) > 1 else taken[0]


def _follow(cluster: str, numbers: list[int]) -> None:
    """Move the slider to the newest snapshot, unless the user selected an older one of this cluster."""
    state = st.session_state
    last_cluster, newest = state.get(NEWEST, (None, None))
    if last_cluster != cluster or state.get(SLIDER) not in numbers or state[SLIDER] == newest:
        state[SLIDER] = numbers[-1]
    state[NEWEST] = cluster, numbers[-1]


if __name__ == "__main__":
    main()
