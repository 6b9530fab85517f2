"""Brokers by labels of Prometheus's series."""

from typing import Any, Final

import msgspec
import pytest

from jobs.measurement.broker_labels import BrokerHosts, differing_labels
from schemas.rows import Broker
from tests.jobs.support.rows.warehouse_rows import broker

Labels = dict[str, str]


def _hosts(*hosts: str, first_id: int = 1) -> BrokerHosts:
    """Return brokers 1, 2, ... on these hosts."""
    rows: list[Any] = [broker(number, 1, host=host, endpoints=[]) for number, host in enumerate(hosts, first_id)]
    return BrokerHosts(msgspec.convert(rows, list[Broker]))


FULL: Final = ("kafka1.example.com", "kafka2.example.com")
PODS: Final = ("east-kafka-0.east-kafka-brokers.ns.svc", "east-kafka-1.east-kafka-brokers.ns.svc")

CASES: Final[list[tuple[str, tuple[str, ...], list[Labels], str | None, str | None, dict[str, int]]]] = [
    # hosts, series, given label, label, brokers
    (
        "instance with a port",
        FULL,
        [{"instance": "kafka1.example.com:7071"}, {"instance": "KAFKA2.example.com:7071"}],
        None,
        "instance",
        {"kafka1.example.com:7071": 1, "KAFKA2.example.com:7071": 2},
    ),
    ("a short name", FULL, [{"instance": "kafka2:7071"}], None, "instance", {"kafka2:7071": 2}),
    ("a short host", ("kafka1",), [{"host": "kafka1.example.com"}], None, "host", {"kafka1.example.com": 1}),
    ("two names of different domains", FULL, [{"instance": "kafka1.other.com:7071"}], None, None, {}),
    (
        "an address",
        ("10.0.0.1", "::1"),
        [{"i": "10.0.0.1:9"}, {"i": "[::1]:9"}],
        None,
        "i",
        {"10.0.0.1:9": 1, "[::1]:9": 2},
    ),
    ("addresses have no parts", ("10.0.0.1",), [{"instance": "10"}], None, None, {}),
    ("ids", FULL, [{"broker_id": "2", "shard": "1", "instance": "x:1"}], None, "broker_id", {"2": 2}),
    ("numbers of other labels are no ids", FULL, [{"shard": "1"}], None, None, {}),
    ("unless the caller says so", FULL, [{"shard": "1"}], "shard", "shard", {"1": 1}),
    ("an unknown id", FULL, [{"broker_id": "7"}], None, None, {}),
    (
        "the label that names more brokers",
        FULL,
        [{"a": "kafka1", "b": "kafka1"}, {"b": "kafka2"}],
        None,
        "b",
        {"kafka1": 1, "kafka2": 2},
    ),
    ("the better known of two labels", FULL, [{"a": "kafka1", "pod": "kafka1"}], None, "pod", {"kafka1": 1}),
    (
        "pods of a stateful set",
        PODS,
        [{"pod": "east-kafka-1", "instance": "10.1.2.3:9404"}],
        None,
        "pod",
        {"east-kafka-1": 2},
    ),
    ("pods that end in an id", FULL, [{"pod": "east-broker-2"}], "pod", "pod", {"east-broker-2": 2}),
    (
        "two brokers on a host",
        ("h", "h", "k"),
        [{"instance": "h:1"}, {"instance": "k:1"}],
        None,
        "instance",
        {"k:1": 3},
    ),
]


@pytest.mark.parametrize("case", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_label_of_brokers(case: tuple[Any, ...]) -> None:
    hosts, series, given, label, brokers = case
    found = _hosts(*hosts).label_among(series, given)
    assert (found and found.name, {} if found is None else found.brokers) == (label, brokers)


def test_values_that_name_no_broker_have_reasons() -> None:
    found = _hosts("h", "h", "k").label_among([{"i": "h:1"}, {"i": "k:1"}, {"i": "z:1"}])
    assert found is not None
    assert found.others == {"h:1": "it is the host of brokers 1, 2", "z:1": "z is the host of no broker"}


def test_series_of_two_clusters_differ_in_labels_that_a_restart_keeps() -> None:
    series = [
        {"pod": "kafka1", "namespace": "a", "instance": "10.0.0.1:1", "job": "k"},
        {"pod": "kafka1", "namespace": "b", "instance": "10.0.0.2:1", "job": "k"},
    ]
    label = _hosts("kafka1").label_among(series)
    assert label is not None
    assert differing_labels(series, label) == {"namespace": ["a", "b"]}
