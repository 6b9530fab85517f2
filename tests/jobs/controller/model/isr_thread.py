"""The thread of an ISR writer in the model, which runs when the simulation lets it, up to its next access to ZooKeeper.

So the order in which the writer and the cycle read and write is drawn from a seed, and is the same in each run. The
code of `IsrWriter` runs unchanged; its thread and its queue are replaced.
"""

from collections import deque
from collections.abc import Callable
from threading import Semaphore, Thread, current_thread
from typing import Any


class KilledError(BaseException):
    """The process is killed; no code of the controller may handle this as an error of its own."""


class SteppedThread:
    """Replaces `Thread`; `step` is called by the simulation, `park` in the thread itself."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:  # noqa: ANN401 - as Thread
        self._target = target
        self._thread = Thread(target=self._run, daemon=True)
        self._may_run, self._is_parked = Semaphore(0), Semaphore(0)
        self._is_killed = False
        self.is_over = False
        self.is_waiting = False
        """Whether it waits for requests."""

    @property
    def is_current(self) -> bool:
        return current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Let it run to its end."""
        while not self.is_over:
            self.step()

    def kill(self) -> None:
        """End it where it is."""
        self._is_killed = True
        self.join()

    def step(self) -> None:
        """Let it run until it is about to read or write, or waits for requests."""
        if not self.is_over:
            self._may_run.release()
            self._is_parked.acquire()

    def park(self) -> None:
        """Wait for the next step."""
        self._is_parked.release()
        self._may_run.acquire()
        if self._is_killed:
            raise KilledError

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            if not self._is_killed:
                self._target()
        except KilledError:
            pass
        finally:
            self.is_over = True
            self._is_parked.release()


class ParkingQueue:
    """Replaces the `SimpleQueue` of requests: the thread that finds it empty parks."""

    def __init__(self, thread: Callable[[], SteppedThread | None], empty: type[Exception]) -> None:
        self._thread = thread
        self._items: deque[Any] = deque()
        self._empty = empty

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any) -> None:  # noqa: ANN401 - as SimpleQueue
        self._items.append(item)

    def get_nowait(self) -> Any:  # noqa: ANN401 - as SimpleQueue
        if not self._items:
            raise self._empty
        return self._items.popleft()

    def get(self) -> Any:  # noqa: ANN401 - as SimpleQueue
        thread = self._thread()
        assert thread is not None
        while not self._items:
            thread.is_waiting = True
            thread.park()
        thread.is_waiting = False
        return self._items.popleft()
