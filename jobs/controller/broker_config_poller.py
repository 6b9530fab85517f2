"""Reads the settings of brokers while the resident controller runs: in a separate thread, when brokers register.

Corresponds to `DynamicBrokerConfig`, by which Kafka's controller notices changes of its own settings. This controller
runs in no broker, so it asks all of them, and again with each resync. A broker that does not respond is asked again
until it does. It logs a warning about a broker that expects the controller to change ISRs (AlterPartition): one such
broker does not justify leaving the others without a controller.

A setting permits something, such as an unclean election, only if the broker that runs now has reported it. A broker
that does not respond keeps its settings until it is restarted.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.zookeeper.broker_overrides import read_overrides
from jobs.controller.broker_protocols import unsupported_protocols
from jobs.controller.client_logins import is_of_security
from jobs.controller.pending_work import drained
from jobs.runtime.console import LogLine
from jobs.runtime.settings import Settings
from schemas.broker_config_defaults import DEFAULTS
from schemas.broker_config_names import AUTHORIZER, PROTOCOL_VERSION
from schemas.rows import Broker, BrokerConfig

REQUEST_TIMEOUT_SECONDS: Final = 20.0
"""Seconds in which all brokers must respond, in the thread that asks them."""

ConfigReader = Callable[[Sequence[Broker]], tuple[list[BrokerConfig], dict[int, str]]]
"""Reads the settings of brokers, given as rows of BROKERS.

It also returns, by broker id, why a broker did not respond.
"""


class _Unread(NamedTuple):
    """A broker whose settings could not be read, and when it is due to be asked again."""

    broker: Broker
    due_at: float


_PollResult = tuple[Sequence[Broker], list[BrokerConfig], dict[int, str]]


def admin_config_reader(
    client: KazooClient, settings: Settings, defaults: Mapping[str, str | None] = DEFAULTS
) -> ConfigReader:
    """Return a function that reads settings as a snapshot does. `defaults` has the names that get a row."""

    def request_configs(brokers: Sequence[Broker]) -> tuple[list[BrokerConfig], dict[int, str]]:
        overrides, _ = read_overrides(client)
        return read_broker_configs(
            brokers, settings.conf.command_config, overrides, REQUEST_TIMEOUT_SECONDS, defaults=defaults
        )

    return request_configs


@dataclass(slots=True)
class BrokerConfigPoller:
    """Reads settings in a separate thread, one batch of brokers at a time."""

    read_configs: ConfigReader
    configs: list[BrokerConfig]
    log_line: LogLine
    wakeup: Callable[[], None]
    is_serving: bool = False
    """Whether brokers can ask this process, so that every protocol version is supported."""
    reported_epochs: dict[int, int] = field(default_factory=dict)
    """By broker, the broker epoch in which it reported its settings last, or was first seen."""
    retry_seconds: float = 2.0
    max_tries: int = 10
    """Attempts in all, `retry_seconds` apart, for brokers that do not respond.

    A broker that starts is registered in ZooKeeper some seconds before it accepts connections.
    """
    ask_again_seconds: float = 30.0
    """Seconds after the last attempt until brokers that did not respond are asked once more."""
    _due: dict[int, Broker] = field(default_factory=dict)
    """Brokers of the next batch."""
    _unread: dict[int, _Unread] = field(default_factory=dict)
    """By broker id, the brokers that did not respond in the batch before."""
    _results: SimpleQueue[_PollResult] = field(default_factory=SimpleQueue)
    _thread: Thread | None = None
    _warned_epochs: dict[int, int] = field(default_factory=dict)
    """By broker, the broker epoch for which something was logged."""

    def request_configs(self, brokers: Iterable[Broker]) -> None:
        """Read the settings of these brokers as soon as the batch in progress is done."""
        self._due |= {row.broker_id: row for row in brokers}
        self._start_if_due()

    def _start_if_due(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        brokers, tries = [*self._due.values()], self.max_tries
        if not brokers:  # once only, because brokers that start may not wait
            now = time.monotonic()
            brokers, tries = [entry.broker for entry in self._unread.values() if entry.due_at <= now], 1
        if brokers:
            self._due = {}
            self._thread = Thread(target=self._run, args=(brokers, tries), daemon=True, name="ask-settings")
            self._thread.start()

    def _run(self, brokers: Sequence[Broker], max_tries: int) -> None:
        pending, deadline = brokers, time.monotonic() + REQUEST_TIMEOUT_SECONDS
        for tries in count(1):
            rows, errors = self._read_configs(pending)
            responded = [row for row in pending if row.broker_id not in errors]
            is_last = tries >= max_tries or time.monotonic() > deadline
            self._results.put((pending, rows, errors) if is_last else (responded, _of_brokers(responded, rows), {}))
            self.wakeup()
            pending = [row for row in pending if row.broker_id in errors]
            if is_last or not pending:
                return
            time.sleep(self.retry_seconds)

    def _read_configs(self, brokers: Sequence[Broker]) -> tuple[list[BrokerConfig], dict[int, str]]:
        try:
            return self.read_configs(brokers)
        except Exception as error:  # noqa: BLE001 - the known settings hold until the next attempt
            return [], {row.broker_id: str(error) or type(error).__name__ for row in brokers}

    def pop_changed(self, registered: Mapping[int, Broker]) -> list[BrokerConfig] | None:
        """Return the settings of all brokers if they have changed, else None.

        If a broker did not respond, its known settings are kept; see `_outdated` for a restarted broker. Settings
        of brokers that are no longer registered are dropped.
        """
        changed = False
        for broker, row in registered.items():
            self.reported_epochs.setdefault(broker, row.zk_broker_epoch)
        for brokers, rows, errors in drained(self._results):
            silent = self._no_longer_reporting(rows, errors)
            self._log_failures(brokers, rows, silent | errors)
            self._note_unread(brokers, silent | errors)
            outdated = silent.keys() | self._restarted(brokers, errors)
            self.reported_epochs |= {
                row.broker_id: row.zk_broker_epoch for row in brokers if row.broker_id not in errors
            }
            known_brokers = {row.broker_id for row in self.configs}
            new_rows = [
                row
                for row in rows
                if row.broker_id not in outdated and (row.broker_id not in errors or row.broker_id not in known_brokers)
            ]
            new_rows += _outdated(self.configs, rows, outdated)
            updated_brokers = {row.broker_id for row in new_rows}
            kept_brokers = registered.keys() - updated_brokers
            kept_rows = [row for row in self.configs if row.broker_id in kept_brokers]
            changed |= _values(self.configs) != _values(kept_rows + new_rows)
            self.configs = kept_rows + new_rows
        self._unread = {broker: entry for broker, entry in self._unread.items() if broker in registered}
        self._start_if_due()
        return self.configs if changed else None

    def _no_longer_reporting(self, rows: Iterable[BrokerConfig], errors: Container[int]) -> dict[int, str]:
        """Return the brokers that responded without the settings that they have reported before, with the reason.

        Every broker that describes its settings reports its authorizer. A broker that has responded only to ApiVersions
        has reported none.
        """
        reported = {row.broker_id for row in self.configs if row.name == AUTHORIZER and not row.assumed}
        silent = {
            row.broker_id for row in rows if row.name == AUTHORIZER and row.assumed and row.broker_id not in errors
        }
        return dict.fromkeys(reported & silent, "DescribeConfigs failed")

    def _restarted(self, brokers: Iterable[Broker], errors: Container[int]) -> set[int]:
        """Return the brokers that did not respond and have registered again since they reported their settings."""
        reported_epochs = self.reported_epochs
        return {
            row.broker_id
            for row in brokers
            if row.broker_id in errors
            and reported_epochs.get(row.broker_id, row.zk_broker_epoch) != row.zk_broker_epoch
        }

    def _note_unread(self, brokers: Sequence[Broker], errors: Collection[int]) -> None:
        due_at = time.monotonic() + self.ask_again_seconds
        for row in brokers:
            if row.broker_id in errors:
                self._unread[row.broker_id] = _Unread(row, due_at)
            else:
                self._unread.pop(row.broker_id, None)

    def _log_failures(self, brokers: Sequence[Broker], rows: Sequence[BrokerConfig], errors: dict[int, str]) -> None:
        """Log once for each registration which settings are not supported, and which brokers did not respond."""
        unsupported = {} if self.is_serving else unsupported_protocols(rows)
        for row in brokers:
            broker, epoch = row.broker_id, row.zk_broker_epoch
            if self._warned_epochs.get(broker) == epoch:
                continue
            if broker in unsupported:
                self.log_line(
                    f"surveyor: warning: broker {broker} runs with {PROTOCOL_VERSION} {unsupported[broker]}: it asks "
                    "the controller to change ISRs, and from 3.0 on for producer ids, and this process runs without "
                    "--listen. Partitions that it leads can no longer change their ISR, and idempotent producers may "
                    f"get no ids from it. Stop the broker, set {PROTOCOL_VERSION}=2.6 and start it again, or stop "
                    "`surveyor control`, so that Kafka's controller takes over",
                    logging.WARNING,
                )
                self._warned_epochs[broker] = epoch
            elif broker in errors:
                advice = "" if self.is_serving else f": make sure that its {PROTOCOL_VERSION} is 2.7-IV1 at most"
                self.log_line(
                    f"surveyor: broker {broker} did not return its configs ({errors[broker]}){advice}; it is asked "
                    f"again every {self.ask_again_seconds:g} s",
                    logging.WARNING,
                )
                self._warned_epochs[broker] = epoch


def _of_brokers(brokers: Iterable[Broker], rows: Iterable[BrokerConfig]) -> list[BrokerConfig]:
    ids = {row.broker_id for row in brokers}
    return [row for row in rows if row.broker_id in ids]


def _outdated(
    last_reported: Iterable[BrokerConfig], rows: Iterable[BrokerConfig], brokers: Container[int]
) -> list[BrokerConfig]:
    """Return the settings of brokers that reported them before and do not now; `rows` was read instead.

    Reported settings of security stay valid, and so do the settings in `rows`. Each other setting counts as assumed,
    with its last value, because Kafka's default could be more permissive than the broker.
    """
    new = {(row.broker_id, row.name): row for row in rows if row.broker_id in brokers}
    for row in last_reported:
        key = row.broker_id, row.name
        if row.broker_id in brokers and (key not in new or new[key].assumed):
            new[key] = row if is_of_security(row.name) else replace(row, assumed=True)
    return [*new.values()]


def _values(rows: Iterable[BrokerConfig]) -> set[tuple[int, str, str | None, bool]]:
    return {(row.broker_id, row.name, row.value, bool(row.assumed)) for row in rows}
