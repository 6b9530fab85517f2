"""
### New topics, and more partitions for topics

Started by hand: `create` makes a topic, or all those of a file; `expand` gives a topic more partitions. Where replicas
go is decided on the racks and brokers of a snapshot. The plan is shown in the log of `show`, and waits for approval.

**Records of a key may land in another partition after `expand`**, and partitions cannot be taken away again.
**Rejected**, or not answered within a day: nothing is written.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import carried_out_once_approved, optional, options, planned, surveyor_dag
from surveyor_settings import clusters

COMMANDS = {"create": "assign", "expand": "expand"}
SIZES = ("topic", "partitions")
OF_NEW = ("replication-factor", "topics-json-file", "brokers")

PARAMS = {
    "question": Param("create", enum=[*COMMANDS], description="A new topic, or more partitions for one."),
    "topic": optional("The topic's name."),
    "partitions": optional("How many it is to have, with those there are.", "integer", minimum=1),
    "replication-factor": optional("Of a new topic.", "integer", minimum=1),
    "config": Param([], type="array", items={"type": "string"}, description="Of a new topic: key=value, one a line."),
    "topics-json-file": optional("Many new topics, instead of one: a file on the worker."),
    "brokers": optional("Of a new topic: the brokers to use, in this order."),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Write the parameters of the run as the options of `surveyor plan assign` or `surveyor plan expand`."""
    new = params["question"] == "create"
    configs = [word for each in params["config"] for word in ("--config", each)] if new else []
    return [COMMANDS[params["question"]], *options(params, *SIZES, *(OF_NEW if new else ())), *configs]


def topics(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "topics",
        cluster,
        description="Create a topic, or give it more partitions: plan, approve, carry out, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        carried_out_once_approved(planned(question()), "{{ params.question }} topics")


for each in clusters():
    topics(each)
