"""ZooKeeper watches that wake the resident controller and name the paths to read.

Corresponds to the handlers that `KafkaController.onControllerFailover` registers: children of /brokers/ids,
/brokers/topics, /admin/delete_topics and of the notification znodes, /admin's two requests, each topic, each
registration, and /controller. Changed znodes are read afterwards; a watch that was lost with a connection counts as
having fired.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from jobs.adapters.zookeeper.cluster_state import (
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
from schemas.znode_paths import key_of_state

_CHILDREN: Final = (BROKER_IDS, TOPICS, DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, CONFIG_CHANGES, PLANS)
_ZNODES: Final = (CONTROLLER, REASSIGN, PREFERRED_ELECTION)


@dataclass(slots=True)
class ZkWatches:
    """Watches of one session."""

    client: KazooClient
    wakeup: Event = field(default_factory=Event)
    _fired: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def watch_all(self) -> None:
        """Set the permanent watches."""
        self.watch((*_CHILDREN, *_ZNODES))

    def watch(self, paths: Iterable[str]) -> None:
        """Set watches on these paths; a read that follows misses no change.

        If the connection is lost while they are set, all of the paths count as fired, and `drain` sets their watches
        again.
        """
        pending = {path: self._set_watch(path) for path in paths}
        try:
            for watch in pending.values():
                with suppress(NoNodeError, NoAuthError):  # the next resync watches an absent parent again
                    await_result(watch)
        except LOST:
            with self._lock:
                self._fired |= pending.keys()
            raise

    def drain(self) -> set[str]:
        """Return the paths whose watches have fired, and watch them again, but for states.

        A state is watched only while it cannot be decoded.
        """
        with self._lock:
            fired, self._fired = self._fired, set()
            self.wakeup.clear()
        self.watch(path for path in fired if key_of_state(path) is None)
        return fired

    def signal(self, path: str = "") -> None:
        """Wake the controller."""
        with self._lock:
            if path:
                self._fired.add(path)
            self.wakeup.set()

    def _set_watch(self, path: str) -> Any:  # noqa: ANN401 - kazoo is untyped
        watch: Callable[[object], None] = lambda _: self.signal(path)  # noqa: E731 - a bound method would need an object for each path
        if path in _CHILDREN:
            return self.client.get_children_async(path, watch=watch)
        return self.client.exists_async(path, watch=watch)
