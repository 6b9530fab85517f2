"""Connections of kafka-python to one broker each.

kafka-python's Admin client picks an address by chance, waits without bound for some handshakes, and leaves a thread
behind. The connections are therefore driven here.
"""

import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, TypeVar

from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.core.signals import uninterruptible

T = TypeVar("T")

TimedAsk = Callable[[Any, float], Any]
"""Sends one request and returns its response within a number of seconds."""

MAX_RESPONSE_BYTES: Final = 100_000_000
"""As in kafka-python's Admin client. Its connections alone take a megabyte, less than some brokers' log dirs."""

_NODE: Final = "bootstrap-0"
"""kafka-python's name of the first bootstrap address."""

_RECEIVING: Final = Lock()
"""Held by the connection that receives.

kafka-python receives 4 KiB at a time. Threads that do so at once contend for the interpreter, and all of them take
longer. While one waits for its broker, another one receives.
"""


class _Selector(selectors.DefaultSelector):
    """A selector that closes its sockets when closed, as kafka-python does not close those that never got connected."""

    takes_turns = False
    """Whether `_RECEIVING` is held from one wait to the next. Names are looked up, and logins made, without it."""

    def __init__(self) -> None:
        super().__init__()
        self._watched: set[Any] = set()
        self._has_turn = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401
        self._watched.add(fileobj)
        return super().register(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401
        """Look a socket up by its number: the KeyError of each wait, which kafka-python expects, describes it."""
        number = fileobj.fileno()
        return super().get_key(fileobj if number < 0 else number)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.end_turn()
        events = super().select(timeout)
        if events and self.takes_turns:
            self._has_turn = _RECEIVING.acquire()
        return events

    def end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _RECEIVING.release()

    def close(self) -> None:
        for fileobj in self._watched:
            fileobj.close()
        super().close()


@contextmanager
def connected_broker(address: str, settings: dict[str, str]) -> Iterator[TimedAsk]:
    """Yield a function that sends a request to one broker and returns its response within a number of seconds."""
    selector = _Selector()
    client = KafkaNetClient(
        bootstrap_servers=[address],
        selector=lambda: selector,
        receive_message_max_bytes=MAX_RESPONSE_BYTES,
        **settings,
    )

    def ask(request: Any, seconds: float) -> Any:  # noqa: ANN401 - kafka-python is untyped
        future = client.send(_NODE, request)
        try:
            with uninterruptible():  # kafka-python drops an exception that a signal raises in its event loop
                client.poll(timeout_ms=seconds * 1000, future=future)
        finally:
            selector.end_turn()
        if not future.succeeded():
            raise future.exception or KafkaTimeoutError(f"no answer from {address} within {seconds:g} s")
        selector.takes_turns = True
        return future.value

    try:
        yield ask
    finally:
        # an error in closing must not hide a result
        with suppress(Exception):
            client.close()
        selector.end_turn()


def negotiate(ask: TimedAsk, seconds: float) -> None:
    """Connect, log in and get an answer to ApiVersions within `seconds`; raise the error of kafka-python otherwise.

    The kernel accepts a connection for a stopped process, so only an answer shows that a broker is alive.
    """
    ask(ApiVersionsRequest(client_software_name="surveyor", client_software_version="1"), seconds)
