"""
### What keeps the tables in order

Every night: snapshots that are older than the cluster's retention go, with the files that only they needed, and small
files are joined; then each broker is asked how large its logs are, and a page about the cluster and its metrics are
written. Plans, changes and commits stay: they are the evidence of what was done.
"""

from datetime import timedelta

from airflow.sdk import DAG
from surveyor_dags import DEFAULTS, START
from surveyor_operators import PageOperator, SurveyorOperator

with DAG(
    "surveyor_maintenance",
    description="Vacuum the tables, ask for sizes, write the report and the metrics",
    schedule="@daily",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args={**DEFAULTS, "execution_timeout": timedelta(hours=2)},
    doc_md=__doc__,
    tags=["kafka", "surveyor"],
):
    vacuum = SurveyorOperator(task_id="vacuum", command=["vacuum"])
    sizes = SurveyorOperator(task_id="sizes", command=["sizes"])
    report = PageOperator(task_id="report", command=["report"], page="report.html")
    metrics = PageOperator(task_id="metrics", command=["metrics"], page="surveyor.prom")

    vacuum >> sizes >> [report, metrics]
