"""When a broker has caught up with the quorum: once it has applied the last record that was committed."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.kraft.cluster import NotPermittedError, RefusedReadError
from jobs.adapters.kraft.fresh_reads import FreshReads, catch_up
from jobs.adapters.kraft.session import BrokerSession, Quorum, StaleMetadataError
from jobs.core.errors import UnreadableError
from tests.jobs.support.kafka.registrations import broker_at

COMMITTED = 100
"""The high watermark: the offset of the last committed record is one less."""


class Answers:
    """A broker that reports one offset after the other as applied, and then the last one again and again."""

    def __init__(self, *applied: int) -> None:
        self.applied = applied
        self.asked = 0

    def __call__(self, _: object, __: float) -> Any:  # noqa: ANN401 - as of kafka-python
        self.asked += 1
        return SimpleNamespace(finalized_features_epoch=self.applied[min(self.asked, len(self.applied)) - 1])


def session(answers: Answers, high_watermark: int | None = COMMITTED) -> BrokerSession:
    quorum = Quorum(leader_id=1, leader_epoch=7, high_watermark=high_watermark, voters=[])
    return BrokerSession(send=answers, quorum=quorum, quorum_fault=None, has_controller=True)


@pytest.mark.parametrize(("applied", "asked"), [([99], 1), ([120], 1), ([-1, 97, 98, 99], 4)])
def test_it_is_asked_until_it_has_applied_the_last_committed_record(applied: list[int], asked: int) -> None:
    answers = Answers(*applied)
    catch_up(session(answers))
    assert answers.asked == asked


@pytest.mark.parametrize("applied", [98, -1], ids=["one behind", "not reported"])
def test_a_broker_that_stays_behind_is_not_read(applied: int) -> None:
    with pytest.raises(StaleMetadataError, match=f"it has applied offset {applied} of 99"):
        catch_up(session(Answers(applied)), seconds=0.05)


def test_without_a_high_watermark_nothing_is_current() -> None:
    with pytest.raises(StaleMetadataError, match="does not report what is committed"):
        catch_up(session(Answers(99), None))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            NotPermittedError("this client needs the permission DESCRIBE on the cluster"),
            "refused a request: this client",
        ),
        (RefusedReadError("UnknownServerError"), "RefusedReadError: UnknownServerError"),
    ],
)
def test_a_refusal_is_an_error_that_commands_report(error: Exception, said: str) -> None:
    def refuse(_: object) -> None:
        raise error

    asked = broker_at(1, 1)  # nothing listens there
    reads = FreshReads([f"{asked.host}:1"], {}, asked, 0.0, lambda *_: nullcontext(session(Answers(99))))
    with pytest.raises(UnreadableError, match=said):
        reads.read(refuse)
