"""`surveyor metrics`: what Prometheus' own parser makes of it; in a file that is replaced whole, and served."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Final, NoReturn
from urllib.error import HTTPError

import pytest
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.metrics import families, read_figures
from jobs.core import logs
from jobs.core.addresses import parse_address
from jobs.core.errors import UnreadableError, UsageError
from jobs.runtime import metrics_server as module
from jobs.runtime.metrics_server import MetricsServer
from schemas.enums import NO_LEADER, Outcome, PlanStatus
from schemas.rows import Row
from tests.docs.markdown import ROOT
from tests.jobs.support.commands.command_line import Surveyor as SurveyorAlone
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.load_rows import HOUR, broker_row
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic

NOWHERE: Final = "127.0.0.1:1"
LOOPBACK: Final = ("127.0.0.1", 0)
COMMITTED: Final = NOW - timedelta(hours=1)


def commit_row(number: int, outcome: Outcome, action: str = "elect", attempt: int = 1) -> Row:
    key = {"plan_id": "5f", "attempt": attempt, "wave": 0, "topic": "orders", "partition": number, "action": action}
    return {**key, "outcome": outcome.value, "committed_at": COMMITTED}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """A snapshot with troubles, three plans, and a commit of two attempts, the last of which was killed."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("measured") / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(2, 12)], [topic("orders")]
    cluster.partitions = {
        ("orders", 0): partition([1, 0], leader=0, isr=[0]),
        ("orders", 1): partition([0, 2]),
        ("orders", 2): partition([1], leader=NO_LEADER),
        ("orders", 3): partition([0, 2], leader=2, adding_replicas=[2]),
    }
    statuses = (PlanStatus.COMMITTED, PlanStatus.PLANNED, PlanStatus.PLANNED)
    warehouse.append("plans", [plan_record(str(number), status=status.value) for number, status in enumerate(statuses)])
    rows = [commit_row(0, Outcome.PENDING), commit_row(0, Outcome.APPLIED), commit_row(1, Outcome.STALE)]
    killed = [commit_row(number, Outcome.PENDING, attempt=2) for number in (0, 1)]
    warehouse.append("commits", [*rows, *killed, commit_row(0, Outcome.APPLIED, action="take_over")])
    warehouse.append("drained", [{"broker_id": 2, "mode": "admin", "plan_id": "5f", "since": datetime.now(UTC)}])
    cluster.snapshot()
    return Surveyor(NOWHERE, Path(warehouse.uri))


def parsed(text: str) -> dict[str, dict[frozenset[str], float]]:
    """Values by name and by what their labels say, but for the cluster."""
    samples: dict[str, dict[frozenset[str], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in {"gauge", "counter"}
        for sample in family.samples:
            labels = frozenset(value for name, value in sample.labels.items() if name != "cluster")
            assert labels not in samples.setdefault(sample.name, {})
            samples[sample.name][labels] = sample.value
    return samples


@dataclass(frozen=True)
class Samples:
    """What Prometheus' parser reads in the output."""

    read: dict[str, dict[frozenset[str], float]]

    def one(self, name: str) -> float:
        return self.read[f"surveyor_{name}"][frozenset()]

    def by_label(self, name: str) -> Mapping[str, float]:
        return {next(iter(label)): value for label, value in self.read[f"surveyor_{name}"].items()}


@pytest.fixture(scope="module")
def samples(measured: Surveyor) -> Samples:
    ran = measured("metrics")
    assert (ran.code, ran.stderr) == (0, "")
    return Samples(parsed(ran.stdout))


def test_partitions_are_counted_by_their_state(samples: Samples) -> None:
    one = samples.one
    assert (one("has_snapshot"), one("snapshot_id"), one("partitions"), one("topics")) == (1, 1, 4, 1)
    assert (one("offline_partitions"), one("under_replicated_partitions"), one("moving_partitions")) == (1, 1, 1)
    assert (one("repairable_partitions"), one("offline_without_isr_partitions"), one("drained_brokers")) == (0, 1, 1)


def test_brokers_are_counted_by_their_state(samples: Samples) -> None:
    by_label = samples.by_label
    assert by_label("brokers") == {"live": 2, "gone": 1, "not_understood": 0}
    assert by_label("gone_broker_partitions") == {"1": 2}
    assert by_label("imbalance_ratio") == {"0": 0.5, "1": 1.0}


def test_plans_and_rows_of_commits_are_counted_by_their_outcome(samples: Samples) -> None:
    one, by_label = samples.one, samples.by_label
    plans = dict.fromkeys(PlanStatus, 0) | {PlanStatus.COMMITTED: 1, PlanStatus.PLANNED: 2}
    assert by_label("plans") == plans
    rows = dict.fromkeys(Outcome, 0) | {Outcome.APPLIED: 1, Outcome.STALE: 1}
    del rows[Outcome.PENDING]
    assert by_label("commit_rows_total") == rows
    assert one("commit_rows_pending") == 2


def test_the_last_commit_and_snapshot_have_a_time_and_an_age(measured: Surveyor) -> None:
    one = Samples(parsed(measured("metrics").stdout)).one
    assert one("last_commit_timestamp_seconds") == COMMITTED.timestamp()
    assert one("last_snapshot_timestamp_seconds") == NOW.timestamp()
    age = (datetime.now(UTC) - NOW).total_seconds()
    assert one("last_snapshot_age_seconds") == pytest.approx(age, abs=60)
    assert one("last_commit_age_seconds") == pytest.approx(age + 3600, abs=60)


def test_the_load_of_brokers_in_the_last_hour(tmp_path: Path) -> None:
    """Without samples of what is not known, and of loads that are older than a day only their age."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10), broker(1, 11)]
    cluster.snapshot()
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0) - HOUR
    warehouse.append("broker_load", [broker_row(hour, 0, 3.0, size_bytes=40, cpu=9.0), broker_row(hour, 1, 1.0)])
    disk = {"broker_id": 0, "resource": "disk", "capacity": 100.0, "source": "log_dirs", "valid_from": hour}
    sample = {"sampled_at": now, "stored_at": now, "topic": "orders", "partition": 0, "leader": 0}
    warehouse.append("broker_capacity", [disk])
    warehouse.append("partition_offsets", [sample])
    surveyor = Surveyor(NOWHERE, Path(warehouse.uri))
    samples = Samples(parsed(surveyor("metrics").stdout))

    rates = [
        samples.by_label(f"broker_{name}") for name in ("bytes_in", "replication_in", "bytes_out", "replication_out")
    ]
    assert rates == [{"0": 3, "1": 1}, {"0": 6, "1": 2}, {"0": 3, "1": 1}, {"0": 6, "1": 2}]
    assert (samples.by_label("broker_size_bytes"), samples.by_label("broker_cpu_percent")) == ({"0": 40}, {"0": 9})
    assert samples.by_label("broker_disk_used_ratio") == {"0": 0.4}
    assert "surveyor_broker_in_used_ratio" not in samples.read
    assert samples.by_label("load_worst_broker_ratio") == {"in": 1.5, "out": 1.5}
    assert samples.one("partitions_without_load") == 0
    assert samples.one("last_load_timestamp_seconds") == (hour + HOUR).timestamp()
    assert 0 <= samples.one("last_load_age_seconds") <= 2 * 3600
    assert samples.one("last_load_sample_age_seconds") == pytest.approx(0, abs=60)

    warehouse.update("broker_load", "true", hour=f"'{hour - timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}'")
    old = Samples(parsed(surveyor("metrics").stdout))
    assert ("surveyor_broker_bytes_in" in old.read, old.one("last_load_age_seconds") > 86_400) == (False, True)


def test_the_page_names_every_metric(measured: Surveyor) -> None:
    settings = settings_of(str(measured.folder))
    page = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(surveyor_\w+)`", page, re.MULTILINE) == [
        family.name + "_total" * (family.type == "counter") for family in families(read_figures(settings, NOW))
    ]


def test_before_the_first_snapshot_nothing_is_mistaken_for_zero(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    lay_tables(warehouse)
    conf = tmp_path / "surveyor.toml"
    conf.write_text("[clusters.default]\n")
    samples = parsed(SurveyorAlone(warehouse).run("metrics", "--all-clusters", "--conf", str(conf)).stdout)

    known = ["surveyor_commit_rows_pending", "surveyor_commit_rows_total", "surveyor_has_snapshot", "surveyor_plans"]
    assert sorted(samples) == known
    assert samples["surveyor_has_snapshot"] == {frozenset(): 0.0}


def test_a_cluster_without_snapshots_has_no_metrics(measured: Surveyor, tmp_path: Path) -> None:
    """Nor is the file touched that had some."""
    file = tmp_path / "surveyor.prom"
    file.write_text("before")
    ran = measured("metrics", "--cluster", "defualt", "--out", str(file))

    assert (ran.code, ran.stdout, file.read_text()) == (22, "", "before")
    assert "no snapshot of cluster 'defualt'" in ran.stderr


def test_nor_are_they_served(measured: Surveyor) -> None:
    """It is detected before listening, so that metrics of a missing cluster are never served."""
    with MetricsServer(LOOPBACK, list) as taken:
        ran = measured("metrics", "--cluster", "defualt", "--listen", str(taken.server_address[1]))

    assert (ran.code, "no snapshot of cluster 'defualt'" in ran.stderr) == (22, True)


def test_no_warehouse(tmp_path: Path) -> None:
    ran = Surveyor(NOWHERE, tmp_path / "none")("metrics")

    assert (ran.code, ran.stdout, "no warehouse at" in ran.stderr) == (22, "", True)


def test_a_fleet_has_each_family_once(measured: Surveyor, tmp_path: Path) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text(f'warehouse = "{measured.folder}"\n[clusters.default]\n[clusters.east]\n')
    text = SurveyorAlone(measured.warehouse).run("metrics", "--all-clusters", "--conf", str(conf)).stdout
    read = list(text_string_to_metric_families(text))

    assert len({family.name for family in read}) == len(read)
    (plans,) = (family for family in read if family.name == "surveyor_plans")
    assert {sample.labels["cluster"] for sample in plans.samples} == {"default", "east"}


def test_json_is_one_object(measured: Surveyor) -> None:
    samples = measured.json("metrics")["samples"]

    expected = {"name": "surveyor_partitions", "type": "gauge", "labels": {"cluster": "default"}, "value": 4}
    assert expected in samples


def test_in_a_file(measured: Surveyor, tmp_path: Path) -> None:
    out = tmp_path / "surveyor.prom"
    out.write_text("old")
    ran = measured("metrics", "--out", str(out))

    assert (ran.code, "samples written to" in ran.stdout) == (0, True)
    assert parsed(out.read_text())["surveyor_partitions"] == {frozenset(): 4}
    assert (list(tmp_path.iterdir()), out.stat().st_mode & 0o777) == ([out], 0o644)


@pytest.mark.parametrize("arguments", [("--out", "x.prom"), ("--json",)])
def test_serving_goes_on(measured: Surveyor, arguments: tuple[str, ...]) -> None:
    ran = measured("metrics", "--listen", "0", *arguments)

    assert (ran.code, "choose one of these" in ran.stderr) == (2, True)


def test_served_on_the_loopback_until_interrupted(measured: Surveyor) -> None:
    command = [sys.executable, "-m", "jobs.entry", "metrics", "--listen", "0", "--warehouse", str(measured.folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        url = running.stderr.readline().split()[3].rstrip(";")
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - what the command itself said
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        os.kill(running.pid, signal.SIGTERM)
        _, stderr = running.communicate()

    assert url.startswith("http://127.0.0.1:")
    assert (kind, parsed(text)["surveyor_partitions"]) == (CONTENT_TYPE_PLAIN_0_0_4, {frozenset(): 4})
    assert (running.returncode, stderr) == (143, "surveyor: interrupted; nothing was written to the cluster\n")


def test_each_request_gets_a_response() -> None:
    """What cannot be made is an answer too, and the next one may be."""
    fine = GaugeMetricFamily("fine", "One value.", value=1)
    metrics: Iterator[Exception | list[Metric]] = iter([UnreadableError("no table"), ValueError("odd"), [fine]])

    def read() -> list[Metric]:
        metric = next(metrics)
        if isinstance(metric, Exception):
            raise metric
        return metric

    with MetricsServer(LOOPBACK, read) as page:
        Thread(target=page.serve_forever, args=(0.01,), daemon=True).start()
        answers = [_fetched(page.url.replace("metrics", path)) for path in ("elsewhere", *["metrics"] * 3)]
        page.shutdown()

    assert answers == [
        (HTTPStatus.NOT_FOUND, "only /metrics and /healthz exist here\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "no table\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "unexpected ValueError: odd\n"),
        (HTTPStatus.OK, "# HELP fine One value.\n# TYPE fine gauge\nfine 1.0\n"),
    ]


def _fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - the test's own
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def as_json() -> Iterator[None]:
    logs.configure(log_format=logs.LogFormat.JSON)
    yield
    logs.configure(log_format=logs.LogFormat.TEXT)


def _fail(*_: object) -> NoReturn:
    raise ValueError("odd")


@contextmanager
def served(page: MetricsServer) -> Iterator[MetricsServer]:
    with page:
        Thread(target=page.serve_forever, args=(0.01,), daemon=True).start()
        yield page
        page.shutdown()


def connected(page: MetricsServer, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", page.server_address[1]), timeout=10)
    client.sendall(sent)
    return client


def stay_idle(client: socket.socket) -> None:
    assert client.recv(1) == b""


def send_slowly(client: socket.socket) -> None:
    """Send a byte more often than a time-out for each read would notice."""
    for _ in range(100):
        client.sendall(b"G")
        time.sleep(0.02)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def close(client: socket.socket) -> None:
    client.close()


def handling_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "process_request_thread" in thread.name]


def have_ended(most: int = 0) -> bool:
    """Wait until at most so many threads handle requests."""
    end = time.monotonic() + 5
    while len(handling_threads()) > most and time.monotonic() < end:
        time.sleep(0.01)
    return len(handling_threads()) <= most


@pytest.mark.usefixtures("as_json")
@pytest.mark.parametrize("sent", [b"", b"GET /met"])
@pytest.mark.parametrize("act", [stay_idle, reset, close])
def test_a_fault_of_a_client_is_not_logged(
    act: Callable[[socket.socket], None],
    sent: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor is an incomplete request answered."""
    with served(MetricsServer(LOOPBACK, _fail, request_seconds=0.2)) as page:
        with connected(page, sent) as client:
            time.sleep(0.05)
            act(client)
        assert have_ended()

    assert capsys.readouterr().err == ""


def test_a_request_must_arrive_in_time() -> None:
    with (
        served(MetricsServer(LOOPBACK, list, request_seconds=0.3)) as page,
        connected(page) as client,
        pytest.raises(ConnectionError),
    ):
        send_slowly(client)


def test_incomplete_requests_hold_few_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """The oldest is closed for a new one."""
    with served(MetricsServer(LOOPBACK, list)) as page:
        clients = [connected(page, b"GET") for _ in range(module.MAX_UNREAD_REQUESTS + 20)]
        answer = _fetched(page.url)
        assert have_ended(module.MAX_UNREAD_REQUESTS)
        closed = [client.recv(1) for client in clients[:20]]
        for client in clients:
            client.close()
        assert have_ended()

    assert answer == (HTTPStatus.OK, "")
    assert closed == [b""] * 20
    assert capsys.readouterr().err == ""


def test_connections_may_wait() -> None:
    """Before the server accepts any."""
    with MetricsServer(LOOPBACK, list) as page:
        clients = [connected(page) for _ in range(100)]
        peers = {client.getpeername()[1] for client in clients}

    assert peers == {page.server_port}
    for client in clients:
        client.close()


def test_few_requests_wait_for_the_metrics() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def read() -> list[Metric]:
        begun.set()
        assert go_on.wait(10)
        return []

    server = MetricsServer(LOOPBACK, read, max_scrapes=1)
    with served(server) as page, connected(page, b"GET /metrics HTTP/1.0\r\n\r\n") as first:
        assert begun.wait(10)
        second, healthy = _fetched(page.url), _fetched(page.url.replace("metrics", "healthz"))
        go_on.set()
        assert first.recv(100).startswith(b"HTTP/1.0 200")

    assert second == (HTTPStatus.SERVICE_UNAVAILABLE, "1 requests wait for the metrics already\n")
    assert healthy == (HTTPStatus.OK, "ok\n")


class FailingHandler(module._RequestHandler):  # noqa: SLF001
    def get_environ(self) -> NoReturn:
        raise ValueError("odd")


@pytest.mark.usefixtures("as_json")
@pytest.mark.parametrize("where", ["request", "application", "metrics"])
def test_another_error_is_one_record(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = MetricsServer(LOOPBACK, _fail if where == "metrics" else list)
    if where == "request":
        page.RequestHandlerClass = FailingHandler
    elif where == "application":
        page.set_app(_fail)
    with served(page), connected(page, b"GET /metrics HTTP/1.0\r\n\r\n") as client:
        client.recv(1000)
        assert have_ended()

    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["message"]) == ("error", "metrics: unexpected ValueError: odd")
    assert record["logger"] == "surveyor.runtime.metrics_server"


def test_an_address_that_is_taken() -> None:
    with MetricsServer(LOOPBACK, list) as page:
        address = page.server_address[0], page.server_address[1]
        with pytest.raises(UsageError, match=r"cannot listen on .* give another port"):
            MetricsServer((str(address[0]), int(address[1])), list)


@pytest.mark.parametrize("text", ["", "host", "host:", "a b:1", "host:70000", "::1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_address("--listen", text)
