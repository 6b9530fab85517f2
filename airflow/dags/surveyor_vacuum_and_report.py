"""
### Delete old snapshots and write the report

Every night, snapshots older than the cluster's retention are deleted with the files that only they use, and small files
are compacted. Then the replica sizes are recorded, and the report and the metrics of the cluster are written. Plans,
changes and commits are kept for audits. Nothing is written to the cluster.
"""

# Airflow searches for DAGs only in files that contain the word Airflow

from datetime import timedelta

from surveyor_dags import surveyor_dag
from surveyor_operators import ReportOperator, SurveyorOperator
from surveyor_settings import clusters

for cluster in clusters():
    with surveyor_dag(
        "vacuum_and_report",
        cluster,
        description="Vacuum the tables, record sizes, write the report and the metrics",
        schedule="@daily",
        defaults={"execution_timeout": timedelta(hours=2)},
        doc_md=__doc__,
    ):
        vacuum = SurveyorOperator(task_id="vacuum", command=["vacuum"])
        sizes = SurveyorOperator(task_id="sizes", command=["sizes"])
        report = ReportOperator(task_id="report", command=["report"], page="report.html")
        metrics = ReportOperator(task_id="metrics", command=["metrics"], page="surveyor.prom")
        vacuum >> sizes >> [report, metrics]
