"""`surveyor migration check`: each kind of obstacle alone, on znodes; settings of brokers as they would return them."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from kazoo.security import make_digest_acl

from jobs.adapters.brokers.migration_configs import MigrationConfig
from jobs.adapters.zookeeper.cluster_state import ClusterState
from jobs.adapters.zookeeper.kraft_carried_znodes import CarriedZnodes
from jobs.checks.check_results import CheckResult, CheckStatus
from jobs.checks.migration_check import MigrationFacts, TopicFacts, migration_checks
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import Broker
from schemas.topic_configs import FOLLOWER_RATE, LEADER_REPLICAS
from schemas.znode_codecs import ControllerRegistration, State, encode_config, encode_state
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

CONFIG = MigrationConfig(protocol="3.9-IV0", release="3.9-IV0", broker_id="0", log_dirs=1)

ENTRY = '{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}'
SCRAM = "salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096"

MENDS = re.compile(r"(surveyor|zookeeper-shell(\.sh)?|kafka-\w+\.sh) \S+|`surveyor |[a-z.]+=\S+")
"""A command, or a line of server.properties, as each finding's advice has one."""

Found = dict[str, list[tuple[str, str]]]
"""Status and text of the findings that are not fine, by check."""


@pytest.fixture
def check(surveyor: Surveyor, tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Found]:
    """A healthy cluster, whose brokers return CONFIG; returns what is found otherwise."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})

    def of_brokers(brokers: list[Broker], *_: object) -> tuple[dict[int, MigrationConfig], dict[int, str]]:
        return {broker.broker_id: CONFIG for broker in brokers}, {}

    monkeypatch.setattr("jobs.checks.migration_check.read_migration_configs", of_brokers)

    def run() -> Found:
        ran = surveyor.run("migration", "check", "--zookeeper", tree.hosts, "--json")
        result = json.loads(ran.stdout)
        found: Found = {}
        for row in result["findings"]:
            assert bool(MENDS.search(row["advice"] or "")) == (row["state"] != CheckStatus.FINE), row
            if row["state"] != CheckStatus.FINE:
                found.setdefault(row["check"], []).append((row["state"], row["found"]))
        faults = [row for row in result["findings"] if row["state"] == CheckStatus.FAULT]
        assert (ran.exit_code, result["faults"]) == (10 if faults else 0, len(faults))
        return found

    return run


def test_nothing_is_in_the_way_and_nothing_is_changed(check: Callable[[], Found], tree: KafkaTree) -> None:
    before = tree.dump()
    assert check() == {}
    assert tree.dump() == before


KEYSTORE: Final = "listener.name.ssl.ssl.keystore.password"
PRODUCED, SHARE = "producer_byte_rate", "request_percentage"


def _config(name: str, value: str) -> bytes:
    return encode_config({name: value})


def _requests(partition: int, **more: list[int]) -> bytes:
    return json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": partition, **more}]}).encode()


def _state(controller_epoch: int, leader: int, isr: list[int]) -> bytes:
    return encode_state(State(controller_epoch, leader, 1, isr))


@pytest.mark.parametrize(
    ("path", "data", "name", "state", "text"),
    [
        ("/brokers/topics/orders/partitions/0/state", None, "states", "fault", "1 partition has no state"),
        ("/brokers/topics/orders/partitions/0/state", b"{", "znodes", "fault", "partitions/0/state"),
        ("/brokers/topics/orders/partitions/9/state", b"{}", "znodes", "fault", "a state without a topic"),
        ("/brokers/ids/1", None, "brokers", "fault", "broker 1 is not registered and has 2 replicas"),
        ("/controller", None, "started", "fault", "no broker is the controller"),
        ("/admin/delete_topics/orders", b"", "deletions", "fault", "orders"),
        ("/admin/reassign_partitions", _requests(0, replicas=[2]), "requests", "fault", "orders-0"),
        ("/admin/preferred_replica_election", _requests(1), "requests", "fault", "orders-1"),
        ("/config/topics/orders", _config(LEADER_REPLICAS, "*"), "throttles", "warning", "orders"),
        ("/config/brokers/0", _config(FOLLOWER_RATE, "1000"), "throttles", "warning", "the rate of broker 0"),
        ("/config/topics/gone", _config("retention.ms", "1"), "orphans", "warning", "gone"),
        ("/config/users/alice", _config("SCRAM-SHA-256", "x"), "znodes", "fault", "SCRAM-SHA-256"),
        ("/config/clients/app", _config(PRODUCED, "many"), "znodes", "fault", f"{PRODUCED} is not a number"),
        ("/config/users/alice/clients/app", _config(SHARE, "x"), "znodes", "fault", f"{SHARE} is not a number"),
        ("/config/ips/10.0.0.1", b"{", "znodes", "fault", "/config/ips/10.0.0.1"),
        ("/config/brokers/0", b"[]", "znodes", "fault", "/config/brokers/0"),
        ("/config/brokers/0", _config(KEYSTORE, "secret"), "configs", "warning", KEYSTORE),
        ("/kafka-acl/Topic/orders", b'{"version":1,"acls":[{"principal":"User:a"}]}', "znodes", "fault", "orders"),
        ("/kafka-acl/Planet/orders", b"{}", "acls", "warning", "/kafka-acl/Planet"),
        ("/kafka-acl-extended/prefixed/Group/g", b"{", "znodes", "fault", "/kafka-acl-extended/prefixed/Group/g"),
        ("/migration", b"", "znodes", "warning", "/migration is empty"),
        ("/brokers/topics/orders/partitions/0/state", _state(1, -1, [0]), "leaders", "warning", "orders-0"),
        (
            "/brokers/topics/orders/partitions/0/state",
            _state(99, 0, [0, 1]),
            "epochs",
            "fault",
            "1 partition has a later controller epoch: orders-0 (99). No leader can be elected there",
        ),
        ("/consumers/old", b"", "left behind", "warning", "1 consumer group"),
        ("/hbase", b"", "left behind", "warning", "/hbase"),
        (
            "/migration",
            (
                b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":1,'
                b'"kraft_metadata_epoch":1}'
            ),
            "started",
            "fault",
            "3000",
        ),
    ],
)
def test_each_obstacle_alone(  # noqa: PLR0913, PLR0917 - the columns of the table
    check: Callable[[], Found], tree: KafkaTree, path: str, data: bytes | None, name: str, state: str, text: str
) -> None:
    if data is None:
        tree.client.delete(path)
    else:
        tree.write(path, data)

    found = check()

    assert [*found] == [name]
    assert [status for status, _ in found[name]] == [state]
    assert text in found[name][0][1]
    assert "secret" not in str(found)


def test_a_topic_without_id(check: Callable[[], Found], tree: KafkaTree) -> None:
    tree.add_topic("old", {0: [0]}, topic_id=None)
    [(state, text)] = check()["topic ids"]
    assert (state, text.endswith(": old")) == ("fault", True)


def test_what_is_carried_over_is_counted(check: Callable[[], Found], tree: KafkaTree, surveyor: Surveyor) -> None:
    tree.write("/kafka-acl/Topic/orders", f'{{"version":1,"acls":[{ENTRY},{ENTRY}]}}'.encode())
    tree.write("/kafka-acl-extended/prefixed/Group/a", f'{{"version":1,"acls":[{ENTRY}]}}'.encode())
    tree.write(
        "/config/users/alice",
        json.dumps({"version": 1, "config": {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "5.0"}}).encode(),
    )
    tree.write("/config/users/alice/clients/app", b'{"version":1,"config":{"consumer_byte_rate":"7"}}')
    tree.write("/config/clients/<default>", b'{"version":1,"config":{"request_percentage":"1e2"}}')
    tree.write("/config/brokers/<default>", b'{"version":1,"config":{"log.cleaner.threads":"2"}}')
    tree.write("/delegation_token/tokens/t1", b"{}")

    assert check() == {}
    ran = surveyor.run("migration", "check", "--zookeeper", tree.hosts)
    assert " ".join(ran.stdout.split()).endswith(
        "carried over 3 ACLs of 2 resource patterns, 1 SCRAM credential, 3 quotas, 1 delegation token, dynamic configs "
        "of 1 broker nothing prevents the migration; 0 warnings"
    )


def test_a_znode_that_an_acl_hides_is_a_fault(check: Callable[[], Found], tree: KafkaTree) -> None:
    hidden = {
        "/config/users": b"",
        "/config/clients/app": b'{"version":1,"config":{}}',
        "/kafka-acl/Topic/orders": f'{{"version":1,"acls":[{ENTRY}]}}'.encode(),
        "/delegation_token/tokens": b"",
        "/config/topics/orders": b"",
    }
    for path, data in hidden.items():
        tree.write(path, data)
        tree.client.set_acls(path, [make_digest_acl("broker", "secret", all=True)])

    found = check()

    assert [*found] == ["znodes"]
    assert {text.partition(": ")[0] for _, text in found["znodes"]} == {*hidden}
    assert {state for state, _ in found["znodes"]} == {"fault"}


@pytest.mark.parametrize(
    ("config", "name", "state", "text"),
    [
        (replace(CONFIG, protocol="3.3-IV3"), "protocol", "fault", "before 3.4"),
        (replace(CONFIG, protocol=None), "protocol", "fault", "before 3.4"),
        (replace(CONFIG, release="3.3-IV3"), "release", "fault", "before 3.4"),
        (replace(CONFIG, release="3.6-IV2"), "release", "warning", "3.6-IV2"),
        (replace(CONFIG, protocol="3.6-IV2", log_dirs=2), "log dirs", "fault", "before 3.7-IV2"),
        (replace(CONFIG, broker_id="-1"), "configs", "fault", "generated"),
        (replace(CONFIG, control_plane="CONTROL"), "configs", "fault", "KRaft refuses"),
        (replace(CONFIG, authorizer="kafka.security.authorizer.AclAuthorizer"), "configs", "warning", "ZooKeeper"),
        (None, "settings", "fault", "broker 0 did not return its configs: it is slow"),
    ],
)
def test_settings_of_brokers(config: MigrationConfig | None, name: str, state: str, text: str) -> None:
    found = [finding for finding in _findings({} if config is None else {0: config}) if finding[1] != CheckStatus.FINE]

    assert [finding[:2] for finding in found] == [(name, state)]
    assert text in found[0][2]


def test_brokers_of_two_protocols() -> None:
    configs = {0: CONFIG, 1: replace(CONFIG, protocol="3.8-IV0", broker_id="1")}
    assert ("protocol", "fault", "inter.broker.protocol.version differs: 3.8-IV0, 3.9-IV0") in _findings(configs)


def test_several_log_dirs_are_fine_from_3_7_on() -> None:
    assert ("log dirs", "fine", "brokers 0 have several") in _findings({0: replace(CONFIG, log_dirs=2)})


@pytest.mark.parametrize(
    ("config", "line"),
    [
        # a broker does not start with a version that its release does not know
        (replace(CONFIG, protocol="3.3-IV3", release="3.6-IV2"), "inter.broker.protocol.version=3.6 "),
        (replace(CONFIG, protocol="3.3-IV3"), "inter.broker.protocol.version=3.9 "),
        (replace(CONFIG, protocol="3.6-IV2", log_dirs=2), "inter.broker.protocol.version=3.9 "),
        (replace(CONFIG, protocol="3.6-IV2", release="3.6-IV2", log_dirs=2), "inter.broker.protocol.version=3.6 "),
        (replace(CONFIG, protocol="2.8-IV0", release="3.3-IV3"), "inter.broker.protocol.version=2.8 "),
        # nor with an id above reserved.broker.max.id, unless it may not generate one
        (replace(CONFIG, broker_id="-1"), "broker.id=0, and on each of them broker.id.generation.enable=false"),
        (replace(CONFIG, control_plane="CONTROL"), "control.plane.listener.name=CONTROL"),
    ],
)
def test_lines_of_server_properties(config: MigrationConfig, line: str) -> None:
    advice = [row.advice for row in _results({0: config}) if row.status == CheckStatus.FAULT]
    assert [text for text in advice if line not in f"{text} "] == []


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("[Errno 111] Connection refused", "start the broker, or correct its address"),
        ("SASL authentication failed", "correct the user and the credentials in --command-config"),
        ("no answer in time", "check that the broker's process responds"),
    ],
)
def test_the_remedy_is_that_of_the_reason(reason: str, remedy: str) -> None:
    (advice,) = [row.advice or "" for row in _results({}, silent=reason) if row.check == "settings"]
    assert advice.startswith(remedy), advice


SILENT: Final[dict[str, TopicFacts]] = {
    "a topic without id": TopicFacts(["old"], without_id=["old"]),
    "partitions in every state": TopicFacts(
        ["a"], 3, without_state=["a-0"], without_leader=["a-1"], moving=["a-2"], replicas_by_broker={7: 3}
    ),
    "no topic": TopicFacts(),
}


@pytest.mark.parametrize("topics", SILENT.values(), ids=SILENT)
def test_no_broker_answers(topics: TopicFacts) -> None:
    """The release is unknown then, and each check is made that rests on ZooKeeper alone."""
    results = {row.check: row for row in _results({}, topics)}

    assert results["settings"].status == CheckStatus.FAULT
    assert results.keys().isdisjoint({"release", "protocol", "log dirs"})
    assert ("topic ids" in results) == bool(topics.without_id)
    if topics.without_id:
        assert (results["topic ids"].advice or "").startswith("no broker returned its release; find out why")


def _findings(configs: dict[int, MigrationConfig]) -> list[tuple[str, str, str]]:
    return [(row.check, row.status.value, row.found) for row in _results(configs)]


def _results(
    configs: dict[int, MigrationConfig], topics: TopicFacts | None = None, silent: str = "it is slow"
) -> list[CheckResult]:
    ids = [*configs] or [0]
    state = ClusterState(
        controller=ControllerRegistration(0, -1),
        controller_version=0,
        epoch=1,
        epoch_version=1,
        cluster_id=None,
        migration=None,
        brokers=[Broker(broker_id=broker, broker_epoch=1, endpoints=[], understood=True) for broker in ids],
    )
    facts = MigrationFacts(
        state=state,
        topics=topics or TopicFacts(),
        carried=CarriedZnodes(),
        configs=configs,
        silent={} if configs else {0: silent},
    )
    settings = Settings("default", "w", ClusterConf(zookeeper="zk1:2181"))
    results = [*migration_checks(settings, facts)]
    assert [row for row in results if row.status != CheckStatus.FINE and not MENDS.search(row.advice or "")] == []
    return results
