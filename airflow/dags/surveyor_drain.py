"""
### Move leadership off brokers before a shutdown

Start it manually with the brokers' ids. The plan is shown in the log of `show` and waits for approval. Then leaders
move to other brokers, and the replica order keeps them there. No data moves. The brokers stay drained until
`surveyor_undrain`: shut them down, do the work, start them, and undrain them.

**If it is rejected**, or without a response within a day, nothing is written.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import commit_after_approval, options, plan_on_snapshot, surveyor_dag
from surveyor_settings import clusters

PARAMS = {
    "brokers": Param(type="string", minLength=1, description="Comma-separated broker ids, planned together."),
    "allow_offline": Param(
        default=False, type="boolean", description="Plan even if partitions go offline when the brokers stop."
    ),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Convert the parameters of the run to options of `surveyor plan drain`."""
    return ["drain", *options(params, "brokers"), *(["--allow-offline"] if params["allow_offline"] else [])]


for cluster in clusters():
    with surveyor_dag(
        "drain",
        cluster,
        description="Move leaders off brokers before they are shut down: plan, approve, commit, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        commit_after_approval(plan_on_snapshot(question()), "drain brokers {{ params.brokers }}", ["--wait"])
