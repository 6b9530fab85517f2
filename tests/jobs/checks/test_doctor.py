"""`surveyor doctor`: each possible problem, one at a time; and a check that it changes nothing."""

import json
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.security import make_acl, make_digest_acl
from typer.testing import CliRunner

from jobs.adapters.brokers.oauth_tokens import TOKEN_URL
from jobs.adapters.delta.warehouse import StoreError, Warehouse
from jobs.checks.check_results import CheckStatus
from jobs.cli import app
from schemas.znode_codecs import State as PartitionState
from schemas.znode_codecs import encode_state
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token
from tests.jobs.support.rows.warehouse_rows import Cluster, broker
from tests.jobs.support.zookeeper.kafka_tree import CLUSTER_ID, KafkaTree, state_path

Findings = dict[str, tuple[str, str, str | None]]
"""Status, finding and advice, by check."""


@pytest.fixture
def look(surveyor: Surveyor) -> Callable[..., Findings]:
    """Run the doctor and return its results."""

    def doctor(hosts: str, *options: str, code: int = 0, **pace: Any) -> Findings:  # noqa: ANN401 - fields of a Pace
        ran = surveyor.paced(**pace).run("doctor", "--zookeeper", hosts, "--json", *options)
        assert ran.exit_code == code, ran.stdout
        result = json.loads(ran.stdout)
        findings = {row["check"]: (row["state"], row["found"], row["advice"]) for row in result["findings"]}
        assert result["faults"] == sum(state == CheckStatus.FAULT for state, _, _ in findings.values())
        assert all(advice for state, _, advice in findings.values() if state == CheckStatus.WARNING)
        return findings

    return doctor


def clock_off_by(seconds: float) -> SimpleNamespace:
    return SimpleNamespace(time=lambda: time.time() + seconds)


def states(findings: Findings) -> dict[str, str]:
    return {check: state for check, (state, _, _) in findings.items()}


def test_healthy_cluster(tree: KafkaTree, warehouse: Warehouse, look: Callable[..., Findings]) -> None:
    Cluster(warehouse).snapshot()
    before = tree.dump()

    findings = look(tree.hosts)

    # fake brokers answer control requests and no others
    assert states(findings) == dict.fromkeys(findings, CheckStatus.FINE) | {"settings": CheckStatus.WARNING}
    assert [*findings] == [
        *("python", "engine", "warehouse", "tables", "schema"),
        *("zookeeper", "controller", "permissions", "clock", "brokers", "settings", "control requests"),
    ]
    assert findings["controller"][1] == "0, epoch 7"
    assert re.match(r"embedded: Sail [\d.]+", findings["engine"][1])
    after = tree.dump()
    assert after.pop("/")[0] == before.pop("/")[0]  # its children changed for a moment, and are the same again
    assert after == before


def test_spark_needs_java_and_jars(
    tree: KafkaTree, look: Callable[..., Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURVEYOR_ENGINE", "spark")

    findings = look(tree.hosts)

    assert [*findings][:4] == ["python", "engine", "java", "jars"]
    assert re.match(r"(17|21)[\d.+-]*; /", findings["java"][1])


def test_no_warehouse_is_created(tree: KafkaTree, warehouse: Warehouse, look: Callable[..., Findings]) -> None:
    findings = look(tree.hosts)

    assert findings["tables"] == (
        CheckStatus.WARNING,
        "no snapshot of default yet",
        f"surveyor snapshot --zookeeper {tree.hosts} --warehouse {warehouse.uri}",
    )
    assert not Path(warehouse.uri).exists()


def test_problems_of_the_cluster(tree: KafkaTree, look: Callable[..., Findings]) -> None:
    tree.client.delete("/controller")
    tree.unregister(1)
    tree.register(1, tree.client.get("/brokers/ids/0")[0].replace(b"PLAINTEXT", b"SSL"))
    tree.register(9, b"?")
    tree.client.set_acls("/controller_epoch", [make_acl("world", "anyone", read=True)])

    findings = look(tree.hosts, code=1, clock=clock_off_by(-60.0))

    warned = {check for check, state in states(findings).items() if state == CheckStatus.WARNING}
    assert findings["znodes"][0] == CheckStatus.FAULT
    assert warned == {"tables", "controller", "permissions", "clock", "settings", "control requests"}
    assert findings["znodes"][1] == "not understood: /brokers/ids/9"
    assert str(findings["znodes"][2]).startswith("/brokers/ids/9 blocks Kafka's fail-over and broker start: ")
    assert findings["permissions"][1] == "not writable by Surveyor without credentials: /controller_epoch"
    assert findings["clock"][1] in {"60 s behind ZooKeeper's", "59 s behind ZooKeeper's"}
    assert "broker 1 has no PLAINTEXT endpoint; it has SSL (SSL)" in findings["control requests"][1]


def test_blocking_znode_is_named_with_its_repair(tree: KafkaTree, look: Callable[..., Findings]) -> None:
    tree.write("/admin/preferred_replica_election", b"null")
    tree.write("/brokers/topics/empty", b"")

    advice = str(look(tree.hosts, code=1)["znodes"][2])

    shell = f"zookeeper-shell.sh {tree.hosts} delete /admin/preferred_replica_election"
    assert advice.startswith("/admin/preferred_replica_election blocks Kafka's fail-over: ")
    assert f"Expected `object`, got `null`; delete it: {shell}; " in advice
    assert "/brokers/topics/empty blocks Kafka's fail-over: empty, expected JSON; docs/runbook.md" in advice
    assert "delete /brokers/topics" not in advice


@pytest.mark.parametrize(
    ("epoch", "found"), [(None, "/controller_epoch does not exist"), (3, "/controller_epoch is 3")]
)
def test_epoch_earlier_than_a_state_is_a_fault(
    tree: KafkaTree, look: Callable[..., Findings], epoch: int | None, found: str
) -> None:
    tree.add_topic("t", {0: [0, 1]})
    state = PartitionState(controller_epoch=57, leader=0, leader_epoch=5, isr=[0, 1])
    tree.client.set(state_path("t", 0), encode_state(state))
    tree.client.delete("/controller_epoch")
    if epoch is not None:
        tree.write("/controller_epoch", str(epoch).encode())

    findings = look(tree.hosts, code=1)

    fault, message, advice = findings["controller epoch"]
    assert (fault, message.startswith(found)) == (CheckStatus.FAULT, True)
    assert (advice or "").startswith(f"`surveyor reconcile --apply --zookeeper {tree.hosts} --warehouse ")


def test_migration_without_brokers(bare_tree: KafkaTree, look: Callable[..., Findings]) -> None:
    bare_tree.lay_out(brokers=())
    bare_tree.write("/migration", b'{"kraft_controller_id":3000}')

    findings = look(bare_tree.hosts, code=1)

    assert findings["migration"][0] == CheckStatus.FAULT
    assert findings["brokers"][:2] == (CheckStatus.WARNING, "none is registered")


def test_machine_without_prerequisites(
    tree: KafkaTree, look: Callable[..., Findings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURVEYOR_ENGINE", "spark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SURVEYOR_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr("jobs.checks.doctor.MIN_FREE_BYTES", 2**80)

    findings = look(f"{tree.hosts}/elsewhere", code=1)

    of_machine = ("java", "jars", "warehouse", "zookeeper")
    assert [findings[check][0] for check in of_machine] == [
        CheckStatus.FAULT,
        CheckStatus.WARNING,
        CheckStatus.WARNING,
        CheckStatus.FAULT,
    ]
    assert "JAVA_HOME" in findings["java"][1]
    assert "/brokers/ids does not exist" in findings["zookeeper"][1]
    assert not (tmp_path / "empty").exists()


def test_jars_of_a_warehouse_on_s3(tree: KafkaTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark needs more of them than for a folder; here there are those for a folder."""
    monkeypatch.setenv("SURVEYOR_ENGINE", "spark")
    monkeypatch.setenv("SURVEYOR_CACHE", str(tmp_path))
    delta = Path(tmp_path, "jars", "delta-spark_4.2_2.13-4.4.0")
    delta.mkdir(parents=True)
    (delta / "io.delta_delta-spark_4.2_2.13-4.4.0.jar").touch()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "without a secret")

    def jars(warehouse: str) -> tuple[str, str, str]:
        ran = CliRunner().invoke(app, ["doctor", "--zookeeper", tree.hosts, "--warehouse", warehouse, "--json"])
        (found,) = [row for row in json.loads(ran.stdout)["findings"] if row["check"] == "jars"]
        return found["state"], found["found"], str(found["advice"])

    state, found, advice = jars(str(tmp_path / "warehouse"))
    assert (state, found) == (CheckStatus.WARNING, f"{delta} seems to lack delta-storage")
    assert "move this folder aside" in advice
    (delta / "delta-storage-4.4.0.jar").touch()
    assert jars(str(tmp_path / "warehouse"))[0] == CheckStatus.FINE
    state, found, advice = jars("s3://bucket/surveyor")
    assert (state, "S3" in found, "Delta" in found) == (CheckStatus.WARNING, True, False)
    assert "`python -m jobs.adapters.java.jars s3`" in advice


def test_credentials_that_are_of_no_use_are_a_fault(
    tree: KafkaTree, look: Callable[..., Findings], surveyor: Surveyor, tmp_path: Path
) -> None:
    """They are not a broker that does not answer; what depends on them is left out."""
    token, config = tmp_path / "token", tmp_path / "client.properties"
    for file, text in (
        (token, unsecured_token("surveyor", lifetime=-60.0)),
        (
            config,
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n{TOKEN_URL}={token.as_uri()}\n",
        ),
    ):
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")

    findings = look(tree.hosts, "--command-config", str(config), code=1)
    unreadable = look("127.0.0.1:1", "--command-config", str(config), code=1, probe=0.5)  # no ZooKeeper there
    status = surveyor.run("status", "--zookeeper", tree.hosts, "--command-config", str(config))

    assert (status.exit_code, "credentials" in status.stdout, "expired at" in status.stdout) == (0, True, True)
    assert unreadable["command config"] == findings["command config"]
    assert findings["command config"][0] == CheckStatus.FAULT
    assert "expired at" in findings["command config"][1]
    assert not {"settings", "control requests"} & findings.keys()


def test_advice_is_printed(surveyor: Surveyor) -> None:
    ran = surveyor.paced(probe=0.5).run("doctor", "--zookeeper", "127.0.0.1:1")  # ZooKeeper is not running

    assert ran.exit_code == 1
    assert "FAULT  zookeeper         no ZooKeeper answered at 127.0.0.1:1" in ran.stdout
    command = f"surveyor snapshot --zookeeper 127.0.0.1:1 --warehouse {surveyor.warehouse.uri}"
    assert f"                      -> {command}\n" in ran.stdout
    assert ran.stdout.endswith("\n1 fault, 1 warning\n")
    wide = [line for line in ran.stdout.splitlines() if len(line) > 80 and command not in line]
    assert [line for line in wide if len(line[25:].split()) > 1] == []  # a long word is not broken


def test_a_history_of_another_cluster(warehouse: Warehouse, tree: KafkaTree, look: Callable[..., Findings]) -> None:
    Cluster(warehouse).snapshot()
    warehouse.update("snapshots", "true", cluster_id=f"'{CLUSTER_ID}'")
    assert "history" not in look(tree.hosts)
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')

    status, found, *_ = look(tree.hosts, code=1)["history"]

    assert status == CheckStatus.FAULT
    assert "is that of AAAAAAAAAAAAAAAAAAAAAA; check the address" in found


def test_a_store_that_fails_is_one_fault(
    warehouse: Warehouse, tree: KafkaTree, look: Callable[..., Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster(warehouse).snapshot()

    def fail(*_: object, **__: object) -> None:
        raise StoreError("table snapshots cannot be read: connection refused", advice="`surveyor doctor` examines it")

    monkeypatch.setattr(Warehouse, "read", fail)

    findings = look(tree.hosts, code=1)

    assert [check for check, state in states(findings).items() if state == CheckStatus.FAULT] == ["tables"]
    _, found, advice = findings["tables"]
    assert found == "table snapshots cannot be read: connection refused"
    assert advice is not None
    assert "surveyor snapshot" not in advice


def test_a_snapshot_from_the_future(warehouse: Warehouse, tree: KafkaTree, look: Callable[..., Findings]) -> None:
    Cluster(warehouse).snapshot(age=timedelta(days=-40_000))

    assert look(tree.hosts)["tables"][0] == CheckStatus.WARNING


def test_a_clock_that_is_ahead(tree: KafkaTree, look: Callable[..., Findings]) -> None:
    """Compared with ZooKeeper's own time: the newest znode of a cluster may be as old as the cluster."""
    ahead = look(tree.hosts, clock=clock_off_by(60.0))["clock"]
    tree.client.set_acls("/", [make_acl("world", "anyone", read=True, admin=True)])
    without_read_access = look(tree.hosts)["clock"]
    tree.client.set_acls("/", [make_acl("world", "anyone", all=True)])

    assert (ahead[0], "s ahead of ZooKeeper's" in ahead[1]) == (CheckStatus.WARNING, True)
    assert (without_read_access[0], "whether it is ahead is unknown" in without_read_access[1]) == (
        CheckStatus.FINE,
        True,
    )


@pytest.mark.parametrize("path", ["/", "/brokers/topics", "/brokers/topics/t/partitions/0/state"])
def test_acl_denies_writing(tree: KafkaTree, look: Callable[..., Findings], tmp_path: Path, path: str) -> None:
    """ACLs as Kafka sets them with zookeeper.set.acl: all clients may read.

    /controller is created in the root.
    """
    tree.add_topic("t", {0: [0, 1]})
    ours = tmp_path / "zookeeper.properties"
    ours.write_text("digest.username=kafka\ndigest.password=secret\n")
    ours.chmod(0o600)
    all_read = make_acl("world", "anyone", read=True, admin=True)
    looked = {}
    for client, acl in {
        "no_client": make_acl("ip", "10.1.2.3", all=True),
        "this host": make_acl("ip", "127.0.0.1", all=True),
        "a user": make_digest_acl("kafka", "secret", all=True),
    }.items():
        tree.client.set_acls(path, [acl, all_read])
        looked[client] = look(tree.hosts)
    looked["us"] = look(tree.hosts, "--zookeeper-config", str(ours))
    permissions = {client: found["permissions"] for client, found in looked.items()}
    tree.client.set_acls(path, [make_acl("world", "anyone", all=True)])

    assert {client: state for client, (state, _, _) in permissions.items()} == {
        "no_client": CheckStatus.WARNING,
        "this host": CheckStatus.FINE,
        "a user": CheckStatus.WARNING,
        "us": CheckStatus.FINE,
    }
    denies_lease = path in {"/", "/brokers/topics"}  # the parent of /surveyor, and the znode whose ACL it gets
    assert {client: "lease" in found for client, found in looked.items()} == {
        "no_client": denies_lease,
        "this host": False,
        "a user": denies_lease,
        "us": False,
    }
    assert permissions["no_client"][1] == f"not writable by Surveyor without credentials: {path}"


def test_a_broker_that_has_gone(tree: KafkaTree, warehouse: Warehouse, look: Callable[..., Findings]) -> None:
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, number) for number in (0, 1, 9)]
    cluster.snapshot()

    registered = len(tree.client.get_children("/brokers/ids"))
    assert look(tree.hosts)["brokers"][:2] == (
        CheckStatus.WARNING,
        f"{registered} registered; in the last snapshot, but not registered: 9",
    )


def test_the_fault_is_not_the_clusters(tree: KafkaTree, look: Callable[..., Findings], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    missing = look(tree.hosts, "--command-config", str(file), code=1)
    file.write_text("security.protocol=SSL")
    other = look(tree.hosts, "--command-config", str(file))

    assert missing["command config"][0] == CheckStatus.FAULT
    assert missing["zookeeper"][0] != CheckStatus.FAULT
    assert "within 5 s: 0, 1, 2 (it has no SSL endpoint)" in other["settings"][1]
