"""`--mode auto` takes the controllership if the cluster gives a reason, never because this host cannot reach it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import ClusterAuthorizationFailedError, KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError

from jobs.adapters.brokers import admin_client
from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError
from jobs.adapters.delta.warehouse import Warehouse
from jobs.runtime.pace import Pace
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.kafka.login_refusal import refusing_logins
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import NO_PORT, KafkaTree, registration

DONE, REFUSED = 0, 23
ALL_MAY_BE_SILENT = ("--allow-silent", "0,1,2")


class Brokers:
    """A fake Admin API that answers, or raises."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def list_partition_reassignments(self) -> dict[str, str]:
        if self.error is not None:
            raise self.error
        return {}


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """No server listens at the brokers' addresses."""
    for broker in range(3):
        tree.client.set(f"/brokers/ids/{broker}", registration(NO_PORT))
    tree.add_topic("t", {0: [0, 1, 2]})
    return store_plan(warehouse, tree, [election(tree, "t", 0, leader=1)])


@pytest.fixture
def listening(tree: KafkaTree, plan: Plan) -> Iterator[None]:
    """The controller's broker accepts connections."""
    del plan
    with socket.create_server(("127.0.0.1", 0)) as server:
        tree.client.set("/brokers/ids/0", registration(server.getsockname()[1]))
        yield


SHORT_BOOTSTRAP = pytest.mark.parametrize("pace", [Pace(bootstrap=0.5)])


def run(surveyor: Surveyor, tree: KafkaTree, plan: Plan, *more: str) -> Any:  # noqa: ANN401 - a Result of typer
    return surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, *more)


def answers(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    @contextmanager
    def admin_of(*_: object) -> Iterator[Admin]:
        if isinstance(error, AdminUnavailableError):
            raise error
        yield Admin(Brokers(error))

    monkeypatch.setattr("jobs.execution.mode_selection.admin_of", admin_of)


def refused(surveyor: Surveyor, tree: KafkaTree, plan: Plan) -> str:
    before = tree.dump()
    done = run(surveyor, tree, plan, "--apply")
    assert (done.exit_code, tree.dump(), surveyor.commits(plan.plan_id)) == (REFUSED, before, [])
    assert "broker 0 is the controller and registered in ZooKeeper" in done.stderr
    assert "--command-config" in done.stderr
    return str(done.stderr)


def disagreed(surveyor: Surveyor, tree: KafkaTree, plan: Plan, *more: str) -> str:
    """The cause is known, and is not in the cluster."""
    before = tree.dump()
    done = run(surveyor, tree, plan, "--apply", *more)
    assert (done.exit_code, tree.dump(), surveyor.commits(plan.plan_id)) == (REFUSED, before, [])
    message = " ".join(done.stderr.split())
    assert "no connection to the brokers: broker 0 " in message
    assert "--mode batch" not in message
    return message


@SHORT_BOOTSTRAP
def test_refused_if_no_broker_is_reachable(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:

    message = refused(surveyor, tree, plan)
    assert f"no broker answered the Admin API at 127.0.0.1:{NO_PORT} (" in message
    assert "--mode batch" not in message


@SHORT_BOOTSTRAP
def test_refused_if_brokers_need_other_credentials(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    for broker in range(3):
        tree.client.set(f"/brokers/ids/{broker}", registration().replace(b"PLAINTEXT", b"SASL_SSL"))

    assert "broker 0 has no PLAINTEXT endpoint; it has SASL_SSL (SASL_SSL)" in disagreed(surveyor, tree, plan)


@pytest.mark.usefixtures("listening")
def test_a_login_that_fails_is_no_reason_for_batch_mode(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, tmp_path: Path
) -> None:
    """Its cause is known, and batch mode would have to log in, too."""
    token, config = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(unsecured_token("ann", lifetime=-60.0))
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    for file in (token, config):
        file.chmod(0o600)
    registered, _ = tree.client.get("/brokers/ids/0")
    tree.client.set("/brokers/ids/0", registered.replace(b'"PLAINTEXT": "PLAINTEXT"', b'"PLAINTEXT": "SASL_PLAINTEXT"'))

    message = disagreed(surveyor, tree, plan, "--command-config", str(config))

    assert "expired at" in message
    assert f"Correct --command-config {config}, or what that message names" in message


def password(folder: Path, mechanism: str = "PLAIN") -> tuple[str, str]:
    config = folder / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.username=ann\nsasl.password=hunter-3\n"
    )
    config.chmod(0o600)
    return "--command-config", str(config)


@pytest.fixture
def refusing(tree: KafkaTree, plan: Plan) -> Iterator[None]:
    """The controller's broker refuses all logins."""
    del plan
    with refusing_logins() as port:
        plain = registration(port)
        tree.client.set("/brokers/ids/0", plain.replace(b'"PLAINTEXT": "PLAINTEXT"', b'"PLAINTEXT": "SASL_PLAINTEXT"'))
        yield


LOGIN_FAILURES = {
    "PLAIN": "(SaslAuthenticationFailedError (58): see sasl.username and sasl.password)",
    "SCRAM-SHA-512": "(UnsupportedSaslMechanismError (33): it accepts PLAIN, not SCRAM-SHA-512: see sasl.mechanism)",
}


@SHORT_BOOTSTRAP
@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("mechanism", LOGIN_FAILURES)
@pytest.mark.parametrize("mode", ["auto", "admin"])
def test_a_refused_login_has_its_cause_in_each_mode(  # noqa: PLR0913, PLR0917 - two tables
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, tmp_path: Path, mechanism: str, mode: str
) -> None:
    done = run(surveyor, tree, plan, "--apply", "--mode", mode, *password(tmp_path, mechanism))

    message = " ".join(done.stderr.split())
    assert (done.exit_code, surveyor.commits(plan.plan_id)) == (REFUSED, [])
    assert "no connection to the brokers: broker 0 " in message
    assert LOGIN_FAILURES[mechanism] in message
    assert f"Correct --command-config {tmp_path / 'client.properties'}, or what that message names" in message


@SHORT_BOOTSTRAP
@pytest.mark.usefixtures("refusing")
def test_a_dry_run_warns_of_a_refused_login(tree: KafkaTree, surveyor: Surveyor, plan: Plan, tmp_path: Path) -> None:
    options = ("--mode", "admin", "--json", *password(tmp_path))

    done = run(surveyor, tree, plan, *options)

    result = json.loads(done.stdout)
    assert (done.exit_code, LOGIN_FAILURES["PLAIN"] in result["in_the_way"]) == (DONE, True)
    assert result["warnings"] == [f"--apply would fail: {result['in_the_way']}"]
    assert "hunter-3" not in done.output


@pytest.mark.parametrize(
    "error",
    [
        AdminUnavailableError("no broker answered"),
        KafkaConnectionError("refused"),
        NodeNotReadyError("controller"),
        KafkaTimeoutError("and no server listens"),
        RuntimeError("Failed to find active controller id!"),
    ],
)
def test_refused_if_the_fault_may_be_ours(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    answers(monkeypatch, error)

    message = refused(surveyor, tree, plan)
    others_answer = not isinstance(error, AdminUnavailableError)
    assert (str(error) in message, "--mode batch" in message) == (True, others_answer)


@pytest.mark.usefixtures("listening")
def test_batch_if_the_controller_is_reachable_but_silent(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, KafkaTimeoutError("after 20 s"))

    done = run(surveyor, tree, plan, *ALL_MAY_BE_SILENT)

    assert done.exit_code == DONE, done.stderr
    assert "mode batch (Kafka's controller does not answer (KafkaTimeoutError: after 20 s))" in (done.stdout)


@pytest.mark.parametrize("error", [None, ClusterAuthorizationFailedError("DESCRIBE")])
def test_admin_if_it_answers(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    answers(monkeypatch, error)

    assert "mode admin (broker 0 is the controller)" in run(surveyor, tree, plan, *ALL_MAY_BE_SILENT).stdout


def test_batch_if_the_controller_is_not_registered(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.unregister(0)

    assert "mode batch (controller 0 is not a live broker)" in run(surveyor, tree, plan, *ALL_MAY_BE_SILENT).stdout


def test_dry_run_warns_of_an_unreachable_controller(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    ran = run(surveyor, tree, plan, "--mode", "admin")

    warning = f"cannot reach the controller (broker 0) at 127.0.0.1:{NO_PORT}"
    assert (ran.exit_code, f"  warning: --apply would fail: {warning}\n" in ran.stdout) == (DONE, True)
    tree.client.delete("/controller")
    summary = json.loads(run(surveyor, tree, plan, "--mode", "admin", "--json").stdout)
    assert summary["in_the_way"] == "no broker is the controller"


@pytest.mark.usefixtures("listening")
def test_dry_run_says_nothing_if_it_is_reachable(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    ran = run(surveyor, tree, plan, "--mode", "admin", "--json")

    assert (ran.exit_code, "in_the_way" in json.loads(ran.stdout)) == (DONE, False)


def test_silent_tls_handshake_is_limited_in_time() -> None:
    """As with a stopped process: the kernel accepts connections for it, and kafka-python has no timeout of its own."""
    refused: list[AdminUnavailableError] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def connect() -> None:
            try:
                with admin_client.connected_admin([address], {"security_protocol": "SSL"}, bootstrap_seconds=0.3):
                    pass
            except AdminUnavailableError as error:
                refused.append(error)

        connecting = threading.Thread(target=connect, daemon=True)
        connecting.start()
        connecting.join(20)

    assert [str(error).partition(" (")[0] for error in refused] == [f"no broker answered the Admin API at {address}"]
