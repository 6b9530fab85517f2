"""`surveyor control` as a command: dry run, apply until quiet or until stopped, and refusals."""

import gc
import json
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller import ResidentController
from jobs.core import logs
from jobs.core.errors import ExitCode
from schemas.znode_codecs import Assignment, decode_controller, encode_assignment, encode_controller
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

APPLY = ("control", "--apply", "--yes", "--allow-silent", "0,1,2")
"""Brokers that only listen return no settings."""


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    """On a cluster with a dead leader, and a topic without states."""
    tree.add_topic("orders", {0: [7, 1], 1: [0, 1]}, topic_id=None)
    tree.write("/brokers/topics/auto", encode_assignment(Assignment({0: [1, 2]}, {}, {}, None)))
    return Surveyor(tree.hosts, tmp_path / "w", pace=replace(NO_TAKEOVER, configs_again=0.2))


def test_dry_run_shows_due_changes_without_writing(tree: KafkaTree, surveyor: Surveyor) -> None:
    before = tree.dump()

    ran = surveyor("control")

    assert ran.code == 0
    assert "2 changes are due; nothing was written" in ran.stdout
    assert "orders-0: elect: broker 7 is not live; first live in-sync replica is 1" in ran.stdout
    assert "auto-0: create" in ran.stdout
    assert tree.dump() == before


def test_a_name_of_another_cluster_is_refused(tree: KafkaTree, surveyor: Surveyor) -> None:
    """The last states of partitions without one are taken from the history of that name."""
    write_first_snapshot(surveyor)
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    before = tree.dump()

    for command in (("control",), APPLY):
        ran = surveyor(*command)
        assert ran.code == ExitCode.REFUSED
        assert "that of AAAAAAAAAAAAAAAAAAAAAA; check the address" in ran.stderr
    assert tree.dump() == before


def test_reading_the_cluster_exempts_nothing_from_garbage_collection(surveyor: Surveyor) -> None:
    """A standby reads it every five minutes, for weeks: what is frozen each time would never be freed."""
    before = gc.get_freeze_count()

    assert surveyor("control").code == 0
    assert (gc.get_freeze_count(), gc.isenabled()) == (before, True)


def test_apply_resigns_once_nothing_is_due(tree: KafkaTree, surveyor: Surveyor) -> None:
    summary = surveyor.json(*APPLY, "--until-quiet")

    assert (summary["elect"], summary["create"], summary["stale"]) == (1, 1, 0)
    assert (tree.state("orders").leader, tree.state("auto").leader) == (1, 1)
    assert tree.client.exists("/controller") is None
    assert surveyor.rows("commits", "action", "outcome") == [
        ("create", "applied"),
        ("create", "pending"),
        ("elect", "applied"),
        ("elect", "pending"),
        ("hand_back", "applied"),
        ("take_over", "applied"),
    ]

    resumed = surveyor.json(*APPLY, "--until-quiet")
    assert resumed.keys().isdisjoint({"elect", "create"})


def test_partition_with_a_recorded_state_is_not_new(tree: KafkaTree, surveyor: Surveyor) -> None:
    write_first_snapshot(surveyor)
    tree.client.delete("/brokers/topics/orders/partitions/1/state")

    ran = surveyor(*APPLY, "--until-quiet")

    assert ran.code == 0
    assert "orders-1 has no state znode and had one" in ran.stderr
    assert tree.client.exists("/brokers/topics/orders/partitions/1/state") is None
    assert tree.state("orders", 0).leader == 1


class Cycles:
    """Runs the cycles of controllers, by a function that a test may replace."""

    own = ResidentController.cycle

    def __init__(self) -> None:
        self.run: Callable[[ResidentController], bool] = Cycles.own

    def after_quiet(self, action: Callable[[], None]) -> None:
        """Run `action` after a cycle in which nothing was due; the controller continues."""

        def cycle_then(controller: ResidentController) -> bool:
            if not Cycles.own(controller):
                action()
            return True

        self.run = cycle_then


@pytest.fixture
def cycles(monkeypatch: pytest.MonkeyPatch) -> Cycles:
    made = Cycles()

    def cycle(controller: ResidentController) -> bool:
        return made.run(controller)

    monkeypatch.setattr(ResidentController, "cycle", cycle)
    return made


def test_stop_signal_makes_it_resign(tree: KafkaTree, surveyor: Surveyor, cycles: Cycles) -> None:
    holders: list[int] = []

    def cycle(_: ResidentController) -> bool:
        holders.append(decode_controller(tree.client.get("/controller")[0]).broker_id)
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    cycles.run = cycle
    rescue = Timer(60, os.kill, (os.getpid(), signal.SIGTERM))
    rescue.start()

    ran = surveyor(*APPLY)

    rescue.cancel()
    assert ran.code == 143
    assert holders == [2147483647]
    assert "resigned: " in ran.stdout
    assert tree.client.exists("/controller") is None


def test_fenced_controller_reports_totals_and_successor(tree: KafkaTree, surveyor: Surveyor, cycles: Cycles) -> None:
    cycles.after_quiet(lambda: tree.elect(2, epoch=99))

    ran = surveyor(*APPLY)

    assert ran.code == 20
    last_line = ran.stderr.splitlines()[-1]
    assert "another controller took over after our epoch " in last_line
    assert "cycles wrote 1 create, 1 elect; broker 2 became the controller after " in last_line
    assert "plan again" not in ran.stderr
    ((last, reason),) = [
        row[1:] for row in surveyor.rows("commits", "action", "outcome", "message") if row[0] == "hand_back"
    ]
    assert last == "applied"
    assert "1 create, 1 elect; broker 2 became the controller" in reason


def fail(*_: object) -> None:
    raise SessionLostError("the connection to ZooKeeper was lost and our session with it", advice="commit again")


@pytest.mark.parametrize(("loss", "code"), [(ConnectionLoss, 0), (SessionExpiredError, 1)])
def test_connection_lost_during_initialization(
    tree: KafkaTree, surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch, loss: type[Exception], code: int
) -> None:
    """It starts again in the same session. Without its session it ends as it would later."""
    introduce, losses = BrokerRequestBatch.send_full_state, [loss()]

    def lose_once(batch: BrokerRequestBatch, broker_ids: Collection[int], *, have_started: bool = True) -> None:
        if losses:
            raise losses.pop()
        introduce(batch, broker_ids, have_started=have_started)

    monkeypatch.setattr(BrokerRequestBatch, "send_full_state", lose_once)
    if code:
        monkeypatch.setattr(Controllership, "await_reconnect", fail)

    ran = surveyor(*APPLY, "--until-quiet")

    assert ran.code == code, ran.stderr
    assert (tree.version("orders") > 0) is (code == 0)
    assert [row for row in surveyor.rows("commits", "action", "outcome") if row[0] == "hand_back"] == [
        ("hand_back", "applied")
    ]


def test_lost_session_reports_totals(surveyor: Surveyor, cycles: Cycles) -> None:
    cycles.after_quiet(fail)

    ran = surveyor(*APPLY)

    assert ran.code == 1
    last_line = ran.stderr.splitlines()[-1]
    assert "the connection to ZooKeeper was lost and our session with it; " in last_line
    assert "cycles wrote 1 create, 1 elect; no broker has become the controller yet" in last_line
    assert "commit again" not in ran.stderr


@pytest.mark.parametrize("is_ours", [True, False])
def test_its_own_former_session_is_no_successor(
    tree: KafkaTree, surveyor: Surveyor, cycles: Cycles, *, is_ours: bool
) -> None:
    """After an outage ZooKeeper may keep a session for a while that its client has given up."""
    cycle, session = Cycles.own, tree.client.client_id[0]

    def cycle_and_lose(controller: ResidentController) -> bool:
        if cycle(controller):
            return True
        keep_controller_in_session_of(tree)
        if is_ours:
            controller.control.session = session
        raise SessionLostError("the connection to ZooKeeper was lost and our session with it", advice="commit again")

    cycles.run = cycle_and_lose

    ran = surveyor(*APPLY)

    assert ran.code == 1
    last_line = ran.stderr.splitlines()[-1]
    former = f"no broker has become the controller yet: /controller still belongs to the former session 0x{session:x} "
    assert (former in last_line, "another Surveyor became the controller" in last_line) == (is_ours, not is_ours)


def keep_controller_in_session_of(tree: KafkaTree) -> None:
    """Let another session own /controller, with the id of Surveyor, at the same controller epoch."""
    tree.client.delete("/controller")
    tree.client.create("/controller", encode_controller(2147483647, 1_700_000_000_000), ephemeral=True)


def test_a_standby_waits_for_the_end_of_its_own_former_session(
    tree: KafkaTree, surveyor: Surveyor, cycles: Cycles
) -> None:
    terms, session = list[int](), tree.client.client_id[0]

    def cycle(controller: ResidentController) -> bool:
        terms.append(controller.control.epoch)
        if len(terms) == 1:
            keep_controller_in_session_of(tree)
            controller.control.session = session
            Timer(2, tree.client.delete, ("/controller",)).start()
            raise SessionLostError(
                "the connection to ZooKeeper was lost and our session with it", advice="commit again"
            )
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    cycles.run = cycle
    rescue = Timer(60, os.kill, (os.getpid(), signal.SIGTERM))
    rescue.start()

    ran = surveyor(*APPLY, "--standby")

    rescue.cancel()
    assert (ran.code, len(terms)) == (143, 2)
    assert f"standing by: /controller still belongs to the former session 0x{session:x} of this process" in ran.stderr
    assert "another Surveyor" not in ran.stderr


def test_with_a_log_in_json_the_end_is_a_record(surveyor: Surveyor) -> None:
    try:
        ran = surveyor(*APPLY, "--until-quiet", "--log-format", "json")
    finally:
        logs.configure(logs.LogLevel.INFO, logs.LogFormat.TEXT)

    assert (ran.code, ran.stdout) == (0, "")
    records = [json.loads(line) for line in ran.stderr.splitlines()]
    assert records[-1]["message"].startswith("resigned: ")
    assert {record["logger"].partition(".")[0] for record in records} == {"surveyor"}


def test_brokers_without_a_known_protocol_are_refused(tree: KafkaTree, surveyor: Surveyor) -> None:
    before = tree.dump()

    ran = surveyor("control", "--apply", "--yes")

    assert ran.code == 23
    assert "brokers 0,1,2 did not return their inter.broker.protocol.version" in ran.stderr
    assert tree.dump() == before


def test_id_of_a_broker_is_refused(tree: KafkaTree, surveyor: Surveyor) -> None:
    tree.register(2147483647)

    ran = surveyor("control", "--apply", "--yes", "--allow-silent", "0,1,2,2147483647")

    assert ran.code == 23
    assert "choose another controller_id" in ran.stderr
