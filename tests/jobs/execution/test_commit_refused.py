"""Plans that `surveyor commit` refuses: edited, old, of another cluster, too large, or with a dead majority."""

from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import controllership
from jobs.core.errors import UsageError
from jobs.repositories.plans.names import Alias
from schemas.enums import Action
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"
PARTITIONS = range(4)
DONE, ERROR, USAGE, CHANGES, FENCED, STALE, UNREADABLE, REFUSED = 0, 1, 2, 10, 20, 21, 22, 23


def leaders(tree: KafkaTree) -> set[int]:
    return {tree.state(T, partition).leader for partition in PARTITIONS}


def refused(surveyor: Surveyor, hosts: str, plan: Plan, *flags: str) -> str:
    """The message when applying is refused."""
    done = surveyor.apply(hosts, plan.plan_id, *flags)
    assert (done.exit_code, done.stdout) == (REFUSED, "")
    return done.stderr


def test_edited_change_is_refused(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan) -> None:
    DeltaTable(warehouse.path("changes")).update(updates={"leader_after": "2"}, predicate="partition = 3")

    assert "is not what was planned" in refused(surveyor, tree.hosts, plan)
    assert leaders(tree) == {0}


@pytest.mark.parametrize("table", ["changes", "operations"])
def test_lost_rows_are_refused(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, table: str) -> None:
    plan = store_plan(warehouse, tree, [creation(T, 0, [0, 1])], [topic_creation(T)])
    DeltaTable(warehouse.path(table)).delete()

    assert "its stored rows were changed or deleted; plan again" in refused(surveyor, tree.hosts, plan)


@pytest.mark.parametrize(
    "edit", [{"parameters": "'{}  '"}, {"snapshot_id": "2"}, {"kind": "'assign'"}, {"cluster_id": "'other'"}], ids=str
)
def test_edited_header_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan, edit: dict[str, str]
) -> None:
    DeltaTable(warehouse.path("plans")).update(updates=edit)

    assert "is not what was planned" in refused(surveyor, tree.hosts, plan)


def test_old_plan_is_refused(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan) -> None:
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    old = store_plan(warehouse, tree, plan.changes, name="old", created_at=yesterday)

    message = refused(surveyor, tree.hosts, old)

    assert "is 25.0 h old, older than --max-plan-age allows (24 h); take a new snapshot" in message


def test_a_plan_from_the_future_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan
) -> None:
    """A clock has been set back, so the plan's age is unknown."""
    now = datetime.now(UTC)
    early = store_plan(warehouse, tree, plan.changes, created_at=now + timedelta(minutes=2))
    assert surveyor.commit(tree.hosts, early.plan_id).exit_code == DONE

    late = store_plan(warehouse, tree, plan.changes, created_at=now + timedelta(minutes=30))
    assert "was made 0.5 h from now by this machine's clock" in refused(surveyor, tree.hosts, late)


def test_max_plan_age_may_be_shorter(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert "--max-plan-age" in refused(surveyor, tree.hosts, plan, "--max-plan-age", "0s")


def test_plan_of_another_cluster_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')

    assert "that of AAAAAAAAAAAAAAAAAAAAAA; check --cluster" in refused(surveyor, tree.hosts, plan)


def test_verify_does_not_record_what_another_cluster_has(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')

    done = surveyor.run("verify", plan.plan_id, "--zookeeper", tree.hosts)

    assert done.exit_code == REFUSED
    assert "that of AAAAAAAAAAAAAAAAAAAAAA; check --cluster" in done.stderr


def test_id_of_another_cluster_is_shown_safely(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.write("/cluster/id", rb'{"version":"1","id":"\u001b[2J"}')

    assert r"is that of \x1b[2J; check" in refused(surveyor, tree.hosts, plan)


def test_a_name_that_several_plans_have_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan
) -> None:
    """Another process gave the alias to a second plan concurrently."""
    other = store_plan(warehouse, tree, plan.changes[:1])
    DeltaTable(warehouse.path("plans")).update(updates={"name": "'balance'", "names": "make_array('balance')"})

    done = surveyor.apply(tree.hosts, "balance")

    assert (done.exit_code, leaders(tree)) == (REFUSED, {0})
    ids = ", ".join(sorted([plan.plan_id, other.plan_id]))
    assert f"the name 'balance' belongs to several plans, {ids}: give the id of one of them" in done.stderr


def test_a_name_is_no_id() -> None:
    """An alias that is an id would select the plan of that id."""
    with pytest.raises(UsageError, match=r"'0123456789abcdef' cannot be the name of a plan.* not the form of an id"):
        Alias("0123456789abcdef")
    assert [Alias(name).name for name in ("0123456789abcde", "balance", None)] == ["0123456789abcde", "balance", None]


def test_too_many_changes_are_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert "has 4 changes, more than --max-changes 3" in refused(surveyor, tree.hosts, plan, "--max-changes", "3")


@pytest.fixture
def after_losing_most(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    tree.unregister(0)
    tree.unregister(2)
    columns = {"requires_dead": [0, 2], "action": Action.ELECT.value, "isr_after": [1]}
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=1, **columns) for partition in PARTITIONS])


def test_dead_majority_is_not_believed(tree: KafkaTree, surveyor: Surveyor, after_losing_most: Plan) -> None:
    message = refused(surveyor, tree.hosts, after_losing_most)

    assert "treats 2 of 3 brokers as dead: 0, 2" in message


def test_dead_majority_may_be_allowed(tree: KafkaTree, surveyor: Surveyor, after_losing_most: Plan) -> None:
    assert surveyor.apply(tree.hosts, after_losing_most.plan_id, "--allow-majority-dead").exit_code == DONE
    assert leaders(tree) == {1}


def test_broker_that_is_not_understood_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.register(3, b"?")
    before = tree.dump()

    assert "/brokers/ids/3 is not understood" in refused(surveyor, tree.hosts, plan)
    assert tree.dump() == before


def test_broker_without_plaintext_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    ssl = b'{"version":5,"jmx_port":-1,"endpoints":["SSL://a:9093"],"listener_security_protocol_map":{"SSL":"SSL"}}'
    tree.register(3, ssl)

    assert "no PLAINTEXT endpoint" in refused(surveyor, tree.hosts, plan)


@pytest.mark.parametrize("mode", ["batch", "admin", "auto"])
@pytest.mark.parametrize("apply", [("--apply",), ()])
def test_migration_is_refused(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, mode: str, apply: tuple[str, ...]
) -> None:
    tree.write("/migration", b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1}')
    before = tree.dump()

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", mode, *apply)

    assert done.exit_code == REFUSED
    assert "migration to KRaft is in progress" in done.stderr
    assert tree.dump() == before


def test_another_surveyor_in_control_is_refused(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.adapters.zookeeper.controllership.RELEASE_TIMEOUT_SECONDS", 0.5)
    with controllership(tree.endpoint, 2147483647):
        assert "another Surveyor holds the controllership" in refused(surveyor, tree.hosts, plan)


@pytest.mark.parametrize("status", ["refused", "cancelled", "rolled_back"])
def test_closed_plan_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan, status: str
) -> None:
    warehouse.update("plans", "true", status=f"'{status}'")

    assert f"is {status}; plan again" in refused(surveyor, tree.hosts, plan)


@pytest.mark.usefixtures("plan")
def test_unknown_plan_is_a_usage_error(tree: KafkaTree, surveyor: Surveyor) -> None:
    done = surveyor.commit(tree.hosts, "0123456789abcdef")

    assert done.exit_code == USAGE
    assert "no plan '0123456789abcdef' of cluster 'default'" in done.stderr


@pytest.mark.parametrize("flags", [("--max-hold", "soon"), ("--max-plan-age", "1y"), ("--mode", "kraft")])
def test_invalid_options_are_usage_errors(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, flags: tuple[str, ...]
) -> None:
    assert surveyor.commit(tree.hosts, plan.plan_id, *flags).exit_code == USAGE


def test_committed_plan_is_not_taken_on_trust(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    assert surveyor.result(tree.hosts, plan.plan_id, "--apply")["applied_now"] == 0
    tree.write("/cluster/id", b'{"version":"1","id":"AnotherClusterIsHere00"}')
    assert "was made for the cluster with id" in refused(surveyor, tree.hosts, plan)


@pytest.mark.parametrize(
    ("mode", "action"), [("admin", Action.SHRINK_ISR), ("admin", Action.ELECT), ("batch", Action.REASSIGN)]
)
def test_mode_that_cannot_do_it_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, mode: str, action: Action
) -> None:
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1, action=action.value)])

    assert f"--mode {mode} cannot commit" in refused(surveyor, tree.hosts, plan, "--mode", mode)
