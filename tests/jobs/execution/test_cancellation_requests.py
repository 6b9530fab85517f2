"""`surveyor cancel PLAN` and `surveyor cancel --partitions` alike: what is refused, judged again, and recorded."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE, ZnodeLease
from jobs.adapters.zookeeper.plan_submission import announce_resident
from jobs.core.errors import RefusedError, SurveyorError
from jobs.execution.admin import connections
from jobs.repositories.actor import this_process
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import Action, Step
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, delay_once
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"
DONE, ERROR, REFUSED, RUNNING = 0, 1, 23, 25
REQUEST = {"version": 1, "partitions": [{"topic": T, "partition": 2, "replicas": [2, 3]}]}
TOUCHED = ("/admin", "/admin/reassign_partitions", f"/brokers/topics/{T}")


@pytest.fixture
def plan_id(tree: KafkaTree, warehouse: Warehouse, controller: KafkaController, single_requests: None) -> str:  # noqa: ARG001 - for its effect
    """Partitions 0 to 2 move from [0, 1] to [2, 3]; a request is of one partition."""
    tree.register(3)
    tree.add_topic(T, {partition: [0, 1] for partition in range(3)})
    given = {"action": Action.REASSIGN.value, "replicas_after": [2, 3], "wave": 0, "leader_epoch_after": None}
    changes = [election(tree, T, partition, leader=0, **given) for partition in range(3)]
    stored = store_plan(warehouse, tree, changes, kind="reassign", name="moves", status="partial", moves=3)
    controller.reassign({(T, partition): [2, 3] for partition in range(3)})
    controller.requests.clear()
    return stored.plan_id


def broker_dies(tree: KafkaTree, controller: KafkaController) -> None:
    """0 was the only original replica of 1 in sync: the copies on 2 and 3 have the data alone."""
    tree.unregister(0)
    controller.set_state((T, 1), leader=2, isr=[2, 3])


def lease_is_lost(tree: KafkaTree, controller: KafkaController) -> None:
    del controller
    tree.client.delete(LEASE)


def control_begins(tree: KafkaTree, controller: KafkaController) -> None:
    del controller
    assert announce_resident(tree.client, this_process("control"))


def next_is_too_large(tree: KafkaTree, controller: KafkaController) -> None:
    del tree
    controller.before_request = raising(RefusedError("/admin/reassign_partitions would take 900,001 bytes"))


def next_fails(tree: KafkaTree, controller: KafkaController) -> None:
    del tree
    controller.before_request = raising(SurveyorError("/admin/reassign_partitions could not be written"))


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def answer_is_lost(tree: KafkaTree, controller: KafkaController) -> None:
    del tree, controller
    raise KafkaTimeoutError("after 20 s")


COMMANDS = pytest.mark.parametrize("subject", [["moves"], ["--partitions", f"{T}-0,{T}-1,{T}-2"]])
Event = Callable[[KafkaTree, KafkaController], object]


@dataclass
class Cancellation:
    """The command for the plan or its partitions, and what it recorded."""

    surveyor: Surveyor
    tree: KafkaTree
    plan_id: str
    subject: list[str]

    def run(self, *flags: str) -> Any:  # noqa: ANN401 - a Result of typer
        return self.surveyor.run("cancel", *self.subject, "--zookeeper", self.tree.hosts, *flags)

    @property
    def recorded(self) -> dict[int, tuple[str, str]]:
        """Outcome and message by partition."""
        return {
            row["partition"]: (row["outcome"], row["message"])
            for row in self.surveyor.warehouse.rows("commits")
            if row["action"] == Step.CANCEL and row["partition"] is not None and row["outcome"] != "pending"
        }


@pytest.fixture
def cancellation(surveyor: Surveyor, tree: KafkaTree, plan_id: str, subject: list[str]) -> Cancellation:
    return Cancellation(surveyor, tree, plan_id, subject)


def dead_original(tree: KafkaTree, controller: KafkaController) -> None:
    """Broker 0, an original replica, has died; a copy that would be deleted is in sync."""
    tree.unregister(0)
    controller.set_state((T, 0), leader=1, isr=[1, 2])


def out_of_sync(_: KafkaTree, controller: KafkaController) -> None:
    """The original replicas of 0 fell behind: only the copy has the data; the others are unchanged."""
    controller.set_state((T, 0), leader=2, isr=[2])


@COMMANDS
@pytest.mark.parametrize(
    ("happens", "words", "flag", "continues"),
    [
        (
            dead_original,
            (
                "t-0: REPLICA_NOT_ALIVE: original replicas [0] are not live: the copies on [2, 3] would be",
                "leave those with REPLICA_NOT_ALIVE on fewer copies by --allow-fewer-copies",
            ),
            "--allow-fewer-copies",
            False,
        ),
        (
            out_of_sync,
            ("t-0: NO_ELIGIBLE_LEADER: no original replica of [0, 1] is live and in sync (its ISR is [2])",),
            "--skip-unsafe",
            True,
        ),
    ],
)
def test_a_cancellation_that_loses_data_is_refused(  # noqa: PLR0913, PLR0917 - a table
    cancellation: Cancellation,
    controller: KafkaController,
    happens: Event,
    words: tuple[str, ...],
    flag: str,
    continues: bool,  # noqa: FBT001
) -> None:
    tree = cancellation.tree
    happens(tree, controller)
    before = tree.dump()

    refused = [cancellation.run(), cancellation.run("--apply")]
    after, done = tree.dump(), cancellation.run("--apply", flag)

    assert [ran.exit_code for ran in refused] == [REFUSED, REFUSED]
    assert [word for ran in refused for word in words if word not in ran.stderr] == []
    assert after == before
    assert done.exit_code == DONE, done.stderr
    keys = [key for request in controller.requests for key in request]
    assert keys == [(T, partition) for partition in range(int(continues), 3)]
    assert [controller.assigned(T, partition)[1] for partition in range(3)] == [[2, 3] if continues else [], [], []]


@COMMANDS
def test_dead_original_is_safe_if_no_in_sync_copy_is_deleted(
    cancellation: Cancellation, controller: KafkaController
) -> None:
    """Kafka carries it out: only 1 is in sync, before and after."""
    cancellation.tree.unregister(0)
    for partition in range(3):
        controller.set_state((T, partition), leader=1, isr=[1])

    done = cancellation.run("--apply")

    assert done.exit_code == DONE, done.stderr
    assert [controller.assigned(T, partition) for partition in range(3)] == [([0, 1], [], [])] * 3


WAITS: dict[str, tuple[Any, str]] = {
    "connection": (connections, "connected_admin"),
    "intents": (CommitLog, "append_intents"),
    "lease": (ZnodeLease, "refuse_lost"),
}
"""What may take long."""


@COMMANDS
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(("flags", "code"), [((), REFUSED), (("--skip-unsafe",), DONE)])
def test_judged_again_after_each_wait(  # noqa: PLR0913, PLR0917 - a table
    cancellation: Cancellation,
    controller: KafkaController,
    monkeypatch: pytest.MonkeyPatch,
    wait: str,
    flags: tuple[str, ...],
    code: int,
) -> None:
    """The original replicas of 0 fell behind while the command connected, stored intents, or checked the lease."""
    lay_tables(cancellation.surveyor.warehouse)
    clock = delay_once(monkeypatch, *WAITS[wait], lambda: out_of_sync(cancellation.tree, controller))
    if wait == "lease":
        cancellation.surveyor = cancellation.surveyor.paced(clock=clock)

    done = cancellation.run("--apply", *flags)

    assert (done.exit_code, controller.assigned(T, 0)[1]) == (code, [2, 3]), done.stderr
    assert controller.requests == ([{(T, 1): None}, {(T, 2): None}] if flags else [])
    others = "applied" if flags else "skipped"
    if wait != "connection":  # there are no intents yet
        outcomes = {partition: outcome for partition, (outcome, _) in cancellation.recorded.items()}
        assert outcomes == {0: "skipped", 1: others, 2: others}


def moved_elsewhere(_: KafkaTree, controller: KafkaController) -> None:
    controller.begin((T, 0), [0, 2])
    controller.finish((T, 0))


ONE_COMMAND = pytest.mark.parametrize("subject", [["moves"], ["--partitions", f"{T}-0"]])

STRANDED = (
    "its in-sync replicas were removed while it was cancelled, so no replica can lead it: replicas [0, 1]; start its "
)

# before the request, after it -> exit code, outcome, message
RESULTS: dict[str, tuple[Event | None, Event | None, int, str, str]] = {
    "cancelled": (None, None, DONE, "applied", "replicas [0, 1]"),
    "complete": (
        lambda _, controller: controller.finish((T, 0)),
        None,
        DONE,
        "stale",
        "it was complete before it could be cancelled: replicas [2, 3]",
    ),
    "moved": (moved_elsewhere, None, DONE, "stale", "another client changed it: replicas [0, 2]"),
    "fell behind": (out_of_sync, None, ERROR, "failed", STRANDED),
    "stranded": (
        None,
        lambda _, controller: controller.set_state((T, 0), leader=9, isr=[9]),
        ERROR,
        "failed",
        STRANDED,
    ),
    "unreadable": (
        None,
        lambda tree, _: tree.write(f"/brokers/topics/{T}", b'{"partitions":{"0":[1,1]}}'),
        ERROR,
        "unknown",
        "not understood: ",
    ),
    "deleted": (
        None,
        lambda tree, _: tree.client.delete(f"/brokers/topics/{T}", recursive=True),
        DONE,
        "stale",
        "another client changed it",
    ),
}


@ONE_COMMAND
@pytest.mark.parametrize("name", RESULTS)
def test_what_did_not_return_is_not_called_cancelled(
    cancellation: Cancellation, controller: KafkaController, name: str
) -> None:
    """A move may end, or its partition change, right before the request or after it."""
    before, after, code, outcome, words = RESULTS[name]
    lay_tables(cancellation.surveyor.warehouse)
    cancellation.surveyor = cancellation.surveyor.paced(cancellation=1.0)
    for partition in (1, 2):
        controller.finish((T, partition))

    if before is not None:
        controller.before_request = partial(before, cancellation.tree, controller)
    if after is not None:
        controller.after_request = partial(after, cancellation.tree, controller)

    done = cancellation.run("--apply", "--json")

    assert done.exit_code == code, done.stderr
    assert json.loads(done.stdout)["cancelled_now"] == int(outcome == "applied")
    assert list(cancellation.recorded) == [0]
    found, message = cancellation.recorded[0]
    assert (found, message[: len(words)]) == (outcome, words)


@ONE_COMMAND
def test_what_cannot_be_read_back_is_read_again(
    cancellation: Cancellation, controller: KafkaController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's znode is illegible at the first reading after the request."""
    lay_tables(cancellation.surveyor.warehouse)
    cancellation.surveyor = cancellation.surveyor.paced(cancellation=1.0)
    tree, path, read = cancellation.tree, f"/brokers/topics/{T}", ZooKeeperCluster.read_current
    written = list[bytes]()
    for partition in (1, 2):
        controller.finish((T, partition))

    def spoil() -> None:
        written.append(tree.client.get(path)[0])
        tree.write(path, b"no JSON")

    def read_once(reader: ZooKeeperCluster, changes: Any) -> Any:  # noqa: ANN401 - that of the original
        found = read(reader, changes)
        if written:
            tree.write(path, written.pop())
        return found

    controller.after_request = spoil
    monkeypatch.setattr(ZooKeeperCluster, "read_current", read_once)

    done = cancellation.run("--apply")

    assert (done.exit_code, cancellation.recorded[0][0]) == (DONE, "applied"), done.stdout + done.stderr


@COMMANDS
@pytest.mark.parametrize(
    ("meanwhile", "flags", "code", "message"),
    [
        (broker_dies, (), REFUSED, " is not cancelled: 1 partition would lose data"),
        (broker_dies, ("--skip-unsafe",), DONE, ""),
        (lease_is_lost, (), RUNNING, "not requested: "),
        (control_begins, (), REFUSED, "not requested: `surveyor control` has become the controller"),
        (next_is_too_large, (), REFUSED, "not requested: /admin/reassign_partitions would take 900,001 bytes"),
        (next_fails, (), ERROR, "not requested: /admin/reassign_partitions could not be written"),
        (answer_is_lost, (), ERROR, "not requested: no answer came (KafkaTimeoutError: after 20 s) to an earlier"),
    ],
)
def test_each_request_is_judged(  # noqa: PLR0913, PLR0917 - a table
    cancellation: Cancellation,
    controller: KafkaController,
    meanwhile: Event,
    flags: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    """Something happens after the first request; what was sent before has an outcome, and so has the rest."""

    def happen() -> None:
        if len(controller.requests) == 1:
            meanwhile(cancellation.tree, controller)

    controller.after_request = happen

    done = cancellation.run("--apply", *flags)

    outcomes = cancellation.recorded
    assert done.exit_code == code, done.stdout + done.stderr
    assert [request for request in controller.requests if None in request.values()] == [
        {(T, partition): None} for partition in ([0, 2] if flags else [0])
    ]
    assert controller.assigned(T, 1)[1] == [2, 3]
    assert (outcomes[0][0], outcomes[1][0]) == ("applied", "unknown" if meanwhile is next_fails else "skipped")
    assert outcomes[2][0] == ("applied" if flags else "skipped")
    assert message in outcomes[2][1]


@COMMANDS
@pytest.mark.parametrize("is_resident", [True, False])
def test_nothing_is_requested_of_another_controller(
    cancellation: Cancellation, controller: KafkaController, monkeypatch: pytest.MonkeyPatch, *, is_resident: bool
) -> None:
    """`surveyor control` begins, or ends, while the intents are recorded."""
    tree = cancellation.tree
    tree.write("/admin/reassign_partitions", json.dumps(REQUEST).encode())
    holders = [this_process("control"), None] if is_resident else [None, this_process("control")]
    monkeypatch.setattr(ZooKeeperCluster, "read_resident_controller", lambda _: holders.pop(0))
    before = [tree.client.get(path) for path in TOUCHED]

    done = cancellation.run("--apply")

    assert (done.exit_code, controller.requests) == (REFUSED, []), done.stderr
    assert [tree.client.get(path) for path in TOUCHED] == before
    assert f"`surveyor control` {'is no longer' if is_resident else 'has become'} the controller" in done.stderr
