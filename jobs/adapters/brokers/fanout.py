"""Requests to every broker in parallel and in bounded time; returns results, and reasons for missing ones."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final, TypeVar

from jobs.adapters.brokers.admin_client import bootstrap, login_failure, require_credentials
from jobs.adapters.brokers.connection import REFUSED_LOGINS, refusal_at
from jobs.adapters.brokers.first_answers import answering
from jobs.adapters.brokers.kafka_python_client import connected_broker, negotiate
from jobs.adapters.kerberos.login import KerberosError
from jobs.core.errors import first_line
from schemas.rows import Broker

T = TypeVar("T")

Ask = Callable[[Any], Any]
"""Sends one request of kafka-python and returns its response; raises what kafka-python or the network raises."""

AskBroker = Callable[[Ask, Broker], T]
"""Asks one broker; an exception is the reason why this broker did not answer."""

CONNECT_SECONDS: Final = 3.0
"""Seconds for the connection to a broker and its first answer, so that one that hangs costs no more."""

MAX_CONNECTIONS: Final = 128
"""Brokers asked at a time, with one thread each, which mostly waits."""

ASKING_SHARE: Final = 0.9
"""Share of the time for requests; the rest is for closing unanswered connections."""

NOT_UNDERSTOOD: Final = "its registration in /brokers/ids cannot be decoded"
NO_RESPONSE: Final = "it did not answer in time"


def ask_brokers(
    brokers: Sequence[Broker],
    settings: dict[str, str],
    timeout_seconds: float,
    request: AskBroker[T],
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
                    responses[broker.broker_id] = _ask(broker, settings, share, request)
                except Exception as error:  # noqa: BLE001 - any error concerns only this broker
                    reasons[broker.broker_id] = first_line(error)

    # daemons, because a name look-up cannot be interrupted and Python waits at exit for the threads of a pool
    workers = [Thread(target=work, daemon=True, name="ask-brokers") for _ in range(min(max_connections, len(pending)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    responded = dict(responses)
    return responded, {broker: reason for broker, reason in sorted(reasons.items()) if broker not in responded}


def _ask(broker: Broker, settings: dict[str, str], seconds: float, request: AskBroker[T]) -> T:
    """Ask one broker, at another of its addresses if one does not answer."""
    addresses = bootstrap([broker], settings)
    errors = dict[str, Exception]()
    until = time.monotonic() + seconds
    several = len(addresses) > 1
    for address in answering(addresses, settings, seconds, errors) if several else addresses:
        try:
            require_credentials(settings)
            with _connected(address, settings, until - time.monotonic()) as ask:
                return request(ask, broker)
        except Exception as error:  # noqa: BLE001 - the next address may do
            errors[address] = error
    failure = login_failure(settings, addresses)
    if failure is not None:
        raise KerberosError(failure)
    if not errors:
        raise ConnectionError(f"it has no {settings.get('security_protocol', 'PLAINTEXT')} endpoint")
    last = errors[addresses[-1]]
    refusal = refusal_at(addresses[-1], settings) if isinstance(last, REFUSED_LOGINS) else None
    raise last if refusal is None else ConnectionError(refusal)


@contextmanager
def _connected(address: str, settings: dict[str, str], seconds: float) -> Iterator[Ask]:
    """Yield a function that sends a request and returns its response; `seconds` bounds all requests together."""
    deadline = time.monotonic() + seconds
    with connected_broker(address, settings) as ask:
        negotiate(ask, min(CONNECT_SECONDS, seconds))
        yield lambda request: ask(request, max(0.0, deadline - time.monotonic()))
