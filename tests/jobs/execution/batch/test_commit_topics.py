"""Elections, and topics expanded, configured and deleted in batch mode: dry unless --apply, done once, or stale."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import take_over
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan
from schemas.topic_configs import TIERED
from schemas.znode_codecs import decode_assignment, decode_config
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.paces import SMALL_BATCHES
from tests.jobs.support.rows.operation_rows import alteration, deletion, expansion
from tests.jobs.support.rows.plan_rows import creation, election, lose_commits, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

T, K = "t", "retention.ms"
DONE, ERROR, FENCED, STALE, REFUSED = 0, 1, 20, 21, 23
CONTROL = {"/", "/controller", "/controller_epoch"}

PLANS: dict[str, Callable[[Warehouse, KafkaTree], Plan]] = {
    "config": lambda warehouse, tree: alteration(warehouse, tree, T, {K: None, "c": "1"}, {K: "2", "c": None}),
    "delete": lambda warehouse, tree: deletion(warehouse, tree, T, "other"),
    "elect": lambda warehouse, tree: store_plan(warehouse, tree, [election(tree, T, p, leader=p + 1) for p in (0, 1)]),
    "expand": lambda warehouse, tree: expansion(warehouse, tree, T, [[1, 2], [2, 0], [0, 1]]),
}


@pytest.fixture
def topics(tree: KafkaTree) -> KafkaTree:
    tree.add_topic(T, {0: [0, 1], 1: [1, 2]})
    tree.add_topic("other", {0: [0, 1]}, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    tree.write(f"/config/topics/{T}", b'{"version":1,"config":{"c":"1","untouched":"x"}}')
    return tree


@pytest.fixture(params=PLANS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plan(topics: KafkaTree, warehouse: Warehouse, kind: str) -> Plan:
    return PLANS[kind](warehouse, topics)


def changed(tree: KafkaTree, before: dict[str, object]) -> set[str]:
    after = tree.dump()
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} - CONTROL


def config_of(tree: KafkaTree) -> dict[str, str]:
    return decode_config(tree.client.get(f"/config/topics/{T}")[0])


def assert_done(tree: KafkaTree, kind: str) -> None:
    """The cluster is as the plan leaves it, and nothing was done twice."""
    if kind == "config":
        names = tree.client.get_children("/config/changes")
        notes = [tree.client.get(f"/config/changes/{name}")[0] for name in names]
        assert (config_of(tree), notes) == (
            {K: "2", "untouched": "x"},
            [b'{"version":2,"entity_path":"topics/t"}'],
        )
    elif kind == "delete":
        assert sorted(tree.client.get_children("/admin/delete_topics")) == ["other", T]
        assert tree.client.get("/admin/delete_topics/t")[0] is None
    elif kind == "elect":
        assert [(tree.state(T, partition).leader, tree.version(T, partition)) for partition in (0, 1)] == [
            (1, 1),
            (2, 1),
        ]
    else:
        data, stat = tree.client.get(f"/brokers/topics/{T}")
        assignment = decode_assignment(data)
        partitions = {0: [0, 1], 1: [1, 2], 2: [1, 2], 3: [2, 0], 4: [0, 1]}
        assert (assignment.partitions, assignment.topic_id, stat.version) == (partitions, TOPIC_ID, 1)
        assert tree.versions(T) == dict.fromkeys(range(5), 0)
        assert [tree.state(T, partition).leader for partition in range(5)] == [0, 1, 1, 2, 0]


WRITTEN = {
    "config": {"/config", "/config/changes", "/config/changes/config_change_0000000000", f"/config/topics/{T}"},
    "delete": {"/admin/delete_topics", f"/admin/delete_topics/{T}", "/admin/delete_topics/other"},
    "elect": {state_path(T, partition) for partition in (0, 1)},
    "expand": {
        f"/brokers/topics/{T}",
        f"/brokers/topics/{T}/partitions",
        *(f"/brokers/topics/{T}/partitions/{number}{state}" for number in (2, 3, 4) for state in ("", "/state")),
    },
}


DUE = {
    "config": "1 of 1 operation is due",
    "delete": "2 of 2 operations are due",
    "elect": "2 of 2 changes are due",
    "expand": "3 of 3 changes are due",
}


@pytest.mark.parametrize("mode", ["batch", "admin"])
def test_dry_run_changes_nothing(topics: KafkaTree, surveyor: Surveyor, plan: Plan, mode: str, kind: str) -> None:
    before = topics.dump()

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", topics.hosts, "--mode", mode)

    assert (done.exit_code, "would be written" in done.stdout, DUE[kind] in done.stdout) == (DONE, True, True)
    assert topics.dump() == before
    assert surveyor.commits(plan.plan_id) == []


def test_apply_writes_exactly_the_plan(topics: KafkaTree, surveyor: Surveyor, plan: Plan, kind: str) -> None:
    before = topics.dump()

    done = surveyor.apply(topics.hosts, plan.plan_id)

    assert done.exit_code == DONE, done.stderr
    assert changed(topics, dict(before)) == WRITTEN[kind]
    assert_done(topics, kind)
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


@pytest.mark.parametrize(
    ("which", "action", "rows"),
    [("delete", "delete_topic", [(T, None), ("other", None)]), ("elect", "elect_preferred", [(T, 1), (T, 1)])],
)
def test_commit_log_has_intents_and_outcomes(  # noqa: PLR0913, PLR0917 - fixtures
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, which: str, action: str, rows: list[Any]
) -> None:
    """Rows of changes name their topic and, once they are applied, the version of the state."""
    plan = PLANS[which](warehouse, topics)

    surveyor.apply(topics.hosts, plan.plan_id)

    log = sorted(surveyor.commits(plan.plan_id), key=lambda row: row["committed_at"])
    assert [(row["action"], row["topic"], row["outcome"], row["state_version_after"]) for row in log] == [
        *[("take_over", None, outcome, None) for outcome in ("pending", "applied")],
        *[(action, topic, "pending", None) for topic, _ in rows],
        ("hand_back", None, "applied", None),
        *[(action, topic, "applied", version) for topic, version in rows],
    ]


def test_plan_whose_outcomes_were_lost_changes_nothing_more(
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan, kind: str
) -> None:
    surveyor.apply(topics.hosts, plan.plan_id)
    lose_commits(warehouse)
    warehouse.update("plans", "true", status="'committing'")
    before = topics.dump()

    again = surveyor.apply(topics.hosts, plan.plan_id)

    assert (again.exit_code, surveyor.status(plan.plan_id)) == (DONE, PlanStatus.COMMITTED)
    assert topics.dump() == before
    assert_done(topics, kind)


@pytest.mark.parametrize("pace", [SMALL_BATCHES])
@pytest.mark.parametrize("deliver", [True, False])
def test_lost_session_is_finished_by_the_next_commit(  # noqa: PLR0913 - fixtures
    topics: KafkaTree,
    surveyor: Surveyor,
    proxy: ZooKeeperProxy,
    plan: Plan,
    kind: str,
    *,
    deliver: bool,
) -> None:
    proxy.lose(Loss(MULTI, nth=2, deliver=deliver, then=ZooKeeperProxy.expire_session))

    first = surveyor.apply(proxy.hosts, plan.plan_id)
    second = surveyor.apply(topics.hosts, plan.plan_id)

    assert (first.exit_code, second.exit_code) == (ERROR, DONE), second.stderr
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert_done(topics, kind)


def test_fenced_operation_writes_nothing(
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, proxy: ZooKeeperProxy
) -> None:
    plan = PLANS["delete"](warehouse, topics)
    proxy.lose(Loss(MULTI, nth=2, deliver=False, then=lambda _: take_over(topics.client, 1000)))

    assert surveyor.apply(proxy.hosts, plan.plan_id).exit_code == FENCED
    assert topics.client.get_children("/admin/delete_topics") == []


def _created_again(tree: KafkaTree) -> None:
    tree.client.delete(f"/brokers/topics/{T}", recursive=True)
    tree.client.delete(f"/config/topics/{T}")
    tree.add_topic(T, {0: [0, 1], 1: [1, 2]}, topic_id="BBBBBBBBBBBBBBBBBBBBBB")


def _altered_in_part(tree: KafkaTree) -> None:
    tree.write(f"/config/topics/{T}", b'{"version":1,"config":{"c":"1","retention.ms":"2"}}')


def _altered(tree: KafkaTree) -> None:
    tree.write(f"/config/topics/{T}", b'{"version":1,"config":{"c":"9"}}')


STALE_BY = [
    ("config", _created_again, "created again"),
    ("config", _altered, "c is now 9: another client altered it"),
    ("config", _altered_in_part, "retention.ms is now 2: another client altered it"),
    ("config", lambda tree: tree.write(f"/admin/delete_topics/{T}", b""), "queued for deletion"),
    ("config", lambda tree: tree.client.delete(f"/brokers/topics/{T}", recursive=True), "the topic is gone"),
    ("config", lambda tree: tree.write(f"/config/topics/{T}", b"?"), "not understood"),
    ("delete", _created_again, "created again"),
    ("expand", _created_again, "created again"),
    ("expand", lambda tree: tree.touch(f"/brokers/topics/{T}"), "is at version 1, planned at 0"),
]


STALE_IN = [(*case, mode) for mode in ("batch", "admin") for case in STALE_BY if (case[0], mode) != ("delete", "admin")]
"""In each mode; in admin mode a deletion counts records at brokers, and waits half a minute for those of the tree."""


@pytest.mark.parametrize(("which", "happens", "reason", "mode"), STALE_IN)
def test_stale_operations_are_found_before_anything_is_written(  # noqa: PLR0913, PLR0917 - fixtures
    topics: KafkaTree,
    warehouse: Warehouse,
    surveyor: Surveyor,
    which: str,
    happens: Callable[[KafkaTree], object],
    reason: str,
    mode: str,
) -> None:
    plan = PLANS[which](warehouse, topics)
    happens(topics)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", topics.hosts, "--mode", mode)

    assert done.exit_code == DONE, done.stderr
    assert f"stale: {T}" in done.stdout
    assert reason in done.stdout


def test_other_configs_may_have_changed(topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    plan = PLANS["config"](warehouse, topics)
    topics.write(f"/config/topics/{T}", b'{"version":1,"config":{"c":"1","new":"y"}}')

    assert surveyor.apply(topics.hosts, plan.plan_id).exit_code == DONE
    assert config_of(topics) == {K: "2", "new": "y"}


BAD: list[tuple[dict[str, str | None], str]] = [
    ({K: "abc"}, "retention.ms='abc': expected a whole number"),
    ({"retention.sm": "1"}, "retention.sm is not a topic config"),
]


@pytest.mark.parametrize(("after", "message"), BAD)
def test_config_fatal_to_brokers_is_refused(
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, after: dict[str, str | None], message: str
) -> None:
    plan = alteration(warehouse, topics, T, dict.fromkeys(after), after)
    before = topics.dump()

    done = surveyor.apply(topics.hosts, plan.plan_id)

    assert (done.exit_code, message in done.stderr) == (REFUSED, True)
    assert topics.dump() == before
    assert surveyor.commits(plan.plan_id) == []


def test_new_topic_with_a_config_fatal_to_brokers_is_refused(
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    operations = [topic_creation("new", {"segment.bytes": "13"})]
    plan = store_plan(warehouse, topics, [creation("new", 0, [0, 1])], operations, kind="assign")

    done = surveyor.apply(topics.hosts, plan.plan_id)

    assert (done.exit_code, "topic new: segment.bytes='13': expected" in done.stderr) == (REFUSED, True)
    assert topics.client.exists("/config/topics/new") is None


def test_configs_only_brokers_can_check_need_admin_mode(
    topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    plan = alteration(warehouse, topics, T, {TIERED: None}, {TIERED: "true"})

    done = surveyor.apply(topics.hosts, plan.plan_id)

    assert (done.exit_code, "use --mode admin" in done.stderr) == (REFUSED, True)


def test_lags_that_became_a_conflict_are_stale(topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    plan = alteration(warehouse, topics, T, {least: None}, {least: "10"})
    topics.write(f"/config/topics/{T}", f'{{"version":1,"config":{{"{most}":"9"}}}}'.encode())

    done = surveyor.apply(topics.hosts, plan.plan_id)

    assert f"{least}=10 is more than {most}=9" in done.stdout
    assert config_of(topics) == {most: "9"}


def _progress(surveyor: Surveyor, hosts: str, plan: Plan) -> dict[str, int]:
    result = json.loads(surveyor.run("verify", plan.plan_id, "--zookeeper", hosts, "--json").stdout)
    return {name: result[name] for name in ("complete", "in_progress", "not_started", "diverged")}


AFTER = {"config": (1, 0), "delete": (0, 2), "elect": (2, 0), "expand": (3, 0)}


def test_verify_shows_the_progress(topics: KafkaTree, surveyor: Surveyor, plan: Plan, kind: str) -> None:
    before = _progress(surveyor, topics.hosts, plan)
    surveyor.apply(topics.hosts, plan.plan_id)
    after = _progress(surveyor, topics.hosts, plan)

    complete, in_progress = AFTER[kind]
    nothing = {"in_progress": 0, "not_started": 0, "diverged": 0}
    assert before == nothing | {"complete": 0, "not_started": plan.size}
    assert after == nothing | {"complete": complete, "in_progress": in_progress}


def test_running_deletion_cannot_be_cancelled(topics: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    plan = PLANS["delete"](warehouse, topics)
    surveyor.apply(topics.hosts, plan.plan_id)

    verified, cancelled = (
        surveyor.run(command, plan.plan_id, "--zookeeper", topics.hosts) for command in ("verify", "cancel")
    )

    assert ("surveyor verify" in verified.stdout, "surveyor cancel" in verified.stdout) == (True, False)
    assert f"plan {plan.plan_id}: nothing is left to cancel" in cancelled.stdout
    assert f"  {T}  continues, and cannot be cancelled: found queued for deletion" in cancelled.stdout
