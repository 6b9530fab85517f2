"""Connections of kafka-python to one broker each, and which of several addresses answers.

kafka-python's Admin client picks an address by chance, waits without bound for some handshakes, and leaves a thread
behind. The connections are therefore driven here.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeVar

from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.core.signals import uninterruptible

T = TypeVar("T")

TimedAsk = Callable[[Any, float], Any]
"""Sends one request and returns its response within a number of seconds."""

_Answers = SimpleQueue[tuple[str, T | Exception]]
"""Addresses with the answer or error of each."""

MAX_RESPONSE_BYTES: Final = 100_000_000
"""As in kafka-python's Admin client. Its connections alone take a megabyte, less than some brokers' log dirs."""

HEAD_START_SECONDS: Final = 1.0
"""Seconds after which the other addresses are asked as well, if the first does not answer."""

MAX_ASKED_AT_ONCE: Final = 128
"""Addresses that are asked at a time, with one thread each, which mostly waits."""

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


def first_answers(
    addresses: Sequence[str], ask: Callable[[str], T], seconds: float, errors: dict[str, Exception]
) -> Iterator[tuple[str, T]]:
    """Yield addresses with the results of `ask`, in the order of their answers.

    The first address is asked alone at first. If it has no answer after HEAD_START_SECONDS, or if the caller needs
    another address, all others are asked at once, so that none waits for a silent one. `seconds` bounds each
    request. `errors` gets the reasons of the addresses that were asked and gave no answer.
    """
    answers: _Answers[T] = SimpleQueue()
    pending = deque(dict.fromkeys(addresses))
    asked = set[str]()

    def start(count: int) -> None:
        for address in [pending.popleft() for _ in range(min(count, len(pending)))]:
            asked.add(address)
            # a daemon, because a name look-up cannot be interrupted
            Thread(target=copy_context().run, args=(_ask, ask, address, answers), daemon=True, name="address").start()

    start(1)
    has_head_start = bool(pending)
    until = time.monotonic() + (HEAD_START_SECONDS if has_head_start else seconds)
    while asked:
        received = _next_answer(answers, asked, until)
        if received is not None:
            address, answer = received
            if isinstance(answer, Exception):
                errors[address] = answer
            else:
                yield address, answer
        elif not has_head_start:
            errors.update((silent, KafkaTimeoutError(f"no answer within {seconds:g} s")) for silent in asked)
            asked.clear()
        if pending and (has_head_start or not asked):
            has_head_start = False
            start(MAX_ASKED_AT_ONCE)
            until = time.monotonic() + seconds


def _ask(ask: Callable[[str], T], address: str, answers: "_Answers[T]") -> None:
    try:
        answers.put((address, ask(address)))
    except Exception as error:  # noqa: BLE001 - any error concerns only this address
        answers.put((address, error))


def _next_answer(answers: "_Answers[T]", asked: set[str], until: float) -> tuple[str, T | Exception] | None:
    """Take the next answer of an address out of `asked`; return None when the time is over."""
    while True:
        try:
            address, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return None
        if address in asked:  # else it was too late
            asked.remove(address)
            return address, answer


def answering(
    addresses: Sequence[str], settings: dict[str, str], seconds: float, errors: dict[str, Exception]
) -> Iterator[str]:
    """Yield the addresses that answer a first request, in the order of `first_answers`."""

    def probe(address: str) -> str:
        with connected_broker(address, settings) as ask:
            negotiate(ask, seconds)
        return address

    return (address for address, _ in first_answers(addresses, probe, seconds, errors))
