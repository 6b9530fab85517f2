"""Common parts of all demos: numbered steps, a producer that writes throughout, and the records that are read back.

Every step runs a Surveyor command as a user would type it, and shows the command before its output.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from signal import SIGTERM
from typing import Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.migrating_cluster import MigratingCluster
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError
from jobs.core.polling import poll_until
from jobs.demo_scenario.traffic import Traffic, read_everything
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from jobs.runtime.settings import ADDRESS_OPTIONS, Settings, settings_from

ORDERS: Final = "orders"
TEST: Final = "test"

TOPICS: Final = (ORDERS, TEST)
"""Topics that the producer writes to."""

STEP_TIMEOUT_SECONDS: Final = 600.0
"""Time limit of each step on a busy machine; errors end the demo earlier."""

Run = Callable[[list[str]], int]


@dataclass(frozen=True, slots=True)
class DemoScenario(ABC):
    """The steps of the demo, in order."""

    run: Run
    name: str
    warehouse_uri: str
    pauses: bool
    """Whether each step but the first waits for Enter."""
    cluster: EmbeddedCluster | EmbeddedKRaftCluster | MigratingCluster
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False)

    @property
    @abstractmethod
    def address(self) -> dict[str, str]:
        """The cluster's address: the name of its setting, and the value."""

    @property
    def bootstrap(self) -> str:
        """The brokers, for clients."""
        return self.cluster.bootstrap

    @abstractmethod
    def prepare(self) -> None:
        """Run the steps that create the topics."""

    @abstractmethod
    def change(self) -> None:
        """Run the steps that change the cluster while the producer writes."""

    def execute(self) -> tuple[set[bytes], set[bytes]]:
        """Run every step; return the records acknowledged and the records read back."""
        stdout().print(f"Every command below has the environment {self.assignments}")
        self.prepare()
        self.heading("A producer starts: acks=all, idempotent; it writes until the end")
        traffic = self.traffic()
        with progress("waiting for the first acknowledged record"):
            traffic.start()
        self.change()
        self.heading("Verification: every acknowledged record is read back")
        traffic.stop()
        with progress("reading every record"):
            return traffic.acked, read_everything(self.bootstrap, traffic.topics)

    def traffic(self) -> Traffic:
        """Return the producer that writes throughout."""
        return Traffic(self.bootstrap, TOPICS)

    @property
    def environment(self) -> dict[str, str | None]:
        """The variables of every command, which its suggestions need not repeat; None for one that is unset."""
        given = {"warehouse": self.warehouse_uri, **dict.fromkeys(ADDRESS_OPTIONS), **self.address}
        return {f"SURVEYOR_{setting.upper()}": value for setting, value in given.items()}

    @property
    def assignments(self) -> str:
        """The variables that are set, as in a shell."""
        return " ".join(f"{name}={value}" for name, value in self.environment.items() if value is not None)

    def common(self) -> list[str]:
        """Set the variables of the next command, and return the options of every command."""
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return ["--cluster", self.name]

    @property
    def settings(self) -> Settings:
        """The settings that the commands receive as options."""
        return settings_from(
            cluster=self.name,
            zookeeper=self.address.get("zookeeper"),
            bootstrap_servers=self.address.get("bootstrap_servers"),
            warehouse=self.warehouse_uri,
            conf_path=None,
            command_config=None,
            as_json=False,
            result_file=None,
        )

    def heading(self, title: str) -> None:
        number = next(self._numbers)
        if self.pauses and number > 1:
            self.await_enter(number)
        stdout().print(f"\n[bold]{number}. {title}[/bold]")

    def await_enter(self, number: int) -> None:
        """Show what another terminal needs, and wait for Enter."""
        say = stdout().print
        say(f"\nStep {number} waits for Enter. For commands in another terminal:")
        for name, value in self.environment.items():
            say(f"  unset {name}" if value is None else f"  export {name}={value}", markup=False)
        if not sys.stdin.readline():
            raise SurveyorError("the input has ended: --pause waits for Enter before each step")

    def surveyor(self, *arguments: str) -> int:
        """Show and run a command, and return its exit code; raise SurveyorError if it fails."""
        stdout().print(f"\n$ surveyor {' '.join(arguments)}", markup=False)
        code = self.run([*arguments, *self.common()])
        if code in (ExitCode.INTERRUPTED, 128 + SIGTERM):
            raise KeyboardInterrupt
        if code not in (ExitCode.DONE, ExitCode.CHANGES):
            raise SurveyorError(f"`surveyor {' '.join(arguments)}` ended with exit code {code}")
        return code

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait until something happened; while a quorum has no leader, nothing can be read."""

        def has_happened() -> bool:
            try:
                return happened()
            except UnreadableError:
                return False

        if not poll_until(has_happened, bool, STEP_TIMEOUT_SECONDS):
            raise SurveyorError(
                f"the step did not complete within {STEP_TIMEOUT_SECONDS:g} s; logs: {self.cluster.folder}"
            )
