"""`surveyor commit`: dry unless told, once and no more, refused where it must be; what it prints and how it exits."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema

from jobs.adapters.delta.lake import Lake
from jobs.adapters.zookeeper.controllership import controllership, take_over
from jobs.execution.batch import writes as fenced_writes
from jobs.records.author import AIRFLOW, this_author
from jobs.records.plans.stored import Plan
from schemas.columns import COMMITS
from schemas.names import Action, PlanStatus
from tests.jobs.support.command_line import Surveyor
from tests.jobs.support.kafka_tree import KafkaTree, state_path
from tests.jobs.support.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

T = "t"
PARTITIONS = range(4)
DONE, ERROR, USAGE, CHANGES, FENCED, STALE, UNREADABLE, REFUSED = 0, 1, 2, 10, 20, 21, 22, 23


@pytest.fixture
def plan(tree: KafkaTree, lake: Lake) -> Plan:
    """Partitions 0 to 3 of topic t get leader 1 instead of 0."""
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    return store_plan(lake, tree, [election(tree, T, partition, leader=1) for partition in PARTITIONS], name="alias")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_writes, "BATCH", 1)


def leaders(tree: KafkaTree) -> set[int]:
    return {tree.state(T, partition).leader for partition in PARTITIONS}


@pytest.mark.parametrize("mode", ["batch", "admin"])
def test_dry_run_touches_nothing(tree: KafkaTree, surveyor: Surveyor, plan: Plan, mode: str) -> None:
    before = tree.dump()

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", mode)

    assert done.exit_code == DONE
    assert "dry run: nothing was written" in done.stdout
    assert tree.dump() == before
    assert surveyor.commits(plan.plan_id) == []
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


def test_dry_run_of_a_creation_touches_nothing(tree: KafkaTree, lake: Lake, surveyor: Surveyor) -> None:
    plan = store_plan(lake, tree, [creation("new", 0, [0, 1])], [topic_creation("new")])
    before = tree.dump()

    assert surveyor.result(tree.hosts, plan.plan_id)["due"] == 1
    assert tree.dump() == before


def test_dry_run_shows_each_change(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    lines = surveyor.commit(tree.hosts, plan.plan_id).stdout

    assert re.findall(r"would be written: ~ (t-\d  leader 0→1)", lines) == [f"t-{p}  leader 0→1" for p in PARTITIONS]


@pytest.mark.parametrize("flag", ["--yes", "--detailed-exitcode", "--allow-majority-dead"])
def test_only_apply_applies(tree: KafkaTree, surveyor: Surveyor, plan: Plan, flag: str) -> None:
    before = tree.dump()

    surveyor.commit(tree.hosts, plan.plan_id, flag)

    assert tree.dump() == before


def test_apply_writes_exactly_the_plan(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    before = tree.dump()

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == DONE

    after = tree.dump()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert leaders(tree) == {1}
    assert changed - {"/", "/controller", "/controller_epoch"} == {state_path(T, partition) for partition in PARTITIONS}


def test_apply_leaves_nobody_in_control(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)

    assert tree.client.exists("/controller") is None
    assert tree.client.get("/controller_epoch")[0] == b"8"


def test_alias_stands_for_the_id(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, "alias")

    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def test_ledger_tells_intents_steps_and_outcomes(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)

    rows = sorted(surveyor.commits(plan.plan_id), key=lambda row: row["committed_at"])
    told = [(row["action"], row["outcome"]) for row in rows]
    assert told == [
        ("take_over", "applied"),
        *[(Action.ELECT_PREFERRED, "pending")] * 4,
        ("hand_back", "applied"),
        *[(Action.ELECT_PREFERRED, "applied")] * 4,
    ]
    assert {row["state_version_after"] for row in rows if row["outcome"] == "applied" and row["topic"]} == {1}


def test_each_row_says_under_which_epoch_and_in_which_run_of_airflow(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse of an older version gets the columns by the commit itself: no snapshot comes between."""
    path = surveyor.lake.path("commits")
    older = [column for column in COMMITS.json["fields"] if column["name"] not in {"controller_epoch", "run"}]
    shutil.rmtree(path)
    DeltaTable.create(path, Schema.from_json(json.dumps(COMMITS.json | {"fields": older})), partition_by=["cluster"])
    for variable, value in zip(AIRFLOW, ("balance", "manual__1", "apply"), strict=True):
        monkeypatch.setenv(variable, value)

    surveyor.apply(tree.hosts, plan.plan_id)

    rows = surveyor.commits(plan.plan_id)
    assert {(row["controller_epoch"], row["run"]) for row in rows} == {(8, "balance/manual__1/apply")}
    assert {row["who"] for row in rows} == {this_author().who}


def test_applying_twice_changes_nothing_the_second_time(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    before = tree.dump()

    again = surveyor.apply(tree.hosts, plan.plan_id)

    assert again.exit_code == DONE
    assert "nothing is due" in again.stdout
    assert tree.dump() == before


def test_plan_whose_outcomes_were_lost_changes_nothing_more(
    tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan
) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    lake.replace("commits", [])
    lake.update("plans", "true", status="'committing'")
    before = tree.dump()

    again = surveyor.apply(tree.hosts, plan.plan_id)

    assert again.exit_code == DONE
    assert surveyor.outcomes(plan.plan_id) == dict.fromkeys(PARTITIONS, "applied")
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert tree.dump() == before


def test_half_applied_plan_is_finished(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id, "--max-hold", "0s")
    assert surveyor.status(plan.plan_id) == PlanStatus.PARTIAL

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == DONE
    assert surveyor.outcomes(plan.plan_id, attempt=2) == dict.fromkeys(PARTITIONS, "applied")
    assert tree.versions(T) == dict.fromkeys(PARTITIONS, 1)


def test_max_hold_that_is_over_is_an_error(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    done = surveyor.apply(tree.hosts, plan.plan_id, "--max-hold", "0s")

    assert done.exit_code == ERROR
    assert surveyor.outcomes(plan.plan_id) == dict.fromkeys(PARTITIONS, "skipped")
    assert leaders(tree) == {0}


def test_detailed_exitcode_of_a_dry_run(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert surveyor.commit(tree.hosts, plan.plan_id, "--detailed-exitcode").exit_code == CHANGES


@pytest.mark.parametrize(("flags", "code"), [((), DONE), (("--detailed-exitcode",), STALE)])
def test_stale_rows(tree: KafkaTree, surveyor: Surveyor, plan: Plan, flags: tuple[str, ...], code: int) -> None:
    tree.touch(state_path(T, 2))

    done = surveyor.apply(tree.hosts, plan.plan_id, *flags)

    assert done.exit_code == code
    assert surveyor.outcomes(plan.plan_id) == {0: "applied", 1: "applied", 2: "stale", 3: "applied"}
    assert surveyor.status(plan.plan_id) == PlanStatus.PARTIAL
    assert "stale: t-2: /brokers/topics/t/partitions/2/state is at version 1, planned at 0" in done.stdout


@pytest.mark.parametrize("flags", [(), ("--detailed-exitcode",)])
def test_plan_that_is_all_stale_takes_nothing_over(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, flags: tuple[str, ...]
) -> None:
    """Which is no success, whatever was asked of the exit code."""
    tree.touch("/brokers/topics/t")
    before = tree.dump()

    done = surveyor.apply(tree.hosts, plan.plan_id, *flags)

    assert done.exit_code == STALE
    assert tree.dump() == before


def test_row_that_went_stale_during_the_take_over(
    tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan
) -> None:
    """Found due before the take-over, it is judged again after it."""
    proxy.lose(Loss(MULTI, deliver=False, then=lambda _: tree.bounce(1)))

    surveyor.apply(proxy.hosts, plan.plan_id)

    assert surveyor.outcomes(plan.plan_id) == dict.fromkeys(PARTITIONS, "stale")
    assert leaders(tree) == {0}


def refused(surveyor: Surveyor, hosts: str, plan: Plan, *flags: str) -> str:
    """What is said when applying is refused."""
    done = surveyor.apply(hosts, plan.plan_id, *flags)
    assert (done.exit_code, done.stdout) == (REFUSED, "")
    return done.stderr


def test_edited_change_is_refused(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan) -> None:
    DeltaTable(lake.path("changes")).update(updates={"leader_after": "2"}, predicate="partition = 3")

    assert "is not what was planned" in refused(surveyor, tree.hosts, plan)
    assert leaders(tree) == {0}


@pytest.mark.parametrize("table", ["changes", "operations"])
def test_lost_rows_are_refused(tree: KafkaTree, lake: Lake, surveyor: Surveyor, table: str) -> None:
    plan = store_plan(lake, tree, [creation(T, 0, [0, 1])], [topic_creation(T)])
    DeltaTable(lake.path(table)).delete()

    assert "edited or lost rows of it; plan again" in refused(surveyor, tree.hosts, plan)


@pytest.mark.parametrize(
    "edit", [{"parameters": "'{}  '"}, {"snapshot_id": "2"}, {"kind": "'assign'"}, {"cluster_id": "'other'"}], ids=str
)
def test_edited_header_is_refused(
    tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan, edit: dict[str, str]
) -> None:
    DeltaTable(lake.path("plans")).update(updates=edit)

    assert "is not what was planned" in refused(surveyor, tree.hosts, plan)


def test_old_plan_is_refused(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan) -> None:
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    old = store_plan(lake, tree, plan.changes, name="old", created_at=yesterday)

    said = refused(surveyor, tree.hosts, old)

    assert "is 25.0 h old, older than --max-plan-age allows (24 h); take a new snapshot" in said


def test_a_plan_from_the_future_is_refused(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan) -> None:
    """Somebody has set a clock back: how old it is can only be guessed."""
    now = datetime.now(UTC)
    early = store_plan(lake, tree, plan.changes, created_at=now + timedelta(minutes=2))
    assert surveyor.commit(tree.hosts, early.plan_id).exit_code == DONE

    late = store_plan(lake, tree, plan.changes, created_at=now + timedelta(minutes=30))
    assert "was made 0.5 h from now by this machine's clock" in refused(surveyor, tree.hosts, late)


def test_max_plan_age_may_be_longer(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan) -> None:
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    old = store_plan(lake, tree, plan.changes, created_at=yesterday)

    assert surveyor.commit(tree.hosts, old.plan_id, "--max-plan-age", "2d").exit_code == DONE


def test_max_plan_age_may_be_shorter(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert "--max-plan-age" in refused(surveyor, tree.hosts, plan, "--max-plan-age", "0s")


def test_plan_of_another_cluster_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.write("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')

    assert "that of AAAAAAAAAAAAAAAAAAAAAA; check --cluster" in refused(surveyor, tree.hosts, plan)


def test_too_many_changes_are_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert "has 4 changes, more than --max-changes 3" in refused(surveyor, tree.hosts, plan, "--max-changes", "3")


def test_as_many_changes_as_allowed(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert surveyor.commit(tree.hosts, plan.plan_id, "--max-changes", "4").exit_code == DONE


@pytest.fixture
def after_losing_most(tree: KafkaTree, lake: Lake) -> Plan:
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    tree.unregister(0)
    tree.unregister(2)
    columns = {"requires_dead": [0, 2], "action": Action.ELECT.value, "isr_after": [1]}
    return store_plan(lake, tree, [election(tree, T, partition, leader=1, **columns) for partition in PARTITIONS])


def test_dead_majority_is_not_believed(tree: KafkaTree, surveyor: Surveyor, after_losing_most: Plan) -> None:
    said = refused(surveyor, tree.hosts, after_losing_most)

    assert "takes 2 of 3 brokers for dead: 0, 2" in said


def test_dead_majority_may_be_allowed(tree: KafkaTree, surveyor: Surveyor, after_losing_most: Plan) -> None:
    assert surveyor.apply(tree.hosts, after_losing_most.plan_id, "--allow-majority-dead").exit_code == DONE
    assert leaders(tree) == {1}


def test_one_dead_of_three_is_believed(tree: KafkaTree, lake: Lake, surveyor: Surveyor) -> None:
    tree.add_topic(T, {0: [0, 1, 2]})
    tree.unregister(0)
    plan = store_plan(lake, tree, [election(tree, T, 0, leader=1, requires_dead=[0])])

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == DONE


def test_broker_that_is_not_understood_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.register(3, b"?")
    before = tree.dump()

    assert "/brokers/ids/3 is not understood" in refused(surveyor, tree.hosts, plan)
    assert tree.dump() == before


def test_broker_without_plaintext_is_refused(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    ssl = b'{"version":5,"endpoints":["SSL://a:9093"],"listener_security_protocol_map":{"SSL":"SSL"}}'
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
    assert "a migration to KRaft is in progress" in done.stderr
    assert tree.dump() == before


def test_another_surveyor_in_control_is_refused(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.adapters.zookeeper.controllership.OTHERS_PATIENCE", 0.5)
    with controllership(tree.hosts, 2147483647):
        assert "another Surveyor holds the controllership" in refused(surveyor, tree.hosts, plan)


def test_refused_plan_stays_planned(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.register(3, b"?")
    refused(surveyor, tree.hosts, plan)

    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED
    assert surveyor.commits(plan.plan_id) == []


@pytest.mark.parametrize("status", ["refused", "cancelled", "rolled_back"])
def test_closed_plan_is_refused(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan, status: str) -> None:
    lake.update("plans", "true", status=f"'{status}'")

    assert f"is {status}; plan again" in refused(surveyor, tree.hosts, plan)


@pytest.mark.usefixtures("plan")
def test_unknown_plan_is_a_usage_error(tree: KafkaTree, surveyor: Surveyor) -> None:
    done = surveyor.commit(tree.hosts, "0123456789abcdef")

    assert done.exit_code == USAGE
    assert "no plan '0123456789abcdef' of cluster 'default'" in done.stderr


def test_no_warehouse_is_unreadable(tree: KafkaTree, surveyor: Surveyor) -> None:
    done = surveyor.commit(tree.hosts, "p")

    assert done.exit_code == UNREADABLE
    assert "check --warehouse" in done.stderr


def test_wrong_chroot_is_unreadable(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    done = surveyor.commit(f"{tree.hosts}/absent", plan.plan_id)

    assert done.exit_code == UNREADABLE
    assert "check the chroot" in done.stderr


@pytest.mark.parametrize("flags", [("--max-hold", "soon"), ("--max-plan-age", "1w"), ("--mode", "kraft")])
def test_nonsense_is_a_usage_error(tree: KafkaTree, surveyor: Surveyor, plan: Plan, flags: tuple[str, ...]) -> None:
    assert surveyor.commit(tree.hosts, plan.plan_id, *flags).exit_code == USAGE


def test_committed_plan_is_not_taken_on_trust(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    assert surveyor.result(tree.hosts, plan.plan_id, "--apply")["applied_now"] == 0
    tree.write("/cluster/id", b'{"version":"1","id":"AnotherClusterIsHere00"}')
    assert "was made for the cluster with id" in refused(surveyor, tree.hosts, plan)


def test_json_alone_is_on_stdout(tree: KafkaTree, surveyor: Surveyor, plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    done = surveyor.apply(tree.hosts, plan.plan_id, "--json", "--result-file", str(file))

    counts = {"applied": 4, "stale": 0, "fenced": 0, "failed": 0, "unknown": 0, "skipped": 0}
    verify = f"surveyor verify {plan.plan_id} --zookeeper {tree.hosts} --warehouse {surveyor.lake.warehouse}"
    assert json.loads(done.stdout) == {
        "plan_id": plan.plan_id,
        "status": "committed",
        "applied_now": 4,
        **counts,
        "next": [{"what": "verify", "command": verify}],
    }
    assert done.stdout.count("\n") == 1
    assert json.loads(file.read_text()) == json.loads(done.stdout)


def test_json_of_a_dry_run(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    result = surveyor.result(tree.hosts, plan.plan_id)

    assert {name: result[name] for name in ("dry_run", "mode", "due", "status")} == {
        "dry_run": True,
        "mode": "batch",
        "due": 4,
        "status": "planned",
    }


def test_counts_have_the_same_names_in_every_result(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    dry, applied, again = (
        surveyor.result(tree.hosts, plan.plan_id, *flags) for flags in ([], ["--apply"], ["--apply"])
    )

    assert applied.keys() <= dry.keys()
    assert applied.keys() <= again.keys()


def test_people_are_told_the_next_command_without_json(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """By the name they gave; what was dry is applied with the same options."""
    where = f"--zookeeper {tree.hosts} --warehouse {surveyor.lake.warehouse}"
    dry = surveyor.commit(tree.hosts, "alias", "--max-hold", "5s")
    done = surveyor.apply(tree.hosts, "alias")

    *_, apply = dry.stdout.splitlines()
    assert sorted(apply.split()) == sorted(
        f"apply: surveyor commit alias --apply --mode batch --max-hold 5s {where}".split()
    )
    assert done.stdout == f"plan {plan.plan_id} (alias): committed; 4 applied\nverify: surveyor verify alias {where}\n"
    assert "controllership taken over: epoch 8, id 2147483647" in done.stderr


def test_auto_picks_batch_where_nobody_is_in_control(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.client.delete("/controller")

    assert surveyor.result(tree.hosts, plan.plan_id, "--mode", "auto")["mode"] == "batch"


@pytest.mark.parametrize(
    ("mode", "action"), [("admin", Action.SHRINK_ISR), ("admin", Action.ELECT), ("batch", Action.REASSIGN)]
)
def test_mode_that_cannot_do_it_is_refused(
    tree: KafkaTree, lake: Lake, surveyor: Surveyor, mode: str, action: Action
) -> None:
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(lake, tree, [election(tree, T, 0, leader=1, action=action.value)])

    assert f"--mode {mode} cannot commit" in refused(surveyor, tree.hosts, plan, "--mode", mode)


@pytest.mark.usefixtures("small_batches")
def test_fenced_in_the_middle(tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan) -> None:
    """The second batch finds another controller: it is fenced, the later ones are not tried."""
    proxy.lose(Loss(MULTI, nth=3, deliver=False, then=lambda _: take_over(tree.client, tree.hosts, 1000)))

    done = surveyor.apply(proxy.hosts, plan.plan_id)

    assert done.exit_code == FENCED
    assert surveyor.outcomes(plan.plan_id) == {0: "applied", 1: "fenced", 2: "skipped", 3: "skipped"}
    assert tree.versions(T) == {0: 1, 1: 0, 2: 0, 3: 0}
    assert tree.client.get("/controller_epoch")[0] == b"9"


def test_lost_answer_of_a_commit(tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan) -> None:
    proxy.lose(Loss(MULTI, nth=2))

    assert surveyor.apply(proxy.hosts, plan.plan_id).exit_code == DONE
    assert surveyor.outcomes(plan.plan_id) == dict.fromkeys(PARTITIONS, "applied")
    assert tree.versions(T) == dict.fromkeys(PARTITIONS, 1)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("deliver", [True, False])
def test_commit_whose_session_was_lost_is_finished_by_the_next(
    tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan, *, deliver: bool
) -> None:
    proxy.lose(Loss(MULTI, nth=3, deliver=deliver, then=ZooKeeperProxy.expire_session))

    first = surveyor.apply(proxy.hosts, plan.plan_id)
    outcomes = surveyor.outcomes(plan.plan_id)
    second = surveyor.apply(tree.hosts, plan.plan_id)

    assert (first.exit_code, second.exit_code) == (ERROR, DONE)
    assert outcomes == {0: "applied", 1: "unknown", 2: "skipped", 3: "skipped"}
    assert surveyor.outcomes(plan.plan_id, attempt=2) == dict.fromkeys(PARTITIONS, "applied")
    assert tree.versions(T) == dict.fromkeys(PARTITIONS, 1)


def test_creation_is_committed(tree: KafkaTree, lake: Lake, surveyor: Surveyor) -> None:
    changes = [creation("new", 0, [1, 2]), creation("new", 1, [2, 0])]
    plan = store_plan(lake, tree, changes, [topic_creation("new")])

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == DONE
    assert tree.state("new", 1).leader == 2


def test_clusters_of_one_warehouse_do_not_mix(tree: KafkaTree, lake: Lake, surveyor: Surveyor, plan: Plan) -> None:
    elsewhere = Lake(lake.warehouse, "elsewhere")
    twin = store_plan(elsewhere, tree, plan.changes, name="alias")
    before = elsewhere.rows("plans")

    surveyor.apply(tree.hosts, "alias")

    assert elsewhere.rows("plans") == before
    assert surveyor.commit(tree.hosts, twin.plan_id).exit_code == USAGE
