"""
### Snapshots of the cluster

Every five minutes a snapshot is stored in the Delta tables. Each snapshot is an event of the asset `surveyor_snapshot`,
which triggers `surveyor_leader_balance`. If partitions went offline since the previous event, the snapshot is first an
event of `surveyor_offline`, which triggers `surveyor_recover`. Manual snapshots in between do not affect this.

A failed run need not be repeated, because the next run reads the current state.
"""

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowSkipException
from surveyor_dags import offline_asset, snapshot_asset, surveyor_dag
from surveyor_operators import SubmitOperator, newly_offline
from surveyor_settings import SNAPSHOT_POOL, clusters, of_cluster


def snapshots(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    taken_asset, offline = snapshot_asset(cluster), offline_asset(cluster)
    with surveyor_dag(
        "snapshot",
        cluster,
        description="Store a snapshot of the cluster's ZooKeeper metadata in the Delta tables",
        schedule=timedelta(minutes=5),
        defaults={"execution_timeout": timedelta(minutes=30)},
        doc_md=__doc__,
    ):
        snapshot = SubmitOperator(task_id="snapshot", job="snapshot", pool=of_cluster(SNAPSHOT_POOL, cluster))

        @task(outlets=[offline], inlets=[taken_asset])
        def announce_offline(taken: dict[str, Any], *, inlet_events: Any = None, outlet_events: Any = None) -> None:
            """Emit an event of newly offline partitions; skip if there are none since the last announced snapshot."""
            snapshot_id = taken["snapshot_id"]
            events = inlet_events[taken_asset].ascending(ascending=False).limit(2)
            announced = [(event.extra or {}).get("snapshot_id", 0) for event in events]
            since = max((earlier for earlier in announced if earlier < snapshot_id), default=0)
            if not newly_offline(snapshot_id, since, logging.getLogger("airflow.task"), cluster):
                raise AirflowSkipException(f"no partition went offline since snapshot {since}")
            outlet_events[offline].extra = {"snapshot_id": snapshot_id}

        @task(outlets=[taken_asset], trigger_rule="none_failed")
        def announce(taken: dict[str, Any], *, outlet_events: Any = None) -> None:
            """Emit the snapshot event for the DAGs that plan on it, after offline partitions were announced."""
            outlet_events[taken_asset].extra = {"snapshot_id": taken["snapshot_id"]}

        announce_offline(snapshot.output) >> announce(snapshot.output)


for name in clusters():
    snapshots(name)
