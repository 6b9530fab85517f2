"""Surveyor's commands as Airflow's tasks: the result of each, the JSON object of --result-file, is the task's XCom.

What starts Spark goes through spark-submit; everything else is `surveyor COMMAND`, which starts no JVM. Either runs in
Surveyor's own environment, in a process of its own, and is told to stop by SIGTERM, which it heeds.
"""

import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
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
"""Of a command's output as much as somebody who approves may want to read; the log has all of it."""

QUIET = logging.getLogger("surveyor.quiet")
"""For lists that no person reads."""
QUIET.setLevel(logging.WARNING)

Result = dict[str, Any]


def result_in(file: Path) -> Result:
    """Read what a command wrote into --result-file; nothing where it was killed before."""
    if not file.is_file():
        return {}
    result: Result = json.loads(file.read_text(encoding="utf-8"))
    return result


class Surveyor:
    """One command line of Surveyor, run in its own environment."""

    def __init__(self, ours: Settings, words: Sequence[str]) -> None:
        self.line = [ours.command, *words, *ours.options]
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def run(self, log: Any) -> tuple[int, Result]:
        """Run it, its output into the log; return its exit code and result."""
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
    """Return a plan's row as `surveyor show plans` has it, None where there is no such plan, or no table yet."""
    code, shown = Surveyor(ours, ["show", "plans"]).run(QUIET)
    if code == UNREADABLE:
        return None
    if code != DONE:
        raise_for(code, shown)
    return next((row for row in shown["rows"] if name in row["names"]), None)


class SurveyorOperator(BaseOperator):
    """A command that starts no JVM; returns its result, or with `shown` what it prints for people.

    `stale`, `refused`: as `surveyor_outcomes.raise_for` takes them. `cluster`: which one, of several.
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
    """Carries out a plan. Applies nothing twice, so it is simply tried again; one at a time by the pool."""

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


class ApprovalWaits(BaseNotifier):
    """Notifies people that an approval waits, by a webhook that takes `{"text": ...}`, as those of chats do.

    The connection of the setting `surveyor_notify` names it: the host is its URL, the password, if any, the secret end
    of that. Without such a connection Airflow's *Required actions* alone show the approval. A webhook that fails is
    logged: the approval waits all the same.
    """

    def __init__(self, cluster: str | None = None) -> None:
        super().__init__()
        self.cluster = cluster

    def notify(self, context: Any) -> None:
        name = settings(self.cluster).notify
        try:
            connection = BaseHook.get_connection(name)
        except AirflowNotFoundException:
            self.log.info("there is no connection %r: this approval is shown in Airflow alone", name)
            return
        try:
            self._post(connection, f"{context['task'].subject}\n{_link(context)}")
        except (OSError, ValueError) as error:
            self.log.warning("the webhook of connection %r was not notified: %s", name, type(error).__name__)

    def _post(self, connection: Any, text: str) -> None:
        parts = [connection.host or "", *([connection.password] if connection.password else [])]
        url = "/".join([parts[0].rstrip("/"), *(part.lstrip("/") for part in parts[1:])])
        if not url.startswith(("https://", "http://")):
            raise ValueError("expected a host that begins with https:// or http://")
        body = json.dumps({"text": text}).encode()
        request = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - its scheme is checked
        with urlopen(request, timeout=NOTIFY_SECONDS):  # noqa: S310 - as above
            self.log.info("notified: %s", text)


def _link(context: Any) -> str:
    """Return the page on which to approve, or where that is, if this Airflow does not say its own URL."""
    try:
        return ApprovalOperator.generate_link_to_ui_from_context(context=context)
    except ValueError:
        return f"in Airflow: Required actions of {context['dag'].dag_id}, run {context['run_id']}"


class PlanApproval(ApprovalOperator):
    """Waits until a person approves the plan that the task `show` shows; without an answer it counts as rejected.

    `asked` says what the plan is to do, `plan_task` which task has planned it.
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
        self._waits = ApprovalWaits(cluster)

    def execute(self, context: Any) -> None:
        """Notify and then ask: Airflow's `notifiers` come after that, and it loses an answer given in between."""
        self._waits(context)
        super().execute(context)


class PageOperator(SurveyorOperator):
    """A command that writes a file with --out, in the folder of the settings."""

    def __init__(self, *, page: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.page = page

    def execute(self, context: Any) -> Result | str:
        folder = settings(self.cluster).pages
        folder.mkdir(parents=True, exist_ok=True)
        self.command = [*self.command, "--out", str(folder / self.page)]
        return super().execute(context)


class ThrottleCleared(SurveyorOperator):
    """A teardown: takes away what a plan's commit left of its throttle; does nothing where it left none.

    The commit does so itself, however it ends. What failed for good has a throttle that would stay as long as its
    replicas move, so the plan is cancelled: what moves is called back, and then nothing needs the throttle any more.
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
        planned = plan_named(ours, self.plan)
        left = [row for row in shown["rows"] if planned and row["plan_id"] == planned["plan_id"]]
        return super().execute(context) if left else {"throttles": 0}


class PlanComplete(BaseSensorOperator):
    """Waits until a plan is complete; fails where what is left of it was changed by somebody else."""

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
            raise AirflowFailException(f"{result['diverged']} changes were carried out and changed again since")
        return code == DONE


class SubmitOperator(SparkSubmitOperator):
    """A command that starts Spark, by the provider's SparkSubmitOperator and Surveyor's own spark-submit.

    Returns the command's result, which the provider's operator does not. `job` is a script of Surveyor: `snapshot`.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "arguments")
    ui_color = "#fde8cf"

    def __init__(self, *, job: str, arguments: Sequence[str] = (), cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"name": f"surveyor-{job}", **kwargs})
        self.job = job
        self.arguments = arguments
        self.cluster = cluster

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        return self.submit(context, list(self.arguments))

    def submit(self, context: Any, words: list[str]) -> Result:
        """Run spark-submit with these arguments; raise for its exit code by what the result file says of it."""
        ours = settings(self.cluster)
        with tempfile.TemporaryDirectory(prefix="surveyor-") as folder:
            file = Path(folder, "result.json")
            self._prepare(ours, [*words, *ours.options, "--result-file", str(file)])
            try:
                super().execute(context)
            except AirflowException:
                result = result_in(file)
                if "exit_code" not in result:
                    raise
                raise_for(result["exit_code"], result, refused="fail")
            return result_in(file)

    def _prepare(self, ours: Settings, words: list[str]) -> None:
        try:
            BaseHook.get_connection(ours.spark_connection)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"there is no connection {ours.spark_connection!r}, which names Spark's master: add one, for example "
                f"`airflow connections add {ours.spark_connection} --conn-type spark --conn-host 'local[*]'`"
            ) from None
        submission = ours.submission()
        self._hook = None
        self._conn_id = ours.spark_connection
        self._spark_binary = submission["spark_submit"]
        self.application = str(Path(submission["scripts"], f"{self.job}.py"))
        self.application_args = words
        self.jars = submission["jars"]
        self.py_files = ours.py_files
        self.env_vars = {
            "JAVA_HOME": submission["java_home"],
            "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR") or submission["spark_conf_dir"],
            "SPARK_HOME": submission["spark_home"],
            "PYSPARK_PYTHON": submission["python"],
            "PYSPARK_DRIVER_PYTHON": submission["python"],
        }


class PlanOperator(SubmitOperator):
    """Plans on a snapshot, under a name; the same name on the same snapshot is the same plan, whenever it is tried."""

    template_fields: Sequence[str] = (*SubmitOperator.template_fields, "question", "snapshot", "plan")

    def __init__(self, *, question: Any, snapshot: str, plan: str, **kwargs: Any) -> None:
        super().__init__(job="plan", **kwargs)
        self.question = question
        self.snapshot = snapshot
        self.plan = plan

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        return self.submit(context, [*self.question, "--snapshot", str(self.snapshot), "--name", self.plan])


class SnapshotOfRun(SubmitOperator):
    """Finds the snapshot that a run plans on, whenever and how often its tasks run; returns `snapshot_id`.

    That of the run's plan, if it was made already; else that of the asset event which triggered the run; else one
    that is taken now.
    """

    template_fields: Sequence[str] = (*SubmitOperator.template_fields, "plan")
    KEY: ClassVar = "snapshot_id"

    def __init__(self, *, plan: str, cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(job="snapshot", pool=of_cluster(SNAPSHOT_POOL, cluster), cluster=cluster, **kwargs)
        self.plan = plan

    def execute(self, context: Any) -> Result:  # type: ignore[override] # the provider's returns nothing
        planned = plan_named(settings(self.cluster), self.plan)
        if planned:
            self.log.info("plan %s of this run is on snapshot %s", planned["plan_id"], planned[self.KEY])
            return {self.KEY: planned[self.KEY]}
        events = context.get("triggering_asset_events") or {}
        named = [event.extra[self.KEY] for several in events.values() for event in several if self.KEY in event.extra]
        return {self.KEY: max(named) if named else self.submit(context, [])[self.KEY]}


def newly_offline(snapshot_id: int, since: int, log: Any, cluster: str | None = None) -> int:
    """Count the partitions that a snapshot shows offline, and that changed in it or in another one after `since`.

    That is the last one looked at for this: in between others are taken, by hand and by `plan --refresh`.
    """
    words = ["show", "partitions", "--offline", "--as-of", str(snapshot_id)]
    code, shown = Surveyor(settings(cluster), words).run(log)
    if code != DONE:
        raise_for(code, shown)
    return sum(row["snapshot_id"] > since for row in shown["rows"])
