"""
### Return leadership to drained brokers

Start it manually with the brokers' ids after the brokers have been started. The replica order from before the drain is
restored, and preferred leaders are elected. The plan is shown in the log of `show` and waits for approval.

**If it is rejected**, or without a response within a day, nothing is written, and the brokers stay drained.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import commit_after_approval, options, plan_on_snapshot, surveyor_dag
from surveyor_settings import clusters

PARAMS = {"brokers": Param(type="string", minLength=1, description="Comma-separated broker ids, planned together.")}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Convert the parameters of the run to options of `surveyor plan undrain`."""
    return ["undrain", *options(params, "brokers")]


for cluster in clusters():
    with surveyor_dag(
        "undrain",
        cluster,
        description="Undrain brokers: plan, approve, commit, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        commit_after_approval(plan_on_snapshot(question()), "undrain brokers {{ params.brokers }}", ["--wait"])
