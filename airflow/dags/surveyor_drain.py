"""
### Brokers that are to be shut down lead nothing

Started by hand with the brokers' ids. The plan is shown in the log of `show`, and waits for approval; then leaders move
away, and the order of replicas keeps them away. No data moves. It lasts until `surveyor_undrain`: shut the brokers
down, do the work, start them, and undrain them.

**Rejected**, or not answered within a day: nothing is written.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import carried_out_once_approved, options, planned, surveyor_dag
from surveyor_settings import clusters

PARAMS = {
    "brokers": Param(type="string", minLength=1, description="Broker ids, by comma; several are one decision."),
    "allow_offline": Param(
        default=False, type="boolean", description="Plan although partitions go offline when the brokers stop."
    ),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Write the parameters of the run as the options of `surveyor plan drain`."""
    return ["drain", *options(params, "brokers"), *(["--allow-offline"] if params["allow_offline"] else [])]


def drain(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "drain",
        cluster,
        description="Move leaders off brokers before they are shut down: plan, approve, carry out, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        carried_out_once_approved(planned(question()), "drain brokers {{ params.brokers }}", ["--wait"])


for each in clusters():
    drain(each)
