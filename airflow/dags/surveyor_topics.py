"""
### Create topics and add partitions

Start it manually. `create` creates a topic, or all topics of a file; `expand` adds partitions to a topic. Replicas are
placed by the brokers and racks of a snapshot. The plan is shown in the log of `show` and waits for approval.

**After `expand`, keys may map to other partitions**, and partitions cannot be removed again.
**If the plan is rejected**, or without a response within a day, nothing is written.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import commit_after_approval, optional, options, plan_on_snapshot, surveyor_dag
from surveyor_settings import clusters

COMMANDS = {"create": "assign", "expand": "expand"}
SIZES = ("topic", "partitions")
OF_NEW = ("replication-factor", "topics-json-file", "brokers")

PARAMS = {
    "question": Param("create", enum=[*COMMANDS], description="create: a new topic; expand: more partitions."),
    "topic": optional("Name of the topic."),
    "partitions": optional("Number of partitions afterwards, including the existing ones.", "integer", minimum=1),
    "replication-factor": optional("Replication factor of a new topic.", "integer", minimum=1),
    "config": Param(
        [], type="array", items={"type": "string"}, description="Configs of a new topic as key=value, one per line."
    ),
    "topics-json-file": optional("File on the worker with many new topics, instead of one."),
    "brokers": optional("Brokers to use for a new topic, in this order."),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Convert the parameters of the run to options of `surveyor plan assign` or `surveyor plan expand`."""
    new = params["question"] == "create"
    configs = [word for setting in params["config"] for word in ("--config", setting)] if new else []
    return [COMMANDS[params["question"]], *options(params, *SIZES, *(OF_NEW if new else ())), *configs]


for cluster in clusters():
    with surveyor_dag(
        "topics",
        cluster,
        description="Create a topic or add partitions: plan, approve, commit, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        commit_after_approval(plan_on_snapshot(question()), "{{ params.question }} topics")
