"""`surveyor plan expand`, `config` and `delete` on the command line, on snapshots stored without a cluster."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from schemas.topic_configs import MIN_ISR
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

pytestmark = pytest.mark.usefixtures("spark")

STATE: Final = {"state_version": 0, "topic_version": 3, "leader_recovery_state": 0, "understood": True}
CONFIG: Final = {"retention.ms": "60000", "min.insync.replicas": "2"}

INTERNAL: Final = {
    "__consumer_offsets": {"cleanup.policy": "compact"},
    "__transaction_state": {"cleanup.policy": "compact", "compression.type": "uncompressed"},
    "connect-offsets": {"cleanup.policy": "compact"},
    "app-store-changelog": {"cleanup.policy": "compact,delete", "retention.ms": "86400000"},
    "__CruiseControlMetrics": {},
}


def _cluster(folder: Path) -> Cluster:
    """Brokers 0 to 3; topic all as in AddPartitionsTest, and topics that cannot be expanded."""
    cluster = Cluster(Warehouse(str(folder), "default"))
    cluster.brokers = [broker(number, 100 + number) for number in (3, 1, 0, 2)]
    names = ("all", "some", "moving", "asked", "gap", "wide")
    cluster.topics = [topic(name, topic_version=3, config=CONFIG) for name in names]
    cluster.topics += [
        topic("queued", topic_version=3, deletion_requested=True),
        topic("opaque", topic_version=3, understood=False),
        topic("unread", understood=False, assignment_understood=True, config={"retention.ms": None, "segment.ms": "9"}),
        topic("illegible", understood=False, assignment_understood=True, config=None),
    ]
    cluster.topics += [topic(name, topic_version=3, config=config) for name, config in INTERNAL.items()]
    cluster.partitions = {
        **{(name, 0): partition([1, 2], **STATE) for name in INTERNAL},
        ("all", 0): partition([2, 3, 0, 1], **STATE),
        ("some", 0): partition([1, 2], **STATE),
        ("moving", 0): partition([1, 2], **STATE | {"adding_replicas": [2]}),
        ("asked", 0): partition([1, 2], **STATE),
        ("gap", 0): partition([1, 2], **STATE),
        ("gap", 2): partition([1, 2], **STATE),
        ("wide", 0): partition([5, 6, 7, 8, 9], **STATE),
        ("queued", 0): partition([1, 2], **STATE),
        ("opaque", 0): partition([1, 2], **STATE),
        ("unread", 0): partition([1, 2], **STATE),
        ("illegible", 0): partition([1, 2], **STATE),
    }
    request = {"kind": "reassign", "topic": "asked", "partition": 0, "replicas": [3], "path": "/admin/x"}
    cluster.warehouse.replace("requests", [{**request, "snapshot_id": 1}])
    return cluster


@pytest.fixture(scope="module")
def surveyor(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    folder = tmp_path_factory.mktemp("topics") / "warehouse"
    _cluster(folder).snapshot()
    return Surveyor("", folder)


def _planned(surveyor: Surveyor, *arguments: str) -> tuple[list[list[int]], list[tuple[str, str, Any]]]:
    """Return the replicas of each change, and the operations; check that equal arguments give an equal plan."""
    summary = surveyor.json("plan", *arguments)
    assert surveyor.json("plan", *arguments) == summary
    plan = read_plan(surveyor.warehouse, summary["plan_id"])
    refuse_edited(plan)
    assert (summary["changes"], summary["operations"]) == (len(plan.changes), len(plan.operations))
    assert all((c.action, c.is_new, c.topic_version, c.state_version) == ("create", True, 3, -1) for c in plan.changes)
    operations = [(op.kind, op.topic, json.loads(op.data)) for op in plan.operations]
    return [c.replicas_after for c in plan.changes], operations


ADDED: Final = [
    ("all", "7", (), [[3, 2, 0, 1], [0, 3, 1, 2], [1, 0, 2, 3], [2, 3, 0, 1], [3, 0, 1, 2], [0, 1, 2, 3]]),
    ("some", "3", (), [[2, 0], [3, 1]]),
    ("some", "3", ("--replica-assignment", "3:2,0:1"), [[3, 2], [0, 1]]),
    ("some", "3", ("--replica-assignment", "1:2,3:2,0:1"), [[3, 2], [0, 1]]),
]
"""The first two are `AddPartitionsTest.testReplicaPlacementAllServers` and `testReplicaPlacementPartialServers`."""


@pytest.mark.parametrize(("name", "partitions", "more", "replicas"), ADDED)
def test_partitions_are_added_by_kafkas_rule(
    surveyor: Surveyor, name: str, partitions: str, more: tuple[str, ...], replicas: list[list[int]]
) -> None:
    data = {"existing": 1, "partitions": int(partitions), "topic_id": f"{name}-id"}

    planned = _planned(surveyor, "expand", "--topic", name, "--partitions", partitions, *more)

    assert planned == (replicas, [("expand_topic", name, data)])


@pytest.mark.parametrize("more", [(), ("--replica-assignment", "2:3:0:1")])
def test_expanding_to_the_present_number_is_nothing_to_do(surveyor: Surveyor, more: tuple[str, ...]) -> None:
    assert _planned(surveyor, "expand", "--topic", "all", "--partitions", "1", *more) == ([], [])


SET: Final[list[tuple[tuple[str, ...], dict[str, str | None] | None, list[str]]]] = [
    (
        ("--set", "retention.ms=1", "--delete", "min.insync.replicas"),
        {"retention.ms": "1", "min.insync.replicas": None},
        [
            "retention.ms 60000→1 (1min→1ms): records older than 1ms are deleted",
            f"{MIN_ISR} 2→not set: acks=all is answered with fewer copies, so failures may lose acknowledged records",
        ],
    ),
    (
        ("--set", "cleanup.policy=compact,delete"),
        {"cleanup.policy": "compact,delete"},
        [
            "cleanup.policy not set→compact,delete: earlier records of a key are deleted, and records without a key",
        ],
    ),
    (("--set", "cleanup.policy=", "--set", "retention.ms=60000"), {"cleanup.policy": ""}, []),
    (("--set", "retention.ms=60000"), None, []),
]


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize(("arguments", "after", "losses"), SET)
def test_configs_that_differ_are_altered(
    surveyor: Surveyor, arguments: tuple[str, ...], after: dict[str, str | None] | None, losses: list[str]
) -> None:
    before = {name: CONFIG.get(name) for name in after or {}}
    data = {"topic_id": "all-id", "before": before, "after": after} | ({"losses": losses} if losses else {})

    planned = _planned(surveyor, "config", "--topic", "all", *arguments)

    assert planned == ([], [("alter_config", "all", data)] if after else [])


WARNED: Final = [
    (("--set", "unclean.leader.election.enable=True"), "elects replicas that are not in sync"),
    (("--set", "min.insync.replicas=5"), "min.insync.replicas=5 with 4 replicas"),
    (("--set", "retention.ms=1000"), "topic all (1 partition): retention.ms 60000→1000 (1min→1s): records older than"),
    (("--set", "compression.lz4.level=9"), "compression.lz4.level exists since Kafka 3.8; older brokers ignore it"),
    (("--set", "my.own=x", "--allow-unknown-config"), "my.own is unknown, and its value was not checked"),
]


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize(("arguments", "warning"), WARNED)
def test_configs_are_warned_of(surveyor: Surveyor, arguments: tuple[str, ...], warning: str) -> None:
    ran = surveyor("plan", "config", "--topic", "all", *arguments)

    assert (ran.code, "warning: topic all" in ran.stdout, warning in ran.stdout) == (0, True, True), ran.stdout


def test_an_expansion_is_warned_of(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "expand", "--topic", "some", "--partitions", "3")

    assert "+ expand_topic some  existing 1  partitions 3\n" in ran.stdout
    assert "warning: topic some: records of a key may go to another partition afterwards\n" in ran.stdout


@pytest.mark.usefixtures("unstarted")
def test_deleting_an_unset_config_is_rejected(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "config", "--topic", "all", "--delete", "segment.ms", "--delete", "retention.ms")

    assert (ran.code, "rejected all  NOT_SET: segment.ms is not set on this topic" in ran.stdout) == (0, True)
    assert "~ alter_config all  retention.ms 60000→not set\n" in ran.stdout


@pytest.mark.usefixtures("unstarted")
def test_deletions_and_what_cannot_be_deleted(surveyor: Surveyor) -> None:
    ran = surveyor(
        "plan", "delete", "--topics", "some,queued, all,opaque,nope", "--detailed-exitcode", "--name", "gone"
    )

    assert (ran.code, "rejected queued  DELETION_REQUESTED" in ran.stdout) == (10, True)
    assert "  topic all would be deleted with 1 partition; how many records and bytes is unknown\n" in ran.stdout
    assert "  warning: a deletion cannot be undone\n" in ran.stdout
    assert [(topic["topic"], topic["partitions"]) for topic in surveyor.json("show", "plan", "gone")["deleted"]] == [
        ("all", 1),
        ("some", 1),
    ]
    plan = read_plan(surveyor.warehouse, "gone")
    assert [(op.sequence, op.topic, op.data) for op in plan.operations] == [
        (0, "all", '{"topic_id": "all-id"}'),
        (1, "some", '{"topic_id": "some-id"}'),
    ]
    assert {row.topic: (row.partition, row.code) for row in plan.rejections} == {
        "queued": (-1, "DELETION_REQUESTED"),
        "opaque": (-1, "NOT_UNDERSTOOD"),
        "nope": (-1, "UNKNOWN_TOPIC"),
    }


RISKY: Final[list[tuple[str, tuple[str, ...], str]]] = [
    (
        "__consumer_offsets",
        ("--set", "cleanup.policy=delete"),
        "Kafka: cleanup.policy compact→delete: records older than 7d",
    ),
    ("__consumer_offsets", ("--delete", "cleanup.policy"), "Kafka: cleanup.policy compact→not set: records older"),
    (
        "__consumer_offsets",
        ("--set", "min.insync.replicas=3"),
        "Kafka: topic __consumer_offsets: min.insync.replicas=3 with",
    ),
    ("__consumer_offsets", ("--set", "retention.ms=1000"), "Kafka: retention.ms not set→1000 (1s): records older than"),
    ("__transaction_state", ("--set", "compression.type=gzip"), "Kafka: its owner needs compression.type=uncompressed"),
    ("__transaction_state", ("--set", "unclean.leader.election.enable=true"), "Kafka: its owner needs unclean."),
    (
        "connect-offsets",
        ("--set", "cleanup.policy=compact,delete"),
        "Kafka Connect: cleanup.policy compact→compact,delete",
    ),
    ("app-store-changelog", ("--set", "retention.ms=1000"), "Kafka Streams: retention.ms 86400000→1000 (1d→1s)"),
    ("__CruiseControlMetrics", ("--set", "retention.bytes=1"), "Cruise Control: retention.bytes not set→1"),
]
NEW: Final = ("--partitions", "1", "--replication-factor", "3")
UNFIT: Final[list[tuple[str, tuple[str, ...], str]]] = [
    ("_schemas", (), "Schema Registry: its owner creates it with other configs"),
    ("mm2-offsets.a.internal", ("--config", "cleanup.policy=delete"), "MirrorMaker 2: its owner creates it with"),
]

REFUSED: Final = [
    (("expand", "--topic", "all", "--partitions", "1", "--replica-assignment", "0"), 23, "--partitions 1 adds none"),
    (("expand", "--topic", "nope", "--partitions", "3"), 23, "no topic nope in snapshot 1"),
    (("expand", "--topic", "queued", "--partitions", "3"), 23, "queued for deletion"),
    (("expand", "--topic", "opaque", "--partitions", "3"), 23, "not understood"),
    (("expand", "--topic", "moving", "--partitions", "3"), 23, "REASSIGNMENT_IN_PROGRESS"),
    (("expand", "--topic", "asked", "--partitions", "3"), 23, "REASSIGNMENT_IN_PROGRESS"),
    (("expand", "--topic", "gap", "--partitions", "3"), 23, "its partitions are [0, 2], not 0 to n - 1"),
    (("expand", "--topic", "wide", "--partitions", "3"), 23, "only 4 brokers are live"),
    (("expand", "--topic", "all", "--partitions", "99999"), 23, "would take about"),
    (("expand", "--topic", "__consumer_offsets", "--partitions", "99"), 23, "add --allow-internal"),
    (("expand", "--topic", "connect-offsets", "--partitions", "99"), 23, "is internal to Kafka Connect: its number of"),
    (("expand", "--topic", "__mine", "--partitions", "99"), 23, "names that begin with __): its number of partitions"),
    (("expand", "--topic", "__mine", "--partitions", "99", "--allow-internal"), 23, "no topic __mine"),
    (("expand", "--topic", "a/b", "--partitions", "3"), 2, "is not a topic name"),
    (("expand", "--topic", "all", "--partitions", "3", "--replica-assignment", "0:1"), 2, "give the 2 that are added"),
    (("expand", "--topic", "some", "--partitions", "2", "--replica-assignment", "0:1,1:2"), 23, "moves partitions"),
    (("expand", "--topic", "some", "--partitions", "2", "--replica-assignment", "0"), 23, "replication factor 1"),
    (("expand", "--topic", "some", "--partitions", "2", "--replica-assignment", "0:7"), 23, "brokers 7 are not live"),
    (("config", "--topic", "nope", "--set", "preallocate=true"), 23, "no topic nope"),
    (("config", "--topic", "queued", "--set", "preallocate=true"), 23, "queued for deletion"),
    (("config", "--topic", "unread", "--set", "preallocate=true"), 23, "unread is not understood (retention.ms)"),
    (
        ("config", "--topic", "illegible", "--set", "preallocate=true"),
        23,
        "/config/topics/illegible must hold an object",
    ),
    (("config", "--topic", "all"), 2, "no change is given"),
    (("config", "--topic", "all", "--set", "a"), 2, "expected key=value"),
    (("config", "--topic", "all", "--set", "a b=c"), 2, "is not a config name"),
    (("config", "--topic", "all", "--set", "a=b", "--delete", "a"), 2, "a is given twice"),
    (
        ("config", "--topic", "all", "--set", "retention.ms=abc"),
        2,
        "retention.ms='abc': expected a whole number from -1",
    ),
    (("config", "--topic", "all", "--set", "retention.sm=1"), 2, "did you mean retention.ms?"),
    (("config", "--topic", "all", "--set", "retention.sm=1"), 2, "--allow-unknown-config"),
    (("config", "--topic", "all", "--set", "segment.ms=0", "--allow-unknown-config"), 2, "segment.ms='0': expected"),
    (
        ("config", "--topic", "all", "--set", "max.compaction.lag.ms=5", "--set", "min.compaction.lag.ms=6"),
        23,
        "min.compaction.lag.ms=6 is more than max.compaction.lag.ms=5",
    ),
    (
        ("delete", "--topics", "all,__transaction_state,__mine"),
        23,
        "topic __transaction_state is internal to Kafka: its",
    ),
    (("delete", "--topics", "all,_schemas"), 23, "topic _schemas is internal to Schema Registry: its owner loses"),
    *(
        (("config", "--topic", topic, *change), 23, f"topic {topic} is internal to {risk}")
        for topic, change, risk in RISKY
    ),
    *(
        (("assign", "--topic", topic, *NEW, *config), 23, f"topic {topic} is internal to {risk}")
        for topic, config, risk in UNFIT
    ),
    (("delete", "--topics", "nope,nil"), 23, "no topic nil or nope in snapshot 1"),
    (("delete", "--topics", "all,all"), 2, "names a topic twice"),
    (("delete", "--topics", "all,"), 2, "is not a topic name"),
    (("delete", "--topics", "nope.*"), 23, "no topic nope.* in snapshot 1"),
    (("delete", "--topics", "__consumer_off.*"), 23, "topic __consumer_offsets is internal to Kafka"),
    (("delete", "--topics", "a("), 2, "is not a regular expression"),
    (("config", "--topic", "all,some", "--set", "preallocate=true"), 2, "--topic takes one name"),
]


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_refusals(surveyor: Surveyor, arguments: tuple[str, ...], code: int, message: str) -> None:
    before = surveyor.rows("plans", "plan_id")

    ran = surveyor("plan", *arguments)

    assert (ran.code, ran.stdout, message in ran.stderr) == (code, "", True), ran.stderr
    assert surveyor.rows("plans", "plan_id") == before


@pytest.mark.usefixtures("unstarted")
def test_a_regex_deletes_the_topics_whose_whole_name_it_matches(surveyor: Surveyor) -> None:
    """The other option, of names, has the same parts; a name is not a regex, whatever dots it has."""
    assert _planned(surveyor, "delete", "--topics", "so+me,al[a-z]") == _planned(
        surveyor, "delete", "--topics", "all,some"
    )
    assert surveyor.json("plan", "delete", "--topics", "all,.ome")["rejected"] == 1


def test_deletion_is_refused_where_it_is_switched_off(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path / "warehouse")
    switch = {"name": "delete.topic.enable", "value": "false", "snapshot_id": 1}
    cluster.broker_configs = [switch | {"broker_id": 1, "assumed": False}]
    cluster.snapshot()
    surveyor = Surveyor("", tmp_path / "warehouse")

    ran = surveyor("plan", "delete", "--topics", "all")

    assert (ran.code, "delete.topic.enable is false on brokers 1" in ran.stderr) == (23, True)


def _in_racks(folder: Path, racks: dict[int, str | None]) -> Surveyor:
    cluster = _cluster(folder)
    for row in cluster.brokers:
        row["rack"] = racks[row["broker_id"]]
    cluster.snapshot()
    return Surveyor("", folder)


EXPAND: Final = ("expand", "--topic", "some", "--partitions", "4")


def test_partitions_are_added_over_racks(tmp_path: Path) -> None:
    """Racks alternate as 0, 2, 1, 3; Kafka 3.9.2's `AdminUtils` prints these for start 1, first partition 1."""
    surveyor = _in_racks(tmp_path / "warehouse", {0: "a", 1: "a", 2: "b", 3: "b"})

    assert _planned(surveyor, *EXPAND)[0] == [[1, 2], [3, 1], [0, 3]]
    assert _planned(surveyor, *EXPAND, "--disable-rack-aware")[0] == [[2, 0], [3, 1], [0, 2]]


def test_racks_are_not_ignored_silently(tmp_path: Path) -> None:
    surveyor = _in_racks(tmp_path / "warehouse", {0: None, 1: None, 2: None, 3: "a"})

    ran = surveyor("plan", *EXPAND)

    assert (ran.code, "brokers 0, 1, 2 have no rack, broker 3 does" in ran.stderr) == (23, True)
    assert _planned(surveyor, *EXPAND, "--disable-rack-aware")[0] == [[2, 0], [3, 1], [0, 2]]
    assert _planned(surveyor, *EXPAND, "--replica-assignment", "0:1,1:2,2:3")[0] == [[0, 1], [1, 2], [2, 3]]


ALLOWED: Final[list[tuple[str, ...]]] = [
    ("config", "--topic", "__consumer_offsets", "--set", "segment.bytes=104857600"),
    ("config", "--topic", "__CruiseControlMetrics", "--set", "retention.ms=-1"),
    ("config", "--topic", "__consumer_offsets", "--set", "cleanup.policy=delete", "--allow-internal"),
    ("assign", "--topic", "_schemas", *NEW, "--config", "cleanup.policy=compact"),
    ("assign", "--topic", "_schemas", *NEW, "--allow-internal"),
    ("expand", "--topic", "connect-offsets", "--partitions", "2", "--allow-internal"),
]


def test_what_loses_nothing_or_is_allowed_is_planned_for_internal_topics(surveyor: Surveyor) -> None:
    assert [surveyor.json("plan", *arguments)["operations"] for arguments in ALLOWED] == [1] * len(ALLOWED)


def test_the_conf_declares_internal_topics(tmp_path: Path) -> None:
    _cluster(tmp_path / "warehouse").snapshot()
    conf = tmp_path / "surveyor.toml"
    conf.write_text('[clusters.default]\ninternal_topics = ["so.*"]\n')
    surveyor = Surveyor("", tmp_path / "warehouse")

    ran = surveyor("plan", "delete", "--topics", "some", "--conf", str(conf))

    assert (ran.code, "topic some is internal to internal_topics in the conf" in ran.stderr) == (23, True)


SHRINKS: Final = [
    ((), 23, "__consumer_offsets-0: an internal topic would have fewer replicas: 2 → 1"),
    (("--allow-internal",), 0, ""),
]


@pytest.mark.parametrize(("more", "code", "message"), SHRINKS)
def test_internal_topics_keep_their_replicas(
    surveyor: Surveyor, more: tuple[str, ...], code: int, message: str
) -> None:
    names = ("--topics", "__consumer_offsets|connect-offsets", "--disable-rack-aware")

    ran = surveyor("plan", "reassign", "--replication-factor", "1", *names, *more)

    assert (ran.code, message in ran.stderr, "--allow-internal" in ran.stderr) == (code, True, bool(message)), (
        ran.stderr
    )


def test_internal_topics_go_where_that_is_meant(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path / "warehouse")
    cluster.topics.append(topic("__mine", topic_version=3))
    cluster.snapshot()
    surveyor = Surveyor("", tmp_path / "warehouse")

    planned = _planned(surveyor, "delete", "--topics", "__mine", "--allow-internal")

    assert planned == ([], [("delete_topic", "__mine", {"topic_id": "__mine-id"})])
