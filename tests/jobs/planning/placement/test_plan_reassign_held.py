"""Partitions that `plan reassign` never moves: without a live leader in the ISR, or with a pending request."""

import json
from pathlib import Path
from typing import Final

import pytest

from schemas.znode_codecs import State, encode_config, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.input_files import reassignment_file, reassignment_json
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

DEAD: Final = 9
STRICT: Final = {"single": [1], "paired": [1, 2]}
"""Topics under min.insync.replicas=2."""
LEADERLESS: Final = "no live leader in its ISR (leader -1, ISR [9])"
ORDERED: Final = "a request to move it to [0] waits: let it run"


@pytest.fixture(scope="module")
def surveyor(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Brokers 0 to 3. Of topic lost, 1 lags and dead broker 9 has the data. Topic waiting waits for broker 0."""
    module_tree.lay_out(brokers=(0, 1, 2, 3))
    module_tree.elect(0, epoch=7)
    topics = {"free": [0, 1], "lost": [1, DEAD], "waiting": [2], "settled": [2, 3], **STRICT}
    for topic, replicas in topics.items():
        module_tree.add_topic(topic, {0: replicas})
    for topic in STRICT:
        module_tree.write(f"/config/topics/{topic}", encode_config({"min.insync.replicas": "2"}))
    module_tree.write(
        state_path("lost", 0), encode_state(State(controller_epoch=7, leader=-1, leader_epoch=6, isr=[DEAD]))
    )
    requests = {"waiting": [0], "settled": [2, 3], "gone": [1]}
    order = reassignment_json(*((topic, 0, replicas) for topic, replicas in requests.items()))
    module_tree.write("/admin/reassign_partitions", json.dumps(order).encode())
    ready = Surveyor(module_tree.hosts, tmp_path_factory.mktemp("held") / "warehouse", plans_on_stored=True)
    write_first_snapshot(ready)
    return ready


QUESTIONS: Final = (
    ["--remove-brokers", f"{DEAD}"],
    ["--remove-brokers", "1,2"],
    ["--replace", f"{DEAD}=2"],
    ["--add-brokers", "3"],
    ["--rebalance"],
    ["--fix-racks"],
    ["--replication-factor", "1"],
    ["--replication-factor", "3"],
    ["--topics-to-move-json-file", "FILE", "--broker-list", "0,3"],
)


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_no_question_moves_them(surveyor: Surveyor, tmp_path: Path, question: list[str]) -> None:
    """Otherwise Kafka may elect the new, empty replica, and the data on broker 9 is lost."""
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": "lost"}, {"topic": "waiting"}]}))
    arguments = [str(file) if word == "FILE" else word for word in question]
    plan = surveyor.json("plan", "reassign", *arguments, "--topics", "lost|waiting")
    rejections = surveyor.warehouse.rows("rejections", ("plan_id", "=", plan["plan_id"]))
    rejected = {row["topic"]: (row["code"], row["reason"]) for row in rejections}
    about = {"lost"} if f"{DEAD}" in question[-1] else {"lost", "waiting"}
    assert (plan["changes"], plan["moves"], set(rejected)) == (0, 0, about)
    code, reason = rejected["lost"]
    assert (code, LEADERLESS in reason, "`surveyor status` shows how" in reason) == ("NO_LIVE_LEADER", True, True)
    if "waiting" in about:
        code, reason = rejected["waiting"]
        assert (code, ORDERED in reason) == ("REASSIGNMENT_IN_PROGRESS", True)


def test_a_request_for_what_is_there_holds_nothing(surveyor: Surveyor) -> None:
    moved = surveyor.json("plan", "reassign", "--replace", "3=0", "--topics", "settled")
    added = surveyor.json("plan", "expand", "--topic", "settled", "--partitions", "2")

    assert (moved["changes"], moved["rejected"], added["changes"]) == (1, 0, 1)


FILES: Final = (
    ("lost", [1, 2], LEADERLESS, "NO_LIVE_LEADER"),
    ("waiting", [3], ORDERED, "REASSIGNMENT_IN_PROGRESS"),
)


@pytest.mark.parametrize("refused", FILES)
def test_a_file_that_moves_them_is_refused(
    surveyor: Surveyor, tmp_path: Path, refused: tuple[str, list[int], str, str]
) -> None:
    topic, replicas, reason, code = refused
    targets = {topic: replicas, "free": [1, 0]}
    ran = surveyor("plan", "reassign", "--reassignment-json-file", _file(tmp_path, targets), "--json")
    rejections = surveyor.warehouse.rows("rejections", ("plan_id", "=", ran.json["plan_id"]))
    assert (ran.code, f"{topic}-0: {reason}" in ran.stderr, ran.json["status"]) == (23, True, "refused")
    assert [(row["topic"], row["code"]) for row in rejections] == [(topic, code)]


def _file(tmp_path: Path, targets: dict[str, list[int]]) -> str:
    return reassignment_file(tmp_path, *((topic, 0, replicas) for topic, replicas in targets.items()))


@pytest.mark.parametrize("question", [["--remove-brokers", "1"], ["--replace", "1=3"], ["--reassignment-json-file"]])
def test_lists_below_min_isr_move_with_a_warning(surveyor: Surveyor, tmp_path: Path, question: list[str]) -> None:
    arguments = [*question, *(["--topics", "single"] if question[1:] else [_file(tmp_path, {"single": [3]})])]
    plan = surveyor.json("plan", "reassign", *arguments)
    warning = "1 partition is left with fewer replicas than min.insync.replicas"
    assert (plan["status"], plan["moves"], plan["rejected"]) == ("planned", 1, 0)
    assert surveyor.json("show", "plan", plan["plan_id"])["warnings"][0].startswith(f"{warning}; older brokers")


def test_shrinking_below_min_isr_needs_an_option(surveyor: Surveyor, tmp_path: Path) -> None:
    command = ("plan", "reassign", "--reassignment-json-file", _file(tmp_path, {"paired": [2], "free": [1, 0]}))
    ran = surveyor(*command)
    rest, all_of_it = (surveyor.json(*command, flag) for flag in ("--skip-unsafe", "--allow-below-min-isr"))
    rejections = surveyor.warehouse.rows("rejections", ("plan_id", "=", rest["plan_id"]))
    assert ran.code == 23
    assert "paired-0: 1 replica can never reach min.insync.replicas=2" in ran.stderr
    assert "allow these with --allow-below-min-isr or leave these partitions out with --skip-unsafe" in ran.stderr
    assert (rest["changes"], all_of_it["changes"]) == (1, 2)
    assert [(row["topic"], row["code"]) for row in rejections] == [("paired", "MIN_ISR_UNREACHABLE")]


def test_skip_unsafe_leaves_out_faulty_targets(surveyor: Surveyor, tmp_path: Path) -> None:
    targets = {"lost": [1, 2], "waiting": [3], "nowhere": [1], "free": [1, 0]}
    file = _file(tmp_path, targets)
    plan = surveyor.json("plan", "reassign", "--reassignment-json-file", file, "--skip-unsafe")
    rejections = surveyor.warehouse.rows("rejections", ("plan_id", "=", plan["plan_id"]))
    codes = {(row["topic"], row["code"]) for row in rejections}
    assert (plan["status"], plan["changes"]) == ("planned", 1)
    assert codes == {
        ("lost", "NO_LIVE_LEADER"),
        ("waiting", "REASSIGNMENT_IN_PROGRESS"),
        ("nowhere", "UNKNOWN_PARTITION"),
    }
