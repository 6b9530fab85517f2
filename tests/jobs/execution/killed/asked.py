"""Kafka's controller inside a process that dies: whoever asks it passes a point before and after each request.

What it was asked is done before it answers, and stands in ZooKeeper however the process ends; what moves arrives while
somebody waits for it, unless it is stuck.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.assessment import waves
from jobs.execution import cancellation, commit, modes
from jobs.execution.admin import commit as commit_admin
from jobs.execution.admin import controllers, requests
from schemas.rows import Key
from tests.jobs.support.cancelling_controller import MovingController
from tests.jobs.support.kafka_tree import KafkaTree
from tests.jobs.support.throttled_tree import override

Reach = Callable[[str], None]

_ASKING: Final = (cancellation, commit, controllers, modes, commit_admin)


class Asked(MovingController):
    """Stands for `Admin`."""

    def __init__(self, tree: KafkaTree, reach: Reach, *, stuck: bool) -> None:
        super().__init__(tree)
        self.reach = reach
        self.stuck = stuck

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        with self._points("reassign"):
            return super().reassign(targets)

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        with self._points("elect"):
            for topic, partition in partitions:
                (first, *_), _, _ = self.assigned(topic, partition)
                if self.tree.state(topic, partition).leader != first:
                    self.put_state(topic, partition, first, self.tree.state(topic, partition).isr)
        return dict.fromkeys(partitions, 0)

    def alter_override(self, kind: str, resource: str, wanted: Mapping[str, str | None]) -> int:
        with self._points(f"override of {kind}"):
            override(self.tree, kind, resource, wanted)
        return 0

    def pass_time(self, _seconds: float = 0) -> None:
        for topic, partition in self.reassignments():
            if not self.stuck:
                self.finish(topic, partition)

    @contextmanager
    def _points(self, request: str) -> Iterator[None]:
        self.reach(f"before {request}")
        yield
        self.reach(f"after {request}")


def install(hosts: str, reach: Reach, *, stuck: bool) -> None:
    """Let commands ask it, and time pass for it while they wait; before writes of theirs are marked."""
    client = KazooClient(hosts)
    vars(client)["_call"] = client._call  # noqa: SLF001 - its writes are Kafka's, and no points
    client.start()
    controller = Asked(KafkaTree(hosts, client), reach, stuck=stuck)

    @contextmanager
    def admin_of(*_: object) -> Iterator[Asked]:
        yield controller

    changed: dict[Any, dict[str, Any]] = {module: {"admin_of": admin_of} for module in _ASKING}
    changed[waves] = {"time": SimpleNamespace(sleep=controller.pass_time, monotonic=time.monotonic), "PATIENCE": 0.0}
    changed[commit_admin] |= {"PATIENCE": 0.0}
    changed[cancellation] |= {"PATIENCE": 0.0}
    changed[requests] = {"READ_BACK": 0.0}
    for module, names in changed.items():
        for name, value in names.items():
            setattr(module, name, value)
