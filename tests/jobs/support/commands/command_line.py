"""The command line as a test calls it."""

import json
from dataclasses import dataclass, replace
from typing import Any

from typer.testing import CliRunner, Result

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import app
from jobs.runtime.pace import DEFAULT, Pace
from schemas.rows import Row


@dataclass(frozen=True)
class Surveyor:
    """`surveyor`, on one warehouse."""

    warehouse: Warehouse
    pace: Pace = DEFAULT
    answer: str | None = None
    """The answer to a question, typed on a terminal."""

    def paced(self, **changes: Any) -> "Surveyor":  # noqa: ANN401 - fields of a Pace
        """The same, with another pace."""
        return replace(self, pace=replace(self.pace, **changes))

    def run(self, *arguments: str) -> Result:
        done = CliRunner().invoke(
            app,
            [*arguments, "--warehouse", self.warehouse.uri],
            env={"COLUMNS": "80"},
            obj=self.pace,
            input=self.answer,
        )
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    def commit(self, hosts: str, plan: str, *arguments: str) -> Result:
        """Commit in batch mode."""
        batch = ("--mode", "batch", *arguments)
        return self.run("commit", plan, "--zookeeper", hosts, *batch)

    def apply(self, hosts: str, plan: str, *arguments: str) -> Result:
        """A test has no terminal to be asked on."""
        return self.commit(hosts, plan, "--apply", "--yes", *arguments)

    def result(self, hosts: str, plan: str, *arguments: str) -> dict[str, Any]:
        """What --json prints."""
        answer: dict[str, Any] = json.loads(self.commit(hosts, plan, "--json", *arguments).stdout)
        return answer

    def commits(self, plan: str) -> list[Row]:
        return self.warehouse.rows("commits", ("plan_id", "=", plan))

    def status(self, plan: str) -> str:
        return str(self.warehouse.rows("plans", ("plan_id", "=", plan))[0]["status"])

    def outcomes(self, plan: str, attempt: int = 1) -> dict[int, str]:
        """The last word on each partition in an attempt."""
        rows = [row for row in self.commits(plan) if row["attempt"] == attempt and row["partition"] is not None]
        return {row["partition"]: row["outcome"] for row in sorted(rows, key=lambda row: row["committed_at"])}
