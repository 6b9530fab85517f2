"""Control requests to brokers: UpdateMetadata, LeaderAndIsr, StopReplica; in order per broker, one in flight, retried.

Corresponds to `ControllerChannelManager` and `AbstractControllerBrokerRequestBatch`. The live brokers are told first:
a follower answers a LeaderAndIsr whose leader it does not know with no error and ignores it. Brokers that stop replicas
are told before all others, as `KafkaController.doControlledShutdown` does: a follower that still fetches from a leader
of the new ISR is taken back into it. Replicas that are deleted come in an announcement of their own, later. Each broker
has a thread of its own, so that none waits for another; who is no longer registered is not asked any more, who
registers anew is told everything anew, and for who is silent nobody waits.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Final

from jobs.adapters.brokers.connection import DISCONNECTED, PAUSE, Channel, Channels
from jobs.adapters.brokers.control_encoding import Announcement, Messages, Request, Row, TooLateError
from jobs.adapters.brokers.listeners import CannotTellError
from jobs.adapters.brokers.responses import Answer
from jobs.core.signals import interrupted
from schemas.response_codes import Meaning

STOPPING: Final = 3.0
"""Seconds that the others wait at most for brokers that stop replicas: until then nobody leads what those led."""

SILENCE: Final = 5.0
"""Seconds without a sign of life after which nobody waits for a broker any more."""

GRACE: Final = 1.0
"""Seconds that brokers which are told metadata only are waited for, once those that are told more have answered."""

LOOK: Final = 1.0
"""Seconds between two looks at who is registered."""

Renew = Callable[[], Announcement]
"""Reads which brokers are registered now, and what is due to be told to them."""


@dataclass(slots=True)
class _Telling:
    """One broker, under one registration, and what it answered so far."""

    messages: Messages
    channels: Channels
    broker: Row
    wake: Event
    """Set when something happened that whoever waits should look at."""
    heard: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    encoding: bool = False
    finished: bool = False
    begun: bool = False
    over: Event = field(default_factory=Event)
    _channel: Channel | None = None

    @property
    def broker_id(self) -> int:
        return int(self.broker["broker_id"])

    @property
    def deadline(self) -> float:
        return self.messages.deadline

    @property
    def is_waited_for(self) -> bool:
        """Whether it is worth while to wait: it is told, or said that it registered anew, not long ago."""
        quiet = 0.0 if self.encoding else time.monotonic() - self.heard
        return (not self.finished or self.is_stale) and not self.over.is_set() and quiet < SILENCE

    @property
    def is_stale(self) -> bool:
        """Whether the broker says that it has registered anew."""
        return self.finished and any(answer.whole is Meaning.REGISTERED_ANEW for answer in self.answers)

    def start(self, *, silent: bool = False) -> None:
        if not self.begun:
            self.begun = True
            self.heard = float("-inf") if silent else time.monotonic()
            Thread(target=self._tell, daemon=True, name=f"tell-{self.broker_id}").start()

    def stop(self) -> None:
        """Ask no more, and wake the thread up from whatever it waits for; a channel with nothing on it stays."""
        self.over.set()
        channel = self._channel
        if channel is not None:
            channel.abort()

    def outcome(self) -> list[Answer]:
        """An answer for each request, also for those that there is none to."""
        answered = list(self.answers)
        left = self.messages.requests(self.broker_id)[len(answered) :]
        return [*answered, *map(self._answer, left)]

    def _answer(self, request: Request) -> Answer:
        return Answer(self.broker, self.messages.announcement.controller_epoch, request.api, request.notices, None)

    def _hear(self) -> None:
        self.heard = time.monotonic()

    def _tell(self) -> None:
        try:
            while not self.over.is_set() and time.monotonic() < self.deadline:
                with suppress(*DISCONNECTED):
                    self._tell_rest()
                    break
                self.over.wait(PAUSE)
        except (CannotTellError, TooLateError):
            pass
        finally:
            self.finished = True
            self.wake.set()

    def _tell_rest(self) -> None:
        """Send what is not answered yet, on one channel; what was lost on the way is sent again, on another one."""
        self._channel = channel = self.channels.to(self.broker, self._hear, self.deadline - time.monotonic())
        try:
            for request in self.messages.requests(self.broker_id)[len(self.answers) :]:
                self.answers.append(self._ask(channel, request))
        except DISCONNECTED:
            self.channels.drop(channel)
            raise
        finally:
            self._channel = None

    def _ask(self, channel: Channel, request: Request) -> Answer:
        version = channel.version(request)
        self.encoding = True
        body = self.messages.body(request, version, self.broker)
        self._hear()
        self.encoding = False
        if self.over.is_set():
            raise ConnectionAbortedError
        channel.send(request.api, version, body, self.over, self.deadline)
        return replace(self._answer(request), version=version, data=channel.answer(self.over, self.deadline))


@dataclass(slots=True)
class _Round:
    """All tellings of one announcement, the newest of each broker."""

    announcement: Announcement
    deadline: float
    renew: Renew
    channels: Channels
    silent: Collection[int]
    wake: Event = field(default_factory=Event)
    tellings: dict[int, _Telling] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    """Those that somebody waits for until the deadline; one that registers meanwhile may be among them."""
    _looked: float = field(default_factory=time.monotonic)

    def prepare(self, brokers: Sequence[Row]) -> None:
        messages = Messages(self.announcement, self.deadline)
        self.named = self.announcement.named
        for broker in brokers:
            self.tellings[broker["broker_id"]] = _Telling(messages, self.channels, broker, self.wake)

    def start(self, brokers: Collection[int]) -> None:
        for broker in brokers:
            self.tellings[broker].start(silent=broker in self.silent)

    def wait(self, brokers: Callable[[], Iterable[int]], until: float) -> None:
        """Wait until these are told, or cannot be waited for, and look now and then who is registered."""
        while time.monotonic() < min(until, self.deadline) and not interrupted():
            self.look()
            if not any(self.tellings[broker].is_waited_for for broker in brokers() if broker in self.tellings):
                return
            self.wake.wait(PAUSE)
            self.wake.clear()

    def look(self) -> None:
        """Give up who is gone, and begin anew with who registered anew: it knows nothing of what it was told."""
        stale = any(telling.is_stale for telling in self.tellings.values())
        if time.monotonic() - self._looked < (PAUSE if stale else LOOK):
            return
        self._looked = time.monotonic()
        renewed = self.renew()
        now = {row["broker_id"]: row for row in renewed.brokers if self.channels.listener.endpoint(row) is not None}
        for broker in self.tellings.keys() - now.keys():
            self.tellings[broker].stop()
        known = {broker: telling.broker["broker_epoch"] for broker, telling in self.tellings.items()}
        anew = {broker: row for broker, row in now.items() if known.get(broker) != row["broker_epoch"]}
        if anew:
            for broker in anew.keys() & known.keys():
                self.tellings[broker].stop()
            self.announcement = replace(renewed, brokers=[*now.values()])
            self.prepare([*anew.values()])
            self.start(anew)


def announce(
    announcement: Announcement,
    deadline: float,
    renew: Renew | None = None,
    silent: Collection[int] = (),
    channels: Channels | None = None,
) -> list[Answer]:
    """Tell every live broker, in parallel, until the deadline (of time.monotonic); return an answer for each request.

    Returns as soon as those that are told more than metadata have answered, or are not waited for any more. Those that
    stop replicas come first; the others wait for them, `STOPPING` seconds at most. `silent`: known not to answer.
    `channels` are left open; without them there are some for this announcement alone.
    """
    if channels is None:
        with Channels(str(announcement.controller_id)) as own:
            return announce(announcement, deadline, renew, silent, own)
    this = _Round(announcement, deadline, renew or (lambda: announcement), channels, silent)
    this.prepare(announcement.brokers)
    try:
        stopping = announcement.stopping & this.tellings.keys()
        this.start(stopping)
        this.wait(lambda: stopping, time.monotonic() + STOPPING)
        this.start(this.tellings)
        this.wait(lambda: this.named, deadline)
        everybody = list(this.tellings)
        this.wait(lambda: everybody, time.monotonic() + GRACE)
    finally:
        for telling in this.tellings.values():
            telling.stop()
    return [answer for telling in this.tellings.values() for answer in telling.outcome()]
