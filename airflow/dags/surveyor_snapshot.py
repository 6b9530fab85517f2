"""
### Snapshots of the cluster

Every five minutes ZooKeeper is read into the Delta tables. Each snapshot is an event of the asset `surveyor_snapshot`,
which the balance of leaders waits for. Where partitions went offline since the event before, whoever took snapshots in
between, it is an event of `surveyor_offline` first, which starts the recovery.

A run that failed need not be run again: the next one sees what there is then.
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
            """Say that partitions went offline; skipped where none did since the last snapshot that was announced."""
            snapshot_id = taken["snapshot_id"]
            events = inlet_events[taken_asset].ascending(ascending=False).limit(2)
            announced = [(event.extra or {}).get("snapshot_id", 0) for event in events]
            since = max((earlier for earlier in announced if earlier < snapshot_id), default=0)
            if not newly_offline(snapshot_id, since, logging.getLogger("airflow.task"), cluster):
                raise AirflowSkipException(f"no partition went offline since snapshot {since}")
            outlet_events[offline].extra = {"snapshot_id": snapshot_id}

        @task(outlets=[taken_asset], trigger_rule="none_failed")
        def announce(taken: dict[str, Any], *, outlet_events: Any = None) -> None:
            """Say to those who plan on it which snapshot it is, once it has been looked at."""
            outlet_events[taken_asset].extra = {"snapshot_id": taken["snapshot_id"]}

        announce_offline(snapshot.output) >> announce(snapshot.output)


for each in clusters():
    snapshots(each)
