"""
### Moving replicas

Started by hand, with a question: which one, its value, what limits it. The plan is shown in the log of `show`, and
waits for somebody to approve it. Then it is carried out wave by wave and waited for to the end.

- **Rejected**, or not answered within a day: nothing is written to the cluster. The plan stays in the tables; start a
  new run for another question.
- **A task failed, or its worker died**: clear it. The commit goes on where it was; nothing is asked for twice.
- **The commit failed for good**: `clear_throttle` runs whatever happened. Where a throttle was left, replicas still
  move by it: the plan is cancelled, which calls them back and takes the throttle away.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import PLAN, carried_out_once_approved, optional, options, planned, surveyor_dag
from surveyor_operators import ThrottleCleared
from surveyor_settings import clusters

FLAGS = ("rebalance", "fix-racks")
WITH_VALUES = (
    "add-brokers",
    "remove-brokers",
    "replace",
    "replication-factor",
    "to-snapshot",
    "reassignment-json-file",
    "topics-to-move-json-file",
)
LIMITS = ("broker-list", "topics", "exclude", "max-moves", "max-moves-per-broker")
SWITCHES = ("one-replica-at-a-time", "by-size", "reorder-leaders", "disable-rack-aware")

PARAMS = {
    "question": Param("rebalance", enum=[*FLAGS, *WITH_VALUES], description="What `surveyor plan reassign` is asked."),
    "value": optional("The question's value: 4,5 or 7=107 or a file's path."),
    **{limit: optional(f"--{limit}, if any.") for limit in LIMITS},
    **{switch: Param(default=False, type="boolean", description=f"--{switch}") for switch in SWITCHES},
    "throttle": optional("Bytes a second to copy replicas with, as 50MB/s."),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Write the parameters of the run as the options of `surveyor plan reassign`."""
    asked = params["question"]
    valued = options({**params, asked: params["value"]}, asked, *LIMITS)
    flags = [f"--{name}" for name in SWITCHES if params[name]]
    return ["reassign", *([f"--{asked}"] if asked in FLAGS else []), *valued, *flags]


@task
def commit_options(*, params: dict[str, Any]) -> list[str]:
    """Wait for the last wave, too; throttled, if that is asked for."""
    return ["--wait", *options(params, "throttle")]


def reassign(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "reassign",
        cluster,
        description="Move replicas between brokers: plan, approve, carry out, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        verify = carried_out_once_approved(planned(question()), "move replicas", commit_options())
        verify >> ThrottleCleared(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()


for each in clusters():
    reassign(each)
