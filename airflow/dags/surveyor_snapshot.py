"""
### Snapshots of the cluster

Every five minutes a snapshot is stored in the Delta tables. Each snapshot is an event of the asset `surveyor_snapshot`,
which triggers `surveyor_leader_balance`. If partitions went offline since the previous event, the snapshot is first an
event of `surveyor_offline`, which triggers `surveyor_recover`. Manual snapshots in between do not affect this.

With several clusters, one run takes the snapshots of all of them: its tasks are mapped over the clusters. If a task of
one cluster fails, the tasks of the others continue, and each cluster has its own assets. As many snapshots are taken at
once as the pool `surveyor_fleet` has slots.

A failed run need not be repeated, because the next run reads the current state.
"""

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import AssetAlias, task, task_group
from airflow.sdk.exceptions import AirflowSkipException
from surveyor_dags import offline_asset, snapshot_asset, surveyor_dag
from surveyor_operators import SubmitOperator, newly_offline
from surveyor_settings import FLEET_POOL, SNAPSHOT_POOL, clusters

CLUSTERS = clusters()

TAKEN = AssetAlias("surveyor_snapshots")
"""Stands for the assets of new snapshots, because the cluster of a mapped task is known when it runs."""

OFFLINE = AssetAlias("surveyor_offlines")
"""Stands for the assets of newly offline partitions."""


@task(outlets=[OFFLINE], inlets=[snapshot_asset(name) for name in CLUSTERS])
def announce_offline(
    taken: dict[str, Any], cluster: str | None, *, inlet_events: Any = None, outlet_events: Any = None
) -> None:
    """Emit an event of newly offline partitions; skip if there are none since the last announced snapshot."""
    snapshot_id = taken["snapshot_id"]
    events = inlet_events[snapshot_asset(cluster)].ascending(ascending=False).limit(2)
    announced = [(event.extra or {}).get("snapshot_id", 0) for event in events]
    since = max((earlier for earlier in announced if earlier < snapshot_id), default=0)
    if not newly_offline(snapshot_id, since, logging.getLogger("airflow.task"), cluster):
        raise AirflowSkipException(f"no partition went offline since snapshot {since}")
    outlet_events[OFFLINE].add(offline_asset(cluster), extra={"snapshot_id": snapshot_id})


@task(outlets=[TAKEN], trigger_rule="none_failed")
def announce(taken: dict[str, Any], cluster: str | None, *, outlet_events: Any = None) -> None:
    """Emit the snapshot event for the DAGs that plan on it, after offline partitions were announced."""
    outlet_events[TAKEN].add(snapshot_asset(cluster), extra={"snapshot_id": taken["snapshot_id"]})


def snapshot_of(cluster: Any, pool: str) -> None:
    """Define the tasks of a cluster."""
    snapshot = SubmitOperator(task_id="snapshot", job="snapshot", cluster=cluster, pool=pool)
    announce_offline(snapshot.output, cluster) >> announce(snapshot.output, cluster)


@task_group
def of_cluster(cluster: str) -> None:
    """Define the tasks of one of several clusters, which are mapped over them."""
    snapshot_of(cluster, FLEET_POOL)


with surveyor_dag(
    "snapshot",
    None,
    description="Store a snapshot of each cluster's metadata in the Delta tables",
    schedule=timedelta(minutes=5),
    defaults={"execution_timeout": timedelta(minutes=30)},
    doc_md=__doc__,
):
    if CLUSTERS == (None,):
        snapshot_of(None, SNAPSHOT_POOL)
    else:
        of_cluster.expand(cluster=list(CLUSTERS))
