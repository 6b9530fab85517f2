"""Presets by the names of metrics, and files of queries."""

from pathlib import Path
from typing import Final

import pytest

from jobs.core.errors import UsageError
from jobs.measurement.prometheus_queries import NAMES, Query, detected_presets, read_query_file

KAFKA: Final = [
    # names, preset, selector, a part of a query
    (
        ["kafka_server_brokertopicmetrics_bytesin_total", "kafka_server_brokertopicmetrics_replicationbytesin_total"],
        "jmx",
        'kafka_server_brokertopicmetrics_bytesin_total{topic=""}',
        ("replication_in", 'rate(kafka_server_brokertopicmetrics_replicationbytesin_total{topic=""}[1h])'),
    ),
    (
        ["kafka_server_BrokerTopicMetrics_BytesIn_total", "kafka_server_BrokerTopicMetrics_BytesOut_total"],
        "jmx",
        'kafka_server_BrokerTopicMetrics_BytesIn_total{topic=""}',
        ("bytes_out", 'rate(kafka_server_BrokerTopicMetrics_BytesOut_total{topic=""}[1h])'),
    ),
    (
        [
            "kafka_server_brokertopicmetrics_bytesinpersec_total",
            "kafka_server_brokertopicmetrics_replicationbytesoutpersec_total",
        ],
        "strimzi",
        'kafka_server_brokertopicmetrics_bytesinpersec_total{topic=""}',
        ("replication_out", "rate(kafka_server_brokertopicmetrics_replicationbytesoutpersec_total"),
    ),
    (
        ["kafka_server_brokertopicmetrics_bytesinpersec", "kafka_server_brokertopicmetrics_bytesoutpersec"],
        "jmx-count",
        'kafka_server_brokertopicmetrics_bytesinpersec{topic=""}',
        ("bytes_out", 'rate(kafka_server_brokertopicmetrics_bytesoutpersec{topic=""}[1h])'),
    ),
    (
        ["kafka_server_BrokerTopicMetrics_BytesInPerSec_Count", "kafka_server_BrokerTopicMetrics_BytesOutPerSec_Count"],
        "jmx-count",
        'kafka_server_BrokerTopicMetrics_BytesInPerSec_Count{topic=""}',
        ("bytes_out", 'rate(kafka_server_BrokerTopicMetrics_BytesOutPerSec_Count{topic=""}[1h])'),
    ),
    (
        ["kafka_server_BrokerTopicMetrics_Count", "kafka_server_BrokerTopicMetrics_OneMinuteRate"],
        "jmx-default",
        'kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic=""}',
        ("bytes_out", 'rate(kafka_server_BrokerTopicMetrics_Count{name="BytesOutPerSec",topic=""}[1h])'),
    ),
    (
        ["kafka_server_brokertopicmetrics_oneminuterate"],
        "jmx-default",
        'kafka_server_brokertopicmetrics_oneminuterate{name="BytesInPerSec",topic=""}',
        ("bytes_in", 'avg_over_time(kafka_server_brokertopicmetrics_oneminuterate{name="BytesInPerSec",topic=""}[1h])'),
    ),
    (["node_cpu_seconds_total"], "node", 'node_cpu_seconds_total{cpu="0",mode="idle"}', ("cpu", 'mode=~"idle|iowait"')),
    (
        ["java_lang_OperatingSystem_ProcessCpuLoad"],
        "jvm",
        "java_lang_OperatingSystem_ProcessCpuLoad{}",
        ("cpu", "100 * max by (instance)"),
    ),
]


@pytest.mark.parametrize(("names", "preset", "selector", "query"), KAFKA)
def test_a_preset(names: list[str], preset: str, selector: str, query: tuple[str, str]) -> None:
    found = detected_presets(names, "", ())[0]
    assert (found.name, found.selector) == (preset, selector)
    metric, part = query
    assert any(part in one.promql for one in found.queries_by("instance") if one.metric == metric)


def test_queries_are_of_metrics_that_exist() -> None:
    (found,) = detected_presets(["kafka_server_brokertopicmetrics_bytesin_total"], 'env="a"', ())
    queries = found.queries_by("pod")
    assert [(query.metric, query.by_topic) for query in queries] == [("bytes_in", False), ("bytes_in", True)]
    assert queries[1].promql == (
        'max by (pod, topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{env="a",topic!=""}[1h])) '
        "and on (pod) (max by (pod) (count_over_time("
        'kafka_server_brokertopicmetrics_bytesin_total{env="a",topic=""}[59m:5m])) >= 11)'
    )


def test_only_the_presets_requested() -> None:
    names = ["kafka_server_brokertopicmetrics_bytesin_total", "node_cpu_seconds_total"]
    assert [found.name for found in detected_presets(names, "", ["node"])] == ["node"]


def test_capacities_of_a_machine_are_the_speed_of_its_fastest_device_that_is_up() -> None:
    names = ["node_cpu_seconds_total", "node_network_speed_bytes", "node_network_up"]
    (found,) = detected_presets(names, "", ())
    assert "node_network_up" in found.capacities_by("instance")["in"]
    assert detected_presets(names[:2], "", ())[0].capacities_by("instance") == {}


TOML: Final = """
broker_label = "pod"
[brokers]
cpu = "avg by (pod) (cpu)"
[topics]
bytes_out = "sum by (pod, topic) (out)"
[capacity]
in = "1e9"
"""
YAML: Final = """
broker_label: pod
brokers: {cpu: avg by (pod) (cpu)}
topics: {bytes_out: "sum by (pod, topic) (out)"}
capacity: {in: "1e9"}
"""


@pytest.mark.parametrize(("name", "text"), [("q.toml", TOML), ("q.yaml", YAML)])
def test_a_file_of_queries(tmp_path: Path, name: str, text: str) -> None:
    (path := tmp_path / name).write_text(text)
    file = read_query_file(path)
    assert file.queries == [
        Query("cpu", "avg by (pod) (cpu)"),
        Query("bytes_out", "sum by (pod, topic) (out)", by_topic=True),
    ]
    assert (file.capacity, file.broker_label) == ({"in": "1e9"}, "pod")


FAULTS: Final = [
    ("q.toml", "[brokers]\ncpus = '1'", "brokers has 'cpus'; did you mean cpu?; known are cpu, bytes_in"),
    ("q.toml", "[capacity]\nram = '1'", "capacity has 'ram'; known are disk, in, out, cpu"),
    ("q.toml", "[queries]\ncpu = '1'", "unknown field `queries`"),
    ("q.toml", "[brokers]\ncpu = 1", "Expected `str`, got `int`"),
    ("q.toml", "broker_label = 'pod'", "has no query"),
    ("q.toml", "[brokers", "expected sections brokers, topics and capacity"),
    ("q.yml", "brokers: [", "expected sections brokers, topics and capacity"),
    ("q.yml", "", "Expected `object`, got `null`"),
]


@pytest.mark.parametrize(("name", "text", "message"), FAULTS)
def test_an_invalid_file_of_queries(tmp_path: Path, name: str, text: str, message: str) -> None:
    (path := tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as raised:
        read_query_file(path)
    assert message in str(raised.value)


def test_names_are_a_regex_of_prometheus() -> None:
    assert NAMES.startswith("(?i)"), "it is stripped in a message"
