"""What brokers answered with an error, and when they are told again: until they take it, or it is no longer due.

Kafka's controller logs such an answer and goes on (`LeaderAndIsrResponseReceived`), or takes the replica for ineligible
for deletion until something happens to it. But a leader that was not told of its epoch cannot change its ISR, and a
replica that did not stop holds up its deletion or its move. Each broker has a pause of its own, doubled as long as it
goes on refusing. What it is told then is what stands by then: that is the teller's to say. In: answers. Out: notices
that were not taken, by broker, once their time has come.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from jobs.adapters.brokers.admin import error_name
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.controller.context import ControllerContext
from schemas.notices import UPDATE_METADATA, Notice
from schemas.response_codes import KAFKA_STORAGE_ERROR, ResponseMeaning
from schemas.rows import Key

FIRST_DELAY_SECONDS: Final = 1.0
MAX_DELAY_SECONDS: Final = 30.0
"""Seconds before a broker is told again, twice as many each time."""

MAX_RETRIES: Final = 6
"""Times in a row, half a minute, after which nobody waits for a broker that refuses; it is told again all the same."""

_SETTLED: Final = frozenset(
    {
        ResponseMeaning.ACCEPTED,
        ResponseMeaning.ALREADY_KNOWN,
        ResponseMeaning.OFFLINE,
        ResponseMeaning.STALE_BROKER_EPOCH,
    }
)

Place = tuple[str, Key]
"""The API and the partition of a notice."""


class RetryBatch(NamedTuple):
    """What one broker is to be told again."""

    broker: int
    notices: Sequence[Notice]
    introduce: bool
    """It did not take who is alive: followers ignore leaders that they take for dead, so it is told everything."""


@dataclass(slots=True)
class _BrokerBackoff:
    """A broker that did not take something under its registration."""

    broker_epoch: int
    until: float
    pause: float = FIRST_DELAY_SECONDS
    times: int = 1
    is_told: bool = False
    """It was told again since it refused last."""
    introduce: bool = False
    notices: dict[Place, Notice] = field(default_factory=dict)
    announced: int = 0
    """The last of the times that people were told of."""

    @property
    def is_due(self) -> bool:
        return bool(self.notices) or self.introduce

    def refuse_again(self) -> None:
        """Wait longer: it was told again, and did not take it."""
        self.pause = min(MAX_DELAY_SECONDS, self.pause * 2)
        self.until = time.monotonic() + self.pause
        self.times += 1
        self.is_told = False


@dataclass(slots=True)
class RetryQueue:
    """Keeps what was not taken until it is told again."""

    context: ControllerContext
    say: Callable[[str], None]
    _of: dict[int, _BrokerBackoff] = field(default_factory=dict)

    def on_response(self, answer: BrokerResponse, errors: Sequence[int]) -> None:
        """Take note of an answer under a registration that holds; `errors` are those of the answer."""
        broker = int(answer.broker["broker_id"])
        if broker not in self._of and not (answer.error or any(errors)):
            return
        of_notices = [answer.error] * len(answer.notices) if answer.api == UPDATE_METADATA else errors
        refused: dict[Place, Notice] = {}
        codes: set[int] = set()
        for notice, error in zip(answer.notices, of_notices, strict=True):
            if not _is_settled(answer, error):
                refused[_place(notice)] = notice
                codes.add(error)
            elif broker in self._of:
                self._of[broker].notices.pop(_place(notice), None)
        alone = not (answer.notices or _is_settled(answer, answer.error))
        if refused or alone:
            self._refused(answer, refused, alone=alone)
            self._say(broker, answer.api, codes or {answer.error})

    def _refused(self, answer: BrokerResponse, notices: dict[Place, Notice], *, alone: bool) -> None:
        broker, epoch = int(answer.broker["broker_id"]), int(answer.broker["broker_epoch"])
        known = self._of.get(broker)
        if known is None or known.broker_epoch != epoch:
            known = self._of[broker] = _BrokerBackoff(epoch, time.monotonic() + FIRST_DELAY_SECONDS)
        elif known.is_told:
            known.refuse_again()
        known.introduce |= alone
        for place, notice in notices.items():
            # what was to be new is so until it is taken
            was_new = place in known.notices and known.notices[place].is_new
            known.notices[place] = replace(notice, is_new=True) if was_new else notice

    def _say(self, broker: int, api: str, codes: Collection[int]) -> None:
        """Say it the first time, and once more when nobody waits for it any longer."""
        known = self._of[broker]
        if known.announced == known.times or known.times not in {1, MAX_RETRIES}:
            return
        known.announced = known.times
        partitions = [f"{topic}-{number}" for _, (topic, number) in known.notices]
        about = f" for {partitions[0]}" if partitions else ""
        others = f" and {len(partitions) - 1} others" if len(partitions) > 1 else ""
        often = "" if known.times == 1 else f", {known.times} times by now: look at its log"
        errors = ", ".join(map(error_name, sorted(codes)))
        self.say(f"surveyor: broker {broker} answered {api}{about}{others} with {errors}{often}; it is told again")

    def due_retries(self, idle: Collection[int]) -> Iterator[RetryBatch]:
        """Take what is to be told now; `idle`: brokers that had answered everything when answers were heard last."""
        now = time.monotonic()
        for broker, known in list(self._of.items()):
            is_over = self.context.brokers.get(broker, {}).get("broker_epoch") != known.broker_epoch
            if is_over or not (known.is_due or broker not in idle):
                del self._of[broker]
            elif known.is_due and known.until <= now:
                untaken = RetryBatch(broker, [*known.notices.values()], known.introduce)
                known.notices, known.introduce, known.is_told = {}, False, True
                yield untaken

    def next_delay(self, longest: float) -> float:
        """Seconds until somebody is told again, `longest` at most."""
        now = time.monotonic()
        return max(0.0, min([longest, *(known.until - now for known in self._of.values() if known.is_due)]))

    @property
    def is_quiet(self) -> bool:
        """Whether nobody is to be told again but those that have refused many times."""
        return all(known.times >= MAX_RETRIES for known in self._of.values())

    @property
    def exhausted_partitions(self) -> set[Key]:
        """Partitions of which brokers have refused many times to hear."""
        stubborn = [known for known in self._of.values() if known.times >= MAX_RETRIES]
        return {key for known in stubborn for _, key in known.notices}


def key_of(notice: Notice) -> Key:
    """The partition that a notice is about."""
    return notice.topic, notice.partition


def _place(notice: Notice) -> Place:
    return notice.api, key_of(notice)


def _is_settled(answer: BrokerResponse, error: int) -> bool:
    """Whether nobody need be told again; a log dir that failed is no matter of telling, whatever was told."""
    return error == KAFKA_STORAGE_ERROR or answer.meaning(error) in _SETTLED
