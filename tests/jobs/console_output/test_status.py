"""`surveyor status`: what people and programs are shown, from ZooKeeper and from the tables, once and again."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.kerberos.login import KerberosError
from jobs.checks.cluster_status import ClusterStatus, CredentialsCheck, read_status
from jobs.console_output.status import redraw, watch_status
from jobs.core.errors import UnreadableError
from jobs.core.properties import TOKEN_COMMAND
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.warehouse_status import missing_since
from jobs.runtime.pace import Pace
from jobs.runtime.settings import CONTROLLER_ID, ClusterConf, Settings
from schemas.enums import NO_LEADER
from schemas.rows import LastSeenBroker
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

WELL = """\
controller        broker 0, epoch 7
brokers           3 live, 0 gone
partitions        2 in 1 topic
offline           0
under-replicated  0
under min ISR     0 (assuming Kafka's default min.insync.replicas=1)
moving            0
imbalance         none; preferred replicas lead all partitions
last snapshot     none

due  no snapshot yet: plans are made on one, and `show` shows it
     surveyor snapshot
"""


@pytest.fixture
def orders(tree: KafkaTree) -> KafkaTree:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    return tree


@pytest.fixture
def used(warehouse: Warehouse) -> Warehouse:
    """A warehouse with a snapshot of two brokers, of which 1 led and is gone; the brokers say min ISR 2."""
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(2, 12)], [topic("orders")]
    cluster.partitions = {("orders", 0): partition([1, 0]), ("orders", 1): partition([0, 2], isr=[0])}
    config = {"broker_id": 0, "name": "min.insync.replicas", "value": "2", "assumed": False, "snapshot_id": 1}
    cluster.broker_configs = [config]
    cluster.snapshot()
    return warehouse


def where(tree: KafkaTree, warehouse: Path) -> str:
    """The options that commands to copy have, as they were given."""
    return f" --zookeeper {tree.hosts} --warehouse {warehouse}"


def test_without_a_warehouse(orders: KafkaTree, tmp_path: Path) -> None:
    ran = Surveyor(orders.hosts, tmp_path / "none")("status")

    title, controller, rest = ran.stdout.partition("controller")
    assert (ran.code, controller + rest.replace(where(orders, tmp_path / "none"), ""), ran.stderr) == (0, WELL, "")
    assert re.fullmatch(rf"cluster default, {orders.hosts},\s[\d-]+\s[\d:]+\sUTC\n", title)
    assert not (tmp_path / "none").exists()


def test_in_trouble(orders: KafkaTree, used: Warehouse) -> None:
    """It is no error of the command: 0 says that the cluster could be read."""
    orders.unregister(1)
    orders.client.delete("/controller")
    lost = State(controller_epoch=1, leader=NO_LEADER, leader_epoch=6, isr=[1])
    orders.write(state_path("orders", 1), encode_state(lost))
    orders.write("/brokers/topics/bad", b"{")
    ran = Surveyor(orders.hosts, Path(used.uri))("status")

    assert ran.code == 0
    figures = dict(re.findall(r"^(\w[\w -]+\w)  +(.*)$", ran.stdout, re.MULTILINE))
    assert figures["controller"] == "none, epoch 7"
    assert (figures["brokers"], figures["gone"]) == ("2 live, 1 gone", "1 (in 2 partitions)")
    assert (figures["offline"], figures["under-replicated"], figures["under min ISR"]) == ("1", "1", "1")
    to_copy = where(orders, Path(used.uri))
    assert re.findall(r"^     (surveyor .*)$", ran.stdout, re.MULTILINE) == [
        f"surveyor reconcile{to_copy}",
        f"surveyor snapshot{to_copy}",
        f"surveyor show quarantine --warehouse {used.uri}",
        f"surveyor plan recover{to_copy}",
    ]
    for_people = [line for line in ran.stdout.splitlines() if not line.startswith("     surveyor ")]
    assert max(map(len, for_people)) <= 80


@pytest.mark.parametrize(
    ("others", "brokers", "shown"),
    [
        ([], [], ["2 of 2 topics of snapshot 1 are gone: audit, orders", "topics gone 2 of 2 since snapshot 1"]),
        (["audit"], [], []),
        (["a", "b", "c"], [], ["2 of 2 topics of snapshot 1 are gone: audit, orders"]),
        ([], [0, 1, 2], ["2 of 2 topics of snapshot 1 are gone", "no broker is registered; snapshot 1 has 2 brokers"]),
    ],
)
def test_topics_that_are_gone_are_what_is_due_first(
    tree: KafkaTree, used: Warehouse, others: list[str], brokers: list[int], shown: list[str]
) -> None:
    """Every other figure of an emptied cluster is that of a healthy one."""
    cluster = Cluster(used)
    cluster.topics, cluster.brokers = [topic("orders"), topic("audit")], [broker(0, 10), broker(2, 12)]
    cluster.controller |= {"topics": 2, "brokers": 2}
    cluster.snapshot()
    for name in others:
        tree.add_topic(name, {0: [0]})
    for broker_id in brokers:
        tree.unregister(broker_id)

    ran = Surveyor(tree.hosts, Path(used.uri))("status")
    text = " ".join(ran.stdout.split())
    due = Surveyor(tree.hosts, Path(used.uri)).json("status")["due"]

    assert (ran.code, [line for line in shown if line not in text]) == (0, [])
    assert due[0]["what"].startswith("2 of 2 topics") == bool(shown)
    assert ("show topics --snapshot 1" in str(due[0]["command"]), "nothing is due" in text) == (bool(shown), False)


def test_as_a_snapshot_left_it(used: Warehouse) -> None:
    """ZooKeeper is not read."""
    status = Surveyor("127.0.0.1:1", Path(used.uri)).json("status", "--snapshot", "1")

    names = ("snapshot_id", "live", "gone", "offline", "under_replicated", "under_min_isr", "min_isr_assumed")
    gone = [{"broker_id": 1, "partitions": 1}]
    assert [status[name] for name in names] == [1, [0, 2], gone, 1, 1, 1, False]
    assert status["last_snapshot"]["age_seconds"] == pytest.approx((_now() - NOW) / timedelta(seconds=1), abs=60)
    assert status["due"][0]["command"].startswith("surveyor reconcile --zookeeper 127.0.0.1:1 ")
    title = Surveyor("127.0.0.1:1", Path(used.uri))("status", "--snapshot", "1").stdout.partition("controller")[0]
    assert f"snapshot 1, taken {NOW:%Y-%m-%d %H:%M:%S} UTC" in " ".join(title.split())


def test_more_replicas_than_a_broker_may_have_are_named_without_loads(orders: KafkaTree, used: Warehouse) -> None:
    most = {"broker_id": -1, "resource": "replicas", "capacity": 1.0, "source": "file", "valid_from": NOW}
    used.append("broker_capacity", [most])
    status = Surveyor(orders.hosts, Path(used.uri)).json("status")
    assert status["load"]["above_limits"]
    assert {(one["resource"], one["limit_share"]) for one in status["load"]["above_limits"]} == {("replicas", 1.0)}
    [step] = [step for step in status["due"] if "of its allowed replicas, and its limit is 100%" in step["what"]]
    assert step["command"] is None


def test_load_that_a_person_must_know(orders: KafkaTree, used: Warehouse) -> None:
    """Of the last hour, and of no older one than a day; the cluster is read as well."""
    hour = _now().replace(minute=0, second=0, microsecond=0) - HOUR
    rows = [broker_row(hour, 0, 9e6), broker_row(hour, 1, 1e6), broker_row(hour, 2, 2e6)]
    used.append("broker_load", rows)
    used.append(
        "partition_load",
        [partition_row(hour, "orders", number, rate, size_bytes=9) for number, rate in enumerate((8e6, 1e6))],
    )
    out = {"broker_id": -1, "resource": "out", "capacity": 30e6, "source": "file", "valid_from": hour}
    used.append("broker_capacity", [out])
    surveyor = Surveyor(orders.hosts, Path(used.uri))
    status = surveyor.json("status")

    load = status["load"]
    assert (load["hour"], load["sampled_at"]) == (f"{hour:%Y-%m-%dT%H:%M:%SZ}", None)
    assert load["above_limits"] == [
        {"broker_id": 0, "resource": "out", "share": pytest.approx(0.9), "limit_share": 0.8}
    ]
    assert load["hidden_by_counts"] == {"resource": "in", "broker_id": 0, "ratio": pytest.approx(18 / 11)}  # 1 is down
    assert [(hot["topic"], hot["partition"], hot["broker_id"]) for hot in load["hot_partitions"]] == [("orders", 0, 0)]
    assert load["hot_partitions"][0]["share"] == pytest.approx(16 / 27)
    assert load["full_soon"] == []
    assert [step["what"].partition(":")[0] for step in status["due"]][1:4] == [
        "broker 0 uses 90% of its network out, and its limit is 80%",
        "leaders and replicas are even and load is not",
        "orders-0 alone is 59% of the bytes out of broker 0",
    ]
    shown = surveyor("status").stdout
    assert "due  orders-0 alone is 59% of the bytes out of broker 0" in shown
    assert [step["command"].count("--by-load") for step in status["due"]] == [0, 1, 1, 0]
    assert shown.count("plan reassign --rebalance --by-load") == 1

    used.update("broker_load", "true", hour=f"'{hour - timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}'")
    load = surveyor.json("status")["load"]
    assert (load["above_limits"], load["hidden_by_counts"], load["hot_partitions"]) == ([], None, [])
    assert surveyor.json("status", "--snapshot", "1")["load"] is None


def test_load_that_cannot_be_read_is_left_out(orders: KafkaTree, used: Warehouse) -> None:
    """As in a warehouse of an older version, without its tables."""
    for name in ("broker_load", "partition_load", "partition_offsets", "broker_capacity", "log_dirs"):
        shutil.rmtree(used.path(name))
    surveyor = Surveyor(orders.hosts, Path(used.uri))
    assert surveyor.json("status")["load"] == {
        **dict.fromkeys(("hour", "sampled_at", "hidden_by_counts")),
        **{name: [] for name in ("above_limits", "full_soon", "hot_partitions")},
        "without_load": 0,
    }
    (Path(used.uri) / "broker_load").mkdir()
    (Path(used.path("broker_load")) / "part-0.parquet").write_bytes(b"")
    assert surveyor.json("status")["load"] is None


@pytest.mark.parametrize(("seen_in", "missing"), [(1, timedelta(hours=5)), (2, timedelta(minutes=1))])
def test_since_when_a_broker_is_missing(warehouse: Warehouse, seen_in: int, missing: timedelta) -> None:
    """The snapshot after the one that saw it last; where none has seen it, the oldest."""
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10)], [topic("orders")]
    last_seen = LastSeenBroker(broker_id=1, broker_epoch=1, snapshot_id=seen_in, last_seen_at=NOW)
    warehouse.replace("brokers_last_seen", [last_seen])
    for age in (timedelta(days=1), timedelta(hours=5), timedelta(minutes=1)):
        cluster.snapshot(age)

    since = missing_since(warehouse, find_snapshot(warehouse), [0, 1, 2])
    assert {number: NOW - moment for number, moment in since.items()} == {1: missing, 2: timedelta(days=1)}


def test_as_of_a_snapshot_no_later_plan_waits(used: Warehouse) -> None:
    """Plans are told of as long as they are fresh; the one on snapshot 2 is none of snapshot 1."""
    common = {"kind": "elect", "changes": 1, "status": "partial", "created_at": _now()}
    used.append("plans", [{**common, "plan_id": f"on-{number}", "snapshot_id": number} for number in (1, 2)])
    status = Surveyor("127.0.0.1:1", Path(used.uri)).json("status", "--snapshot", "1")

    assert [step["what"] for step in status["due"] if step["what"].startswith("plan ")] == [
        "plan on-1 (elect) is partial"
    ]


def _now() -> datetime:
    return datetime.now(UTC)


def test_the_commands_name_the_cluster(orders: KafkaTree, tmp_path: Path) -> None:
    status = Surveyor(orders.hosts, tmp_path / "none").json("status", "--cluster", "east")

    assert [step["command"] for step in status["due"]] == [
        f"surveyor snapshot --cluster east{where(orders, tmp_path / 'none')}"
    ]


def test_status_works_with_a_broken_warehouse(orders: KafkaTree, used: Warehouse) -> None:
    shutil.rmtree(used.path("plans"))
    status = Surveyor(orders.hosts, Path(used.uri)).json("status")

    assert (status["partitions"], status["last_snapshot"]) == (2, None)
    assert "no table plans" in status["warehouse_fault"]
    assert [step["command"] for step in status["due"]] == [None]


def test_surveyor_is_the_controller(orders: KafkaTree, tmp_path: Path) -> None:
    orders.elect(CONTROLLER_ID, epoch=8)
    ran = Surveyor(orders.hosts, tmp_path / "none")("status")

    assert f"controller        Surveyor, as {CONTROLLER_ID}, epoch 8\n" in ran.stdout


@pytest.fixture
def with_token_command(tmp_path: Path) -> Settings:
    """Of a cluster whose brokers want tokens from a command, which notes that it ran."""
    config = tmp_path / "client.properties"
    config.touch(0o600)
    command = f"touch {tmp_path / 'ran'}"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n{TOKEN_COMMAND}={command}\n")
    return Settings("default", str(tmp_path / "none"), ClusterConf(zookeeper="zk:1", command_config=config))


def test_no_command_for_a_token_is_run(with_token_command: Settings, tmp_path: Path) -> None:
    check = CredentialsCheck(with_token_command)
    check.start()

    assert check.fault() is None
    assert not (tmp_path / "ran").exists()


def test_credentials_are_not_waited_for(with_token_command: Settings) -> None:
    """As a ticket of a KDC that does not answer; the fault is shown later, and checked again after a while."""
    answer, checks = Event(), count()

    def check_slowly(*_: object, **__: object) -> None:
        next(checks)
        answer.wait()
        raise KerberosError("no KDC answers")

    check = CredentialsCheck(with_token_command, check_slowly)
    check.wait_seconds = 0.05
    check.start()
    assert check.fault() is None

    answer.set()
    check.wait_seconds = 5.0
    assert check.fault() == "no KDC answers"
    check.start()
    assert check.fault() == "no KDC answers"
    assert next(checks) == 1
    check.interval_seconds = 0.0
    check.start()
    check.fault()
    assert next(checks) == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_painted_over() -> None:
    """From the top left, each line to its end, and what is left of a longer block."""
    terminal = Terminal()
    with redirect_stdout(terminal):
        redraw(["one", "two"])

    assert terminal.getvalue() == "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J"


def test_what_cannot_be_read_meanwhile_is_said_and_tried_again(
    used: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pace = Pace(SimpleNamespace(sleep=lambda _: None))
    settings = Settings("default", used.uri, ClusterConf(), pace=pace)
    status_read = read_status(settings, 1)
    looks: list[ClusterStatus | Exception] = [status_read, UnreadableError("it went away"), status_read]
    answers = iter(looks)

    def answer(*_: object) -> ClusterStatus:
        following = next(answers, KeyboardInterrupt())
        if isinstance(following, BaseException):
            raise following
        return following

    monkeypatch.setattr("jobs.console_output.status.read_status", answer)
    with pytest.raises(KeyboardInterrupt):
        watch_status(settings, 5.0)
    blocks = capsys.readouterr().out.removesuffix("\n\n").split("\n\ncluster default")

    first, failed = blocks[0].rsplit("\n\n", 1)
    assert first in f"cluster default{blocks[1]}"
    assert re.fullmatch(r".* UTC  cannot read the cluster; trying again\nit went away", failed)


def test_unknown_host_name_is_no_fault_of_the_servers(tmp_path: Path) -> None:
    ran = Surveyor("127.0.0.1:1,no.such.invalid:2181/kafka", tmp_path, pace=Pace(live=0.1))("status")

    assert (ran.code, "cannot resolve host name 'no.such.invalid'" in ran.stderr) == (22, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--snapshot", "1", "--watch", "5s"), "give one of the two"),
        (("--json", "--watch", "5s"), "give one of the two"),
        (("--watch", "often"), "expected 30s"),
        (("--watch", "0s"), "expected more than 0s"),
        (("--snapshot", "9"), "no snapshot 9"),
    ],
)
def test_what_cannot_be_meant(used: Warehouse, arguments: tuple[str, ...], message: str) -> None:
    ran = Surveyor("127.0.0.1:1", Path(used.uri))("status", *arguments)

    assert (ran.code, message in ran.stderr) == (2, True)


def test_again_and_again_until_interrupted(orders: KafkaTree, tmp_path: Path) -> None:
    """Block after block where stdout is no terminal; it does not repaint there."""
    command = [sys.executable, "-m", "jobs.entry", "status", "--watch", "0.01s"]
    options = where(orders, tmp_path / "none")
    with subprocess.Popen(
        [*command, *options.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        output = ""
        for line in running.stdout:
            output += line
            if output.count("cluster default") > 1:
                break
        os.kill(running.pid, signal.SIGINT)
        _, stderr = running.communicate()

    assert (f"{WELL}\ncluster default" in output.replace(options, ""), "\x1b" in output) == (True, False)
    assert (running.returncode, stderr) == (130, "surveyor: interrupted; nothing was written to the cluster\n")
