"""What brokers say of their settings while a controller is in office: asked beside its cycles, as they register.

Corresponds to `DynamicBrokerConfig`, by which Kafka's controller hears of its own settings; this one runs in no broker,
so it asks all of them, and again with each audit. A broker that leaves ISRs to the controller is said loudly: one wrong
broker is no reason to leave the others without a controller. In: registrations. Out: rows of BROKER_CONFIGS, where
they are not what they were.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.configs import read_configs_and_failures, read_overrides
from jobs.adapters.delta.warehouse import Row
from jobs.execution.batch.broker_protocols import IBP, unsupported_protocols
from jobs.runtime.settings import Settings

REQUEST_TIMEOUT_SECONDS: Final = 20.0
"""Seconds that all brokers have, in the thread that asks them."""

RETRY_SECONDS: Final = 2.0
MAX_TRIES: Final = 10
"""Who did not answer is asked again so many seconds later, so many times in all: a broker that starts is registered in
ZooKeeper some seconds before it takes connections."""

Ask = Callable[[Sequence[Row]], tuple[list[Row], dict[int, str]]]
"""Asks brokers, rows of BROKERS, for their settings; why there is none of some, by broker id."""

_Heard = tuple[Sequence[Row], list[Row], dict[int, str]]


def by_admin(client: KazooClient, settings: Settings) -> Ask:
    """Ask as a snapshot does."""

    def ask(brokers: Sequence[Row]) -> tuple[list[Row], dict[int, str]]:
        overrides, _ = read_overrides(client)
        return read_configs_and_failures(brokers, settings.conf.command_config, overrides, REQUEST_TIMEOUT_SECONDS)

    return ask


@dataclass(slots=True)
class BrokerConfigPoller:
    """Asks brokers in a thread of its own, one time after the other."""

    request: Ask
    configs: list[Row]
    say: Callable[[str], None]
    wake: Callable[[], None]
    _due: dict[int, Row] = field(default_factory=dict)
    """Brokers to be asked next."""
    _heard: SimpleQueue[_Heard] = field(default_factory=SimpleQueue)
    _thread: Thread | None = None
    _said: dict[int, int] = field(default_factory=dict)
    """Broker epochs under which something was said of a broker."""

    def ask(self, brokers: Iterable[Row]) -> None:
        """Ask these as soon as whoever is asked now has answered, or has not in time."""
        self._due |= {row["broker_id"]: row for row in brokers}
        self._poll()

    def _poll(self) -> None:
        if self._due and (self._thread is None or not self._thread.is_alive()):
            brokers, self._due = [*self._due.values()], {}
            self._thread = Thread(target=self._run, args=(brokers,), daemon=True, name="ask-settings")
            self._thread.start()

    def _run(self, brokers: Sequence[Row]) -> None:
        untold, over = brokers, time.monotonic() + REQUEST_TIMEOUT_SECONDS
        for tries in count(1):
            rows, why_not = self._asked(untold)
            told = [row for row in untold if row["broker_id"] not in why_not]
            is_last = tries >= MAX_TRIES or time.monotonic() > over
            self._heard.put((untold, rows, why_not) if is_last else (told, _of(told, rows), {}))
            self.wake()
            untold = [row for row in untold if row["broker_id"] in why_not]
            if is_last or not untold:
                return
            time.sleep(RETRY_SECONDS)

    def _asked(self, brokers: Sequence[Row]) -> tuple[list[Row], dict[int, str]]:
        try:
            return self.request(brokers)
        except Exception as error:  # noqa: BLE001 - what is known holds until they are asked again
            return [], {row["broker_id"]: str(error) or type(error).__name__ for row in brokers}

    def take(self, registered: Iterable[int]) -> list[Row] | None:
        """Return the settings of brokers where they are not what they were; else None.

        Of a broker that did not answer holds what is known already; who is registered no longer does not count.
        """
        changed = False
        while (heard := self._next()) is not None:
            brokers, rows, why_not = heard
            self._log_failures(brokers, rows, why_not)
            known = {row["broker_id"] for row in self.configs}
            fresh = [row for row in rows if row["broker_id"] not in why_not or row["broker_id"] not in known]
            anew = {row["broker_id"] for row in fresh}
            there = {*registered}
            kept = [row for row in self.configs if row["broker_id"] in there - anew]
            changed |= _values(self.configs) != _values(kept + fresh)
            self.configs = kept + fresh
        self._poll()
        return self.configs if changed else None

    def _next(self) -> _Heard | None:
        try:
            return self._heard.get_nowait()
        except Empty:
            return None

    def _log_failures(self, brokers: Sequence[Row], rows: Sequence[Row], why_not: dict[int, str]) -> None:
        """Say once of each registration what cannot be served, and who did not tell."""
        wrong = unsupported_protocols(rows)
        for row in brokers:
            broker, epoch = row["broker_id"], row["broker_epoch"]
            if self._said.get(broker) == epoch:
                continue
            if broker in wrong:
                self.say(
                    f"surveyor: WARNING: broker {broker} runs with {IBP} {wrong[broker]}: it asks the controller for "
                    "changes of ISRs, and from 3.0 on for producer ids, which `surveyor control` does not serve. What "
                    "it leads cannot change its ISR any more, and idempotent producers may find no ids at it: stop it, "
                    f"set {IBP}=2.6 and start it again, or end `surveyor control`, and Kafka's controller takes over",
                )
                self._said[broker] = epoch
            elif broker in why_not:
                self.say(
                    f"surveyor: broker {broker} did not tell its settings ({why_not[broker]}): make sure that its "
                    f"{IBP} is 2.7-IV1 at most; it is asked again with the next audit",
                )
                self._said[broker] = epoch


def _of(brokers: Iterable[Row], rows: Iterable[Row]) -> list[Row]:
    ids = {row["broker_id"] for row in brokers}
    return [row for row in rows if row["broker_id"] in ids]


def _values(rows: Iterable[Row]) -> set[tuple[int, str, str | None]]:
    return {(row["broker_id"], row["name"], row["value"]) for row in rows}
