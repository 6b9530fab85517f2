"""A fake of Kafka's controller inside a process that crashes: each request passes a kill point before and after it.

A request is carried out before it is answered, so its effect is in ZooKeeper no matter how the process ends.
Reassignments complete while the command waits for them, unless the controller is stuck. Requests in /admin are found
during waits, too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.execution.admin import connections, controller_client
from jobs.runtime.pace import Pace
from schemas.rows import Key
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

Reach = Callable[[str], None]

PACE: Final = Pace(resignation=0.0, batch_changes=2)

REQUESTS: Final = {
    "reassign": "reassign",
    "elect_preferred": "elect",
    "alter_override": "override",
    "alter_config": "alteration",
    "create_topics": "creation",
    "create_partitions": "expansion",
    "delete_topics": "deletion",
}
"""The requests by method, as the names of kill points have them."""


class FakeAdmin(KafkaController):
    """A fake of `Admin`."""

    def __init__(self, tree: KafkaTree, reach: Reach, *, stuck: bool) -> None:
        super().__init__(tree)
        self.reach = reach
        self.stuck = stuck
        for name, request in REQUESTS.items():
            setattr(self, name, partial(self._between_points, getattr(self, name), request))

    def _between_points(self, carry_out: Callable[..., Any], request: str, *arguments: Any) -> Any:  # noqa: ANN401
        self.reach(f"before {request}")
        answer = carry_out(*arguments)
        self.reach(f"after {request}")
        return answer


def install(hosts: str, reach: Reach, *, stuck: bool) -> Pace:
    """Let commands use the fake; return the pace that lets time pass for it while they wait.

    To be called before the commands' writes are marked.
    """
    client = KazooClient(hosts)
    vars(client)["_call"] = client._call  # noqa: SLF001 - its writes are Kafka's and pass no kill points
    client.start()
    controller = FakeAdmin(KafkaTree(hosts, client), reach, stuck=stuck)

    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[FakeAdmin]:
        yield controller

    def read_later(received: Callable[[], list[Key]], *_: object) -> list[Key]:
        controller.step()
        return received()

    changed: dict[Any, dict[str, Any]] = {
        connections: {"connected_admin": connected},
        controller_client: {"_wait_until_seen": read_later},
    }
    for module, names in changed.items():
        for name, value in names.items():
            setattr(module, name, value)
    clock = SimpleNamespace(sleep=controller.step, monotonic=time.monotonic, time=time.time)
    return replace(PACE, clock=clock, previous_wave=0.0, cancellation=0.0)
