"""Requests that brokers refused, and when to send them again: until accepted, or no longer due.

Kafka's controller logs such a response and continues (`LeaderAndIsrResponseReceived`), or regards the replica as
ineligible for deletion until something happens to it. But a leader that did not receive its leader epoch cannot change
its ISR, and a replica that did not stop blocks its deletion or its reassignment. Each broker has a separate delay,
which doubles as long as the broker keeps refusing. The retry sends the state current at that time, which the caller
determines.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from jobs.adapters.brokers.admin_client import error_name
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.controller.controller_context import ControllerContext
from jobs.runtime.console import LogLine
from schemas.notices import UPDATE_METADATA, Notice
from schemas.response_codes import KAFKA_STORAGE_ERROR, ResponseMeaning
from schemas.rows import Key
from schemas.text import partition_name, with_others

FIRST_DELAY_SECONDS: Final = 1.0
MAX_DELAY_SECONDS: Final = 30.0
"""Seconds before a broker is sent a request again; the delay starts at FIRST_DELAY_SECONDS and doubles each time."""

MAX_RETRIES: Final = 6
"""Refusals in a row, within half a minute, after which the controller no longer waits for a broker.

The broker is still sent the request again.
"""

_SETTLED: Final = frozenset(
    {
        ResponseMeaning.ACCEPTED,
        ResponseMeaning.ALREADY_KNOWN,
        ResponseMeaning.OFFLINE,
        ResponseMeaning.STALE_BROKER_EPOCH,
    }
)

NoticeKey = tuple[str, Key]
"""The API and the partition of a notice."""


class RetryBatch(NamedTuple):
    """Notices that one broker must be sent again."""

    broker: int
    notices: Sequence[Notice]
    needs_full_state: bool
    """The broker did not accept an UpdateMetadata, so it must be sent the full state.

    Followers ignore leaders that are not live by their metadata, and respond to a LeaderAndIsr without an error.
    """


@dataclass(slots=True)
class _BrokerBackoff:
    """A broker that refused a request under its present registration."""

    broker_epoch: int
    retry_at: float
    delay: float = FIRST_DELAY_SECONDS
    refusals: int = 1
    was_resent: bool = False
    """The request was sent again since the last refusal."""
    needs_full_state: bool = False
    notices: dict[NoticeKey, Notice] = field(default_factory=dict)
    logged_refusals: int = 0
    """The number of refusals that was logged last."""

    @property
    def is_due(self) -> bool:
        return bool(self.notices) or self.needs_full_state

    def refuse_again(self, now: float) -> None:
        """Double the delay, because the request was sent again and refused."""
        self.delay = min(MAX_DELAY_SECONDS, self.delay * 2)
        self.retry_at = now + self.delay
        self.refusals += 1
        self.was_resent = False


@dataclass(slots=True)
class RetryQueue:
    """Holds refused requests until they are sent again."""

    context: ControllerContext
    log_line: LogLine
    monotonic: Callable[[], float] = time.monotonic
    _backoffs: dict[int, _BrokerBackoff] = field(default_factory=dict)

    def on_response(self, response: BrokerResponse, errors: Sequence[int]) -> None:
        """Record the errors of a response, or remove what it accepts.

        The response must belong to the present registration; `errors` are the errors in the response.
        """
        broker = response.broker_id
        if broker not in self._backoffs and not (response.error or any(errors)):
            return
        of_notices = [response.error] * len(response.notices) if response.api == UPDATE_METADATA else errors
        refused: dict[NoticeKey, Notice] = {}
        codes: set[int] = set()
        for notice, error in zip(response.notices, of_notices, strict=True):
            if not _is_settled(response, error):
                refused[_notice_key(notice)] = notice
                codes.add(error)
            elif broker in self._backoffs:
                self._backoffs[broker].notices.pop(_notice_key(notice), None)
        # each UpdateMetadata has the live brokers, and a follower ignores a LeaderAndIsr whose leader it does not know
        lacks_brokers = response.api == UPDATE_METADATA and not _is_settled(response, response.error)
        if refused or lacks_brokers:
            self._add_refusal(response, refused, lacks_brokers=lacks_brokers)
            self._log_refusal(broker, response.api, codes or {response.error})

    def _add_refusal(self, response: BrokerResponse, notices: dict[NoticeKey, Notice], *, lacks_brokers: bool) -> None:
        broker, epoch = response.broker_id, response.broker_epoch
        backoff = self._backoffs.get(broker)
        if backoff is None or backoff.broker_epoch != epoch:
            backoff = self._backoffs[broker] = _BrokerBackoff(epoch, self.monotonic() + FIRST_DELAY_SECONDS)
        elif backoff.was_resent:
            backoff.refuse_again(self.monotonic())
        backoff.needs_full_state |= lacks_brokers
        for notice_key, notice in notices.items():
            # a new replica stays so until the broker accepts it
            was_new = notice_key in backoff.notices and backoff.notices[notice_key].is_new
            backoff.notices[notice_key] = replace(notice, is_new=True) if was_new else notice

    def _log_refusal(self, broker: int, api: str, codes: Collection[int]) -> None:
        """Log the first refusal, and once more when the controller stops waiting for the broker."""
        backoff = self._backoffs[broker]
        if backoff.logged_refusals == backoff.refusals or backoff.refusals not in {1, MAX_RETRIES}:
            return
        backoff.logged_refusals = backoff.refusals
        partitions = [partition_name(topic, number) for _, (topic, number) in backoff.notices]
        about = f" for {with_others(partitions[0], len(partitions))}" if partitions else ""
        count_text = "" if backoff.refusals == 1 else f", {backoff.refusals} times so far: check its log"
        errors = ", ".join(map(error_name, sorted(codes)))
        self.log_line(
            f"surveyor: broker {broker} responded to {api}{about} with {errors}{count_text}; retrying",
            logging.WARNING,
        )

    def due_retries(self, idle: Collection[int]) -> Iterator[RetryBatch]:
        """Remove and yield the requests that are due to be sent again.

        `idle`: brokers that had responded to all requests when responses were last read.
        """
        now = self.monotonic()
        for broker, backoff in list(self._backoffs.items()):
            is_outdated = not self.context.is_registered(broker, backoff.broker_epoch)
            if is_outdated or not (backoff.is_due or broker not in idle):
                del self._backoffs[broker]
            elif backoff.is_due and backoff.retry_at <= now:
                batch = RetryBatch(broker, [*backoff.notices.values()], backoff.needs_full_state)
                backoff.notices, backoff.needs_full_state, backoff.was_resent = {}, False, True
                yield batch

    def next_delay(self, longest: float) -> float:
        """Return the seconds until the next retry, at most `longest`."""
        now = self.monotonic()
        return max(
            0.0, min([longest, *(backoff.retry_at - now for backoff in self._backoffs.values() if backoff.is_due)])
        )

    def refusals(self) -> dict[int, int]:
        """Return by broker the refusals in a row of what is sent to it again."""
        return {broker: backoff.refusals for broker, backoff in self._backoffs.copy().items()}

    @property
    def is_quiet(self) -> bool:
        """Whether no broker has retries pending, except for those that have exhausted them."""
        return all(backoff.refusals >= MAX_RETRIES for backoff in self._backoffs.values())

    @property
    def exhausted_partitions(self) -> set[Key]:
        """Partitions for which a broker has exhausted its retries."""
        exhausted = [backoff for backoff in self._backoffs.values() if backoff.refusals >= MAX_RETRIES]
        return {key for backoff in exhausted for _, key in backoff.notices}


def key_of(notice: Notice) -> Key:
    """Return the partition of a notice."""
    return notice.topic, notice.partition


def _notice_key(notice: Notice) -> NoticeKey:
    return notice.api, key_of(notice)


def _is_settled(response: BrokerResponse, error: int) -> bool:
    """Return whether a notice need not be sent again; a failed log dir does not need a retry, whatever was sent."""
    return error == KAFKA_STORAGE_ERROR or response.meaning(error) in _SETTLED
