"""What every command does with its options, and with a world that is not as it should be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.checks.check_results import CheckResult
from jobs.cli import app
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

COMMANDS = (
    ("snapshot",),
    ("plan", "reconcile"),
    ("plan", "assign", "--topic", "t", "--partitions", "1", "--replication-factor", "1"),
    ("show", "brokers"),
    ("show", "plan", "p"),
    ("commit", "p"),
    ("verify", "p"),
)


@pytest.mark.parametrize("arguments", COMMANDS[1:])
def test_unused_warehouse_is_unreadable_and_stays_unused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse", plans_on_stored=True)(*arguments)
    assert (ran.code, ran.stdout) == (22, "")
    assert "no warehouse at" in ran.stderr
    assert not (tmp_path / "warehouse").exists()


def test_an_error_advises_a_command_with_the_options_of_this_one(tmp_path: Path) -> None:
    surveyor = Surveyor("127.0.0.1:1", tmp_path / "warehouse")
    metrics = surveyor("metrics", "--json")

    advice = f"`surveyor snapshot --zookeeper 127.0.0.1:1 --warehouse {tmp_path / 'warehouse'}` first"
    assert (advice in metrics.stderr, advice in metrics.json["error"]) == (True, True)


def test_no_zookeeper_there(tmp_path: Path) -> None:
    """Errors are one message for people, and JSON for programs."""
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("snapshot", "--json")
    lines = [line for line in ran.stderr.splitlines() if not line.startswith("  ... ")]
    assert (ran.code, ran.json["exit_code"], len(lines)) == (22, 22, 1)
    assert "no ZooKeeper answered at 127.0.0.1:1" in ran.stderr
    assert not (tmp_path / "warehouse").exists()


def test_zookeeper_that_is_no_address(tmp_path: Path) -> None:
    ran = Surveyor("zk:abc", tmp_path)("snapshot")
    assert (ran.code, "--zookeeper 'zk:abc' is not HOST:PORT" in ran.stderr) == (2, True)


def test_wrong_chroot(zookeeper_hosts: str, tmp_path: Path) -> None:
    ran = Surveyor(f"{zookeeper_hosts}/nowhere", tmp_path / "warehouse")("snapshot")
    assert (ran.code, ran.stdout) == (22, "")
    assert "check the chroot" in ran.stderr
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("warehouse = ", "is not valid TOML"),
        ("warehouse = 1", "warehouse"),
        ("[clusters.default]\nzokeeper = 'x'", "zokeeper"),
        ("[clusters.default]\nimbalance_threshold = 2", "imbalance_threshold"),
    ],
)
def test_bad_conf_says_which_key(tmp_path: Path, toml: str, message: str) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text(toml)
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("show", "brokers", "--conf", str(conf))
    assert (ran.code, message in ran.stderr) == (2, True)


def test_cluster_that_the_conf_does_not_name(tmp_path: Path) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text("[clusters.east]\n[clusters.west]\n")
    ran = Surveyor("127.0.0.1:1", tmp_path / "w")("show", "brokers", "--conf", str(conf), "--cluster", "eats")
    assert (ran.code, "it has east, west" in ran.stderr) == (2, True)


def test_result_file_that_cannot_be_written_is_found_first(tmp_path: Path) -> None:
    ran = Surveyor("127.0.0.1:1", tmp_path / "w")("snapshot", "--result-file", str(tmp_path / "no" / "x.json"))
    assert (ran.code, "--result-file" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["show", "plan", "\udcff"], r"plan '\udcff' is not UTF-8; expected text"),
        (["show", "topics", "--cluster", "\udcff"], r"cluster '\udcff' is not UTF-8; expected text"),
        (["show", "topics", "--warehouse", ""], "--warehouse names no folder: give the name of one"),
        (["plan", "reconcile", "--name", ""], "--name '' cannot be the name of a plan"),
        (["plan", "reconcile", "--name", "-x"], "--name '-x' cannot be the name of a plan"),
        (["plan", "reconcile", "--name", "45809955e5b38bd0"], "and not the form of an id (16 of 0-9 and a-f)"),
    ],
)
def test_what_names_nothing(options: list[str], message: str) -> None:
    ran = CliRunner().invoke(app, options)
    assert (ran.exit_code, message in ran.stderr, len(ran.stderr.splitlines())) == (2, True, 1)


FILE = '[clusters.default]\nzookeeper = "zk-file:1"\n[clusters.east]\nzookeeper = "zk-east:1"\n'
OF_FILE, OF_ENVIRONMENT = "zookeeper {} of {} is used, not zk-env:1", "zk-env:1 of SURVEYOR_ZOOKEEPER is used, not"


Examined = list[tuple[Settings, str, str]]
"""The settings of each `doctor`, with the next command and the source of the credentials as it would show them."""


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    settings_of: Examined = []

    def look(settings: Settings) -> list[CheckResult]:
        settings_of.append((settings, command_line(settings, "commit", "p"), option_name(COMMAND_CONFIG)))
        return []

    monkeypatch.setattr("jobs.checks.doctor.run_checks", look)
    return settings_of


@pytest.mark.parametrize(
    ("options", "used", "message"),
    [
        ("--conf {conf}", "zk-file:1", OF_FILE),
        ("--cluster east", "zk-east:1", OF_FILE),
        ("", "zk-env:1", OF_ENVIRONMENT),
        ("--zookeeper zk-typed:1 --cluster east", "zk-typed:1", None),
    ],
)
def test_what_is_typed_wins_over_the_environment(  # noqa: PLR0913, PLR0917 - fixtures
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examined: Examined, options: str, used: str, message: str | None
) -> None:
    """Also by naming a file or a section of it; where the two differ, one line says so."""
    conf = tmp_path / "surveyor.toml"
    conf.write_text(FILE)
    monkeypatch.setenv("SURVEYOR_ZOOKEEPER", "zk-env:1")
    monkeypatch.setenv("SURVEYOR_CONF", str(conf))
    ran = CliRunner().invoke(app, ["doctor", *options.format(conf=conf).split()])

    line = "" if message is None else f"surveyor: {message.format(used, conf)}"
    hosts = [settings.zookeeper_endpoint.hosts for settings, _, _ in examined]
    assert (hosts, ran.stderr.startswith(line), ran.stderr.count("\n")) == ([used], True, int(message is not None))


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ("", "env.properties"),
        ("--cluster default", "file.properties"),
        ("--command-config typed.properties", "typed.properties"),
    ],
)
def test_the_environment_may_name_the_brokers_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examined: Examined, options: str, used: str
) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text('[clusters.default]\nzookeeper = "zk:1"\ncommand_config = "file.properties"\n')
    monkeypatch.setenv("SURVEYOR_COMMAND_CONFIG", "env.properties")
    monkeypatch.setenv("SURVEYOR_CONF", str(conf))
    CliRunner().invoke(app, ["doctor", *options.split()])

    typed = f" {options}" if options else ""
    place = {
        "env.properties": "SURVEYOR_COMMAND_CONFIG",
        "file.properties": f"command_config in [clusters.default] of {conf}",
        "typed.properties": "--command-config",
    }
    ((settings, following, named),) = examined
    assert (str(settings.conf.command_config), following, named) == (used, f"surveyor commit p{typed}", place[used])


def test_missing_java(tree: KafkaTree, tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path), "HOME": os.environ["HOME"], "JAVA_HOME": str(tmp_path)}
    options = ["--zookeeper", tree.hosts, "--warehouse", str(tmp_path / "w")]
    command = [sys.executable, "-c", "from jobs.cli import main; main()", "snapshot", "--engine", "spark", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=nothing)
    assert (done.returncode, "Traceback" in done.stderr) == (24, False)
    assert "Java" in done.stderr


@pytest.mark.usefixtures("spark")
def test_show_as_of_and_history(tree: KafkaTree, tmp_path: Path) -> None:
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse")
    tree.add_topic("orders", {0: [0, 1]})
    surveyor.json("snapshot")
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":6,"isr":[1]}'
    tree.write("/brokers/topics/orders/partitions/0/state", state)
    surveyor.json("snapshot")
    history = ("show", "history", "--topic", "orders", "--partition", "0")
    changes = [(row["snapshot_id"], row["leader"], row["isr"]) for row in surveyor.json(*history)["rows"]]
    assert changes == [(1, 0, [0, 1]), (2, 1, [1])]
    assert [row["snapshot_id"] for row in surveyor.json(*history, "--snapshot", "1")["rows"]] == [1]
    assert surveyor.json("show", "partitions", "--snapshot", "1")["rows"][0]["leader"] == 0
    assert surveyor.json("show", "partitions")["rows"][0]["leader"] == 1
    assert "orders" in surveyor("show", "topics").stdout
    unknown = surveyor("show", "partitions", "--topic", "nope")
    assert (unknown.code, "no topic 'nope'" in unknown.stderr) == (2, True)


def test_unexpected_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file where a folder should be")
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("show", "brokers")
    assert (ran.code, "Traceback" in ran.stderr) == (22, False)
