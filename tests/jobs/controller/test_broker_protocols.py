"""Brokers whose protocol needs more than `surveyor control` serves, and brokers whose protocol is not known yet."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.controller import broker_protocols
from jobs.core.errors import RefusedError
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import Broker, BrokerConfig
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

IBP = "inter.broker.protocol.version"


def config_row(broker_id: int, value: str | None) -> BrokerConfig:
    return BrokerConfig(broker_id=broker_id, name=IBP, value=value, assumed=value is None)


@pytest.fixture
def settings(tree: KafkaTree, tmp_path: Path) -> Settings:
    return Settings("default", str(tmp_path), ClusterConf(zookeeper=tree.hosts))


@pytest.fixture
def asked_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The brokers that are asked again; all answer with 2.6 except broker 2, which runs with 3.9."""
    ids: list[int] = []

    def answer(brokers: Sequence[Broker], *_: object, **__: object) -> tuple[list[BrokerConfig], dict[int, str]]:
        ids.extend(broker.broker_id for broker in brokers)
        return [config_row(it.broker_id, "3.9-IV0" if it.broker_id == 2 else "2.6") for it in brokers], {}

    monkeypatch.setattr(broker_protocols, "read_broker_configs", answer)
    return ids


@pytest.mark.parametrize(("value", "refused"), [("2.6", False), ("2.7-IV1", False), ("2.7", True), ("3.9-IV0", True)])
def test_brokers_with_unserved_protocols_are_refused(value: str, refused: bool) -> None:  # noqa: FBT001
    rows = [config_row(3, value), config_row(4, None)]

    if not refused:
        broker_protocols.refuse_protocols(rows)
        return
    with pytest.raises(RefusedError, match=r"brokers 3 run with inter.broker.protocol.version .*set .*=2.6"):
        broker_protocols.refuse_protocols(rows)


def test_busy_brokers_are_asked_once_more(settings: Settings, tree: KafkaTree, asked_again: list[int]) -> None:
    """0 did not answer in time, 1 has registered since, and 7 is no longer registered."""
    configs = broker_protocols.complete_configs(
        [config_row(0, None), config_row(2, "2.6"), config_row(7, None)], settings, tree.client, frozenset()
    )

    assert asked_again == [0, 1]
    assert configs == [config_row(2, "2.6"), config_row(7, None), config_row(0, "2.6"), config_row(1, "2.6")]


def test_late_answers_count(settings: Settings, tree: KafkaTree, asked_again: list[int]) -> None:
    with pytest.raises(RefusedError, match=f"brokers 2 run with {IBP} 3.9-IV0"):
        broker_protocols.complete_configs(
            [config_row(0, "2.6"), config_row(1, "2.6"), config_row(2, None)], settings, tree.client, frozenset()
        )

    assert asked_again == [2]


def test_allowed_brokers_are_not_asked(settings: Settings, tree: KafkaTree, asked_again: list[int]) -> None:
    rows = [config_row(0, "2.6"), config_row(1, "2.6"), config_row(2, None)]

    assert broker_protocols.complete_configs(rows, settings, tree.client, frozenset({2})) == rows
    assert asked_again == []
