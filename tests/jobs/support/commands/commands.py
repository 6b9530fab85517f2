"""`surveyor`, run in this process: its exit code, what it printed, and its JSON."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import app
from jobs.runtime.pace import DEFAULT, Pace


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command said
        return json.loads(self.stdout)


@dataclass(frozen=True, slots=True)
class Surveyor:
    """The command with its ZooKeeper, or the brokers of a KRaft cluster, and warehouse given."""

    hosts: str
    """Empty for a warehouse without a cluster."""
    folder: Path
    address_option: str = "--zookeeper"
    plans_on_stored: bool = False
    """Plan on the snapshot that the test has stored, such as by `write_first_snapshot`, in a fraction of the time."""
    pace: Pace = DEFAULT
    answer: str | None = None
    """The answer to a question, typed on a terminal."""

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.folder), "default")

    def copied_to(self, folder: Path) -> "Surveyor":
        """The same with a warehouse of its own, which has all that this one has."""
        return replace(self, folder=Path(shutil.copytree(self.folder, folder)))

    def __call__(self, *arguments: str) -> Ran:
        options = [self.address_option, self.hosts] if self.hosts else []
        if self.plans_on_stored and arguments[0] == "plan":
            options.append("--no-refresh")
        result = CliRunner().invoke(
            app, [*arguments, *options, "--warehouse", str(self.folder)], obj=self.pace, input=self.answer
        )
        return Ran(result.exit_code, result.stdout, result.stderr)

    def json(self, *arguments: str) -> Any:  # noqa: ANN401
        """Run a command that must succeed, and return its JSON object."""
        ran = self(*arguments, "--json")
        assert ran.code == 0, f"exit code {ran.code}: {ran.stderr}{ran.stdout}"
        return ran.json

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, these columns, in their order."""
        return sorted(tuple(row[column] for column in columns) for row in self.warehouse.rows(table))
