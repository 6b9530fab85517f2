"""`surveyor commit`: dry unless --apply, applied once, refused where necessary; its output and exit codes."""

import json
import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import take_over
from jobs.repositories.actor import AIRFLOW, this_actor
from schemas.columns import TABLE_COLUMNS
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.paces import SMALL_BATCHES
from tests.jobs.support.rows.plan_rows import creation, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

T = "t"
PARTITIONS = range(4)
DONE, ERROR, USAGE, CHANGES, FENCED, STALE, UNREADABLE, REFUSED = 0, 1, 2, 10, 20, 21, 22, 23


def leaders(tree: KafkaTree) -> set[int]:
    return {tree.state(T, partition).leader for partition in PARTITIONS}


@pytest.mark.parametrize("mode", ["batch", "admin"])
def test_dry_run_changes_nothing(tree: KafkaTree, surveyor: Surveyor, plan: Plan, mode: str) -> None:
    before = tree.dump()

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", mode)

    assert done.exit_code == DONE
    assert "dry run: nothing was written" in done.stdout
    assert tree.dump() == before
    assert surveyor.commits(plan.plan_id) == []
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


def test_dry_run_shows_each_change(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    lines = surveyor.commit(tree.hosts, plan.plan_id).stdout

    assert re.findall(r"would be written: ~ (t-\d  leader 0→1)", lines) == [f"t-{p}  leader 0→1" for p in PARTITIONS]


@pytest.mark.parametrize("flag", ["--yes", "--detailed-exitcode", "--allow-majority-dead"])
def test_only_apply_applies(tree: KafkaTree, surveyor: Surveyor, plan: Plan, flag: str) -> None:
    before = tree.dump()

    surveyor.commit(tree.hosts, plan.plan_id, flag)

    assert tree.dump() == before


def test_apply_releases_the_controllership(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)

    assert tree.client.exists("/controller") is None
    assert tree.client.get("/controller_epoch")[0] == b"8"


def test_an_alias_names_the_id(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, "alias")

    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def test_each_row_has_its_epoch_and_airflow_run(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit itself adds the columns to a warehouse of an older version, without a snapshot in between."""
    path = surveyor.warehouse.path("commits")
    commits = TABLE_COLUMNS["commits"].json
    older = [column for column in commits["fields"] if column["name"] not in {"controller_epoch", "run"}]
    shutil.rmtree(path)
    DeltaTable.create(path, Schema.from_json(json.dumps(commits | {"fields": older})), partition_by=["cluster"])
    for variable, value in zip(AIRFLOW, ("balance", "manual__1", "apply"), strict=True):
        monkeypatch.setenv(variable, value)

    surveyor.apply(tree.hosts, plan.plan_id)

    meant, *rows = sorted(surveyor.commits(plan.plan_id), key=lambda row: row["committed_at"])
    assert (meant["action"], meant["outcome"], meant["controller_epoch"]) == ("take_over", "pending", None)
    assert {row["controller_epoch"] for row in rows} == {8}
    assert {(row["run"], row["who"]) for row in (meant, *rows)} == {("balance/manual__1/apply", this_actor().user)}


def test_applying_twice_changes_nothing_the_second_time(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    before = tree.dump()

    again = surveyor.apply(tree.hosts, plan.plan_id)

    assert again.exit_code == DONE
    assert "nothing is due" in again.stdout
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
    """A commit without any applied row is no success with any option for the exit code, and begins nothing."""
    tree.touch("/brokers/topics/t")
    before = tree.dump()

    done, again = (surveyor.apply(tree.hosts, plan.plan_id, *flags) for _ in range(2))

    assert (done.exit_code, again.exit_code) == (STALE, STALE)
    assert f"plan {plan.title}: planned; 4 stale" in done.stdout
    assert tree.dump() == before
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED
    assert len(surveyor.commits(plan.plan_id)) == 2 * len(PARTITIONS)
    status = json.loads(surveyor.run("status", "--json", "--zookeeper", tree.hosts).stdout)
    assert [row for row in status["due"] if plan.title in row["what"]] == []
    cancelled = surveyor.run("cancel", plan.plan_id, "--apply", "--yes", "--zookeeper", tree.hosts)
    assert "cancelled; discarded, no commit applied anything of it" in cancelled.stdout


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("batch", "state is at version 0, planned at -1"), ("admin", "cleanup.policy is not set, planned compact")],
)
def test_a_topic_that_exists_is_not_committed(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, mode: str, reason: str
) -> None:
    """Another client has created it with another config: its plan stays planned, and is not to be made again."""
    command = "surveyor plan assign --topic new --partitions 1"
    changes, operations = [creation("new", 0, [0, 1])], [topic_creation("new", {"cleanup.policy": "compact"})]
    plan = store_plan(warehouse, tree, changes, operations, kind="assign", command=command)
    tree.add_topic("new", {0: [0, 1]})

    done = surveyor.run("commit", plan.plan_id, "--apply", "--yes", "--zookeeper", tree.hosts, "--mode", mode)

    assert done.exit_code == STALE
    assert "planned; 1 stale" in done.stdout
    assert reason in done.stdout
    assert ("plan again" in done.stdout, "discard it: surveyor cancel" in done.stdout) == (False, True)
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


def test_row_that_went_stale_during_the_take_over(
    tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan
) -> None:
    """It was pending before the take-over and is judged again after it."""
    proxy.lose(Loss(MULTI, deliver=False, then=lambda _: tree.bounce(1)))

    surveyor.apply(proxy.hosts, plan.plan_id)

    assert surveyor.outcomes(plan.plan_id) == dict.fromkeys(PARTITIONS, "stale")
    assert leaders(tree) == {0}


def test_json_alone_is_on_stdout(tree: KafkaTree, surveyor: Surveyor, plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    done = surveyor.apply(tree.hosts, plan.plan_id, "--json", "--result-file", str(file))

    counts = {"applied": 4, "stale": 0, "fenced": 0, "failed": 0, "unknown": 0, "skipped": 0}
    verify = f"surveyor verify {plan.plan_id} --zookeeper {tree.hosts} --warehouse {surveyor.warehouse.uri}"
    assert json.loads(done.stdout) == {
        "plan_id": plan.plan_id,
        "status": "committed",
        "applied_now": 4,
        **counts,
        "next": [{"what": "verify", "command": verify}],
        "warnings": [],
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


def test_next_command_is_shown_without_json(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """The command has the plan's alias and the options of the dry run."""
    where = f"--zookeeper {tree.hosts} --warehouse {surveyor.warehouse.uri}"
    dry = surveyor.commit(tree.hosts, "alias", "--max-hold", "5s")
    done = surveyor.apply(tree.hosts, "alias")

    *_, apply = dry.stdout.splitlines()
    assert sorted(apply.split()) == sorted(
        f"apply: surveyor commit alias --apply --mode batch --max-hold 5s {where}".split()
    )
    assert done.stdout == f"plan {plan.plan_id} (alias): committed; 4 applied\nverify: surveyor verify alias {where}\n"
    assert "controllership taken over: epoch 8, id 2147483647" in done.stderr


def test_auto_picks_batch_without_a_controller(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    tree.client.delete("/controller")

    assert surveyor.result(tree.hosts, plan.plan_id, "--mode", "auto")["mode"] == "batch"


@pytest.mark.parametrize("pace", [SMALL_BATCHES])
def test_fenced_in_the_middle(tree: KafkaTree, surveyor: Surveyor, proxy: ZooKeeperProxy, plan: Plan) -> None:
    """The second batch finds another controller: it is fenced, and the later ones are not tried."""
    proxy.lose(Loss(MULTI, nth=3, deliver=False, then=lambda _: take_over(tree.client, 1000)))

    done = surveyor.apply(proxy.hosts, plan.plan_id)

    assert done.exit_code == FENCED
    assert surveyor.outcomes(plan.plan_id) == {0: "applied", 1: "fenced", 2: "skipped", 3: "skipped"}
    assert tree.versions(T) == {0: 1, 1: 0, 2: 0, 3: 0}
    assert tree.client.get("/controller_epoch")[0] == b"9"


def test_clusters_of_one_warehouse_do_not_mix(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan
) -> None:
    elsewhere = Warehouse(warehouse.uri, "elsewhere")
    twin = store_plan(elsewhere, tree, plan.changes, name="alias")
    before = elsewhere.rows("plans")

    surveyor.apply(tree.hosts, "alias")

    assert elsewhere.rows("plans") == before
    assert surveyor.commit(tree.hosts, twin.plan_id).exit_code == USAGE
