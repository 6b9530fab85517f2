"""
### Drained brokers lead again

Started by hand with the brokers' ids, once they are back: the order of replicas becomes what it was before the drain,
and leaders follow. The plan is shown in the log of `show`, and waits for approval.

**Rejected**, or not answered within a day: nothing is written, and the brokers stay drained.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import carried_out_once_approved, options, planned, surveyor_dag
from surveyor_settings import clusters

PARAMS = {"brokers": Param(type="string", minLength=1, description="Broker ids, by comma; several are one decision.")}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Write the parameters of the run as the options of `surveyor plan undrain`."""
    return ["undrain", *options(params, "brokers")]


def undrain(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "undrain",
        cluster,
        description="Let drained brokers lead again: plan, approve, carry out, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        carried_out_once_approved(planned(question()), "undrain brokers {{ params.brokers }}", ["--wait"])


for each in clusters():
    undrain(each)
