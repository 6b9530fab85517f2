"""
### Samples of load

Every five minutes, the offsets and sizes of partitions, the positions of groups and the disks of brokers are stored in
the Delta tables. Nothing is written to the cluster.

The next sample covers the time since the last one that succeeded, so a failed run leaves no gap of more than an hour.
"""

# Airflow searches for DAGs only in files that contain the word Airflow

from datetime import timedelta

from surveyor_dags import surveyor_dag
from surveyor_operators import SurveyorOperator
from surveyor_settings import clusters

for cluster in clusters():
    with surveyor_dag(
        "load_sample",
        cluster,
        description="Store a sample of offsets, sizes and groups in the Delta tables",
        schedule=timedelta(minutes=5),
        defaults={"execution_timeout": timedelta(minutes=5)},
        doc_md=__doc__,
    ):
        SurveyorOperator(task_id="sample", command=["load", "sample"])
