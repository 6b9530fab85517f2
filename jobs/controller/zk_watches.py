"""What wakes a controller that stays: watches of ZooKeeper, which say only where to look.

Corresponds to the handlers that `KafkaController.onControllerFailover` registers: children of /brokers/ids,
/brokers/topics, /admin/delete_topics and of the two notification znodes, /admin's two requests, each topic, each
registration, and /controller. What has changed is read afterwards; a watch that was lost with a connection counts as
having fired.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from jobs.adapters.zookeeper.cluster import (
    BROKER_IDS,
    CONFIG_CHANGES,
    CONTROLLER,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN,
    TOPICS,
)
from jobs.adapters.zookeeper.connection import LOST, await_result
from jobs.adapters.zookeeper.plan_submission import PLANS

_CHILDREN: Final = (BROKER_IDS, TOPICS, DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, CONFIG_CHANGES, PLANS)
_ZNODES: Final = (CONTROLLER, REASSIGN, PREFERRED_ELECTION)


@dataclass(slots=True)
class ZkWatches:
    """Watches on one session; `fired` are the paths of those that have."""

    client: KazooClient
    wakeup: Event = field(default_factory=Event)
    _fired: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def watch_all(self) -> None:
        """Watch everything that is watched throughout."""
        self.watch((*_CHILDREN, *_ZNODES))

    def watch(self, paths: Iterable[str]) -> None:
        """Watch these from now on; whoever reads afterwards misses nothing.

        Where the connection is lost over it all of them count as having fired, and are armed by who takes them.
        """
        pending = {path: self._armed(path) for path in paths}
        try:
            for each in pending.values():
                with suppress(NoNodeError, NoAuthError):  # an absent parent is looked at again with the next audit
                    await_result(each)
        except LOST:
            with self._lock:
                self._fired |= pending.keys()
            raise

    def drain(self) -> set[str]:
        """Take the paths that something happened to, and watch them again."""
        with self._lock:
            fired, self._fired = self._fired, set()
            self.wakeup.clear()
        self.watch(fired)
        return fired

    def signal(self, path: str = "") -> None:
        """Wake up whoever waits."""
        with self._lock:
            if path:
                self._fired.add(path)
            self.wakeup.set()

    def _armed(self, path: str) -> Any:  # noqa: ANN401 - kazoo is untyped
        watch: Callable[[object], None] = lambda _: self.signal(path)  # noqa: E731 - a method would be one more for each path
        if path in _CHILDREN:
            return self.client.get_children_async(path, watch=watch)
        return self.client.exists_async(path, watch=watch)
