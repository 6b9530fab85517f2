"""A real KRaft cluster in the tables: as Kafka's own tools describe it, before and after a broker is killed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # exported, untyped
from typer import Typer
from typer.testing import CliRunner

from jobs import plan, show
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.embedded.kraft import CLUSTER_ID, EmbeddedKRaftCluster
from jobs.cli import COMMANDS, app
from jobs.core.errors import UnreadableError
from jobs.runtime.zookeeper_commands import INSTEAD
from jobs.snapshots.cluster_view import view_now
from planner.rules.quorum import MAX_VOTER_LAG_MS
from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.kafka.kraft_cluster import ELR_LEVEL, ELR_VERSION, WITH_ELR, Described, words_of_zookeeper
from tests.jobs.support.kafka.kraft_story import CONFIG, RACKS, Story, killed_broker_story
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    cluster = EmbeddedKRaftCluster(3, racks=RACKS, overrides=WITH_ELR, format_options=ELR_VERSION, heap="320m")
    with killed_broker_story(cluster, tmp_path_factory.mktemp("kraft"), ELR_LEVEL) as story:
        yield story


@pytest.fixture(scope="module", params=[1, 2], ids=["before", "now"])
def described(request: pytest.FixtureRequest, story: Story) -> tuple[int, Described]:
    """A snapshot, and the cluster at that time."""
    return request.param, story.before if request.param == 1 else story.now


NO_COUNTERPART = ("controller_epoch", "state_version", "topic_version", "leader_recovery_state")


def test_partitions_are_those_of_kafka_topics(story: Story, described: tuple[int, Described]) -> None:
    snapshot, cluster = described
    rows = story.partitions(snapshot)
    columns = ("leader", "replicas", "isr", "eligible_leader_replicas", "last_known_elr")
    assert {key: tuple(row[name] for name in columns) for key, row in rows.items()} == cluster.partitions
    assert {key: row["leader_epoch"] for key, row in rows.items()} == cluster.leader_epochs
    assert all(row[name] is None for row in rows.values() for name in NO_COUNTERPART)
    assert all(row["understood"] for row in rows.values())


def test_a_killed_broker_leaves_the_isr_and_stays_eligible(story: Story) -> None:
    rows = story.partitions(2)
    shrunk, lone = rows["orders", 0], rows["lone", 0]
    assert (shrunk["leader"], shrunk["isr"]) == (story.survivor, [story.survivor])
    assert shrunk["eligible_leader_replicas"] == [story.killed]
    assert shrunk["offline_replicas"] == [story.killed]
    assert (shrunk["partition_state"], shrunk["under_replicated"], shrunk["under_min_isr"]) == ("Online", True, True)
    assert (lone["leader"], lone["partition_state"]) == (-1, "Offline")
    assert rows["orders", 2] == story.partitions(1)["orders", 2]


def test_topics_have_their_ids_and_overrides(story: Story, described: tuple[int, Described]) -> None:
    snapshot, cluster = described
    rows = {row["topic"]: row for row in story.rows("topics", snapshot)}
    assert {name: row["topic_id"] for name, row in rows.items()} == cluster.topic_ids
    admin = AdminClient({"bootstrap.servers": story.cluster.nodes[story.survivor].address, "log_level": 0})
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in rows]
    for resource, answer in admin.describe_configs(asked).items():
        overrides = {entry.name: entry.value for entry in answer.result().values() if entry.source == 1}
        assert rows[resource.name]["config"] == overrides
    assert rows["orders"]["config"] == CONFIG
    assert {row["topic_version"] for row in rows.values()} == {None}
    assert {row["deletion_requested"] for row in rows.values()} == {False}


def test_brokers_are_those_that_are_alive(story: Story, described: tuple[int, Described]) -> None:
    """Kafka 3.9 lists no fenced broker, and does not say so of the others."""
    snapshot, _ = described
    alive = [node for node in story.cluster.nodes if snapshot == 1 or node != story.killed]
    rows = sorted(story.rows("brokers", snapshot), key=lambda row: int(row["broker_id"]))
    assert [row["broker_id"] for row in rows] == alive
    for row in rows:
        host, _, port = story.cluster.nodes[row["broker_id"]].address.partition(":")
        endpoint = {"listener": None, "security_protocol": "PLAINTEXT", "host": host, "port": int(port)}
        assert (row["host"], row["port"], row["endpoints"]) == (host, int(port), [endpoint])
        assert row["rack"] == RACKS[row["broker_id"]]
        assert (row["broker_epoch"], row["state_version"], row["fenced"]) == (None, None, None)
        assert row["understood"]


def test_the_quorum_takes_the_place_of_the_controller(story: Story, described: tuple[int, Described]) -> None:
    snapshot, cluster = described
    row = story.snapshot(snapshot)
    assert row.controller_id == int(cluster.quorum["LeaderId"])
    assert row.controller_epoch == int(cluster.quorum["LeaderEpoch"])
    assert row.zxid_before is not None
    assert row.zxid_after is not None
    assert row.zxid_before <= row.zxid_after <= int(cluster.quorum["HighWatermark"])
    assert (row.cluster_id, row.metadata_version) == (CLUSTER_ID, story.level)
    assert (row.controller_epoch_version, row.migration) == (None, None)


def test_voters_have_their_lag(story: Story) -> None:
    healthy, behind = ({row.voter_id: row for row in story.snapshot(number).voters or ()} for number in (1, 2))
    assert set(healthy) == set(behind) == set(story.cluster.nodes)
    assert behind[story.survivor].lag == 0
    assert all((row.lag or 0) >= 0 for row in healthy.values())
    assert all(row.lag_ms is not None and row.lag_ms <= MAX_VOTER_LAG_MS for row in healthy.values())
    killed = behind[story.killed]
    assert min(killed.lag or 0, killed.lag_ms or 0) > 0


def test_a_running_reassignment_is_a_request(story: Story) -> None:
    (request,) = story.rows("requests", 2)
    assert (request["kind"], request["topic"], request["partition"]) == ("reassign", "moving", 0)
    assert request["replicas"] == [story.killed]
    row = story.partitions(2)["moving", 0]
    assert (row["adding_replicas"], row["removing_replicas"]) == ([story.killed], [story.survivor])
    assert row["replicas"] == [story.killed, story.survivor]
    assert story.rows("requests", 1) == []


def test_brokers_report_their_configs(story: Story) -> None:
    """No name that only brokers with ZooKeeper have gets a row, as its default would be invented."""
    rows = story.rows("broker_configs", 2)
    assert {row["broker_id"] for row in rows} == set(story.cluster.nodes) - {story.killed}
    names = {row["name"] for row in rows}
    assert {"min.insync.replicas", "unclean.leader.election.enable", "api.ElectLeaders"} <= names
    of_zookeeper = {"zookeeper.session.timeout.ms", "leader.imbalance.per.broker.percentage", "api.LeaderAndIsr"}
    assert not of_zookeeper & names
    assert not any(row["assumed"] for row in rows if row["name"] != "inter.broker.protocol.version")


def test_events_say_what_happened(story: Story) -> None:
    events = {(row["kind"], row["subject"]) for row in story.surveyor.warehouse.rows("events", ("snapshot_id", "=", 2))}
    killed = f"broker {story.killed}"
    assert {("BrokerFailed", killed), ("LeaderChanged", "orders-0"), ("IsrShrunk", "orders-1")} <= events
    assert not any(kind == "BrokerBounced" for kind, _ in events)


def _health(status: dict[str, Any]) -> dict[str, Any]:
    names = ("live", "gone", "offline", "under_replicated", "under_min_isr", "moving", "not_understood", "quarantined")
    return {name: status[name] for name in names} | {"controller": status["controller_id"]}


def test_status_is_the_same_live_and_of_the_snapshot(story: Story) -> None:
    live, stored = story.surveyor.json("status"), story.surveyor.json("status", "--snapshot", "2")
    assert _health(live) == _health(stored)
    assert stored["controller_id"] == int(story.now.quorum["LeaderId"])
    assert (stored["offline"], stored["moving"], stored["not_understood"]) == (1, 1, 0)
    assert [row["broker_id"] for row in stored["gone"]] == [story.killed]


def test_show_reads_brokers_live(story: Story) -> None:
    rows = {row["broker_id"]: row for row in story.surveyor.json("show", "brokers", "--now")["rows"]}
    assert {broker: row["live"] for broker, row in rows.items()} == {
        node: node != story.killed for node in story.cluster.nodes
    }
    assert rows[story.killed]["rack"] == RACKS[story.killed]
    shown = story.surveyor("show", "partitions", "--now", "--topic", "orders")
    assert shown.code == 0
    assert "read from the brokers" in shown.stdout


def test_pages_make_one_list(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KRaftCluster(story.cluster.nodes[story.survivor].address, story.surveyor.warehouse)
    whole = view_now(source).partitions
    monkeypatch.setattr("jobs.adapters.kraft.topics.PAGE_PARTITIONS", 2)
    assert view_now(source).partitions == whole
    assert whole.num_rows == len(story.now.partitions)


def test_a_broker_that_is_down_is_passed_over(story: Story) -> None:
    down, up = (story.cluster.nodes[node].address for node in (story.killed, story.survivor))
    assert {row.broker_id for row in KRaftCluster(f"{down},{up}", story.surveyor.warehouse).read_brokers()[1]} == {
        node for node in story.cluster.nodes if node != story.killed
    }
    with pytest.raises(UnreadableError, match=down):
        KRaftCluster(down, story.surveyor.warehouse).read_brokers()


def test_sizes_are_recorded(story: Story) -> None:
    result = story.surveyor.json("sizes")
    assert (result["brokers"], result["topics"]) == (2, 2)  # the replica of `lone` is on the killed broker
    assert {(row["error"], row["cordoned"]) for row in story.surveyor.warehouse.rows("log_dirs")} == {(None, None)}


def refused(ran: Ran) -> bool:
    """Whether a command was refused in one line that names the reason, and what to use instead."""
    is_reason = "KRaft" in ran.stderr and "`surveyor plan recover`" in ran.stderr
    return ran.code == 23 and is_reason and len(ran.stderr.strip().splitlines()) == 1


WRITING: list[list[str]] = [
    ["reconcile"],
    ["reconcile", "--apply", "--yes", "--until-quiet"],
    ["control"],
    ["control", "--apply", "--yes", "--standby"],
]


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_commands_that_work_through_zookeeper_are_refused(story: Story, command: list[str]) -> None:
    """Dry or not, they are refused before they read a plan, and they store nothing."""
    before = {name: story.surveyor.warehouse.version(name) for name in TABLE_COLUMNS}
    ran = story.surveyor(*command)
    assert refused(ran), ran
    assert f"`surveyor {command[0]}` works through ZooKeeper" in ran.stderr
    assert {name: story.surveyor.warehouse.version(name) for name in TABLE_COLUMNS} == before


def test_each_command_is_refused_or_reads() -> None:
    """A new command must be added to one of these: the tests of this file show that the first read a KRaft cluster, and
    those of test_kraft_plans_brokers.py that the second carry plans out.
    """
    reading = {"export", "load", "plan", "report", "show", "sizes", "snapshot", "status", "whatif"}
    carrying_out = {"cancel", "commit", "rollback", "verify"}
    not_connecting = {"catalog", "dashboard", "demo", "metrics", "vacuum"}
    commands = {place.partition(":")[0].removeprefix("jobs.") for place in COMMANDS}
    assert commands == reading | carrying_out | not_connecting | INSTEAD.keys() | {"doctor", "migration"}
    assert {command[0] for command in WRITING} == INSTEAD.keys()


def test_a_migration_is_checked_on_zookeepers_side_only(story: Story) -> None:
    ran = story.surveyor("migration", "check")
    assert (ran.code, "is a KRaft cluster" in ran.stderr, ran.stderr.count("\n")) == (23, True, 1)


def test_doctor_examines_the_quorum_and_the_brokers(story: Story) -> None:
    """One address does not answer, and one voter is down. Checks of ZooKeeper and of batch mode are left out."""
    ran = story.surveyor("doctor", "--json")
    findings = {row["check"]: (row["state"], row["found"]) for row in ran.json["findings"]}
    assert [*findings][-8:] == [
        *("schema", "reachability", "quorum", "clock"),
        *("brokers", "versions", "permissions", "settings"),
    ]
    assert (ran.code, ran.json["faults"]) == (0, 0), ran.json
    warned = {check for check, (state, _) in findings.items() if state == "warning"}
    assert warned == {"reachability", "quorum"}, ran.json
    assert "2 of 3 addresses answered" in findings["reachability"][1]
    assert story.cluster.nodes[story.killed].address in findings["reachability"][1]
    leader = f"leader {story.now.quorum['LeaderId']}, epoch {story.now.quorum['LeaderEpoch']}; of 3 voters 2 are needed"
    assert findings["quorum"][1].startswith(f"{leader}; not up to date: {story.killed} (")
    assert findings["versions"][1] == f"metadata.version {ELR_LEVEL}; all brokers support up to {ELR_LEVEL}"
    assert findings["clock"] == ("fine", "as that of the quorum's leader")
    assert findings["brokers"] == ("fine", "2 live")
    shown = story.surveyor("doctor").stdout
    assert "WARN   quorum " in shown
    assert shown.endswith("\n0 faults, 2 warnings\n")


def test_doctor_compares_brokers_with_the_last_snapshot(story: Story) -> None:
    (brokers,) = [row for row in story.doctor["findings"] if row["check"] == "brokers"]
    assert brokers["state"] == "warning"
    assert brokers["found"] == f"2 live; in the last snapshot, but not live: {story.killed}"


def test_doctor_without_a_broker_that_answers(story: Story, tmp_path: Path) -> None:
    down = story.cluster.nodes[story.killed].address
    ran = Surveyor(down, tmp_path / "none", "--bootstrap-server")("doctor", "--json")
    (fault,) = [row for row in ran.json["findings"] if row["state"] == "fault"]
    assert (ran.code, fault["check"]) == (1, "reachability")
    assert fault["found"].startswith(f"no broker answered: {down}: ")
    assert ran.json["findings"][-1] == fault


@pytest.mark.parametrize(
    "command",
    [["plan", "reconcile"], ["plan", "drain", "--brokers", "1", "--mode", "resident"]],
    ids=" ".join,
)
def test_plans_of_a_controllers_own_work_are_refused(story: Story, command: list[str]) -> None:
    ran = story.surveyor(*command)
    assert ran.code == 23, ran
    instead = "omit --mode" if "--mode" in command else "use `surveyor plan recover` for elections"
    assert f"KRaft cluster, whose own controller does that; {instead}" in ran.stderr


def test_an_election_is_planned_only_where_the_replica_is_alive(story: Story) -> None:
    """The leader of orders-2 is live and preferred; that of orders-0 prefers the killed broker."""
    story.surveyor.json("plan", "elect", "--preferred", "--snapshot", "2", "--name", "balance")
    rejected = {(row["topic"], row["partition"]): row["code"] for row in story.surveyor.warehouse.rows("rejections")}
    assert rejected.get(("orders", 0)) == "PREFERRED_NOT_ALIVE"


@pytest.mark.parametrize("command", [["status"], ["show", "plans"], ["plan", "elect", "--preferred"]], ids=" ".join)
def test_no_command_suggests_one_that_is_refused(story: Story, command: list[str]) -> None:
    ran = story.surveyor(*command)
    assert ran.code == 0, ran
    assert [name for name in INSTEAD if f"surveyor {name} " in f"{ran.stdout} "] == [], ran.stdout


@pytest.fixture(scope="module")
def swept(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """The cluster with a copy of the warehouse, which commands may add to."""
    surveyor = story.surveyor.copied_to(tmp_path_factory.mktemp("swept") / "warehouse")
    surveyor.json("plan", "elect", "--preferred", "--snapshot", "2", "--name", "swept")
    return surveyor


SWEPT: list[list[str]] = [
    ["snapshot"],
    ["status"],
    ["status", "--snapshot", "2"],
    ["doctor"],
    ["sizes"],
    ["load", "sample"],
    ["metrics"],
    ["whatif", "--lose", "brokers=1"],
    ["whatif", "--restart", "1"],
    ["whatif", "--load"],
    ["whatif", "--growth", "30%"],
    ["show", "brokers", "--now"],
    ["show", "brokers", "--snapshot", "2"],
    ["show", "topics"],
    ["show", "partitions", "--now"],
    ["show", "partitions", "--offline"],
    ["show", "replicas"],
    ["show", "imbalance"],
    ["show", "sizes"],
    ["show", "load"],
    ["show", "configs"],
    ["show", "requests"],
    ["show", "quarantine"],
    ["show", "snapshots"],
    ["show", "events"],
    ["show", "history", "--topic", "orders"],
    ["show", "diff", "1", "2"],
    ["show", "plans"],
    ["show", "drained"],
    ["show", "throttles"],
    ["show", "commits"],
    ["plan", "elect", "--preferred"],
    *(["--json", *command] for command in (["snapshot"], ["status"], ["doctor"], ["whatif", "--restart", "1"])),
    ["plan", "recover"],
    ["plan", "recover", "--allow-unclean"],
    ["whatif", "--restart-order"],
    ["plan", "drain", "--brokers", "DEAD"],
    ["plan", "drain", "--brokers", "ALIVE"],
    ["plan", "undrain", "--brokers", "ALIVE"],
    ["plan", "reassign", "--remove-brokers", "DEAD"],
    ["plan", "reassign", "--rebalance"],
    ["plan", "reassign", "--rebalance", "--by-load", "--pareto"],
    ["plan", "reassign", "--replication-factor", "2"],
    ["plan", "assign", "--topic", "new", "--partitions", "2", "--replication-factor", "2"],
    ["plan", "assign", "--topic", "huge", "--partitions", "90000", "--replication-factor", "1"],
    ["plan", "expand", "--topic", "orders", "--partitions", "4"],
    ["plan", "expand", "--topic", "moving", "--partitions", "4"],
    ["plan", "config", "--topic", "orders", "--set", "retention.ms=1"],
    ["plan", "delete", "--topics", "lone"],
    ["show", "plan", "swept"],
    ["show", "rejections", "swept"],
    ["show", "evidence", "swept"],
    ["export", "swept"],
    ["report", "--out", "PAGE"],
    ["vacuum", "--keep", "30d"],
]


@pytest.mark.parametrize("command", SWEPT, ids=" ".join)
def test_no_sentence_is_about_zookeeper(story: Story, swept: Surveyor, tmp_path: Path, command: list[str]) -> None:
    """A broker is down, a partition offline and another moving, so much is due."""
    places = {"DEAD": str(story.killed), "ALIVE": str(story.survivor), "PAGE": str(tmp_path / "page.html")}
    ran = swept(*sorted((places.get(word, word) for word in command), key="--json".__eq__))
    assert ran.code in {0, 22, 23}, ran  # 22 of sizes that brokers did not return in time
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.glob("*.html")]
    assert words_of_zookeeper(ran.stdout, ran.stderr, *map(_visible, pages)) == []


def _visible(page: str) -> str:
    """The text of a page without its scripts and styles."""
    return re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]+>", " ", page)


REFUSED_PLANS = {"reconcile", "recover"}


@pytest.mark.parametrize(("name", "group", "left_out"), [("show", show.app, set()), ("plan", plan.app, REFUSED_PLANS)])
def test_every_command_is_swept(name: str, group: Typer, left_out: set[str]) -> None:
    commands = {command for first, command, *_ in map(_padded, SWEPT) if first == name}
    shown = [command for command in group.registered_commands if not command.hidden]
    registered = {command.name or getattr(command.callback, "__name__", "") for command in shown}
    assert commands | left_out == registered


def _padded(command: list[str]) -> list[str]:
    return [*command, ""]


def test_moves_are_planned_without_versions(story: Story) -> None:
    """A killed broker gets no replicas, and loses those it has where it is taken out."""
    taken_out = ["--remove-brokers", str(story.killed), "--topics", "orders"]
    plan = story.surveyor.json("plan", "reassign", *taken_out, "--snapshot", "2")
    changes = story.surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    assert {(row["topic"], row["partition"]) for row in changes} == {("orders", 0), ("orders", 1)}
    assert not any(story.killed in row["replicas_after"] for row in changes)
    assert {(row["state_version"], row["topic_version"]) for row in changes} == {(None, None)}
    apply = [step for step in plan["next"] if step["what"].startswith("apply")]
    assert [step["command"].startswith("surveyor commit") for step in apply] == [True]
    (row,) = story.surveyor.warehouse.rows("plans", ("plan_id", "=", plan["plan_id"]))
    assert {broker["broker_id"] for broker in row["brokers"]} == set(story.cluster.nodes) - {story.killed}


def test_a_plan_is_not_committed_through_zookeeper(story: Story, tree: KafkaTree) -> None:
    """A cluster that was migrated has the same id in ZooKeeper as in KRaft, so the id does not distinguish them."""
    taken_out = ["--remove-brokers", str(story.killed), "--topics", "orders"]
    plan = story.surveyor.json("plan", "reassign", *taken_out, "--snapshot", "2")["plan_id"]
    tree.client.set("/cluster/id", f'{{"version":"1","id":"{CLUSTER_ID}"}}'.encode())
    before = tree.dump()
    for mode in ("batch", "admin"):
        ran = Surveyor(tree.hosts, story.surveyor.folder)("commit", plan, "--mode", mode, "--apply", "--yes")
        assert (ran.code, len(ran.stderr.splitlines())) == (23, 1), ran
        assert "was made on a snapshot read from the brokers of a KRaft cluster" in ran.stderr
    assert tree.dump() == before


def test_losses_are_simulated(story: Story) -> None:
    result = story.surveyor.json("whatif", "--lose", "brokers=1", "--snapshot", "1")
    offline = {row["scenario"]: row["newly_offline"] for row in result["rows"]}
    assert offline[f"broker {story.killed}"] == 1
    assert set(offline) == {f"broker {node}" for node in story.cluster.nodes}


def test_a_restart_is_judged_with_the_quorum(story: Story) -> None:
    """One voter of three is down, so no other may restart, whatever the partitions say."""
    other = next(node for node in story.cluster.nodes if node not in {story.killed, story.survivor})
    with_quorum = story.surveyor("whatif", "--restart", str(other), "--json")
    assert (with_quorum.code, with_quorum.json["verdict"]) == (23, "unsafe"), with_quorum
    assert with_quorum.json["quorum"] == {
        "voters": sorted(story.cluster.nodes),
        "restarting": [other],
        "needed": 2,
        "current": [story.survivor],
        "uncertain": [],
        "keeps_majority": False,
    }
    assert [(row["topic"], row["code"]) for row in with_quorum.json["rows"]] == [("orders", "TOO_FEW_REPLICAS")]
    shown = story.surveyor("whatif", "--restart", str(other))
    assert "1 of 3 voters of the quorum remain up to date, and 2 are needed" in shown.stdout
    assert with_quorum.json["brokers"] == [{"broker_id": other, "is_live": True, "broker_epoch": None}]
    down = story.surveyor("whatif", "--restart", str(story.killed), "--json").json
    assert [row["is_live"] for row in down["brokers"]] == [False]


def test_the_healthy_cluster_could_restart_each_broker(story: Story) -> None:
    """On the snapshot before the failure, where the topic `lone` has no second replica."""
    result = story.surveyor("whatif", "--restart", str(story.killed), "--snapshot", "1", "--json").json
    assert result["quorum"]["keeps_majority"]
    assert {row["topic"] for row in result["rows"] if row["effect"] == "offline"} == {"lone"}


def test_the_quorums_leader_restarts_last(story: Story) -> None:
    result = story.surveyor.json("whatif", "--restart-order")
    rows = [(row["broker_id"], row["action"], row["is_controller"]) for row in result["rows"]]
    other = next(node for node in story.cluster.nodes if node not in {story.killed, story.survivor})
    assert rows == [(story.killed, "start", False), (other, "restart", False), (story.survivor, "restart", True)]
    assert not any(row["loses_quorum"] for row in result["rows"])
    assert f"--bootstrap-server {story.surveyor.hosts}" in result["rows"][1]["check"]


def test_a_fleet_has_clusters_of_both_kinds(story: Story, tree: KafkaTree, tmp_path: Path) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text(
        f'[clusters.kraft]\nbootstrap_servers = "{story.cluster.nodes[story.survivor].address}"\n'
        f'[clusters.zookeeper]\nzookeeper = "{tree.hosts}"\n'
    )
    where = ["--all-clusters", "--conf", str(conf), "--warehouse", str(tmp_path / "fleet"), "--json"]
    done = CliRunner().invoke(app, ["snapshot", *where], env={"SURVEYOR_BOOTSTRAP_SERVERS": "elsewhere:9092"})
    result = json.loads(done.stdout)
    assert (done.exit_code, result["failed"]) == (0, 0), done.stderr
    assert {row["cluster"]: row["brokers"] for row in result["summary"]} == {"kraft": 2, "zookeeper": 3}
    assert "not elsewhere:9092 of SURVEYOR_BOOTSTRAP_SERVERS" in done.stderr
    status = json.loads(CliRunner().invoke(app, ["status", *where]).stdout)
    assert {name: part["controller_id"] for name, part in status["clusters"].items()} == {
        "kraft": int(story.now.quorum["LeaderId"]),
        "zookeeper": 0,
    }
    assert result["clusters"]["kraft"]["health"]["offline"] == 1
    refused_one = CliRunner().invoke(
        app, ["snapshot", "--all-clusters", "--conf", str(conf), "--bootstrap-server", "k:1"]
    )
    assert refused_one.stderr == (
        "surveyor: --bootstrap-server is for one cluster, --all-clusters for every cluster: give one of the two\n"
    )
