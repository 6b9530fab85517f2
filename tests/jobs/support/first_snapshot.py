"""A cluster's first snapshot, written without Spark: the rows of `surveyor snapshot`, in a fraction of its time.

For tests of what comes after it; tests/jobs/survey/test_first_snapshot.py holds the two equal. Only for a cluster whose
znodes are all understood. Written once more, it is the first snapshot of what the cluster is by then.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jobs.adapters.delta.lake import Row, as_rows
from jobs.adapters.zookeeper.connection import connected, sync
from jobs.adapters.zookeeper.source import read_here
from jobs.runtime.settings import ClusterConf, Settings
from jobs.survey.reading import Small, read_small
from planner.rows.without_spark import default_min_isr, min_isr_override
from schemas.columns import TABLES
from schemas.names import PartitionState, RequestKind
from tests.jobs.support.commands import Surveyor

SNAPSHOT_ID: Final = 1


def write_first_snapshot(surveyor: Surveyor, **conf: Any) -> None:  # noqa: ANN401 - fields of ClusterConf
    """Write what `surveyor snapshot` would; `conf`: what the cluster's section of a --conf file would say."""
    lake = surveyor.lake
    settings = Settings(lake.cluster, lake.warehouse, ClusterConf(zookeeper=surveyor.hosts, **conf))
    small, read = read_small(settings), read_here(settings.zookeeper)
    with connected(settings.zookeeper) as client:
        sync(client)
        zxid_after = client.last_zxid
    lake.ensure_tables()
    rows = _rows(small, as_rows(read), settings.conf.imbalance_threshold)
    for table, some in rows.items():
        lake.replace(table, [{**_of(table, row), "snapshot_id": SNAPSHOT_ID} for row in some])
    assert {row["snapshot_id"] for row in lake.rows("snapshots")} <= {SNAPSHOT_ID}, "there are later snapshots"
    lake.replace("snapshots", [_snapshot(small, zxid_after, rows, {name: lake.version(name) for name in TABLES})])


def _rows(small: Small, read: Iterable[Row], threshold: float) -> dict[str, list[Row]]:
    state, configs = small.state, small.configs.result()
    kinds: dict[str, list[Row]] = {"topic": [], "partition": [], "task": []}
    for row in read:
        kinds[row["kind"]].append(row)  # and a KeyError for what is not understood
    assert not state.quarantine, state.quarantine
    queued = {row["topic"] for row in state.requests if row["kind"] == RequestKind.DELETE_TOPIC}
    topics = [{**row, "deletion_requested": row["topic"] in queued} for row in kinds["topic"]]
    partitions = _partitions(kinds["partition"], {row["topic"]: row for row in topics}, state.brokers, configs)
    return {
        "brokers": state.brokers,
        "broker_configs": configs,
        "requests": state.requests,
        "topics": topics,
        "partitions": partitions,
        "partition_history": partitions,
        "imbalance": _imbalance(partitions, queued, threshold),
    }


def _of(table: str, row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in TABLES[table].names if name in row}


def _partitions(
    rows: list[Row], topics: Mapping[str, Row], brokers: Iterable[Row], configs: Iterable[Row]
) -> list[Row]:
    registered, minimum = {row["broker_id"] for row in brokers}, default_min_isr(configs)
    named = {broker for row in rows for broker in (*row["replicas"], row["leader"]) if broker is not None}
    return [row | _derived(row, topics[row["topic"]], named - registered, minimum) for row in rows]


def _derived(row: Row, topic: Row, absent: set[int], minimum: int) -> Row:
    isr, override = row["isr"] or [], min_isr_override(topic["config"])
    return {
        "partition_state": _state(row["leader"], absent, deleting=topic["deletion_requested"]).value,
        "offline_replicas": [replica for replica in row["replicas"] if replica in absent],
        "under_replicated": not {*row["replicas"]} <= {*isr},
        "under_min_isr": len(isr) < (minimum if override is None else override),
        "vanished": False,
    }


def _state(leader: int | None, absent: set[int], *, deleting: bool) -> PartitionState:
    alive = leader is not None and leader not in absent
    if deleting and not alive:
        return PartitionState.NON_EXISTENT
    if leader is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if alive else PartitionState.OFFLINE


def _imbalance(partitions: Iterable[Row], queued: set[str], threshold: float) -> list[Row]:
    preferring: dict[int, list[bool]] = {}
    for row in partitions:
        if row["topic"] not in queued:
            astray = row["leader"] is not None and row["leader"] != row["replicas"][0]
            preferring.setdefault(row["replicas"][0], []).append(astray)
    return [
        {
            "broker_id": broker,
            "preferred_partitions": len(astray),
            "not_led": sum(astray),
            "ratio": sum(astray) / len(astray),
            "exceeds": sum(astray) / len(astray) > threshold,
            "threshold": threshold,
        }
        for broker, astray in preferring.items()
    ]


def _snapshot(small: Small, zxid_after: int, rows: Mapping[str, list[Row]], versions: dict[str, int]) -> Row:
    state = small.state
    return {
        "snapshot_id": SNAPSHOT_ID,
        "taken_at": datetime.now(UTC),
        **state.control,
        "controller_epoch_version": state.epoch_version,
        "zxid_before": state.zxid,
        "zxid_after": zxid_after,
        "cluster_id": state.cluster_id,
        "migration": state.migration,
        "seconds": 0.1,
        "versions": versions,
        "brokers": len(state.brokers),
        "topics": len(rows["topics"]),
        "partitions": len(rows["partitions"]),
        "quarantined": 0,
    }
