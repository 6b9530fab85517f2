"""
### Snapshots of the cluster

Every five minutes ZooKeeper is read into the Delta tables. Each snapshot is an event of the asset `surveyor_snapshot`,
which the balance of leaders waits for. One that shows partitions offline which the snapshot before did not is an event
of `surveyor_offline`, too, which starts the recovery.

A run that failed need not be run again: the next one sees what there is then.
"""

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowSkipException
from surveyor_dags import DEFAULTS, OFFLINE, SNAPSHOT, START
from surveyor_operators import SubmitOperator, newly_offline
from surveyor_settings import SNAPSHOT_POOL

with DAG(
    "surveyor_snapshot",
    description="Read the cluster from ZooKeeper into the Delta tables",
    schedule=timedelta(minutes=5),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args={**DEFAULTS, "execution_timeout": timedelta(minutes=30)},
    doc_md=__doc__,
    tags=["kafka", "surveyor"],
):
    snapshot = SubmitOperator(task_id="snapshot", job="snapshot", pool=SNAPSHOT_POOL)

    @task(outlets=[SNAPSHOT])
    def announce(taken: dict[str, Any], *, outlet_events: Any = None) -> None:
        """Say to those who plan on it which snapshot it is."""
        outlet_events[SNAPSHOT].extra = {"snapshot_id": taken["snapshot_id"]}

    @task(outlets=[OFFLINE])
    def announce_offline(taken: dict[str, Any], *, outlet_events: Any = None) -> None:
        """Say that partitions went offline; skipped where none did."""
        snapshot_id = taken["snapshot_id"]
        if not newly_offline(snapshot_id, logging.getLogger("airflow.task")):
            raise AirflowSkipException("no partition went offline since the snapshot before")
        outlet_events[OFFLINE].extra = {"snapshot_id": snapshot_id}

    announce(snapshot.output)
    announce_offline(snapshot.output)
