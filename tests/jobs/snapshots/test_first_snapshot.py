"""The first snapshot that tests write without Spark is the one that `surveyor snapshot` takes."""

from pathlib import Path
from typing import Any

import pytest

from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

OF_A_MOMENT = {"taken_at", "seconds", "versions", "zxid_before", "zxid_after"}
LOST = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":7,"isr":[2,1]}'
CONFIG = b'{"version":1,"config":{"min.insync.replicas":"4"}}'
MOVES = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[2,1]}]}'
ACLS = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
QUOTAS = b'{"version":1,"config":{"producer_byte_rate":"1024","consumer_byte_rate":"1024"}}'


def _tables(surveyor: Surveyor) -> dict[str, Any]:
    names = {
        name: [column for column in TABLE_COLUMNS[name].names if column not in OF_A_MOMENT] for name in TABLE_COLUMNS
    }
    return {name: sorted(map(repr, surveyor.rows(name, *columns))) for name, columns in names.items()}


def test_every_table_has_the_rows_of_a_snapshot(tree: KafkaTree, tmp_path: Path) -> None:
    """Of a cluster where little is as it should be: offline, leaderless, without state, deleted, asked to move."""
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 1, 0], 3: [1]})
    tree.write("/config/topics/orders", CONFIG)
    tree.add_topic("gone", {0: [1, 0], 1: [0, 1]})
    tree.add_topic("new", {0: [0, 2]})
    tree.write(state_path("orders", 2), LOST)
    tree.client.delete(state_path("new", 0))
    tree.write("/admin/delete_topics/gone", b"")
    tree.write("/admin/reassign_partitions", MOVES)
    tree.write("/kafka-acl/Topic/orders", ACLS)
    tree.write("/config/users/al%40ice", QUOTAS)
    tree.unregister(1)
    taken, written = (Surveyor(tree.hosts, tmp_path / name) for name in ("taken", "written"))
    taken.json("snapshot")
    write_first_snapshot(written)
    assert _tables(written) == _tables(taken)
    security = taken.rows("security", "kind", "subject", "entries", "snapshot_id")
    assert security == [("acl", "TOPIC orders (LITERAL)", 1, 1), ("quota", "user al@ice", 2, 1)]
