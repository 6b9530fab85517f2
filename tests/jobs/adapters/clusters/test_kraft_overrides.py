"""Overrides of brokers in a KRaft cluster, where one live broker does not answer."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.adapters.clusters import kraft
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.kraft import fresh_reads, precondition_reader
from jobs.adapters.kraft.session import StaleMetadataError
from jobs.core.errors import UnreadableError
from schemas.rows import Broker

BROKERS = [Broker(broker_id=number, understood=True) for number in (1, 2, 3)]
APPLIED = 40
RESOURCES = [("broker", "1"), ("broker", "2"), ("broker", "3"), ("broker", "9"), ("topic", "t")]
HANGS = "it did not answer in time"


class Reads:
    """What FreshReads is asked for; broker 2 hangs, and broker 3 does not catch up."""

    def sync(self) -> None:
        """Every reading is current."""

    def read(self, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever is read
        return read(SimpleNamespace(ask=1))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> KRaftCluster:
    def ask(
        brokers: Sequence[Broker], _: object, __: float, question: Callable[[Any, Broker], dict[str, str]]
    ) -> tuple[dict[int, dict[str, str]], dict[int, str]]:
        answers, reasons = {}, {2: HANGS}
        for row in brokers:
            try:
                answers[row.broker_id] = question(row.broker_id, row)
            except StaleMetadataError as error:
                reasons[row.broker_id] = str(error)
        del answers[2]
        return answers, reasons

    def read_last_applied(ask: object) -> int:
        """Broker 3 is one record behind the broker that is read."""
        return APPLIED - 1 if ask == 3 else APPLIED

    for module in (kraft, fresh_reads):
        monkeypatch.setattr(module, "read_last_applied", read_last_applied)
    monkeypatch.setattr(kraft, "BROKERS_SECONDS", 0.0)
    monkeypatch.setattr(kraft, "read_throttle_rates", lambda _, row: {"a": str(row.broker_id)})
    monkeypatch.setattr(kraft, "read_cluster", lambda *_: ("id", BROKERS))
    monkeypatch.setattr(kraft, "ask_brokers", ask)
    monkeypatch.setattr(precondition_reader, "read_topic_overrides", lambda *_: {"t": {"b": "2"}})
    made = KRaftCluster("kafka:9092", cast("Any", None))
    made._reads = cast("Any", Reads())  # noqa: SLF001
    return made


def test_brokers_that_do_not_answer_are_named(cluster: KRaftCluster) -> None:
    """A throttle must know what it replaces."""
    with pytest.raises(UnreadableError, match="the configs of brokers cannot be read: ") as unread:
        cluster.read_overrides(RESOURCES)
    assert f"broker 2: {HANGS}; broker 3: it does not catch up with the metadata log" in str(unread.value)


def test_the_others_are_read_where_that_is_enough(cluster: KRaftCluster) -> None:
    """As where a throttle is removed: that of a broker that hangs stays, and that of the others does not."""
    found = cluster.read_overrides(RESOURCES, allow_silent=True)
    assert [*found.values()] == [{"a": "1"}, None, None, None, {"b": "2"}]
