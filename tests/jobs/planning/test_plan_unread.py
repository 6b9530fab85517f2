"""Plans and what-ifs on a cluster with topics that are not understood: they name what they could not look at.

And whatever a command warns of in text, its JSON has in `warnings`.
"""

import json
import re
from pathlib import Path

import pytest

from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration, state_path

pytestmark = pytest.mark.usefixtures("spark")

UNREAD = "2 topics and 1 partition are not understood (opaque, partly in part, state-0)"
SHOWN = "`surveyor show quarantine`"


@pytest.fixture(scope="module")
def surveyor(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Brokers 1 to 3 in racks of their own; no snapshot knows `opaque`, partition 1 of `partly`, the state of `state`.

    `lost` is offline: only broker 9, which is gone, is in sync.
    """
    module_tree.lay_out(brokers=())
    for broker, rack in {1: "a", 2: "b", 3: "c"}.items():
        module_tree.register(broker, registration(rack=rack))
    module_tree.elect(1, epoch=7)
    for topic in ("opaque", "partly", "state", "whole", "lost"):
        module_tree.add_topic(topic, {0: [9, 1] if topic == "lost" else [1, 2]})
    module_tree.write(state_path("lost", 0), encode_state(State(controller_epoch=1, leader=9, leader_epoch=6, isr=[9])))
    module_tree.write("/brokers/topics/opaque", b"{")
    # otherwise its states would show its partitions
    module_tree.client.delete("/brokers/topics/opaque/partitions", recursive=True)
    partly = {"version": 2, "partitions": {"0": [1, 2], "1": [2, 2]}, "adding_replicas": {}, "removing_replicas": {}}
    module_tree.write("/brokers/topics/partly", json.dumps(partly).encode())
    module_tree.write(state_path("state", 0), b"{")
    ready = Surveyor(module_tree.hosts, tmp_path_factory.mktemp("unread") / "warehouse", plans_on_stored=True)
    ready.json("snapshot")
    return ready


def _shown(ran: Ran) -> set[str]:
    return set(re.findall(r"(?m)^(?: *|surveyor: )warning: (.*)$", ran.stdout + ran.stderr))


ABOUT_BROKERS = {
    "plan reassign --remove-brokers 2": "broker 2 may still hold replicas of them",
    "plan reassign --remove-brokers 2,9 --topics whole": "brokers 2 and 9 may still hold replicas of them",
    "plan reassign --replace 2=3": "broker 2 may still hold replicas of them",
    "plan reassign --rebalance": "no replica of them is counted or moved",
    "plan drain --brokers 2": "broker 2 may still lead some of them",
    "plan elect --preferred": "nothing is planned for them",
    "plan reconcile": "nothing is planned for them",
    "whatif --lose brokers=1": "no loss of them is counted",
}


@pytest.mark.parametrize("command", ABOUT_BROKERS)
def test_what_is_not_understood_is_warned_of_by_name(surveyor: Surveyor, command: str) -> None:
    warning = f"{UNREAD}: {ABOUT_BROKERS[command]}; {SHOWN}"
    made = surveyor.json(*command.split())
    reviewed = surveyor.json("show", "plan", made["plan_id"]) if "plan_id" in made else made
    assert [output["warnings"].count(warning) for output in (made, reviewed)] == [1, 1]


def test_the_page_of_a_plan_warns_of_it(surveyor: Surveyor, tmp_path: Path) -> None:
    made = surveyor.json("plan", "reassign", "--remove-brokers", "2")
    surveyor.json("report", "--plan", made["plan_id"], "--out", str(tmp_path / "plan.html"))
    assert "broker 2 may still hold replicas of them" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_a_plan_of_named_partitions_is_not_about_others(surveyor: Surveyor, tmp_path: Path) -> None:
    file = reassignment_file(tmp_path, ("whole", 0, [1, 3]))
    assert surveyor.json("plan", "reassign", "--reassignment-json-file", file)["warnings"] == []


def test_a_refusal_says_that_the_topics_asked_for_are_not_understood(surveyor: Surveyor, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "opaque"}]}))
    reason = "1 topic is not understood (opaque), and no partition of snapshot 1 is in another requested topic"
    by_regex = surveyor("plan", "reassign", "--remove-brokers", "2", "--topics", "opa.*")
    by_file = surveyor("plan", "reassign", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2")
    assert [(ran.code, reason in ran.stderr) for ran in (by_regex, by_file)] == [(23, True)] * 2


def test_a_topic_that_is_not_understood_is_rejected_as_such(surveyor: Surveyor, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "opaque"}, {"topic": "whole"}]}))
    made = surveyor.json("plan", "reassign", "--topics-to-move-json-file", str(topics), "--broker-list", "1,3")
    rows = surveyor.json("show", "plan", made["plan_id"])["rejection_rows"]
    assert [(row["topic"], row["code"]) for row in rows] == [("opaque", "NOT_UNDERSTOOD")]


SILENT = ("--mode", "batch", "--allow-silent", "1,2,3")

WARNING = [
    "plan reassign --remove-brokers 2",
    "whatif --lose racks=1",
    "plan recover --allow-unclean",
    "plan reassign --rebalance --throttle 50",
    "plan assign --topic new --partitions 1 --replication-factor 1 --config min.insync.replicas=2",
    "plan config --topic whole --set unclean.leader.election.enable=true",
    "plan expand --topic whole --partitions 2",
    "reconcile --mode batch --allow-silent 1,2,3",
    "cancel --throttles",
]


@pytest.mark.parametrize("command", WARNING)
def test_text_and_json_have_the_same_warnings(surveyor: Surveyor, tmp_path: Path, command: str) -> None:
    surveyor = surveyor.copied_to(tmp_path / "warehouse")
    text, as_json = surveyor(*command.split()), surveyor(*command.split(), "--json")
    assert (text.code, as_json.code) == (0, 0), as_json.stdout
    assert _shown(text) == set(as_json.json["warnings"])


@pytest.mark.parametrize("command", ["plan recover --allow-unclean", "plan delete --topics whole"])
def test_a_dry_commit_warns_alike(surveyor: Surveyor, command: str) -> None:
    made = surveyor.json(*command.split())
    text, as_json = (surveyor("commit", made["plan_id"], *SILENT, *more) for more in ([], ["--json"]))
    assert (text.code, as_json.code) == (0, 0), as_json.stdout
    assert set(made["warnings"]) <= _shown(text) == set(as_json.json["warnings"])
