"""The demo on a cluster with ZooKeeper: Surveyor is its controller while a broker is killed."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import current_controller
from jobs.core.errors import SurveyorError
from jobs.demo_scenario.plan_steps import PlanScenario
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from schemas.broker_config_names import PROTOCOL_VERSION
from schemas.enums import NO_CONTROLLER

VICTIM: Final = 1
"""The broker that is killed."""

BROKER_SETTINGS: Final = {PROTOCOL_VERSION: "2.6"}
"""Broker settings; with later versions brokers request ISR changes from the controller, which Surveyor does not serve.
"""

STOP_TIMEOUT_SECONDS: Final = 60.0
"""Time limit for the process to resign."""


@dataclass(frozen=True, slots=True)
class ZooKeeperScenario(PlanScenario):
    """The steps on a cluster with ZooKeeper."""

    cluster: EmbeddedCluster

    commit_options: ClassVar = ["--mode", "batch"]
    newcomer: ClassVar = 3
    first_brokers: ClassVar = (0, 1, 2)

    @property
    def address(self) -> dict[str, str]:
        return {"zookeeper": self.cluster.zookeeper_server.connect}

    def change(self) -> None:
        self.lose_broker()
        self.heading(f"Broker {VICTIM} restarts; leadership returns to the preferred replicas")
        self.cluster.brokers[VICTIM].start()
        with progress(f"waiting for broker {VICTIM} to rejoin every ISR"):
            self.cluster.brokers[VICTIM].wait_ready()
            self.wait_until(self.all_in_sync)
        self.balance()
        self.grow()
        self.show_history()

    def lose_broker(self) -> None:
        self.heading(f"`surveyor control` runs as in another terminal, and broker {VICTIM} is killed")
        self.surveyor("snapshot")
        say = stdout().print
        control = ["--apply", "--yes"]
        say(f"\n$ surveyor control {' '.join(control)} &", markup=False)
        with run_resident([*control, *self.common()]) as controller:
            self.wait_until(controller.until(self.is_ours))  # the process reports its own progress
            say(f"$ kill -9 of broker {VICTIM}; its ZooKeeper session is ended at once instead of after its timeout")
            self.cluster.brokers[VICTIM].kill()
            self.cluster.brokers[VICTIM].expire()
            self.wait_until(controller.until(lambda: self.is_out_of_isrs(VICTIM)))
            self.surveyor("status")
            say("\nCtrl-C stops it; a broker becomes the controller")
        with progress("waiting for a broker to become the controller"):
            self.wait_until(self.has_controller)

    def is_ours(self) -> bool:
        return self.controller() == self.settings.conf.controller_id

    def has_controller(self) -> bool:
        return self.controller() != NO_CONTROLLER

    def controller(self) -> int:
        with connected(self.settings.zookeeper_endpoint) as client:
            return current_controller(client)


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    process: "subprocess.Popen[bytes]"

    def until(self, happened: Callable[[], bool]) -> Callable[[], bool]:
        """Wrap a condition so that it raises SurveyorError if the process has ended."""

        def checked() -> bool:
            if self.process.poll() is not None:
                raise SurveyorError(f"`surveyor control` ended with exit code {self.process.returncode}")
            return happened()

        return checked


@contextmanager
def run_resident(arguments: Sequence[str]) -> Iterator[ResidentProcess]:
    """Run `surveyor control` within the block.

    The process has its own session, so Ctrl-C reaches only the demo, which then stops the process.
    """
    command = [sys.executable, "-m", "jobs.entry", "control", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:  # noqa: S603 - ours
        try:
            yield ResidentProcess(process)
        finally:
            process.terminate()  # a shell's background job ignores SIGINT, and so do its children
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
            process.kill()
