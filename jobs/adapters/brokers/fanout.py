"""Questions to each broker by itself, all of them at once, in bounded time: who answered what, and why others did not.

kafka-python speaks, with SASL and TLS; its Admin client waits without bound for some handshakes and leaves a thread
behind, so its connections are driven from here.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final, TypeVar

from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

from jobs.adapters.brokers.admin import bootstrap

Row = dict[str, Any]
T = TypeVar("T")

Ask = Callable[[Any], Any]
"""Sends one request of kafka-python and returns its response; raises what kafka-python or the network raises."""

AskBroker = Callable[[Ask, Row], T]
"""Asks one broker, a row of BROKERS; whatever it raises is why this broker did not answer."""

MAX_CONNECTIONS: Final = 128
"""Brokers that are asked at a time: a thread each, which does little but wait."""

ASKING_SHARE: Final = 0.9
"""Of the time there is, the part for asking; the rest is for closing what did not answer."""

NOT_UNDERSTOOD: Final = "its registration in /brokers/ids is not understood"
NO_RESPONSE: Final = "it did not answer in time"

_NODE: Final = "bootstrap-0"
"""What kafka-python calls the first address it was given."""


def ask_brokers(
    brokers: Sequence[Row],
    settings: dict[str, str],
    patience: float,
    question: AskBroker[T],
    *,
    broker_timeout: float | None = None,
    max_connections: int = MAX_CONNECTIONS,
) -> tuple[dict[int, T], dict[int, str]]:
    """Ask every broker that is understood; return answers, and why there are none of the others, by broker id.

    `settings` are those of `read_properties`; `patience` is in seconds and bounds the whole, `each` one broker. All are
    asked at once; of more than `at_once` each waits for its turn, and has less time where patience is short.
    """
    deadline = time.monotonic() + patience
    pending = deque(broker for broker in brokers if broker["understood"])
    rounds = -(-len(pending) // max_connections)
    share = ASKING_SHARE * patience / max(1, rounds)
    share = share if broker_timeout is None else min(broker_timeout, share)
    answers: dict[int, T] = {}
    reasons = {broker["broker_id"]: NO_RESPONSE if broker["understood"] else NOT_UNDERSTOOD for broker in brokers}

    def work() -> None:
        with suppress(IndexError):
            while time.monotonic() < deadline:
                broker = pending.popleft()
                try:
                    answers[broker["broker_id"]] = _ask(broker, settings, share, question)
                except Exception as error:  # noqa: BLE001 - whatever one broker does or lacks, it costs only itself
                    reasons[broker["broker_id"]] = _failure_reason(error)

    # daemons: nothing but its end interrupts a name look-up, and a pool would be waited for at exit
    workers = [Thread(target=work, daemon=True, name="ask-brokers") for _ in range(min(max_connections, len(pending)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    answered = dict(answers)
    return answered, {broker: why for broker, why in sorted(reasons.items()) if broker not in answered}


def _ask(broker: Row, settings: dict[str, str], seconds: float, question: AskBroker[T]) -> T:
    """Ask one broker at each of its addresses until it answers at one."""
    addresses = bootstrap([broker], settings)
    last: Exception = ConnectionError(f"it has no {settings.get('security_protocol', 'PLAINTEXT')} endpoint")
    for address in addresses:
        try:
            with _connected(address, settings, seconds / len(addresses)) as ask:
                return question(ask, broker)
        except Exception as error:  # noqa: BLE001 - the next address may do
            last = error
    raise last


def _failure_reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0][:200]
    return first or type(error).__name__


class _Selector(selectors.DefaultSelector):
    """A selector that, when closed, closes what it watched: kafka-python drops sockets that never got connected."""

    def __init__(self) -> None:
        super().__init__()
        self._watched: set[Any] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401
        self._watched.add(fileobj)
        return super().register(fileobj, events, data)

    def close(self) -> None:
        for fileobj in self._watched:
            fileobj.close()
        super().close()


@contextmanager
def _connected(address: str, settings: dict[str, str], seconds: float) -> Iterator[Ask]:
    """Yield a function that sends a request and returns its response; all of them together take so many seconds."""
    deadline = time.monotonic() + seconds
    client = KafkaNetClient(bootstrap_servers=[address], selector=_Selector, **settings)

    def ask(request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        future = client.send(_NODE, request)
        client.poll(timeout_ms=max(0.0, deadline - time.monotonic()) * 1000, future=future)
        if not future.succeeded():
            raise future.exception or KafkaTimeoutError(f"no answer from {address} within {seconds:g} s")
        return future.value

    try:
        yield ask
    finally:
        # what was answered stays answered
        with suppress(Exception):
            client.close()
