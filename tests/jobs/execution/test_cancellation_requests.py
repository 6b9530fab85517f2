"""`surveyor cancel PLAN` and `surveyor cancel --partitions` send their requests alike: each is judged before it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from jobs.adapters.cluster_connections.zookeeper import ZooKeeperReader
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE
from jobs.core.errors import RefusedError, SurveyorError
from jobs.repositories.actor import this_process
from jobs.repositories.plans.commit_rows import NO_PLAN
from schemas.enums import Action, Step
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.cancelling_controller import CancellingController
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"
DONE, ERROR, REFUSED, RUNNING = 0, 1, 23, 25
REQUEST = {"version": 1, "partitions": [{"topic": T, "partition": 2, "replicas": [2, 3]}]}
TOUCHED = ("/admin", "/admin/reassign_partitions", f"/brokers/topics/{T}")


@pytest.fixture
def plan_id(
    tree: KafkaTree, warehouse: Warehouse, controller: CancellingController, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Partitions 0 to 2 move from [0, 1] to [2, 3]; a request is of one partition."""
    monkeypatch.setattr("jobs.adapters.brokers.admin_client.MAX_PARTITIONS_PER_REQUEST", 1)
    tree.register(3)
    tree.add_topic(T, {partition: [0, 1] for partition in range(3)})
    given = {"action": Action.REASSIGN.value, "replicas_after": [2, 3], "wave": 0, "leader_epoch_after": None}
    changes = [election(tree, T, partition, leader=0, **given) for partition in range(3)]
    stored = store_plan(warehouse, tree, changes, kind="reassign", name="moves", status="partial", moves=3)
    controller.reassign({(T, partition): [2, 3] for partition in range(3)})
    controller.requests.clear()
    return stored.plan_id


def broker_dies(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 was the only original replica of 1 in sync: the copies on 2 and 3 have the data alone."""
    del monkeypatch
    tree.unregister(0)
    controller.put_state(T, 1, 2, [2, 3])


def lease_is_lost(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    del controller, monkeypatch
    tree.client.delete(LEASE)


def control_begins(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    del tree, controller
    monkeypatch.setattr(ZooKeeperReader, "read_resident_controller", lambda _: this_process("control"))


def next_is_too_large(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    del tree

    def refuse(_: object) -> Any:  # noqa: ANN401 - it never returns
        raise RefusedError("/admin/reassign_partitions would take 900,001 bytes")

    monkeypatch.setattr(controller, "reassign", refuse)


def next_fails(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    del tree

    def fail(_: object) -> Any:  # noqa: ANN401 - it never returns
        raise SurveyorError("/admin/reassign_partitions could not be written")

    monkeypatch.setattr(controller, "reassign", fail)


def answer_is_lost(tree: KafkaTree, controller: CancellingController, monkeypatch: pytest.MonkeyPatch) -> None:
    del tree, controller, monkeypatch
    raise KafkaTimeoutError("after 20 s")


COMMANDS = pytest.mark.parametrize("subject", [["moves"], ["--partitions", f"{T}-0,{T}-1,{T}-2"]])


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
    tree: KafkaTree,
    surveyor: Surveyor,
    controller: CancellingController,
    plan_id: str,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[KafkaTree, CancellingController, pytest.MonkeyPatch], None],
    flags: tuple[str, ...],
    code: int,
    message: str,
    subject: list[str],
) -> None:
    """Something happens after the first request; what was sent before has an outcome, and so has the rest."""
    reassign = controller.reassign

    def happen(targets: Any) -> Any:  # noqa: ANN401 - those of the original
        codes = reassign(targets)
        if len(controller.requests) == 1:
            meanwhile(tree, controller, monkeypatch)
        return codes

    monkeypatch.setattr(controller, "reassign", happen)

    done = surveyor.run("cancel", *subject, "--zookeeper", tree.hosts, "--apply", *flags)

    outcomes = {
        row["partition"]: (row["outcome"], row["message"])
        for row in surveyor.commits(plan_id if subject == ["moves"] else NO_PLAN)
        if row["action"] == Step.CANCEL and row["partition"] is not None and row["outcome"] != "pending"
    }
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
@pytest.mark.usefixtures("plan_id")
def test_nothing_is_requested_of_another_controller(  # noqa: PLR0913 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    controller: CancellingController,
    monkeypatch: pytest.MonkeyPatch,
    subject: list[str],
    *,
    is_resident: bool,
) -> None:
    """`surveyor control` begins, or ends, while the intents are recorded."""
    tree.write("/admin/reassign_partitions", json.dumps(REQUEST).encode())
    holders = [this_process("control"), None] if is_resident else [None, this_process("control")]
    monkeypatch.setattr(ZooKeeperReader, "read_resident_controller", lambda _: holders.pop(0))
    before = [tree.client.get(path) for path in TOUCHED]

    done = surveyor.run("cancel", *subject, "--zookeeper", tree.hosts, "--apply")

    assert (done.exit_code, controller.requests) == (REFUSED, []), done.stderr
    assert [tree.client.get(path) for path in TOUCHED] == before
    assert f"`surveyor control` {'is no longer' if is_resident else 'has become'} the controller" in done.stderr
