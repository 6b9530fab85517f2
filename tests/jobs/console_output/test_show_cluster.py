"""`show brokers`, `show topics` and `show partitions`, and the forms in which all of `show` is written."""

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import run
from jobs.console_output.cluster_tables import BROKER_COLUMNS
from jobs.console_output.stored_tables import ROWS_SHOWN
from jobs.core.arrow_rows import StoredRows, as_rows
from schemas.enums import NO_LEADER
from schemas.rows import Row
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Brokers 0 and 1, of which 0 is the controller; 7 is gone and still named. The partitions are as a snapshot's."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("shown") / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10), broker(1, 11, rack="r1")]
    small = topic("small", config={"min.insync.replicas": "2"})
    cluster.topics = [topic("big"), topic("empty"), topic("going", deletion_requested=True), small]
    well = {"under_replicated": False, "under_min_isr": False, "offline_replicas": []}
    cluster.partitions = {
        ("big", 0): partition([0, 1], **well),
        ("big", 1): partition([1, 0, 7], isr=[1, 0], **well | {"under_replicated": True, "offline_replicas": [7]}),
        ("big", 2): partition([0, 1, 7], removing_replicas=[7], adding_replicas=[1], **well),
        ("going", 0): partition([0, 7], isr=[0], **well | {"under_replicated": True, "under_min_isr": True}),
        ("small", 0): partition([1, 7], isr=[1], **well | {"under_replicated": True, "under_min_isr": True}),
    }
    cluster.snapshot()
    lost = {"topic": "small", "partition": 1, "partition_state": "Offline", "snapshot_id": 1}
    row = partition([7], leader=NO_LEADER, **well | {"under_min_isr": True})
    warehouse.append("partitions", [row | lost])
    (snapshot,) = warehouse.rows("snapshots")
    versions = snapshot["versions"] | {"partitions": warehouse.version("partitions")}
    warehouse.replace("snapshots", [snapshot | {"versions": versions}])
    return Surveyor(NOWHERE, Path(warehouse.uri))


@pytest.mark.parametrize(
    ("flags", "partitions"),
    [
        ("", ["big-0", "big-1", "big-2", "going-0", "small-0", "small-1"]),
        ("--offline", ["small-1"]),
        ("--under-replicated", ["big-1", "small-0"]),
        ("--under-min-isr", ["small-0", "small-1"]),
        ("--broker 7", ["big-1", "big-2", "going-0", "small-0", "small-1"]),
        ("--topic big --under-min-isr", []),
    ],
)
def test_partitions_that_are_asked_for(shown: Surveyor, flags: str, partitions: list[str]) -> None:
    rows = shown.json("show", "partitions", *flags.split())["rows"]

    assert [f"{row['topic']}-{row['partition']}" for row in rows] == partitions


def test_only_the_rows_that_people_see_become_objects(shown: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a hundred thousand partitions took four seconds."""
    made = list[int]()

    def first(rows: StoredRows, count: int) -> list[Row]:
        made.append(count)
        return as_rows(rows.table.slice(0, count))

    monkeypatch.setattr(StoredRows, "first", first)
    monkeypatch.setattr(StoredRows, "__iter__", None)
    lines = shown("show", "partitions").stdout.splitlines()

    assert (made, sum("│" in line for line in lines)) == ([ROWS_SHOWN], 6)
    assert lines[-1].startswith("6 rows, as of ")


def test_a_deletion_is_shown_and_is_no_trouble(shown: Surveyor) -> None:
    (row,) = shown.json("show", "partitions", "--topic", "going")["rows"]
    assert (row["partition_state"], row["deletion_requested"]) == ("Online", True)
    assert "Online, being deleted" in shown("show", "partitions", "--topic", "going").stdout


def test_a_broker_that_nothing_names_is_a_slip(shown: Surveyor) -> None:
    """Broker 7 has failed and is still a replica; a registered broker may hold no replica."""
    unknown = shown("show", "partitions", "--broker", "99")

    assert (unknown.code, "no broker 99 in snapshot" in unknown.stderr) == (2, True)
    assert shown("show", "partitions", "--broker", "7").code == 0


def test_brokers_and_those_that_are_gone(shown: Surveyor) -> None:
    rows = shown.json("show", "brokers")["rows"]

    columns = ("broker_id", "live", "controller", "leaders", "replicas", "host", "understood")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (0, True, True, 3, 4, "h", True),
        (1, True, False, 2, 4, "h", True),
        (7, False, False, 0, 5, None, None),
    ]


def test_topics_have_partitions_and_a_replication_factor(shown: Surveyor) -> None:
    """The factor is that of the target where replicas are on their way out."""
    rows = shown.json("show", "topics")["rows"]

    columns = ("topic", "partitions", "replication_factor", "most_replicas", "config")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("big", 3, 2, 3, {}),
        ("empty", 0, None, None, {}),
        ("going", 1, 2, 2, {}),
        ("small", 2, 1, 2, {"min.insync.replicas": "2"}),
    ]
    assert "2..3" in shown("show", "topics").stdout


def head(ran: Ran) -> list[str]:
    """The names of the columns of a table."""
    return [name.strip() for name in ran.stdout.splitlines()[1].split("┃")]


def test_wide_is_every_column(shown: Surveyor) -> None:
    narrow, wide = (head(shown("show", "partitions", *form)) for form in ((), ("-o", "wide")))

    assert (narrow, "state_version" in narrow) == (wide[: len(narrow)], False)
    assert {"state_version", "under_min_isr", "snapshot_id"} <= set(wide)
    assert "cluster" not in wide


@pytest.mark.parametrize("subject", ["partitions", "plans"])
def test_json_and_yaml_are_one_object(shown: Surveyor, subject: str) -> None:
    as_json, as_option, as_yaml = (
        shown("show", subject, *form) for form in (("--json",), ("-o", "json"), ("-o", "yaml"))
    )

    assert as_json.stdout == as_option.stdout
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_two_forms_are_one_too_many(shown: Surveyor) -> None:
    ran = shown("show", "topics", "--json", "-o", "yaml")

    assert (ran.code, "give one of the two" in ran.stderr) == (2, True)


def test_errors_are_an_object_too_where_one_is_asked_for(tmp_path: Path) -> None:
    ran = Surveyor(NOWHERE, tmp_path / "none")("show", "topics", "-o", "json")

    assert (ran.code, ran.json["exit_code"]) == (22, 22)


@pytest.mark.parametrize("subject", ["brokers", "partitions --offline"])
def test_how_old_it_is(shown: Surveyor, subject: str) -> None:
    *_, last = shown("show", *subject.split()).stdout.splitlines()
    answer = shown.json("show", *subject.split())

    assert re.fullmatch(rf"{len(answer['rows'])} rows?, as of {NOW:%Y-%m-%d %H:%M:%S} UTC, .* ago", last)
    assert datetime.fromisoformat(answer["taken_at"]) == NOW


def test_the_former_option_of_a_snapshot_works_and_is_not_shown(shown: Surveyor) -> None:
    assert shown.json("show", "topics", "--as-of", "1") == shown.json("show", "topics", "--snapshot", "1")
    assert shown("show", "topics", "--as-of", "9").code == 2
    assert "--as-of" not in shown("show", "topics", "--help").stdout


def test_a_closed_pipe_ends_the_output(shown: Surveyor) -> None:
    """As with `| head -1`: one line, and no stack trace from Python's end either."""
    command = [sys.executable, "-m", "jobs.entry", "status", "--snapshot", "1", "--warehouse", str(shown.folder)]
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)

    assert (ran.returncode, ran.stderr) == (1, "surveyor: the output was closed by its reader and is not complete\n")


@pytest.mark.parametrize(
    ("where", "form", "code", "message"),
    [
        (">/dev/full", ["--json"], 1, r"surveyor: no space is left on the disk, .*\n"),
        (">&-", [], 0, ""),
        ("2>&- >/dev/null", ["--snapshot", "9"], 2, ""),
    ],
)
def test_output_that_cannot_be_written(shown: Surveyor, where: str, form: list[str], code: int, message: str) -> None:
    """A full disk or a closed stdout gives an exit code, no stack trace, and no output in the wrong place."""
    command = [sys.executable, "-m", "jobs.entry", "show", "brokers", "--warehouse", str(shown.folder), *form]
    line = ["/bin/sh", "-c", f"{shlex.join(command)} {where}"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert re.fullmatch(message, ran.stderr)


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_a_terminal_of_any_width_is_shown_all(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    """Texts are folded; no column is left out, no number loses a digit, and nothing is obeyed by the terminal."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(1234567890, 1, rack="\x1b[2Jr", host="h" * 30, port=28186)]
    cluster.snapshot()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))

    run(["show", "brokers", "--warehouse", warehouse.uri])

    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    (rule,) = (number for number, line in enumerate(lines) if line.startswith("━"))
    assert (_down(lines[1:rule]), _down(lines[rule + 1 : -1])) == (
        [*BROKER_COLUMNS],
        ["1234567890", "yes", "no", "0", "0", "h" * 30, "28186", "\\x1b[2Jr"],
    )


def _down(lines: list[str]) -> list[str]:
    """What stands in each column, folded or not."""
    cells = [[cell.strip() for cell in re.split("[┃│]", line)] for line in lines]
    return ["".join(column) for column in zip(*cells, strict=True)]


@pytest.mark.parametrize("form", ["-o wide", "--json", "-o yaml"])
def test_what_is_secret_is_shown_in_no_form(warehouse: Warehouse, form: str) -> None:
    """A topic's config can contain any key, also secrets, although Kafka has no such settings."""
    cluster = Cluster(warehouse)
    for word in ("hunter1", "hunter2"):
        cluster.topics = [topic("t", config={"ssl.key.password": word, "retention.ms": word[-1]})]
        odd = {"path": "/config/topics/u", "data": f'{{"config":{{"a.password":"{word}"}}', "reason": "cut off"}
        cluster.quarantine = [odd]
        cluster.snapshot()

    shown = Surveyor(NOWHERE, Path(warehouse.uri))
    for subject in ("topics", "quarantine", "diff 1 2"):
        ran = shown("show", *subject.split(), *form.split())
        assert (ran.code, "(hidden)" in ran.stdout, "hunter" in ran.stdout) == (0, True, False)


def test_no_broker_has_such_an_id(shown: Surveyor) -> None:
    """-1 means no broker, which holds no replica."""
    ran = shown("show", "partitions", "--broker", "-1")

    assert (ran.code, "--broker" in ran.stderr) == (2, True)


@pytest.fixture
def alive(tree: KafkaTree, warehouse: Warehouse) -> Surveyor:
    """Brokers 0 and 1 live, 2 is gone: a snapshot saw it, in rack b; min.insync.replicas is 2."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10), broker(1, 11), broker(2, 12, host="k2", rack="b")]
    cluster.topics, cluster.partitions = [topic("orders")], {("orders", 0): partition([0, 1])}
    config = {"broker_id": 0, "name": "min.insync.replicas", "value": "2", "assumed": False, "snapshot_id": 1}
    cluster.broker_configs = [config]
    cluster.snapshot()
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    tree.add_topic("going", {0: [0, 2]})
    tree.add_topic("odd", {0: [1]})
    tree.write("/admin/delete_topics/going", b"")
    for number, leader, isr in ((1, 1, [1]), (2, NO_LEADER, [2])):
        state = State(controller_epoch=1, leader=leader, leader_epoch=6, isr=isr)
        tree.write(state_path("orders", number), encode_state(state))
    tree.write(state_path("odd", 0), b"{")
    tree.unregister(2)
    return Surveyor(tree.hosts, Path(warehouse.uri))


@pytest.mark.parametrize(
    ("flags", "partitions"),
    [
        ("", ["going-0", "odd-0", "orders-0", "orders-1", "orders-2"]),
        ("--offline", ["orders-2"]),
        ("--under-replicated", ["orders-1", "orders-2"]),
        ("--under-min-isr", ["orders-1", "orders-2"]),
        ("--topic orders --under-min-isr --broker 1", ["orders-1"]),
    ],
)
def test_partitions_as_zookeeper_has_them(alive: Surveyor, flags: str, partitions: list[str]) -> None:
    rows = alive.json("show", "partitions", "--now", *flags.split())["rows"]

    assert [f"{row['topic']}-{row['partition']}" for row in rows] == partitions


def test_what_is_not_understood_is_said(alive: Surveyor) -> None:
    """It is neither well nor in trouble; of the whole cluster it is a row of its own."""
    said = alive("show", "partitions", "--now", "--offline").stdout.splitlines()
    (row,) = alive.json("show", "partitions", "--now", "--topic", "odd")["rows"]

    assert said[-2] == "not understood, so of unknown health: 1 partition"
    assert re.fullmatch(r"1 row, read from ZooKeeper at \S+ \S+ UTC", said[-1])
    assert (row["partition_state"], row["understood"], row["under_replicated"]) == (None, False, None)
    assert "not understood" in alive("show", "partitions", "--now", "--topic", "odd").stdout


def test_registered_brokers_and_gone_ones_as_last_seen(alive: Surveyor) -> None:
    shown = alive.json("show", "brokers", "--now")
    columns = ("broker_id", "live", "controller", "leaders", "replicas", "host", "port", "rack")

    assert shown["snapshot_id"] is None
    assert [tuple(row[name] for name in columns) for row in shown["rows"]] == [
        (0, True, True, 2, 3, "127.0.0.1", shown["rows"][0]["port"], None),
        (1, True, False, 1, 3, "127.0.0.1", shown["rows"][1]["port"], None),
        (2, False, False, 0, 3, "k2", 9094, "b"),
    ]
    assert [row["last_seen_at"] for row in shown["rows"]] == [None, None, f"{NOW:%Y-%m-%dT%H:%M:%SZ}"]
    assert "last_seen_at" in "".join(head(alive("show", "brokers", "--now"))).replace(" ", "")


def test_the_present_needs_no_warehouse(alive: Surveyor, tmp_path: Path) -> None:
    fresh = Surveyor(alive.hosts, tmp_path / "none")

    assert len(fresh.json("show", "partitions", "--now")["rows"]) == 5
    assert [row["host"] for row in fresh.json("show", "brokers", "--now")["rows"]] == ["127.0.0.1", "127.0.0.1", None]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--topic none", "no topic 'none' at"),
        ("--broker 9", "no broker 9 at"),
        ("--snapshot 1", "--snapshot 1 reads a snapshot, and --now reads the cluster; give one of the two"),
    ],
)
def test_what_the_present_has_not(alive: Surveyor, flags: str, message: str) -> None:
    ran = alive("show", "partitions", "--now", *flags.split())

    assert (ran.code, message in ran.stderr) == (2, True)


def test_an_old_snapshot_is_said_to_be_old(shown: Surveyor) -> None:
    """For people, unless they name it by its number; JSON has the time."""
    people, programs, asked_for = (shown("show", "brokers", *form) for form in ((), ("--json",), ("--snapshot", "1")))

    assert re.match(
        r"surveyor: snapshot 1 is .+ old; for the current state: `surveyor show brokers --now ", people.stderr
    )
    assert (programs.stderr, asked_for.stderr) == ("", "")


@pytest.mark.usefixtures("spark")
def test_the_present_is_what_a_snapshot_would_keep(alive: Surveyor, tmp_path: Path) -> None:
    """Column by column: what Spark derives and what arrays do; what is not understood apart."""
    fresh = Surveyor(alive.hosts, tmp_path / "fresh")
    fresh.json("snapshot")
    kept, present = (fresh.json("show", "partitions", *form)["rows"] for form in ((), ("--now",)))
    columns = present[0].keys() - {"understood"}

    assert {"partition_state", "offline_replicas", "under_min_isr", "state_version"} <= columns
    assert [{name: row[name] for name in columns} for row in kept if row["understood"]] == [
        {name: row[name] for name in columns} for row in present if row["understood"]
    ]
