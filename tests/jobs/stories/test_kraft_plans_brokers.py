"""Plans in a real KRaft cluster: what changes meanwhile, topics, commands that are killed, the lease, the quorum.

`test_moves_brokers.py` has what is the same in clusters of both kinds.
"""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jobs.adapters.brokers.admin_client import Admin, connected_admin
from jobs.adapters.brokers.kafka_python_client import connected_broker
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.delta.warehouse_lease import WarehouseLease
from jobs.adapters.kraft.session import open_session
from jobs.adapters.kraft.topics import read_named_partitions
from jobs.execution.admin.controller_client import request_changes
from jobs.repositories.actor import this_process
from schemas.rows import Key
from tests.jobs.execution.killed.crash_runner import sampled_points
from tests.jobs.support.kafka.planned_kafka import APPLY, RACKS, SLOW, KRaftKafka, committed, election, kraft_kafka
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.torture.faults import pids_of, stopped
from tests.jobs.torture.kraft_rounds import SCRIPT, prepare, run_round
from tests.jobs.torture.kraft_torture_cluster import SmallKRaftTortureCluster
from tests.jobs.torture.metadata_log import read_log
from tests.jobs.torture.traffic import Traffic

pytestmark = pytest.mark.usefixtures("spark")

MAX_STATUS_SECONDS = 9.0
"""With a broker that hangs: its head start, and twice the limit of a connection to it."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KRaftKafka]:
    with kraft_kafka(tmp_path_factory.mktemp("kraft")) as running:
        yield running


def test_a_new_leader_is_a_change_since_the_plan(kafka: KRaftKafka, tmp_path: Path) -> None:
    """The replicas are as planned, and the leader epoch is not."""
    kafka.create({"led": [[1, 2]]})
    plan = kafka.plan("led", "reassign", *kafka.targets(tmp_path, ("led", 0, [3, 2])))
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        for order in ([2, 1], [1, 2]):
            assert admin.reassign({("led", 0): order}) == {("led", 0): 0}
            assert admin.elect_preferred([("led", 0)]) == {("led", 0): 0}
    ran = kafka.surveyor("commit", "led", *APPLY, "--json")
    assert (ran.code, ran.json["stale"]) == (21, 1), ran
    (stale,) = kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan))
    assert stale["message"].startswith("changed since the plan: leader epoch 0→"), stale
    assert eventually(lambda: kafka.replicas("led") == {0: [1, 2]})


def test_what_changes_between_the_last_check_and_the_request_is_said(
    kafka: KRaftKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client changes the leader in these milliseconds; the move is accepted, and read back."""
    kafka.create({"meanwhile": [[1, 2]]})
    kafka.fill("meanwhile", 5)
    plan = kafka.plan("meanwhile", "reassign", *kafka.targets(tmp_path, ("meanwhile", 0, [1, 3])))

    reassign, order = Admin.reassign, {("meanwhile", 0): [2, 1]}

    def meanwhile(controller: Admin, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        if targets != order:
            with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
                assert admin.reassign(order) == {("meanwhile", 0): 0}
                assert admin.elect_preferred([("meanwhile", 0)]) == {("meanwhile", 0): 0}
        return reassign(controller, targets)

    monkeypatch.setattr(Admin, "reassign", meanwhile)
    ran = kafka.surveyor("commit", "meanwhile", *APPLY, "--wait", "--throttle", "500kB/s")
    assert ran.code == 0, ran
    assert "meanwhile-0: accepted; changed at the same time: leader 1→2, leader epoch 0→" in ran.stderr
    rows = kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan))
    (applied,) = (row for row in rows if row["action"] == "reassign" and row["outcome"] == "applied")
    assert "changed at the same time: leader 1→2" in applied["message"]
    assert eventually(lambda: kafka.replicas("meanwhile") == {0: [1, 3]})


def _unions(kafka: KRaftKafka, keys: list[Key], assigned: set[tuple[int, ...]], ended: Event) -> list[list[int]]:
    """Read the partitions from the broker that applies most changes; return what is neither assigned nor moving."""
    found, readings = [], 0
    with connected_broker(kafka.cluster.nodes[3].address, {}) as send:
        while not ended.is_set() or not readings:
            topics = read_named_partitions(open_session(send), keys)
            rows = [row for topic in topics.values() for row in topic.partitions if row.understood]
            assert rows, "nothing was understood"
            found += [row.replicas for row in rows if not row.adding_replicas and tuple(row.replicas) not in assigned]
            readings += 1
    return found


def test_many_fast_moves_and_their_rollback_succeed(kafka: KRaftKafka, tmp_path: Path) -> None:
    """Brokers apply the ends of moves later than the controller lists them: the replicas before and after count never
    as an assignment.
    """
    topics = {f"fast{number}": [[1, 2]] * 40 for number in range(4)}
    kafka.create(topics)
    keys = [(topic, number) for topic in topics for number in range(40)]
    kafka.plan("fast", "reassign", *kafka.targets(tmp_path, *((*key, [3, 1]) for key in keys)))
    ended = Event()
    with ThreadPoolExecutor(1) as pool:
        unions = pool.submit(_unions, kafka, keys, {(1, 2), (3, 1)}, ended)
        try:
            for command in ("commit", "rollback"):
                ran = kafka.surveyor(command, "fast", *APPLY, "--throttle", "20MB/s", "--json")
                assert (ran.code, ran.json["applied"], ran.json["failed"]) == (0, len(keys), 0), ran
                assert eventually(lambda: not kafka.moving())
        finally:
            ended.set()
    assert unions.result() == []


def test_batch_mode_is_refused_in_one_line(kafka: KRaftKafka, tmp_path: Path) -> None:
    kafka.create({"mode": [[1, 2]]})
    plan = kafka.plan("mode", *election(tmp_path, "mode"))
    ran = kafka.surveyor("commit", plan, "--mode", "batch", *APPLY)
    assert (ran.code, len(ran.stderr.strip().splitlines())) == (23, 1), ran
    assert "a KRaft cluster has no" in ran.stderr


COMMIT_LOG = "jobs.repositories.plans.commit_log.CommitLog"
ADMIN_COMMIT = "jobs.execution.admin.admin_commit"

BEFORE_REQUEST = {
    "before the lease": ("jobs.execution.commit", "lease_for"),
    "before the intents": (COMMIT_LOG, "append_intents"),
    "before the request": (ADMIN_COMMIT, "request_changes"),
}
AFTER_REQUEST = {
    "after the request": (ADMIN_COMMIT, "record_concurrent_changes"),
    "before the outcomes": (COMMIT_LOG, "close"),
}
"""Functions that a commit calls, in this order, before and after it requests a change."""

KILLED_AT = {
    "before the intents": BEFORE_REQUEST["before the intents"],
    "before the throttle": (ADMIN_COMMIT, "set_throttle"),
    "before the request": BEFORE_REQUEST["before the request"],
    "after the request": AFTER_REQUEST["after the request"],
    "before the throttle is removed": (ADMIN_COMMIT, "end_throttle"),
}
"""Functions that a commit of throttled moves calls, in this order."""


def killing(owner: str, name: str, calls: int = 1) -> str:
    """Code that makes a process kill itself at the last of so many calls of a function; its lease ends soon after."""
    module, _, attribute = owner.rpartition(".") if owner == COMMIT_LOG else (owner, "", "")
    target = f"importlib.import_module({module!r})" + (f".{attribute}" if attribute else "")
    is_last = f"calls.append(1) or len(calls) == {calls}"
    die = f"lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL) if {is_last} else call(*given, **named)"
    brief = (
        "from jobs.adapters.delta.warehouse_lease import WarehouseLease as lease\n"
        "lease.lease_seconds, lease.renewal_seconds, lease.margin_seconds = 3.0, 1.0, 1.0"
    )
    call = f"calls, call = [], getattr({target}, {name!r})"
    return f"{brief}\nimport importlib, os, signal\n{call}\nsetattr({target}, {name!r}, {die})"


def kill_at(kafka: KRaftKafka, point: tuple[str, str], *command: str, calls: int = 1) -> None:
    """Run a command that is killed when it calls a function, at the last of so many calls."""
    dying = kafka.process(*command, prelude=killing(*point, calls))
    _, stderr = dying.communicate(timeout=120)
    assert dying.returncode == -signal.SIGKILL, stderr


def last_outcomes(kafka: KRaftKafka, plan: str, *actions: str) -> list[str]:
    """The outcomes of the last attempt of a plan, without its intents."""
    rows = [row for row in kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan)) if row["action"] in actions]
    last = max(row["attempt"] for row in rows)
    return [row["outcome"] for row in rows if row["attempt"] == last and row["outcome"] != "pending"]


def test_a_killed_commit_is_run_again(kafka: KRaftKafka, tmp_path: Path) -> None:
    """The same command does the rest, and nothing twice; its lease and throttle are not left behind."""
    for number, point in enumerate(sampled_points([*KILLED_AT], 1)):
        topic = f"killed{number}"
        kafka.create({topic: [[1, 2], [1, 2]]})
        goals = kafka.targets(tmp_path, (topic, 0, [3, 2]), (topic, 1, [3, 2]))
        plan = kafka.plan(topic, "reassign", *goals, "--max-moves-per-broker", "1")
        command = ["commit", topic, *APPLY, "--wait", "--throttle", "50MB/s"]
        kill_at(kafka, KILLED_AT[point], *command)
        committed(kafka.surveyor(*command, "--json"))
        assert eventually(lambda: kafka.replicas(topic) == {0: [3, 2], 1: [3, 2]}), point  # noqa: B023 - waited for here
        assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3), point
        assert (kafka.surveyor.warehouse.rows("throttles"), kafka.surveyor.warehouse.rows("leases")) == ([], []), point
        assert last_outcomes(kafka, plan, "reassign") == ["applied"] * 2, point


Topic = tuple[str | None, int, dict[str, str | None] | None]
"""Id, number of partitions, and config of a topic."""

TOPIC_COMMITS = {
    "create": (["assign", "--partitions", "2", "--replication-factor", "2", "--topic"], 2),
    "expand": (["expand", "--partitions", "4", "--topic"], 2),
    "config": (["config", "--set", "retention.ms=3600000", "--topic"], 1),
    "delete": (["delete", "--topics"], 1),
}
"""Questions that end with the name of the topic, and the number of changes of their plans."""


def topic_now(kafka: KRaftKafka, name: str) -> Topic | None:
    """The topic as brokers know it that have caught up with the quorum; None if there is none."""
    with KRaftCluster(kafka.surveyor.hosts, kafka.surveyor.warehouse) as reader:
        reader.sync()
        reading = reader.read_topics([name])
    return next(((row.topic_id, len(reading.partitions), row.config) for row in reading.topics), None)


def is_carried_out(kind: str, before: Topic | None, now: Topic | None) -> bool:
    """Whether the cluster has what a plan of that kind asks for, in the topic that it was made for."""
    if kind == "delete" or now is None:
        return kind == "delete" and now is None
    if before is None:
        return now[1:] == (2, {})
    return now == (before[0], 4 if kind == "expand" else 2, {"retention.ms": "3600000"} if kind == "config" else {})


def test_a_killed_commit_of_a_topic_is_run_again(kafka: KRaftKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was requested is not requested again; a topic that another client creates meanwhile is left alone."""
    requests: list[int] = []

    def counted(*arguments: Any) -> None:  # noqa: ANN401 - those of the original
        requests.append(1)
        request_changes(*arguments)

    monkeypatch.setattr("jobs.execution.admin.admin_commit.request_changes", counted)
    places = [*product(TOPIC_COMMITS, [*BEFORE_REQUEST, *AFTER_REQUEST])]
    for number, (kind, point) in enumerate(sampled_points(places, 2)):
        question, changes = TOPIC_COMMITS[kind]
        topic = f"{kind}d{number}"
        kafka.snapshot() if kind == "create" else kafka.create({topic: [[1, 2], [2, 3]]})
        before = topic_now(kafka, topic)
        plan = kafka.plan(topic, *question, topic)
        requests.clear()
        kill_at(kafka, (BEFORE_REQUEST | AFTER_REQUEST)[point], "commit", topic, *APPLY)
        between = topic_now(kafka, topic)
        is_requested = point in AFTER_REQUEST
        assert (between == before, is_carried_out(kind, before, between)) == (not is_requested, is_requested), point
        committed(kafka.surveyor("commit", topic, *APPLY, "--json"))
        after = topic_now(kafka, topic)
        assert (len(requests), after == between) == (int(not is_requested), is_requested), point
        assert is_carried_out(kind, before, after), (point, before, after)
        assert eventually(lambda: kafka.lease_holder() is None)  # a commit with nothing to do takes no lease
        assert last_outcomes(kafka, plan, *PLAN_ACTIONS) == ["applied"] * changes, point


PLAN_ACTIONS = ("create", "alter_config", "delete_topic", "elect_preferred", "elect", "reassign")

Led = dict[int, tuple[int | None, int, list[int]]]
"""Leader, leader epoch and replicas of each partition."""


def led_now(kafka: KRaftKafka, topic: str) -> Led:
    """The partitions as brokers know them that have caught up with the quorum."""
    with KRaftCluster(kafka.surveyor.hosts, kafka.surveyor.warehouse) as reader:
        reader.sync()
        rows = reader.read_topics([topic]).partitions
    return {row.partition: (row.leader, row.leader_epoch or 0, row.replicas) for row in rows}


def run_again(kafka: KRaftKafka, monkeypatch: pytest.MonkeyPatch, topic: str, plan: str, *more: str) -> int:
    """Commit a plan again after a commit of it was killed; return how many waves that requested."""
    waves: list[int] = []

    def counted(*arguments: Any) -> None:  # noqa: ANN401 - those of the original
        waves.append(1)
        request_changes(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("jobs.execution.admin.admin_commit.request_changes", counted)
        committed(kafka.surveyor("commit", topic, *APPLY, *more, "--json"))
    assert {*last_outcomes(kafka, plan, *PLAN_ACTIONS)} == {"applied"}
    assert eventually(lambda: kafka.lease_holder() is None)  # a commit with nothing to do takes no lease
    return len(waves)


def test_a_killed_election_is_run_again(kafka: KRaftKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition gets its preferred leader once: its leader epoch grows by one."""
    for number, point in enumerate(sampled_points([*BEFORE_REQUEST, *AFTER_REQUEST], 1)):
        topic = f"elected{number}"
        kafka.create({topic: [[1, 2]]})
        with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
            assert admin.reassign({(topic, 0): [2, 1]}) == {(topic, 0): 0}
        assert eventually(lambda: led_now(kafka, topic)[0][::2] == (1, [2, 1]))  # noqa: B023 - waited for here
        ((_, epoch, _),) = led_now(kafka, topic).values()
        plan = kafka.plan(topic, *election(tmp_path, topic))
        kill_at(kafka, (BEFORE_REQUEST | AFTER_REQUEST)[point], "commit", topic, *APPLY)
        is_requested = point in AFTER_REQUEST
        elected = {0: (2, epoch + 1, [2, 1])}
        assert led_now(kafka, topic) == (elected if is_requested else {0: (1, epoch, [2, 1])}), point
        assert run_again(kafka, monkeypatch, topic, plan) == int(not is_requested), point
        assert led_now(kafka, topic) == elected, point


DRAIN_KILLED_AT = {
    **{point: (place, 1, 2) for point, place in BEFORE_REQUEST.items()},
    "after the request": (AFTER_REQUEST["after the request"], 1, 1),
    "before the elections": (BEFORE_REQUEST["before the request"], 2, 1),
    "after the elections": (AFTER_REQUEST["after the request"], 2, 0),
    "before the outcomes": (AFTER_REQUEST["before the outcomes"], 1, 0),
}
"""Functions that a commit of a drain calls, in this order, at which of their calls it is killed, and how many of its
two waves are left to request: the order of the replicas, then elections.
"""


def test_a_killed_drain_is_run_again(kafka: KRaftKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 is moved to the end of each list once, then another one leads: the leader epoch grows by one."""
    for number, point in enumerate(sampled_points([*DRAIN_KILLED_AT], 1)):
        delete_topics(kafka)
        topic = f"drained{number}"
        kafka.create({topic: [[1, 2], [1, 3]]})
        before = led_now(kafka, topic)
        place, calls, waves_left = DRAIN_KILLED_AT[point]
        plan = kafka.plan(topic, "drain", "--brokers", "1")
        kill_at(kafka, place, "commit", topic, *APPLY, "--wait", calls=calls)
        assert run_again(kafka, monkeypatch, topic, plan, "--wait") == waves_left, point
        drained = {partition: (other, before[partition][1] + 1, [other, 1]) for partition, other in ((0, 2), (1, 3))}
        assert eventually(lambda: led_now(kafka, topic) == drained), (point, led_now(kafka, topic))  # noqa: B023
        assert kafka.surveyor.json("verify", topic)["is_complete"], point
        assert [row["broker_id"] for row in kafka.surveyor.warehouse.rows("drained")] == [1], point
        kafka.plan(f"un{topic}", "undrain", "--brokers", "1")
        committed(kafka.surveyor("commit", f"un{topic}", *APPLY, "--wait", "--json"))
        assert kafka.surveyor.warehouse.rows("drained") == []


def delete_topics(kafka: KRaftKafka) -> None:
    """Delete the topics of other tests, which a drain would concern."""
    topics = [*kafka.admin.list_topics(timeout=90).topics]
    for deleted in kafka.admin.delete_topics(topics).values() if topics else ():
        deleted.result(30)
    assert eventually(lambda: not kafka.admin.list_topics(timeout=90).topics)


ROLLBACK_KILLED_AT = {
    "before its plan is stored": ("jobs.execution.rollback", "store"),
    "before its commit": ("jobs.execution.commit", "apply_plan"),
    **{point: place for point, place in (BEFORE_REQUEST | AFTER_REQUEST).items() if point != "before the lease"},
    "before the plan is closed": ("jobs.execution.verification", "close_rolled_back"),
}
"""Functions that a rollback calls, in this order."""


def test_a_killed_rollback_rolls_its_plan_back(kafka: KRaftKafka, tmp_path: Path) -> None:
    """The plan of the rollback is made once."""
    for number, point in enumerate(sampled_points([*ROLLBACK_KILLED_AT], 1)):
        topic = f"there{number}"
        kafka.create({topic: [[1, 2], [2, 3]]})
        plan = kafka.plan(topic, "reassign", *kafka.targets(tmp_path, (topic, 0, [3, 2]), (topic, 1, [2, 1])))
        committed(kafka.surveyor("commit", topic, *APPLY, "--wait", "--json"))
        command = ["rollback", topic, "--name", f"back{number}", *APPLY]
        kill_at(kafka, ROLLBACK_KILLED_AT[point], *command)
        assert kafka.surveyor.json(*command)["status"] == "committed", point
        assert eventually(lambda: kafka.replicas(topic) == {0: [1, 2], 1: [2, 3]})  # noqa: B023 - waited for here
        assert eventually(lambda: kafka.surveyor.json("verify", f"back{number}")["complete"] == 2)  # noqa: B023
        plans = kafka.surveyor.warehouse.rows("plans")
        assert [row["status"] for row in plans if row["plan_id"] == plan] == ["rolled_back"], point
        assert len([row for row in plans if f'"rollback_of": "{plan}"' in row["parameters"]]) == 1, point
        assert eventually(lambda: kafka.lease_holder() is None)  # a commit with nothing to do takes no lease


CANCELLATION_KILLED_AT = {
    "before the lease": ("jobs.execution.cancellation", "lease_for"),
    "after the requests": ("jobs.execution.cancellation", "end_throttle"),
}


@pytest.mark.parametrize("point", CANCELLATION_KILLED_AT)
def test_a_killed_cancellation_is_run_again(kafka: KRaftKafka, tmp_path: Path, point: str) -> None:
    topic = f"recalled{[*CANCELLATION_KILLED_AT].index(point)}"
    kafka.create({topic: [[1, 2]]})
    kafka.fill(topic, 10)
    kafka.plan(topic, "reassign", *kafka.targets(tmp_path, (topic, 0, [3, 2])))
    assert kafka.surveyor("commit", topic, *APPLY, "--wait", "--throttle", SLOW, "--max-wait", "1s").code == 25
    kill_at(kafka, CANCELLATION_KILLED_AT[point], "cancel", topic, *APPLY)
    assert eventually(lambda: kafka.surveyor("cancel", topic, *APPLY).code == 0)
    assert eventually(lambda: (kafka.moving(), kafka.replicas(topic)) == ({}, {0: [1, 2]}))
    ran = kafka.surveyor("commit", topic, *APPLY)
    assert ran.code in {0, 23}, ran  # a closed plan: only its throttle is maintained
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert (kafka.surveyor.warehouse.rows("throttles"), kafka.surveyor.warehouse.rows("leases")) == ([], [])


OFTEN = "from jobs.adapters.delta.warehouse_lease import WarehouseLease; WarehouseLease.renewal_seconds = 1.0"
"""Code that makes a process renew its lease each second, not each ten: others see sooner that it lives, or it that its
lease was taken.
"""


def test_two_commands_at_once_are_kept_apart(kafka: KRaftKafka, tmp_path: Path) -> None:
    """The second is refused with the holder of the lease and its deadline; the first continues."""
    kafka.create({"apart": [[1, 2]]})
    kafka.fill("apart", 20)
    kafka.plan("apart", "reassign", *kafka.targets(tmp_path, ("apart", 0, [3, 2])))
    first = kafka.process("commit", "apart", *APPLY, "--wait", "--throttle", SLOW, "--max-wait", "60s", prelude=OFTEN)
    try:
        assert eventually(lambda: bool(kafka.moving()))
        second = kafka.surveyor("commit", "apart", *APPLY, "--throttle", "none")
        assert second.code == 23, second
        assert f"(process {first.pid})" in second.stderr
        assert " until " in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        _, stderr = first.communicate(timeout=60)
    assert first.returncode == 25, stderr
    kafka.surveyor.json("cancel", "apart", *APPLY)
    assert eventually(lambda: kafka.replicas("apart") == {0: [1, 2]})


def test_a_holder_whose_lease_was_taken_stops_before_its_next_write(kafka: KRaftKafka, tmp_path: Path) -> None:
    """As if it had been stopped beyond its deadline; the first wave stays, the second is not requested."""
    kafka.create({"taken": [[1, 2], [1, 2]]})
    kafka.fill("taken", 10)
    goals = kafka.targets(tmp_path, ("taken", 0, [3, 2]), ("taken", 1, [3, 2]))
    plan = kafka.plan("taken", "reassign", *goals, "--max-moves-per-broker", "1")
    first = kafka.process("commit", "taken", *APPLY, "--wait", "--throttle", "500kB/s", prelude=OFTEN)
    assert eventually(lambda: bool(kafka.moving()))
    (row,) = kafka.surveyor.warehouse.rows("leases")
    past = datetime.now(UTC) - timedelta(seconds=1)
    kafka.surveyor.warehouse.replace("leases", [{**row, "deadline": past, "token": "expired"}])
    other = WarehouseLease(kafka.surveyor.warehouse, this_process("cancel", "other"), print)
    other.acquire(0.0)
    _, stderr = first.communicate(timeout=180)
    assert first.returncode == 25, stderr
    assert "the lease of this cluster in table leases was lost" in stderr
    requested = {key for key in kafka.moving() if key[0] == "taken"}
    assert ("taken", 1) not in requested
    assert eventually(lambda: kafka.replicas("taken")[1] == [1, 2])
    other.release()
    committed(kafka.surveyor("commit", plan, *APPLY, "--wait", "--throttle", "none", "--json"))
    assert eventually(lambda: kafka.replicas("taken") == {0: [3, 2], 1: [3, 2]})


def quorum_leader(kafka: KRaftKafka) -> int:
    return int(kafka.surveyor.json("snapshot")["controller_id"])


def test_the_quorums_leader_is_killed_in_the_middle_of_a_commit(kafka: KRaftKafka, tmp_path: Path) -> None:
    """Right before the second wave is requested. Whatever the outcome of that run, running it again ends the plan."""
    leader = quorum_leader(kafka)
    source, goal = (node for node in kafka.cluster.nodes if node != leader)
    kafka.create({"quorum": [[source], [source]]})
    goals = kafka.targets(tmp_path, ("quorum", 0, [goal]), ("quorum", 1, [goal]))
    kafka.plan("quorum", "reassign", *goals, "--max-moves-per-broker", "1")
    flag, go = tmp_path / "reached", tmp_path / "go"
    prelude = f"""
import pathlib, time
from jobs.execution.admin import admin_commit as commit
ask, asked = commit.request_changes, []
def meeting(*arguments):
    asked.append(1)
    if len(asked) == 2:
        pathlib.Path({str(flag)!r}).touch()
        while not pathlib.Path({str(go)!r}).exists():
            time.sleep(0.05)
    return ask(*arguments)
commit.request_changes = meeting
"""
    running = kafka.process("commit", "quorum", *APPLY, "--wait", "--json", prelude=prelude)
    try:
        assert eventually(flag.exists)
        kafka.cluster.nodes[leader].kill()
        go.touch()
        stdout, stderr = running.communicate(timeout=180)
        assert running.returncode in {0, 1, 25}, stderr
        if running.returncode == 0:
            assert json.loads(stdout)["status"] == "committed"
        assert eventually(lambda: kafka.surveyor("commit", "quorum", *APPLY, "--wait", "--json").code == 0)
        verified = kafka.surveyor.json("verify", "quorum")
        assert verified["complete"] == 2
    finally:
        running.kill()
        kafka.cluster.nodes[leader].start()
        kafka.cluster.nodes[leader].wait_ready()
    assert eventually(lambda: kafka.replicas("quorum") == {0: [goal], 1: [goal]})


def test_a_stopped_broker_holds_up_no_command(kafka: KRaftKafka, tmp_path: Path) -> None:
    """It is the first address, and does not lead the quorum."""
    leader = quorum_leader(kafka)
    silent, other = (node for node in kafka.cluster.nodes if node != leader)
    kafka.create({"copied": [[other]]})
    kafka.plan("copied", "reassign", *kafka.targets(tmp_path, ("copied", 0, [leader])))
    addresses = ",".join(kafka.cluster.nodes[node].address for node in (silent, other, leader))
    surveyor = replace(kafka.surveyor, hosts=addresses)
    began = time.monotonic()
    with stopped(pids_of(kafka.cluster.nodes[silent])):
        status = surveyor.json("status")
        seconds = time.monotonic() - began
        ran = surveyor("commit", "copied", *APPLY, "--wait")
    assert (status["controller_id"], ran.code) == (leader, 0), ran
    assert seconds < MAX_STATUS_SECONDS
    # the node that was stopped answers too, and reads what it missed
    assert eventually(lambda: kafka.replicas("copied") == {0: [leader]})


def elect_uncleanly_killed(
    kafka: KRaftKafka, monkeypatch: pytest.MonkeyPatch, topic: str, point: str, leader: int
) -> None:
    """Plan an unclean election, kill its commit, and run it again."""
    plan = kafka.plan(topic, "recover", "--partition", f"{topic}-0")
    before = led_now(kafka, topic)
    ((_, epoch, replicas),) = before.values()
    kill_at(kafka, (BEFORE_REQUEST | AFTER_REQUEST)[point], "commit", topic, *APPLY)
    is_requested = point in AFTER_REQUEST
    elected = {0: (leader, epoch + 1, replicas)}
    assert led_now(kafka, topic) == (elected if is_requested else before), point
    assert run_again(kafka, monkeypatch, topic, plan) == int(not is_requested), point
    assert led_now(kafka, topic) == elected, point


def test_an_unclean_election_is_kafkas_own(kafka: KRaftKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica in sync is dead, and the other lacks its records: only with a permission in the plan.

    Its commit is killed, and run again; with KILL_POINTS=all at each step, each with a topic of its own.
    """
    points = sampled_points([*BEFORE_REQUEST, *AFTER_REQUEST], 1)
    killed_at = {f"unclean{number}": point for number, point in enumerate(points)}
    in_sync, behind, other = kafka.cluster.nodes
    left = [kafka.cluster.nodes[node].address for node in (behind, other)]

    def alive() -> list[set[int]]:
        return [
            {row.broker_id for row in KRaftCluster(address, kafka.surveyor.warehouse).read_brokers()[1]}
            for address in left
        ]

    topics = ["unclean", *killed_at]
    kafka.create({topic: [[in_sync, behind]] for topic in topics})
    kafka.cluster.nodes[behind].kill()
    assert eventually(lambda: all(kafka.partitions(topic)[0][2] == {in_sync} for topic in topics))
    for topic in topics:
        kafka.fill(topic, 1)
    kafka.cluster.nodes[in_sync].kill()
    kafka.cluster.nodes[behind].start()
    kafka.cluster.nodes[behind].wait_ready()
    try:
        assert eventually(lambda: alive() == [{behind, other}] * 2)
        assert eventually(lambda: kafka.partitions("unclean")[0][0] == -1)
        only = [*election(tmp_path, "unclean")[2:]]
        clean = kafka.surveyor.json("plan", "recover", *only)
        assert (clean["changes"], clean["rejected"]) == (0, 1)
        assert kafka.surveyor.json("plan", "recover", "--allow-unclean", *only, "--name", "unclean")["changes"] == 1
        (evidence,) = kafka.surveyor.json("show", "evidence", "unclean")["rows"]
        assert [evidence[name] for name in ("broker_id", "chosen", "kafkas_choice")] == [behind, True, True]
        dry = kafka.surveyor("commit", "unclean", "--json")
        assert (dry.json["due"], kafka.partitions("unclean")[0][0]) == (1, -1)
        assert any("unclean" in warning for warning in dry.json["warnings"]), dry.json["warnings"]
        assert committed(kafka.surveyor("commit", "unclean", *APPLY, "--json"))["applied_now"] == 1
        assert eventually(lambda: kafka.partitions("unclean")[0][0] == behind)
        assert kafka.surveyor.json("verify", "unclean")["complete"] == 1
        for topic, point in killed_at.items():
            elect_uncleanly_killed(kafka, monkeypatch, topic, point, behind)
    finally:
        kafka.cluster.nodes[in_sync].start()
        kafka.cluster.nodes[in_sync].wait_ready()
    again = kafka.surveyor("commit", "unclean", *APPLY, "--json")
    assert (again.code, again.json["applied_now"]) == (0, 0), again


def test_a_round_in_small(kafka: KRaftKafka, tmp_path: Path) -> None:
    """As tests/jobs/torture/test_kraft_rounds.py has them by chance, and with the same checks."""
    with SmallKRaftTortureCluster(kafka.cluster, tmp_path / "warehouse", tmp_path) as small:
        before = read_log(kafka.cluster.nodes[small.quorum_leader()].folder / "data")
        prepare(small)
        with Traffic(kafka.cluster.bootstrap) as traffic:
            result = run_round(small, traffic, SCRIPT, since=before[-1].offset + 1)
    assert result.wrong == [], result.summary
