"""Requests to several addresses of which one has to answer, in the order of the answers."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from kafka.errors import KafkaTimeoutError

from jobs.adapters.brokers.kafka_python_client import T, connected_broker, negotiate

_Answers = SimpleQueue[tuple[str, T | Exception]]
"""Addresses with the answer or error of each."""

HEAD_START_SECONDS: Final = 1.0
"""Seconds after which the other addresses are asked as well, if the first does not answer."""

MAX_ASKED_AT_ONCE: Final = 128
"""Addresses that are asked at a time, with one thread each, which mostly waits."""


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
