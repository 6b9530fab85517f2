"""When a broker has caught up with the quorum: by its fetches since the call, as the leader reports them."""

from typing import cast

import pytest

from jobs.adapters.kraft import fresh_reads
from jobs.adapters.kraft.fresh_reads import catch_up
from jobs.adapters.kraft.session import BehindError, Fetch, Quorum, Session

LEADER, BROKER = 1, 2


def quorum(
    end: int | None, fetched_at: int | None, *, high_watermark: int = 100, leader: int = LEADER, epoch: int = 7
) -> Quorum:
    return Quorum(
        leader_id=leader,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        voters=[],
        fetches={
            LEADER: Fetch(log_end_offset=high_watermark, timestamp_ms=0),
            BROKER: Fetch(log_end_offset=end, timestamp_ms=fetched_at),
        },
    )


class Quorums:
    """A session that describes one quorum after the other, and then the last one again and again."""

    def __init__(self, *described: Quorum) -> None:
        self.described = described
        self.asked = 0

    def describe_quorum(self) -> Quorum:
        self.asked += 1
        return self.described[min(self.asked, len(self.described)) - 1]


def caught_up(session: Quorums, *brokers: int) -> int:
    catch_up(cast("Session", session), brokers)
    return session.asked


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_reads, "_POLL_SECONDS", 0.0)


def test_the_leader_needs_no_fetch() -> None:
    assert caught_up(Quorums(quorum(0, 0)), LEADER) == 1


def test_a_broker_has_to_fetch_twice() -> None:
    """The response to the first fetch after the call carries the high watermark; the second fetch shows its arrival."""
    assert caught_up(Quorums(quorum(100, 10), quorum(100, 11), quorum(100, 11), quorum(100, 12)), BROKER) == 4


def test_it_has_to_have_the_records_too() -> None:
    behind = [quorum(90, stamp) for stamp in (10, 11, 12, 13)]
    assert caught_up(Quorums(*behind, quorum(100, 14)), BROKER) == 5


def test_a_new_leader_begins_again() -> None:
    """It has another clock, and its high watermark is what counts."""
    changed = [quorum(100, stamp, high_watermark=120, leader=3, epoch=8) for stamp in (50, 51, 52)]
    enough = quorum(120, 53, high_watermark=120, leader=3, epoch=8)
    assert caught_up(Quorums(quorum(100, 10), quorum(100, 11), *changed, enough), BROKER) == 6


def test_brokers_without_times_are_judged_by_their_records() -> None:
    assert caught_up(Quorums(quorum(99, None), quorum(100, None)), BROKER) == 2


@pytest.mark.parametrize("session", [Quorums(quorum(90, 10)), Quorums(quorum(None, 10))], ids=["stuck", "unknown"])
def test_a_broker_that_stays_behind_is_not_read(session: Quorums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_reads, "CATCH_UP_SECONDS", 0.05)
    with pytest.raises(BehindError, match="broker 2 does not catch up"):
        caught_up(session, BROKER)


def test_a_broker_that_the_quorum_does_not_know_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_reads, "CATCH_UP_SECONDS", 0.05)
    with pytest.raises(BehindError):
        caught_up(Quorums(quorum(100, 10)), 9)
