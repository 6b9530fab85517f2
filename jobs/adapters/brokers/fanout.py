"""Requests to every broker in parallel and in bounded time; returns results, and reasons for missing ones.

Uses kafka-python's connections with SASL and TLS. Its Admin client waits without bound for some handshakes and leaves
a thread behind, so its connections are driven here.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final, TypeVar

from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

from jobs.adapters.brokers.admin_client import bootstrap, login_failure, require_credentials
from jobs.adapters.brokers.connection import refusal_at
from jobs.adapters.kerberos.login import KerberosError
from schemas.rows import Broker

T = TypeVar("T")

Ask = Callable[[Any], Any]
"""Sends one request of kafka-python and returns its response; raises what kafka-python or the network raises."""

TimedAsk = Callable[[Any, float], Any]
"""Sends one request and returns its response within a number of seconds."""

AskBroker = Callable[[Ask, Broker], T]
"""Asks one broker; an exception is the reason why this broker did not answer."""

MAX_CONNECTIONS: Final = 128
"""Brokers asked at a time, with one thread each, which mostly waits."""

MAX_RESPONSE_BYTES: Final = 100_000_000
"""As in kafka-python's Admin client. Its connections alone take a megabyte, less than some brokers' log dirs."""

ASKING_SHARE: Final = 0.9
"""Share of the time for requests; the rest is for closing unanswered connections."""

NOT_UNDERSTOOD: Final = "its registration in /brokers/ids cannot be decoded"
NO_RESPONSE: Final = "it did not answer in time"

_NODE: Final = "bootstrap-0"
"""kafka-python's name of the first bootstrap address."""


def ask_brokers(
    brokers: Sequence[Broker],
    settings: dict[str, str],
    timeout_seconds: float,
    question: AskBroker[T],
    *,
    broker_timeout: float | None = None,
    max_connections: int = MAX_CONNECTIONS,
) -> tuple[dict[int, T], dict[int, str]]:
    """Ask every broker whose registration is decoded; return results, and reasons for missing ones, by broker id.

    `settings` come from `read_properties`. `timeout_seconds` bounds the whole and `broker_timeout` one broker. At
    most `max_connections` brokers are asked at a time; with more brokers each has less time if the timeout is short.
    """
    deadline = time.monotonic() + timeout_seconds
    pending = deque(broker for broker in brokers if broker.understood)
    rounds = -(-len(pending) // max_connections)
    share = ASKING_SHARE * timeout_seconds / max(1, rounds)
    share = share if broker_timeout is None else min(broker_timeout, share)
    responses: dict[int, T] = {}
    reasons = {broker.broker_id: NO_RESPONSE if broker.understood else NOT_UNDERSTOOD for broker in brokers}

    def work() -> None:
        with suppress(IndexError):
            while time.monotonic() < deadline:
                broker = pending.popleft()
                try:
                    responses[broker.broker_id] = _ask(broker, settings, share, question)
                except Exception as error:  # noqa: BLE001 - any error concerns only this broker
                    reasons[broker.broker_id] = _failure_reason(error)

    # daemons, because a name look-up cannot be interrupted and Python waits at exit for the threads of a pool
    workers = [Thread(target=work, daemon=True, name="ask-brokers") for _ in range(min(max_connections, len(pending)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    responded = dict(responses)
    return responded, {broker: reason for broker, reason in sorted(reasons.items()) if broker not in responded}


def _ask(broker: Broker, settings: dict[str, str], seconds: float, question: AskBroker[T]) -> T:
    """Ask one broker at one address after another until it answers."""
    addresses = bootstrap([broker], settings)
    last: Exception = ConnectionError(f"it has no {settings.get('security_protocol', 'PLAINTEXT')} endpoint")
    for address in addresses:
        try:
            require_credentials(settings)
            with _connected(address, settings, seconds / len(addresses)) as ask:
                return question(ask, broker)
        except Exception as error:  # noqa: BLE001 - the next address may do
            last = error
    failure = login_failure(settings, addresses)
    if failure is not None:
        raise KerberosError(failure)
    refusal = refusal_at(addresses[-1], settings) if isinstance(last, KafkaConnectionError) else None
    raise last if refusal is None else ConnectionError(refusal)


def _failure_reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0][:200]
    return first or type(error).__name__


class _Selector(selectors.DefaultSelector):
    """A selector that closes its sockets when closed, as kafka-python does not close those that never got connected."""

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
    """Yield a function that sends a request and returns its response; `seconds` bounds all requests together."""
    deadline = time.monotonic() + seconds
    with connected_broker(address, settings) as ask:
        yield lambda request: ask(request, max(0.0, deadline - time.monotonic()))


@contextmanager
def connected_broker(address: str, settings: dict[str, str]) -> Iterator[TimedAsk]:
    """Yield a function that sends a request to one broker and returns its response within a number of seconds."""
    client = KafkaNetClient(
        bootstrap_servers=[address], selector=_Selector, receive_message_max_bytes=MAX_RESPONSE_BYTES, **settings
    )

    def ask(request: Any, seconds: float) -> Any:  # noqa: ANN401 - kafka-python is untyped
        future = client.send(_NODE, request)
        client.poll(timeout_ms=seconds * 1000, future=future)
        if not future.succeeded():
            raise future.exception or KafkaTimeoutError(f"no answer from {address} within {seconds:g} s")
        return future.value

    try:
        yield ask
    finally:
        # an error in closing must not hide a result
        with suppress(Exception):
            client.close()
