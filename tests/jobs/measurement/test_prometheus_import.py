"""Metrics from Prometheus: requested by day, resumed, halved; on a stand-in, and on a real server if there is one."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from tenacity.wait import wait_none

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.prometheus.client import Prometheus
from jobs.core.errors import UnreadableError
from jobs.measurement.imports import ImportSources, report_import
from jobs.measurement.prometheus_import import MAX_VALUES, ImportedMetrics, PrometheusOptions, prepared_import
from jobs.measurement.prometheus_queries import detected_presets
from jobs.repositories.loads import HOUR
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import Broker
from tests.jobs.support.outside.prometheus_stand_in import (
    BAD_QUERY,
    TOO_MANY_SAMPLES,
    UNAVAILABLE,
    Parameters,
    PrometheusStandIn,
    Response,
)
from tests.jobs.support.rows.warehouse_rows import Cluster, broker

NOW: Final = datetime(2026, 11, 21, 10, 20, tzinfo=UTC)
SINCE: Final = datetime(2026, 11, 19, 22, tzinfo=UTC)
HOURS: Final = 36
"""From SINCE to the last hour that ended by NOW, in three days: 2, 24 and 10."""

BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
SERIES: Final = [{"__name__": BYTES_IN, "instance": f"kafka{number}:7071", "job": "kafka"} for number in (1, 2)]


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    """Brokers 1 and 2 on hosts kafka1 and kafka2."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, 1, host=f"kafka{number}.example.com") for number in (1, 2)]
    cluster.snapshot()
    return cluster


def _results(promql: str) -> list[dict[str, str]]:
    """Return the labels of a query's results: the brokers, or topics a and b on each."""
    topics = ("a", "b") if 'topic!=""' in promql else (None,)
    labels = [{"instance": series["instance"]} for series in SERIES]
    return [{**own, **({"topic": topic} if topic else {})} for own in labels for topic in topics]


def _value(promql: str, labels: Mapping[str, str], at: int) -> str:
    """Return a value that depends on everything; no counter has a reset."""
    if promql.startswith("max(resets("):
        return "0"
    return str(at + 3 * len(labels["instance"] + labels.get("topic", "")) + int(labels["instance"][5]) + len(promql))


def _stand_in(**other: Any) -> PrometheusStandIn:  # noqa: ANN401 - fields
    fields = {"names": [BYTES_IN, BYTES_OUT], "series": SERIES, "results": _results, "value": _value}
    return PrometheusStandIn(**{**fields, **other})


def _run(
    cluster: Cluster,
    stand_in: PrometheusStandIn,
    now: datetime = NOW,
    topics: int = 2,
    **options: Any,  # noqa: ANN401 - of PrometheusOptions
) -> ImportedMetrics:
    server = Prometheus(stand_in.url, pause=wait_none())
    prepared = prepared_import(
        server,
        PrometheusOptions(**{"since": SINCE, **options}),
        cluster.warehouse.typed_rows(Broker),
        topics,
        now,
    )
    return prepared.run(cluster.warehouse, now)


def _stored(cluster: Cluster) -> dict[tuple[Any, ...], float]:
    rows = cluster.warehouse.rows("broker_metrics")
    values = {(row["metric"], row["broker_id"], row["topic"], row["sampled_at"]): row["value"] for row in rows}
    assert len(values) == len(rows)
    return values


def _expected(queries: Mapping[tuple[str, bool], str], hours: int = HOURS) -> dict[tuple[Any, ...], float]:
    """Return the rows of queries, by metric and whether they are by topic."""
    return {
        (metric, int(labels["instance"][5]), labels.get("topic"), SINCE + number * HOUR): float(
            _value(promql, labels, int((SINCE + (number + 1) * HOUR).timestamp()))
        )
        for (metric, _), promql in queries.items()
        for labels in _results(promql)
        for number in range(hours)
    }


def _queries(stand_in: PrometheusStandIn) -> dict[tuple[str, bool], str]:
    promqls = {promql for promql, _, _ in stand_in.ranges()}
    return {
        ("bytes_out" if f"rate({BYTES_OUT}" in promql else "bytes_in", 'topic!=""' in promql): promql
        for promql in promqls
    }


def test_every_hour_is_stored_once(cluster: Cluster) -> None:
    with _stand_in() as stand_in:
        result = _run(cluster, stand_in)
        queries, asked = _queries(stand_in), len(stand_in.ranges())
        again = _run(cluster, stand_in)
        assert len(stand_in.ranges()) == asked
    assert (len(queries), asked) == (4, 4 * 3)
    assert _stored(cluster) == _expected(queries)
    assert (result.hours, result.brokers, result.rows, result.presets) == (
        HOURS,
        [1, 2],
        {"bytes_in": 6 * HOURS, "bytes_out": 6 * HOURS},
        ["jmx"],
    )
    assert (again.hours, again.skipped_hours) == (0, HOURS)


def test_later_only_new_hours_are_requested(cluster: Cluster) -> None:
    with _stand_in() as stand_in:
        _run(cluster, stand_in)
        stand_in.requests.clear()
        result = _run(cluster, stand_in, NOW + 2 * HOUR)
        first, last = ((SINCE + (HOURS + number) * HOUR).timestamp() for number in (1, 2))
        assert {times for _, *times_ in stand_in.ranges() for times in [tuple(times_)]} == {(first, last)}
        assert result.hours == 2
        _run(cluster, stand_in, NOW + 2 * HOUR, overwrite=True)
        assert _stored(cluster) == _expected(_queries(stand_in), HOURS + 2)


def test_an_interrupted_import_continues(cluster: Cluster) -> None:
    second_day = int(datetime(2026, 11, 20, 1, tzinfo=UTC).timestamp())

    def is_down(called: str, parameters: Parameters) -> Response | None:
        return UNAVAILABLE if called == "query_range" and int(float(parameters["start"])) >= second_day else None

    with _stand_in(refuse=is_down) as stand_in, pytest.raises(UnreadableError, match="stopped at 2026-11-20"):
        _run(cluster, stand_in)
    assert {row[-1] for row in _stored(cluster)} == {SINCE, SINCE + HOUR}
    with _stand_in() as stand_in:
        result = _run(cluster, stand_in)
        assert _stored(cluster) == _expected(_queries(stand_in))
    assert (result.hours, result.skipped_hours) == (HOURS - 2, 2)


def test_a_range_that_is_too_much_is_requested_in_halves(cluster: Cluster) -> None:
    def refuse(called: str, parameters: Parameters) -> Response | None:
        hours = (float(parameters.get("end", 0)) - float(parameters.get("start", 0))) / 3600
        return TOO_MANY_SAMPLES if called == "query_range" and hours >= 5 else None

    with _stand_in(refuse=refuse) as stand_in:
        result = _run(cluster, stand_in)
        assert _stored(cluster) == _expected(_queries(stand_in))
    assert (result.hours, result.failed) == (HOURS, [])


def test_topics_are_requested_in_ranges_that_fit_into_memory(cluster: Cluster) -> None:
    with _stand_in() as stand_in:
        _run(cluster, stand_in, topics=MAX_VALUES // 20)
        lengths = Counter(
            (end - start) // 3600 + 1 for promql, start, end in stand_in.ranges() if 'topic!=""' in promql
        )
        assert _stored(cluster) == _expected(_queries(stand_in))
    assert lengths == {10: 2 * 3, 4: 2, 2: 2}


def test_a_query_that_fails_costs_only_its_own_rows(cluster: Cluster) -> None:
    def refuse(called: str, parameters: Parameters) -> Response | None:
        return BAD_QUERY if called == "query_range" and f"rate({BYTES_OUT}" in parameters["query"] else None

    with _stand_in(refuse=refuse) as stand_in:
        result = _run(cluster, stand_in)
        others = {key: promql for key, promql in _queries(stand_in).items() if key[0] == "bytes_in"}
        assert _stored(cluster) == _expected(others)
    assert Counter(failure.metric for failure in result.failed) == {"bytes_out": 2 * 3}
    with _stand_in() as stand_in:
        _run(cluster, stand_in)
        assert {key[0] for key in _queries(stand_in)} == {"bytes_out"}
        assert _stored(cluster) == _expected(others | _queries(stand_in))


def test_values_that_are_no_rates_are_left_out(cluster: Cluster) -> None:
    values = iter(["NaN", "+Inf", "-1", "7"] + ["8"] * 1000)
    with _stand_in(value=lambda promql, *_: "0" if "resets" in promql else next(values), names=[BYTES_IN]) as stand_in:
        _run(cluster, stand_in, since=NOW - 5 * HOUR)
    first_broker = [
        value for (_, number, topic, _), value in sorted(_stored(cluster).items(), key=str) if number == 1 and not topic
    ]
    assert first_broker == [7.0, 8.0]


def test_of_two_series_of_a_broker_the_greater_value_counts(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    both = [{"host": "kafka1", "env": env} for env in ("a", "b")]
    with _stand_in(
        names=[BYTES_IN],
        series=both,
        results=lambda _: both,
        value=lambda _, labels, __: {"a": "5", "b": "9"}[labels["env"]],
    ) as stand_in:
        _run(cluster, stand_in, since=NOW - 2 * HOUR)
    assert set(_stored(cluster).values()) == {9.0}
    assert "several series of one broker, with different env: a, b" in caplog.text
    assert "has no series of brokers 2" in caplog.text


NOTHING: Final[list[tuple[dict[str, Any], str]]] = [
    ({"names": []}, "it has none of the metrics kafka_server_brokertopicmetrics"),
    ({"series": []}, f'jmx has no series {BYTES_IN}{{topic=""}}'),
    (
        {"series": [{"instance": "other:1", "job": "k"}]},
        'no label of its 1 series names a broker: instance="other:1", job="k"; their hosts are h, kafka1.example.com',
    ),
    ({"value": lambda *_: "3000"}, f'{BYTES_IN}{{topic=""}} is no counter; give queries for it by --queries'),
]


@pytest.mark.parametrize(("fields", "message"), NOTHING)
def test_a_server_without_metrics_of_the_brokers(cluster: Cluster, fields: dict[str, Any], message: str) -> None:
    with _stand_in(**{"value": lambda *_: "0", **fields}) as stand_in, pytest.raises(UnreadableError) as raised:
        _run(cluster, stand_in)
    assert message in str(raised.value)


QUERIES: Final = """
[brokers]
cpu = "cpu_by_pod"
[topics]
bytes_out = 'out_by_pod{topic!=""}'
[capacity]
in = "speed_by_pod"
"""


def test_queries_of_a_file_and_their_capacities(cluster: Cluster, tmp_path: Path) -> None:
    (path := tmp_path / "queries.toml").write_text(QUERIES)
    settings = Settings(cluster.warehouse.cluster, cluster.warehouse.uri, ClusterConf())
    with _stand_in(value=lambda *_: "7") as stand_in:
        sources = ImportSources(prometheus=stand_in.url, queries=path, since="3h", broker_label="instance")
        result = report_import(settings, sources, NOW).json["prometheus"]
        assert {called for called, _, _ in stand_in.requests} == {"query_range", "query"}
    assert (result["rows"], result["capacities"], result["failed"]) == ({"cpu": 6, "bytes_out": 12}, 2, [])
    capacities = cluster.warehouse.rows("broker_capacity")
    assert {(row["broker_id"], row["resource"], row["capacity"], row["source"]) for row in capacities} == {
        (1, "in", 7.0, "prometheus"),
        (2, "in", 7.0, "prometheus"),
    }


def test_failures_are_named(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(cluster.warehouse.cluster, cluster.warehouse.uri, ClusterConf())
    with _stand_in(
        refuse=lambda called, _: BAD_QUERY if called == "query_range" else None, value=lambda *_: "0"
    ) as server:
        report_import(settings, ImportSources(prometheus=server.url, since="3h"), NOW)
    assert "bytes_in is missing from 2026-11-21 07:00 to 2026-11-21 09:00 UTC" in caplog.text


PROMETHEUS: Final = shutil.which("prometheus")

EVERY_METRIC: Final = (
    *(BYTES_IN, "kafka_server_brokertopicmetrics_bytesinpersec_total", "kafka_server_brokertopicmetrics_bytesinpersec"),
    *("kafka_server_BrokerTopicMetrics_Count", "kafka_server_BrokerTopicMetrics_OneMinuteRate"),
    *("java_lang_OperatingSystem_ProcessCpuLoad", "node_cpu_seconds_total", "node_network_receive_bytes_total"),
    *("node_network_transmit_bytes_total", "node_network_speed_bytes", "node_network_up"),
)
"""Metrics of every preset, whose queries a server must understand."""


@contextmanager
def _real_server(folder: Path, metrics: str) -> Iterator[str]:
    """Run Prometheus on a folder with these metrics, in OpenMetrics' format; yield its address."""
    (text := folder / "metrics.txt").write_text(metrics)
    (config := folder / "prometheus.yml").write_text("global: {}\n")
    data, port = folder / "data", free_port()
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(blocks, check=True, capture_output=True)
    command = [
        str(PROMETHEUS),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            for attempt in Retrying(
                retry=retry_if_exception_type((URLError, ConnectionError)),
                stop=stop_after_delay(30),
                wait=wait_fixed(0.1),
            ):
                with attempt, urlopen(f"{url}/-/ready", timeout=5):  # noqa: S310 - loopback
                    pass
            yield url
        finally:
            process.terminate()
            process.wait()


def _counter(name: str, labels: str, rate: float, times: list[int]) -> list[str]:
    """Return samples of a counter, which starts again from 0 where a pair of times is ten minutes apart."""
    lines, value = [f"{name}{{{labels}}} 0 {times[0]}"], 0.0
    for before, at in pairwise(times):
        value = 0.0 if at - before == 600 else value + rate * (at - before)
        lines.append(f"{name}{{{labels}}} {value} {at}")
    return lines


@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed: apt-get install prometheus")
def test_a_real_server(cluster: Cluster, tmp_path: Path) -> None:
    """Broker 1 restarts for ten minutes at 03:20, and Prometheus misses broker 2 from 05:00 to 05:30."""
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    minutes = [int((midnight + timedelta(minutes=number)).timestamp()) for number in range(8 * 60 + 1)]
    start = minutes[0]
    of_1 = [at for at in minutes if not 200 * 60 < at - start < 210 * 60]
    of_2 = [at for at in minutes if not 300 * 60 < at - start < 330 * 60]
    lines = [f"# TYPE {BYTES_IN.removesuffix('_total')} counter"]
    for number, times in ((1, of_1), (2, of_2)):
        for topic, share in (("", 1.0), (',topic="a"', 0.25), (',topic="b"', 0.75)):
            labels = f'instance="kafka{number}:7071"{topic}'
            lines += _counter(BYTES_IN, labels, number * 1000 * share, times)
    lines.append("# TYPE node_cpu_seconds counter")
    for number in (1, 2):
        for cpu, mode, busy in ((0, "idle", 0.5), (0, "user", 0.5), (1, "idle", 1.0), (1, "iowait", 0.0)):
            labels = f'instance="kafka{number}.example.com:9100",cpu="{cpu}",mode="{mode}"'
            lines += _counter("node_cpu_seconds_total", labels, busy, minutes)
    settings = Settings(cluster.warehouse.cluster, cluster.warehouse.uri, ClusterConf())
    with _real_server(tmp_path, "\n".join([*lines, "# EOF", ""])) as url:
        now = midnight + timedelta(hours=8, minutes=6)
        sources = ImportSources(prometheus=url, since=midnight.isoformat())
        result = report_import(settings, sources, now).json["prometheus"]
        assert report_import(settings, sources, now).json["prometheus"]["rows"] == {}
        for preset in detected_presets(EVERY_METRIC, 'env="a"', ()):
            promqls = [query.promql for query in preset.queries_by("pod")]
            for promql in (*promqls, *preset.capacities_by("pod").values()):
                assert Prometheus(url).query(promql, now.timestamp()) == []
    assert result["presets"] == ["jmx", "node"]
    stored = _stored(cluster)
    hours = [midnight + number * HOUR for number in range(8)]
    expected = {
        (metric, number, topic, hour): value * (5 / 6 if metric == "bytes_in" and (number, hour.hour) == (1, 3) else 1)
        for number in (1, 2)
        for metric, topic, value in (
            ("bytes_in", None, number * 1000.0),
            ("bytes_in", "a", number * 250.0),
            ("bytes_in", "b", number * 750.0),
            ("cpu", None, 25.0),
        )
        for hour in hours[1:]  # the counters begin with the first hour
        if metric == "cpu" or (number, hour.hour) != (2, 5)
    }
    in_first = {key for key in stored if key[-1] == hours[0]}
    assert {key: value for key, value in stored.items() if key not in in_first} == pytest.approx(expected)
    assert json.dumps(result)
