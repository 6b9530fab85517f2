"""Airflow operators for Surveyor's commands; the JSON object of --result-file becomes the task's XCom.

Commands that need Spark run through spark-submit. All others run as `surveyor COMMAND`, which starts no JVM. Both run
in a separate process in Surveyor's own environment and are stopped with SIGTERM, which they handle.

In Spark's cluster mode the driver is on another host, and this worker does not see its files. Then the XCom of a
snapshot or plan is its row in the tables.
"""

import json
import logging
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import Request, urlopen

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseHook, BaseNotifier, BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException
from surveyor_outcomes import CHANGES, DONE, UNREADABLE, raise_for
from surveyor_settings import COMMIT_POOL, SNAPSHOT_POOL, Settings, of_cluster, settings

SHOWN_CHARACTERS = 20_000
"""Characters of a command's output shown for an approval; the log has all of it."""

QUIET = logging.getLogger("surveyor.quiet")
"""Logger for output that is not worth logging."""
QUIET.setLevel(logging.WARNING)

CLUSTER_MODE = "cluster"
"""Spark's deploy mode in which the driver runs on the cluster."""

DRIVER_EXIT_CODE = re.compile(r"User application exited with (?:status )?(\d+)|Kubernetes spark exit code is: (\d+)")
"""Pattern of the driver's exit code in spark-submit's error on YARN, and in the Airflow provider's on Kubernetes."""

SUBMIT_LINES = 500
"""Last lines of spark-submit that are searched for the code; stack traces of two JVMs come after it."""

SUBMIT_VARIABLES = ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_HOME")
"""What spark-submit itself needs in the environment; in cluster mode Spark's settings name the driver's Python."""

Result = dict[str, Any]


def result_in(file: Path) -> Result:
    """Read the result file of a command; empty if the command was killed before writing it."""
    if not file.is_file():
        return {}
    result: Result = json.loads(file.read_text(encoding="utf-8"))
    return result


class Surveyor:
    """A command line of Surveyor, run in Surveyor's environment."""

    def __init__(self, ours: Settings, words: Sequence[str]) -> None:
        self.line = [ours.command, *words, *ours.options]
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def run(self, log: Any) -> tuple[int, Result]:
        """Run the command with its output in the log; return its exit code and result."""
        log.info("%s", " ".join(self.line))
        with tempfile.TemporaryDirectory(prefix="surveyor-") as folder:
            file = Path(folder, "result.json")
            with subprocess.Popen(  # noqa: S603 - the environment that the settings name
                [*self.line, "--result-file", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as self._process:
                for line in self._process.stdout or ():
                    self.output.append(line.rstrip())
                    log.info("%s", line.rstrip())
            return self._process.returncode, result_in(file)

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()


def plan_named(ours: Settings, name: str) -> Result | None:
    """Return a plan's row of `surveyor show plans`, or None if the plan or the table does not exist."""
    code, shown = Surveyor(ours, ["show", "plans"]).run(QUIET)
    if code == UNREADABLE:
        return None
    if code != DONE:
        raise_for(code, shown)
    return next((row for row in shown["rows"] if name in row["names"]), None)


def figures_of(ours: Settings, name: str) -> Result:
    """Return the figures of a plan: bytes that are copied, the least possible, and the worst load before and after."""
    plan = plan_named(ours, name)
    if plan is None:
        raise AirflowFailException(f"the warehouse has no plan {name!r}")
    known = json.loads(plan["figures"]) if isinstance(plan["figures"], str) else plan["figures"] or {}
    return {key: known.get(key) for key in ("bytes", "bytes_bound", "worst_before", "worst_after")}


def newest_snapshot(ours: Settings) -> Result:
    """Return the last row of `surveyor show snapshots`."""
    code, shown = Surveyor(ours, ["show", "snapshots"]).run(QUIET)
    if code != DONE:
        raise_for(code, shown)
    row: Result = shown["rows"][-1]
    return row


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process, for a process that it starts."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


class SurveyorOperator(BaseOperator):
    """Runs a command that starts no JVM; returns its result, or its text output with `shown`.

    `stale` and `refused` are as in `surveyor_outcomes.raise_for`. `cluster` is one of several clusters, or None.
    """

    template_fields: Sequence[str] = ("command",)
    ui_color = "#e6f2ea"

    def __init__(
        self,
        *,
        command: Sequence[str],
        shown: bool = False,
        stale: str = "fail",
        refused: str = "retry",
        cluster: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.shown = shown
        self.stale = stale
        self.refused = refused
        self.cluster = cluster
        self._running: Surveyor | None = None

    def execute(self, context: Any) -> Result | str:  # noqa: ARG002 - Airflow's signature
        running = self._running = Surveyor(settings(self.cluster), self.command)
        code, result = running.run(self.log)
        if code != DONE:
            raise_for(code, result, stale=self.stale, refused=self.refused)
        return "\n".join(running.output)[:SHOWN_CHARACTERS] if self.shown else result

    def on_kill(self) -> None:
        if self._running is not None:
            self._running.stop()


class CommitOperator(SurveyorOperator):
    """Commits a plan. It can be retried, because no change is applied twice; the pool serialises commits."""

    template_fields: Sequence[str] = ("command", "options")

    def __init__(
        self,
        *,
        plan: str,
        options: Any = (),
        pool: str = COMMIT_POOL,
        cluster: str | None = None,
        **kwargs: Any,
    ) -> None:
        command = ["commit", plan, "--apply", "--yes"]
        super().__init__(command=command, pool=of_cluster(pool, cluster), cluster=cluster, **kwargs)
        self.options = options

    def execute(self, context: Any) -> Result | str:
        self.command = [*self.command, *self.options]
        return super().execute(context)


NOTIFY_SECONDS = 10.0


class ApprovalNotifier(BaseNotifier):
    """Notifies a webhook of a pending approval with `{"text": ...}`, the format of chat webhooks.

    The Airflow connection is named by the setting `surveyor_notify`. Its host is the URL, and its password, if any, the
    secret last part of the URL. Without the connection, the approval is shown only in Airflow's *Required actions*. If
    the webhook fails, the error is logged and the approval still waits.
    """

    def __init__(self, cluster: str | None = None) -> None:
        super().__init__()
        self.cluster = cluster

    def notify(self, context: Any) -> None:
        name = settings(self.cluster).notify
        try:
            connection = BaseHook.get_connection(name)
        except AirflowNotFoundException:
            self.log.info("connection %r does not exist; this approval is shown in Airflow only", name)
            return
        try:
            self._post(connection, f"{context['task'].subject}\n{_link(context)}")
        except (OSError, ValueError) as error:
            self.log.warning("the webhook of connection %r was not notified: %s", name, type(error).__name__)

    def _post(self, connection: Any, text: str) -> None:
        parts = [connection.host or "", *([connection.password] if connection.password else [])]
        url = "/".join([parts[0].rstrip("/"), *(part.lstrip("/") for part in parts[1:])])
        if not url.startswith(("https://", "http://")):
            raise ValueError("expected a host that starts with https:// or http://")
        body = json.dumps({"text": text}).encode()
        request = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - its scheme is checked
        with urlopen(request, timeout=NOTIFY_SECONDS):  # noqa: S310 - as above
            self.log.info("notified: %s", text)


def _link(context: Any) -> str:
    """Return the URL of the approval page, or its place in Airflow if Airflow's URL is not configured."""
    try:
        return ApprovalOperator.generate_link_to_ui_from_context(context=context)
    except ValueError:
        return f"in Airflow: Required actions of {context['dag'].dag_id}, run {context['run_id']}"


class PlanApprovalOperator(ApprovalOperator):
    """Waits until a person approves the plan shown by the task `show`; without a response it counts as rejected.

    `asked` describes what the plan does, and `plan_task` is the task that created it.
    """

    def __init__(self, *, asked: str, plan_task: str = "plan", cluster: str | None = None, **kwargs: Any) -> None:
        plan = f"{{{{ ti.xcom_pull(task_ids='{plan_task}')['plan_id'] }}}}"
        super().__init__(
            **{
                "subject": f"Surveyor{'' if cluster is None else f', cluster {cluster}'}: {asked}, by plan {plan}?",
                "body": "```\n{{ ti.xcom_pull(task_ids='show') }}\n```",
                "response_timeout": timedelta(hours=24),
                "defaults": ApprovalOperator.REJECT,
                **kwargs,
            }
        )
        self._waits = ApprovalNotifier(cluster)

    def execute(self, context: Any) -> None:
        """Notify, then ask. Airflow runs `notifiers` after asking and loses a response given in between."""
        self._waits(context)
        super().execute(context)


class ReportOperator(SurveyorOperator):
    """Runs a command that writes a file with --out to the configured folder."""

    def __init__(self, *, page: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.page = page

    def execute(self, context: Any) -> Result | str:
        folder = settings(self.cluster).pages
        folder.mkdir(parents=True, exist_ok=True)
        self.command = [*self.command, "--out", str(folder / self.page)]
        return super().execute(context)


class ClearThrottleOperator(SurveyorOperator):
    """A teardown task that removes the throttle left by a plan's commit, if any.

    The commit normally removes the throttle itself. If it failed permanently, the throttle would remain as long as
    replicas move. So the plan is cancelled, which also cancels running reassignments and removes the throttle.
    """

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(command=["cancel", plan, "--apply", "--yes"], **kwargs)
        self.plan = plan

    template_fields: Sequence[str] = ("command", "plan")

    def execute(self, context: Any) -> Result | str:
        ours = settings(self.cluster)
        code, shown = Surveyor(ours, ["show", "throttles"]).run(self.log)
        if code != DONE:
            raise_for(code, shown)
        plan = plan_named(ours, self.plan)
        throttles = [row for row in shown["rows"] if plan and row["plan_id"] == plan["plan_id"]]
        return super().execute(context) if throttles else {"throttles": 0}


class PlanCompleteSensor(BaseSensorOperator):
    """Waits until a plan is complete; fails if the remaining changes were overwritten by another client."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"mode": "reschedule", "poke_interval": 30.0, "timeout": 24 * 3600.0, **kwargs})
        self.plan = plan
        self.cluster = cluster

    def poke(self, context: Any) -> bool:  # noqa: ARG002 - Airflow's signature
        words = ["verify", self.plan, "--detailed-exitcode", "--measure", "0s"]
        code, result = Surveyor(settings(self.cluster), words).run(self.log)
        if code not in {DONE, CHANGES}:
            raise_for(code, result)
        if code == CHANGES and not result["in_progress"] and not result["not_started"]:
            raise AirflowFailException(f"{result['diverged']} changes were applied and have been changed again since")
        return code == DONE


class SubmitOperator(SparkSubmitOperator):
    """Runs a command that needs Spark, by the provider's SparkSubmitOperator and Surveyor's own spark-submit.

    It returns the command's result, unlike the provider's operator. `job` is a script of Surveyor, such as `snapshot`.
    If the connection has the deploy mode `cluster`, the result is what `stored` returns, and the driver's exit code is
    the one that spark-submit's output names.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "arguments", "cluster")
    ui_color = "#fde8cf"

    def __init__(self, *, job: str, arguments: Sequence[str] = (), cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"name": f"surveyor-{job}", **kwargs})
        self.job = job
        self.arguments = arguments
        self.cluster = cluster

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        return self.submit(context, list(self.arguments))

    def submit(self, context: Any, words: list[str]) -> Result:
        """Run spark-submit with these arguments; on failure, raise by the exit code in the result file."""
        ours = settings(self.cluster)
        if self._prepare(ours) == CLUSTER_MODE:
            return self._submit_to_cluster(context, ours, words)
        with tempfile.TemporaryDirectory(prefix="surveyor-") as folder:
            file = Path(folder, "result.json")
            self.application_args = [*words, *ours.options, "--result-file", str(file)]
            try:
                super().execute(context)
            except AirflowException:
                result = result_in(file)
                if "exit_code" not in result:
                    raise
                raise_for(result["exit_code"], result, refused="fail")
            return result_in(file)

    def _submit_to_cluster(self, context: Any, ours: Settings, words: list[str]) -> Result:
        """Run spark-submit until the driver on the cluster has ended, and return what it stored."""
        self.application_args = [*words, *ours.options]
        self.durable = False  # a command can be repeated, so a retry need not find the application of the first attempt
        # the provider would pass the variables on to the driver, whose host has other paths
        variables, self.env_vars = self.env_vars or {}, None
        output = self._kept_output()
        with environment({name: variables[name] for name in SUBMIT_VARIABLES}):
            try:
                super().execute(context)
            except AirflowException as error:
                code = DRIVER_EXIT_CODE.search("\n".join([*output, str(error)]))
                if code is None:
                    raise
                raise_for(int(code[1] or code[2]), {"error": "see the driver's log on the cluster"}, refused="fail")
        return self.stored(ours)

    def _kept_output(self) -> deque[str]:
        """Return where the last lines of spark-submit will be; the provider's own error may lack the exit code."""
        output: deque[str] = deque(maxlen=SUBMIT_LINES)
        self._hook = self._get_hook()
        read = self._hook._process_spark_submit_log  # noqa: SLF001 - the provider has no public way

        def keep(lines: Iterator[str]) -> Iterator[str]:
            for line in lines:
                output.append(line)
                yield line

        self._hook._process_spark_submit_log = lambda lines: read(keep(lines))  # type: ignore[assignment] # noqa: SLF001
        return output

    def stored(self, ours: Settings) -> Result:
        """Return the row that the command wrote: of a snapshot, the newest one."""
        return newest_snapshot(ours)

    def _prepare(self, ours: Settings) -> str | None:
        """Set the provider's parameters, except for the arguments; return the deploy mode of the connection."""
        try:
            connection = BaseHook.get_connection(ours.spark_connection)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"connection {ours.spark_connection!r} of Spark's master does not exist; add it, for example with "
                f"`airflow connections add {ours.spark_connection} --conn-type spark --conn-host 'local[*]'`"
            ) from None
        submission = ours.submission()
        self._hook = None
        self._conn_id = ours.spark_connection
        self._spark_binary = submission["spark_submit"]
        self.application = str(Path(submission["scripts"], f"{self.job}.py"))
        self.jars = submission["jars"]
        self.py_files = ours.py_files
        self.env_vars = {
            "JAVA_HOME": submission["java_home"],
            "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR") or submission["spark_conf_dir"],
            "SPARK_HOME": submission["spark_home"],
            "PYSPARK_PYTHON": submission["python"],
            "PYSPARK_DRIVER_PYTHON": submission["python"],
        }
        deploy_mode: str | None = connection.extra_dejson.get("deploy-mode")
        return deploy_mode


class PlanOperator(SubmitOperator):
    """Creates a named plan on a snapshot; a retry with the same name and snapshot returns the same plan."""

    template_fields: Sequence[str] = (*SubmitOperator.template_fields, "question", "snapshot", "plan")

    def __init__(self, *, question: Any, snapshot: str, plan: str, **kwargs: Any) -> None:
        super().__init__(job="plan", **kwargs)
        self.question = question
        self.snapshot = snapshot
        self.plan = plan

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        return self.submit(context, [*self.question, "--snapshot", str(self.snapshot), "--name", self.plan])

    def stored(self, ours: Settings) -> Result:
        """Return the row of the plan."""
        plan = plan_named(ours, self.plan)
        if plan is None:
            raise AirflowFailException(
                f"the driver has ended without an error, and the warehouse has no plan {self.plan!r}: does the cluster "
                "use the same warehouse as this worker?"
            )
        return plan


class RunSnapshotOperator(SubmitOperator):
    """Returns the `snapshot_id` that a run plans on, which stays the same when its tasks are retried.

    It is the snapshot of the run's plan, if the plan exists, or else the snapshot of the asset event that triggered the
    run. If there is no such event, a new one is taken.
    """

    template_fields: Sequence[str] = (*SubmitOperator.template_fields, "plan")
    KEY: ClassVar = "snapshot_id"

    def __init__(self, *, plan: str, cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(job="snapshot", pool=of_cluster(SNAPSHOT_POOL, cluster), cluster=cluster, **kwargs)
        self.plan = plan

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        plan = plan_named(settings(self.cluster), self.plan)
        if plan:
            self.log.info("plan %s of this run is on snapshot %s", plan["plan_id"], plan[self.KEY])
            return {self.KEY: plan[self.KEY]}
        events = context.get("triggering_asset_events") or {}
        ids = [event.extra[self.KEY] for several in events.values() for event in several if self.KEY in event.extra]
        return {self.KEY: max(ids) if ids else self.submit(context, [])[self.KEY]}


def newly_offline(snapshot_id: int, since: int, log: Any, cluster: str | None = None) -> int:
    """Count the offline partitions of a snapshot that changed after the snapshot `since`.

    `since` is the last snapshot that was announced. Other snapshots, manual or by a plan, may lie in between.
    """
    words = ["show", "partitions", "--offline", "--snapshot", str(snapshot_id)]
    code, shown = Surveyor(settings(cluster), words).run(log)
    if code != DONE:
        raise_for(code, shown)
    return sum(row["snapshot_id"] > since for row in shown["rows"])
