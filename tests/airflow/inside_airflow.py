"""A process in Airflow's environment, as a test speaks to it: `tests/airflow/inside.py` answers."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Self

from tests.airflow.home import NO_AIRFLOW, PREPARED_BY, PYTHON, ROOT, variables

EXIT_SECONDS = 120
TIMEOUT_SECONDS = 900.0
"""Seconds for the answer: a run of a DAG takes less than a minute on a machine that is not busy."""

LOG_END = 2_500
"""Characters of the log that are shown of a failed run."""
ROUTINE = re.compile(r"\S+ \[(?:info|warning) +\] ")
"""The lines that Airflow logs however a run ends."""

BASE_URL = "http://airflow.example"
"""Where people would find this Airflow."""

EMBEDDED_SUBMIT = f"""\
#!{sys.executable}
import runpy, sys
script = next(place for place, word in enumerate(sys.argv) if place and word.endswith(".py"))
if "cluster" in sys.argv[:script] and "--result-file" in sys.argv:
    sys.exit("the driver is on another host, where this file is none that the worker reads")
sys.argv = sys.argv[script:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A `spark-submit` that runs the script it is given on the embedded engine, of all that it is told else nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a run of a DAG: the state of each task, and what it returned."""

    run_id: str
    state: str
    states: dict[str, str]
    results: dict[str, Any]
    log: str
    """The end of the errors that Airflow logged meanwhile."""

    def assert_succeeded(self) -> None:
        """Assert that every task succeeded."""
        assert (self.state, self.having("success")) == ("success", set(self.states)), self.log

    def having(self, state: str) -> set[str]:
        return {task for task, became in self.states.items() if became == state}


class InsideAirflow:
    """Up inside its `with` block. What Airflow logs is in `home`/airflow.log.

    `webhook`: what is notified of approvals that wait.
    """

    def __init__(self, home: Path, zookeeper: str, warehouse: Path, webhook: str) -> None:
        assert PYTHON.exists(), NO_AIRFLOW
        self.home = home
        self._embedded = home / "spark-submit"
        self._embedded.touch(0o700)
        self._embedded.write_text(EMBEDDED_SUBMIT)
        self.log = home / "airflow.log"
        notify = {"conn_type": "http", "host": webhook, "password": "secret"}
        self._environment = variables(home, zookeeper, warehouse) | {
            "AIRFLOW_CONN_SURVEYOR_NOTIFY": json.dumps(notify),
            "AIRFLOW__API__BASE_URL": BASE_URL,
        }
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [PYTHON, ROOT / "tests" / "airflow" / "inside.py", json.dumps(PREPARED_BY)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=EXIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

    def ask(self, **request: Any) -> Any:  # noqa: ANN401 - whatever the request is answered with
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = Timer(TIMEOUT_SECONDS, self._process.kill)
        watchdog.daemon = True  # a run of tests ends at once where Airflow does not begin
        watchdog.start()
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        watchdog.cancel()
        assert answer, f"Airflow ended: {self.log.read_text()[-3000:]}"
        return json.loads(answer)

    def run(self, dag: str, *, submitted: bool = False, **request: Any) -> Run:  # noqa: ANN401 - conf, at and answer
        """Run a DAG; where it is `submitted`, what starts Spark does, by the spark-submit of Surveyor's environment.

        Else it uses the embedded engine, which starts sooner.
        """
        binary = {} if submitted else {"spark_submit": str(self._embedded)}
        before = self.log.stat().st_size
        answer = self.ask(do="run", dag=f"surveyor_{dag}", **binary, **request)
        lines = self.log.read_bytes()[before:].decode().splitlines(keepends=True)
        return Run(**answer, log="".join(line for line in lines if not ROUTINE.match(line))[-LOG_END:])

    def events(self, asset: str) -> list[dict[str, Any]]:
        """What the events of an asset said, the oldest first."""
        return [extra for name, extra in self.ask(do="events") if name == f"surveyor_{asset}"]
