"""`whatif` with --restart and --restart-order on a tree in ZooKeeper: verdicts, codes, the order; no write."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.planning.restart_facts import RestartFacts, read_facts
from jobs.runtime.settings import Settings
from schemas.rows import Voter
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_config, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.zookeeper.kafka_tree import NO_PORT, KafkaTree, registration, state_path

RACKS = {0: "a", 1: "a", 2: "b", 3: "c"}
SAFE, USAGE, UNKNOWN, UNSAFE = 0, 2, 22, 23


@pytest.fixture
def tree(bare_tree: KafkaTree, fake_brokers: FakeBrokers) -> KafkaTree:
    """Two partitions on three brokers each, at min ISR 2, which every broker applies by default."""
    bare_tree.lay_out(brokers=())
    for broker, rack in RACKS.items():
        bare_tree.register(broker, registration(fake_brokers[broker].port, rack))
    bare_tree.elect(0, epoch=7)
    bare_tree.write("/config/brokers/<default>", encode_config({"min.insync.replicas": "2"}))
    bare_tree.add_topic("orders", {0: [0, 2, 3], 1: [1, 3, 2]})
    return bare_tree


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    return Surveyor(tree.hosts, tmp_path / "warehouse")


def lead(tree: KafkaTree, leader: int, isr: list[int], partition: int = 0) -> None:
    data = encode_state(State(controller_epoch=7, leader=leader, leader_epoch=6, isr=isr))
    tree.client.set(state_path("orders", partition), data)


def nothing(_: KafkaTree) -> None:
    pass


def configure(**config: str) -> Callable[[KafkaTree], None]:
    values = {name.replace("_", "."): value for name, value in config.items()}
    return lambda tree: tree.write("/config/topics/orders", encode_config(values))


def assign(assignment: Assignment) -> Callable[[KafkaTree], None]:
    return lambda tree: tree.write("/brokers/topics/orders", encode_assignment(assignment))


def unread_partitions(tree: KafkaTree) -> None:
    tree.write("/brokers/topics/broken", b"?")


def log_dir_event(tree: KafkaTree) -> None:
    tree.write("/log_dir_event_notification/log_dir_event_0", b'{"version":1,"broker":2,"event":1}')


def silence(tree: KafkaTree) -> None:
    """Broker 3 has been killed, and its session has not ended."""
    tree.unregister(3)
    tree.register(3, registration(NO_PORT, "c"))


Case = tuple[Callable[[KafkaTree], object], str, list[str], int, list[str]]
"""What is changed, which brokers restart with which options, the exit code, and the effects of the rows."""

CASES: list[tuple[str, Callable[[KafkaTree], object], str, list[str], int, list[str]]] = [
    ("full ISRs", nothing, "3", [], SAFE, []),
    ("two of three replicas", nothing, "2,3", [], UNSAFE, ["under_min_isr"] * 2),
    ("a margin of one failure", nothing, "0", ["--margin", "1"], UNSAFE, ["below_margin"]),
    ("the only replica in sync", lambda tree: lead(tree, 2, [2]), "2", [], UNSAFE, ["offline"]),
    ("a config that is no number", configure(min_insync_replicas="many"), "0", [], UNKNOWN, ["unknown"]),
    ("a config that is unread", lambda tree: tree.write("/config/topics/orders", b"?"), "0", [], UNKNOWN, ["unknown"]),
    ("no default", lambda tree: tree.client.delete("/config/brokers/<default>"), "0", [], UNKNOWN, ["unknown"]),
    ("a state that is unread", lambda tree: tree.write(state_path("orders", 0), b"?"), "0", [], UNKNOWN, ["unknown"]),
    ("no state", lambda tree: tree.client.delete(state_path("orders", 0)), "0", [], UNKNOWN, ["unknown"]),
    ("a topic that is unread", unread_partitions, "0", [], UNKNOWN, []),
    ("no controller", lambda tree: tree.client.delete("/controller"), "0", [], UNKNOWN, []),
    ("a broker that is down", lambda tree: tree.unregister(1), "1", [], UNSAFE, ["offline"]),
    ("no such broker", nothing, "7", [], USAGE, []),
    ("deleted", lambda tree: tree.write("/admin/delete_topics/orders", b""), "2,3", [], SAFE, []),
    ("unread broker", lambda tree: tree.client.set("/brokers/ids/3", b"?"), "0", [], UNKNOWN, ["unknown"]),
    ("a broker that does not answer", silence, "0", [], UNKNOWN, ["unknown"]),
    ("a failed log dir", log_dir_event, "0", [], UNKNOWN, []),
]


@pytest.mark.parametrize("case", [pytest.param(case[1:], id=case[0]) for case in CASES])
def test_verdicts(tree: KafkaTree, surveyor: Surveyor, case: Case) -> None:
    change, restart, options, code, effects = case
    change(tree)
    before = tree.dump()
    ran = surveyor("whatif", "--restart", restart, *options, "--json")
    result = ran.json
    assert (ran.code, [row["effect"] for row in result["rows"]]) == (code, effects), ran.stdout
    assert result["verdict"] == {SAFE: "safe", UNKNOWN: "unknown", USAGE: "unknown", UNSAFE: "unsafe"}[code]
    assert bool(result["rows"] or result["unread"]) == (code != SAFE)
    assert tree.dump() == before
    assert not surveyor.folder.exists()


def test_as_people_read_it(tree: KafkaTree, surveyor: Surveyor) -> None:
    lead(tree, 0, [0, 2])
    ran = surveyor("whatif", "--restart", "2")
    assert ran.code == UNSAFE
    result = surveyor("whatif", "--restart", "2", "--json").json
    epoch = tree.client.exists("/brokers/ids/2").czxid
    assert {name: result[name] for name in ("brokers", "under_replicated", "partitions", "leaders")} == {
        "brokers": [{"broker_id": 2, "is_live": True, "broker_epoch": epoch}],
        "under_replicated": 1,
        "partitions": 2,
        "leaders": 0,
    }
    assert "in-sync replicas on other brokers: 1, needed: 2; now in sync: 0, 2" in ran.stdout
    assert "restarting broker 2 is unsafe: 0 offline, 1 under min ISR, 0 below the margin, 0 unknown" in ran.stdout
    assert f"show partitions --under-replicated --now --zookeeper {tree.hosts}" in ran.stdout


def test_a_broker_that_is_not_registered_is_unknown(surveyor: Surveyor) -> None:
    down = surveyor("whatif", "--restart", "7")
    assert "unknown: broker 7 is not registered: it is down, or no broker has this id" in down.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--restart", "1", "--lose", "pairs"], "expected exactly one of --lose, --restart, --restart-order, --load"),
        ([], "expected exactly one of --lose, --restart, --restart-order, --load"),
        (["--lose", "pairs", "--margin", "1"], "--margin 1: only with --restart"),
        (["--restart", "1,1"], "--restart '1,1' names a broker twice"),
        (["--restart", "all"], "--restart 'all': expected ids as in 0,1,2"),
    ],
)
def test_questions_that_are_no_questions(tmp_path: Path, options: list[str], message: str) -> None:
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("whatif", *options)
    assert (ran.code, message in ran.stderr) == (2, True)


@pytest.mark.usefixtures("spark")
def test_a_snapshot_is_never_safe(surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    safe, unsafe = (surveyor("whatif", "--restart", ids, "--snapshot", "1", "--json") for ids in ("3", "2,3"))
    assert (safe.code, safe.json["rows"], safe.json["verdict"]) == (UNKNOWN, [], "unknown")
    assert "snapshot 1 may differ from the cluster now" in safe.json["unread"][0]
    now = surveyor("whatif", "--restart", "2,3", "--json")
    assert (unsafe.code, now.code) == (UNSAFE, UNSAFE)
    assert unsafe.json["rows"] == now.json["rows"]


def test_order(tree: KafkaTree, surveyor: Surveyor) -> None:
    """Broker 4 shares no partition with broker 1 of its rack; broker 5 is down; broker 0 is the controller."""
    tree.register(4, registration(rack="a"))
    tree.add_topic("audit", {0: [4, 2, 3], 1: [5, 2, 3]})
    before = tree.dump()
    result = surveyor.json("whatif", "--restart-order")
    columns = ("wave", "broker_id", "rack", "action", "under_min_isr")
    assert [tuple(row[name] for name in columns) for row in result["rows"]] == [
        (1, 5, None, "start", 0),
        (2, 1, "a", "restart", 0),
        (2, 4, "a", "restart", 0),
        (3, 2, "b", "restart", 0),
        (4, 3, "c", "restart", 0),
        (5, 0, "a", "restart", 0),
    ]
    assert [row["broker_id"] for row in result["rows"] if row["now"]["offline"]] == [2, 3], "broker 5 leads still"
    assert "until broker 5 is back, a restart leaves more partitions offline: brokers 2, 3" in result["warnings"]
    assert (result["waves"], result["down"], result["controller_id"]) == (5, [5], 0)
    checks = [row["check"] for row in result["rows"]]
    options = f"--zookeeper {tree.hosts} --warehouse {surveyor.folder}"
    assert checks[:2] == [None, f"surveyor whatif --restart 1,4 {options}"]
    assert tree.dump() == before
    assert not surveyor.folder.exists()


def test_figures_while_a_broker_is_down(tree: KafkaTree, surveyor: Surveyor) -> None:
    """Broker 3 is down: of 3 partitions that its end made the last in sync, one has no other replica."""
    tree.add_topic("pairs", {0: [2, 3], 1: [2, 3], 2: [2]})
    tree.write("/config/topics/pairs", encode_config({"min.insync.replicas": "1"}))
    tree.unregister(3)
    lead(tree, 0, [0, 2])
    for number in (0, 1):
        state = State(controller_epoch=7, leader=2, leader_epoch=6, isr=[2])
        tree.client.set(state_path("pairs", number), encode_state(state))

    order = surveyor.json("whatif", "--restart-order")
    steps = {row["broker_id"]: row for row in order["rows"]}
    ran = surveyor("whatif", "--restart", "2")
    whatif = surveyor("whatif", "--restart", "2", "--json").json

    now = {"offline": 3, "under_min_isr": 2, "below_margin": 0, "unknown": 0}
    full = {"offline": 1, "under_min_isr": 0, "below_margin": 0, "unknown": 0}
    assert (steps[2]["now"], {name: steps[2][name] for name in full}) == (now, full)
    assert ({name: whatif[name] for name in now}, whatif["with_full_isr"], whatif["down"]) == (now, full, [3])
    assert steps[2]["reason"].endswith(
        "; even with full ISRs: 1 offline; with the present ISRs: 3 offline, 2 under min ISR"
    )
    assert "with full ISRs, once broker 3 is back: 1 offline, 0 under min ISR, 0 below the margin" in ran.stdout
    assert "restarting broker 2 is unsafe: 3 offline, 2 under min ISR, 0 below the margin, 0 unknown" in ran.stdout


def test_order_as_people_read_it(tree: KafkaTree, surveyor: Surveyor) -> None:
    shown = surveyor("whatif", "--restart-order", "--margin", "1")
    assert shown.code == 0
    assert f"wave 2: surveyor whatif --restart 2 --margin 1 --zookeeper {tree.hosts}" in shown.stdout
    assert "even with full ISRs a restart leaves partitions below the margin, so its check will fail" in shown.stdout
    assert "4 brokers in 4 waves; the next wave starts only when all ISRs are full" in shown.stdout


def test_an_old_spelling_shows_the_order_too(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "restarts", "--margin", "1", "--json")
    assert ran.json["rows"] == surveyor.json("whatif", "--restart-order", "--margin", "1")["rows"]
    assert "`plan restarts` is an old spelling, which the next release removes: use `surveyor whatif" in ran.stderr
    assert "restarts" not in surveyor("plan", "--help").stdout


OF_CONTROLLERS: list[tuple[str, dict[int, int | None], str, int]] = [
    ("one of three", {7: 0, 8: 400, 9: 0}, "7", SAFE),
    ("two of three", {7: 0, 8: 400, 9: 0}, "7,8", UNSAFE),
    ("one that is down", {7: 0, 8: 90_000, 9: 0}, "8", UNKNOWN),
    ("a broker", {7: 0, 8: 90_000, 9: 0}, "2", SAFE),
    ("a voter with a replica, whose broker is down", {5: 0, 8: 400, 9: 0}, "5", UNKNOWN),
]


@pytest.mark.parametrize("case", [pytest.param(case[1:], id=case[0]) for case in OF_CONTROLLERS])
def test_controllers_that_are_no_brokers(
    tree: KafkaTree, surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch, case: tuple[dict[int, int | None], str, int]
) -> None:
    """The quorum decides about them; none is in the order of brokers, in which no broker is the controller."""
    lags, restart, code = case
    tree.add_topic("audit", {0: [2, 3, 5, 1]})

    def of_kraft(settings: Settings) -> RestartFacts:
        facts = read_facts(settings)
        voters = [Voter(voter_id=voter, lag_ms=lag) for voter, lag in lags.items()]
        return replace(facts, view=replace(facts.view, controller_id=9, voters=voters))

    for command in ("restart_safety", "restart_order"):
        monkeypatch.setattr(f"jobs.planning.{command}.read_facts", of_kraft)
    ran = surveyor("whatif", "--restart", restart, "--json")
    assert (ran.code, ran.json["rows"]) == (code, []), ran.stdout
    is_down = {5} | {node for node, lag in lags.items() if lag == 90_000}
    assert all(row["is_live"] == (row["broker_id"] not in is_down) for row in ran.json["brokers"])
    order = surveyor.json("whatif", "--restart-order")
    assert [row["broker_id"] for row in order["rows"]] == [5, 0, 1, 2, 3]
    assert not any(row["is_controller"] or row["loses_quorum"] for row in order["rows"])
    (warning,) = (text for text in order["warnings"] if "the order has brokers only" in text)
    assert ("controllers 7, 8, 9" if 7 in lags else "controllers 8, 9") in warning
