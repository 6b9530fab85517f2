"""Runs in Airflow's environment: does what a test asks by a line of JSON on stdin, and answers by one on stdout.

One process for all tests of a module, as Airflow takes seconds to be imported; it also runs the commands of `airflow`
that make the database, which its argument lists: 4.0 s of processor time until it answers, 9.8 s with a process for
each command. Requests and answers:

    {"do": "integrity", ...}               what every DAG says of itself, and import errors
    {"do": "run", "dag": ID, ...}          `dag.test()`, for real: states, results and run id
    {"do": "outcome", "code": 21, ...}     what a task makes of an exit code: the name of what it raises
    {"do": "driver_outcome", ...}          the same of what spark-submit says of a driver on the cluster
    {"do": "options", ...}                 the options that commands are given for a cluster, or why there are none
    {"do": "submission", ...}              what spark-submit is given, or why not

`clusters`: those that SURVEYOR_CLUSTERS lists meanwhile.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

ANSWERS = os.fdopen(os.dup(1), "w")
"""The stdout that the test reads; Airflow's goes to stderr from here on."""
os.dup2(2, 1)

from airflow.cli.cli_parser import get_parser

for words in json.loads(sys.argv[1]):
    command = get_parser().parse_args(words)
    command.func(command)

from airflow.api_fastapi.app import create_app
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException
from airflow.settings import AIRFLOW_HOME, Session
from fastapi.testclient import TestClient
from surveyor_operators import SUBMIT_VARIABLES, RunSnapshotOperator, SubmitOperator
from surveyor_outcomes import raise_for
from surveyor_settings import CLUSTERS, settings


def bag(clusters: str) -> DagBag:
    """Read the DAGs where these clusters are listed: for each run, as Airflow leaves a run's parameters in its DAG."""
    with patch.dict(os.environ, {CLUSTERS: clusters}):
        return DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])


def integrity(clusters: str = "") -> dict[str, Any]:
    """What a DAG must say of itself."""
    found = bag(clusters)
    dags = {
        dag.dag_id: {
            "tags": sorted(dag.tags),
            "doc": bool((dag.doc_md or "").strip()),
            "owners": sorted({task.owner for task in dag.tasks}),
            "retries": {task.task_id: task.retries for task in dag.tasks},
            "pools": sorted({task.pool for task in dag.tasks}),
            "max_active_runs": dag.max_active_runs,
            "file": os.path.basename(dag.fileloc),  # noqa: PTH119 - a name
            "assets": sorted({asset.name for task in dag.tasks for asset in (*task.inlets, *task.outlets)}),
            "waits_for": [asset.name for asset in getattr(dag.timetable.asset_condition, "objects", [])],
        }
        for dag in found.dags.values()
    }
    return {"errors": {str(file): error for file, error in found.import_errors.items()}, "dags": dags}


def run(
    dag: str,
    conf: dict[str, Any] | None = None,
    at: str | None = None,
    **around: Any,  # noqa: ANN401 - as `surrounded` takes them
) -> dict[str, Any]:
    """Run a DAG, without retries; `at` is the logical date, the same one for a run that is to be run again.

    `around`: as `surrounded` takes it.
    """
    when = {} if at is None else {"logical_date": datetime.fromisoformat(at), "run_after": datetime.fromisoformat(at)}
    known = bag(around.get("clusters", "")).dags[dag]
    for task in known.tasks:
        task.retries = 0
    with surrounded(dag, **around):
        done = known.test(run_conf=conf, **when)
    tasks = {_name_of(task): task for task in done.get_task_instances()}
    return {
        "run_id": done.run_id,
        "state": done.state,
        "states": {name: str(task.state) for name, task in tasks.items()},
        "results": {name: _result_of(task) for name, task in tasks.items()},
    }


def _name_of(task: Any) -> str:  # noqa: ANN401 - Airflow's
    """Name a task, with its number among those that are mapped."""
    return str(task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]")


def _result_of(task: Any) -> Any:  # noqa: ANN401 - whatever the task returned
    mapped = {} if task.map_index < 0 else {"map_indexes": task.map_index}
    return task.xcom_pull(task_ids=task.task_id, **mapped)


@contextmanager
def surrounded(
    dag: str,
    *,
    answer: str | None = None,
    spark_submit: str | None = None,
    clusters: str = "",
    variables: Mapping[str, str] = {},
) -> Iterator[None]:
    """Give a run the answer to what it asks, and what it finds in the environment; an empty variable counts as none.

    `spark_submit`: what is to be called in the place of the one that Surveyor's environment has.
    """
    environment = patch.dict(os.environ, {**variables, CLUSTERS: clusters})
    with environment, submitting_by(spark_submit), answering(dag, answer):
        yield


@contextmanager
def submitting_by(binary: str | None) -> Iterator[None]:
    """Let operators prepare as they do, and then call this spark-submit, if one is given.

    It is the provider's hook that calls it. Surveyor's own modules are no place for this: they are in the folder of
    plugins, which Airflow loads a second time, so that a DAG may have other classes than this module has.
    """
    if binary is None:
        yield
        return
    with patch.object(SparkSubmitHook, "_get_spark_binary_path", lambda _: [binary]):
        yield


@contextmanager
def answering(dag: str, answer: str | None) -> Iterator[None]:
    """Give this answer to whatever a DAG asks, by Airflow's own API, as its page of required actions does."""
    if answer is None:
        yield
        return
    over, client = Event(), api()
    thread = Thread(target=respond, args=(client, dag, answer, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@cache
def api() -> TestClient:
    """Airflow's API in this process, as an administrator."""
    client = TestClient(create_app(apps="core"))
    token = client.get("/auth/token").json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def respond(client: TestClient, dag: str, answer: str, over: Event) -> None:
    """Look every second for what is asked by a task that waits: Airflow loses an answer that comes before it does."""
    while not over.wait(1.0):
        pending = client.get(f"/api/v2/dags/{dag}/dagRuns/~/hitlDetails", params={"response_received": False})
        for detail in pending.raise_for_status().json()["hitl_details"]:
            task = detail["task_instance"]
            if task["state"] != "awaiting_input":
                continue
            path = f"dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/{task['map_index']}/hitlDetails"
            given = {"chosen_options": [answer], "params_input": {}}
            client.patch(f"/api/v2/dags/{dag}/{path}", json=given).raise_for_status()


def events() -> list[Any]:
    """Asset events so far, the oldest first."""
    with Session() as session:
        return [[event.asset.name, event.extra] for event in session.query(AssetEvent).order_by(AssetEvent.id)]


def outcome(code: int, result: dict[str, Any], **given: str) -> str:
    """Name what a task raises for an exit code."""
    try:
        raise_for(code, result, **given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return type(error).__name__
    return "nothing"


def driver_outcome(output: str) -> str:
    """Name what a task raises if spark-submit fails with this output in cluster mode."""
    operator = SubmitOperator(task_id="driver", job="plan")
    operator.env_vars = dict.fromkeys(SUBMIT_VARIABLES, "")
    with patch.object(SparkSubmitOperator, "execute", side_effect=AirflowException(output)):
        try:
            operator._submit_to_cluster({}, settings(), [])  # noqa: SLF001 - what is tested
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return type(error).__name__
    return "nothing"


def snapshot_of_run(plan: str, snapshot_ids: list[int]) -> dict[str, Any]:
    """Say which snapshot a run plans on that events with these ids have triggered."""
    events = [SimpleNamespace(extra={"snapshot_id": number}) for number in snapshot_ids]
    snapshot = RunSnapshotOperator(task_id="snapshot", plan=plan).execute(
        {"triggering_asset_events": {"surveyor": events}}
    )
    return dict(snapshot)


def options(cluster: str | None, variables: Mapping[str, str]) -> Any:  # noqa: ANN401 - options, or a message
    """Return the options that a command is given for a cluster where the environment has these variables."""
    with patch.dict(os.environ, variables):
        try:
            return [*settings(cluster).options, str(settings(cluster).pages)]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return str(error)


def submission(variables: Mapping[str, str]) -> Any:  # noqa: ANN401 - parameters, or a message
    """Return the parameters of spark-submit where the environment has these variables."""
    with patch.dict(os.environ, variables):
        try:
            return settings().submission()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return f"{type(error).__name__}: {error}"


DOES: Mapping[str, Callable[..., Any]] = {
    "options": options,
    "submission": submission,
    "integrity": integrity,
    "run": run,
    "events": events,
    "outcome": outcome,
    "driver_outcome": driver_outcome,
    "snapshot_of_run": snapshot_of_run,
}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = DOES[request.pop("do")](**request)
        ANSWERS.write(json.dumps(answer, default=str) + "\n")
        ANSWERS.flush()


if __name__ == "__main__":
    assert os.environ["AIRFLOW_HOME"] == AIRFLOW_HOME
    main()
