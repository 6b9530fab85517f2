"""
### Old snapshots go, and the pages are written

Every night: snapshots that are older than the cluster's retention go, with the files that only they needed, and small
files are joined; then each broker is asked how large its logs are, and a page about the cluster and its metrics are
written. Plans, changes and commits stay: they are the evidence of what was done. Nothing is written to the cluster.
"""

# Airflow looks for DAGs only in files that contain its name

from datetime import timedelta

from surveyor_dags import surveyor_dag
from surveyor_operators import PageOperator, SurveyorOperator
from surveyor_settings import clusters


def vacuum_and_report(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "vacuum_and_report",
        cluster,
        description="Vacuum the tables, ask for sizes, write the report and the metrics",
        schedule="@daily",
        defaults={"execution_timeout": timedelta(hours=2)},
        doc_md=__doc__,
    ):
        vacuum = SurveyorOperator(task_id="vacuum", command=["vacuum"])
        sizes = SurveyorOperator(task_id="sizes", command=["sizes"])
        report = PageOperator(task_id="report", command=["report"], page="report.html")
        metrics = PageOperator(task_id="metrics", command=["metrics"], page="surveyor.prom")
        vacuum >> sizes >> [report, metrics]


for each in clusters():
    vacuum_and_report(each)
