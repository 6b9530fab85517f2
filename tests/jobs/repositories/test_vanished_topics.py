"""Topics that are gone since an earlier snapshot: only most of them at once is a fault."""

from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.vanished_topics import vanished_by, vanished_topics
from schemas.rows import HIDDEN_TOPICS
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import Cluster, topic

CASES: Final[dict[str, tuple[list[str], list[str], tuple[int, int, list[str]] | None]]] = {
    "none gone": (["a b c"], ["a", "b", "c"], None),
    "another one": (["a b c"], ["a", "b", "c", "d"], None),
    "one of three, which is no fault": (["a b c"], ["b", "c"], (1, 3, ["a"])),
    "half, which is no fault": (["a b c d"], ["a", "b"], (1, 4, ["c", "d"])),
    "two of three": (["a b c"], ["c"], (1, 3, ["a", "b"])),
    "all": (["a b c"], [], (1, 3, ["a", "b", "c"])),
    "all, and others exist": (["a b"], ["x", "y", "z"], (1, 2, ["a", "b"])),
    "all, an empty snapshot since": (["a b", ""], [], (1, 2, ["a", "b"])),
    "the snapshot with most topics of a day counts": (["a b c", "a"], ["a"], (1, 3, ["b", "c"])),
    "a new topic does not end it": (["a b c", "", "x"], ["x"], (1, 3, ["a", "b", "c"])),
    "of two with as many the newest counts": (["a b", "a c"], ["a"], (2, 2, ["c"])),
    "there were none": ([""], [], None),
    "queued for deletion": (["a b- c-"], ["a"], None),
    "deleted by a plan": (["a b deleted"], ["a", "b"], None),
    "the only one, deleted by a plan": (["deleted"], [], None),
    "planned only": (["a planned1 planned2"], ["a"], (1, 3, ["planned1", "planned2"])),
    "no snapshot": ([], [], None),
}
"""Topics of each snapshot, with `-` if queued for deletion; topics now; what is found."""


def snapshot(cluster: Cluster, names: str) -> None:
    cluster.topics = [topic(name.rstrip("-"), deletion_requested=name.endswith("-")) for name in names.split()]
    cluster.controller["topics"] = len(cluster.topics)
    cluster.snapshot()


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    cluster = Cluster(warehouse)
    for status, names in {"committed": ["deleted"], "planned": ["planned1", "planned2"]}.items():
        warehouse.append("plans", [plan_record(plan_id=status, status=status).columns()])
        row: dict[str, Any] = {"plan_id": status, "kind": "delete_topic", "data": "{}"}
        rows = [{**row, "sequence": number, "topic": name} for number, name in enumerate(names)]
        warehouse.append("operations", rows)
    return cluster


@pytest.mark.parametrize(("taken", "present", "vanished"), CASES.values(), ids=CASES)
def test_most_topics_are_gone(
    cluster: Cluster, taken: list[str], present: list[str], vanished: tuple[int, int, list[str]] | None
) -> None:
    for names in taken:
        snapshot(cluster, names)

    found = vanished_topics(cluster.warehouse, present)

    assert (found and (found.snapshot_id, found.of, found.topics)) == vanished


@pytest.mark.parametrize(("hidden", "is_found"), [(False, True), (True, False)])
def test_topics_that_a_client_may_not_describe_are_not_gone(cluster: Cluster, hidden: bool, is_found: bool) -> None:  # noqa: FBT001
    snapshot(cluster, "a b c")
    if hidden:
        cluster.quarantine = [{"path": HIDDEN_TOPICS, "reason": "refused"}]
        cluster.controller["quarantined"] = 1
    snapshot(cluster, "a")

    assert bool(vanished_by(cluster.warehouse, find_snapshot(cluster.warehouse))) == is_found
