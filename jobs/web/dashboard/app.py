"""The script that Streamlit runs for each session of the dashboard, and again at each interaction.

It lets the user select a cluster, a snapshot and a page, and shows the page from `pages`. Its arguments are
`--warehouse`, `--cluster`, `--max-plan-age-hours` and `--capacity`, after `--`. The capacities are those that the
configuration file states for the cluster.
"""

import argparse
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import streamlit as st

from jobs.adapters.delta.warehouse import decode_rows
from jobs.core.errors import SurveyorError
from jobs.core.units import format_age
from jobs.web.dashboard.cache import SnapshotRef, clusters, snapshots
from jobs.web.dashboard.components import plain_text
from jobs.web.dashboard.pages import CLUSTER, FLEET, PAGES, fleet
from jobs.web.render import shown_time
from schemas.rows import Snapshot

# Keys of the session state: the number on the slider, the same in the box, and the cluster and its newest snapshot at
# the last run.
SLIDER: Final = "snapshot"
BOX: Final = "snapshot number"
NEWEST: Final = "newest"

# The parameter of the address with the cluster that a link leads to.
LINKED: Final = "cluster"


def main(words: Sequence[str] | None = None) -> None:
    """Show the selected page; `words` are the arguments, None for those of the process."""
    arguments = _arguments(words)
    st.set_page_config(page_title="Surveyor", layout="wide")
    try:
        _show(arguments)
    except SurveyorError as error:
        st.error(plain_text(error))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--max-plan-age-hours", type=float, required=True)
    parser.add_argument("--capacity", default="{}")
    return parser.parse_args(words)


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
    st.title(plain_text(f"Cluster {cluster}" if page == CLUSTER else f"{page} - cluster {cluster}"))
    age = format_age(snapshot.taken_at)
    cluster_id = f" (id {snapshot.cluster_id})" if snapshot.cluster_id else ""
    st.text(f"snapshot {snapshot.snapshot_id}{cluster_id} taken {shown_time(snapshot.taken_at)} UTC, {age} old")
    capacity = arguments.capacity if cluster == arguments.cluster else "{}"
    place = SnapshotRef(arguments.warehouse, cluster, snapshot.snapshot_id, capacity)
    PAGES[page](place, arguments.max_plan_age_hours)


def _chosen(cluster: str, taken: pa.Table) -> Snapshot:
    """Return the snapshot selected by the slider or in the box, by default the newest; a single one has neither.

    The browser receives the first and the last number only, because a year may have 100,000 snapshots. A number without
    a snapshot selects the last one before it.
    """
    numbers = taken["snapshot_id"].to_numpy()
    first, newest = int(numbers[0]), int(numbers[-1])
    selected = _follow(cluster, first, newest)
    if first < newest:
        st.slider("Snapshot", first, newest, key=SLIDER, on_change=_copy, args=(SLIDER, BOX))
        st.number_input("Snapshot number", first, newest, key=BOX, on_change=_copy, args=(BOX, SLIDER))
    place = int(np.searchsorted(numbers, selected, side="right")) - 1
    return decode_rows(Snapshot, taken.slice(place, 1))[0]


def _follow(cluster: str, first: int, newest: int) -> int:
    """Move the slider to the newest snapshot, unless the user selected an older one of this cluster; return the number.

    A number that stays is set again, because a slider with another end would lose it.
    """
    state = st.session_state
    last_cluster, last_newest = state.get(NEWEST, (None, None))
    selected: int = state.get(SLIDER, newest)
    if last_cluster != cluster or not first <= selected <= newest or selected == last_newest:
        selected = newest
    state[SLIDER] = state[BOX] = selected
    state[NEWEST] = cluster, newest
    return selected


def _copy(source: str, target: str) -> None:
    """Give one of the two inputs the number of the other."""
    st.session_state[target] = st.session_state[source]


if __name__ == "__main__":
    main()
