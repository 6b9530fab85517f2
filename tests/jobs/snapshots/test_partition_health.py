"""One notion of partition health: of `status`, the views, the report, the catalogue's view and `show partitions`.

Topics queued for deletion are among the partitions.

The states and warnings themselves are those of Spark, by `tests/planner/columns/test_numpy_rules.py`.
"""

from collections import Counter
from operator import itemgetter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.cluster_tables import PartitionFilter
from jobs.console_output.replicas_and_commits import NO_SNAPSHOT
from jobs.core.arrow_rows import StoredRows, as_rows
from jobs.snapshots.cluster_view import SOURCE_COLUMNS, ClusterView
from jobs.snapshots.health import arrays_of, health_of, unhealthy_masks, with_derived_columns
from jobs.sql_views import catalog
from jobs.sql_views.database import Summaries
from jobs.web.cluster_page import unhealthy_partitions
from planner.columns.partition_masks import partition_masks
from tests.jobs.support.kafka.registrations import broker_without_endpoints

LIVE, MIN_ISR = (0, 1), 2
TOPICS = {"kept": False, "deleted": True}
FILTERS = {
    "offline": PartitionFilter(offline=True),
    "under_replicated": PartitionFilter(under_replicated=True),
    "under_min_isr": PartitionFilter(under_min_isr=True),
}

REPLICAS = st.lists(st.integers(0, 2), unique=True, min_size=1)
PARTITION = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(sorted(TOPICS)),
        "replicas": REPLICAS,
        "isr": st.none() | REPLICAS,
        "leader": st.none() | st.integers(-1, 2),
        "adding_replicas": st.none() | st.lists(st.integers(0, 2), max_size=1),
        "removing_replicas": st.none() | st.lists(st.integers(0, 2), max_size=1),
        "understood": st.sampled_from([True, False, None]),
    }
)


def view_of(rows: list[dict[str, Any]]) -> ClusterView:
    numbered = [row | {"partition": number, "controller_epoch": 1} for number, row in enumerate(rows)]
    kept = [schema_of("partitions").field(name) for name in SOURCE_COLUMNS]
    return ClusterView(
        controller_id=0,
        controller_epoch=1,
        migration=None,
        brokers=[broker_without_endpoints(broker) for broker in LIVE],
        configs={},
        deleting=frozenset(topic for topic, is_deleted in TOPICS.items() if is_deleted),
        requested={},
        partitions=pa.Table.from_pylist(numbered, schema=pa.schema(kept)),
        quarantined=0,
        blocking=[],
    )


@settings(max_examples=15)
@given(rows=st.lists(PARTITION, min_size=1, max_size=12))
def test_status_views_and_filters_count_the_same(rows: list[dict[str, Any]]) -> None:
    view = view_of(rows)
    derived = with_derived_columns(view, MIN_ISR)
    stored = derived.append_column("cluster", pa.array(["default"] * len(rows)))
    at = Summaries(Warehouse("unused", "default"), NO_SNAPSHOT)
    at.add("partitions", stored)
    deletions = [
        {"cluster": "default", "topic": topic, "deletion_requested": is_deleted} for topic, is_deleted in TOPICS.items()
    ]
    at.add("topics", pa.Table.from_pylist(deletions, schema=schema_of("topics")))
    for name in ("brokers", "brokers_last_seen", "answers"):
        at.add(name, schema_of(name).empty_table())
    at.add("snapshots", pa.Table.from_pylist([{"snapshot_id": 1}], schema=schema_of("snapshots")))

    health = health_of(view, default_min_isr=MIN_ISR, threshold=0.1)
    filtered = {name: selection.of(stored) for name, selection in FILTERS.items()}
    (counted,) = at.rows("health")
    of_status = {name: getattr(health, name) for name in (*FILTERS, "not_understood")}
    of_status |= {"reassigning": health.moving, "not_led_by_preferred": sum(row.not_led for row in health.imbalance)}
    assert {name: counted[name] for name in of_status} == of_status
    assert {name: kept.num_rows for name, kept in filtered.items()} == {name: of_status[name] for name in FILTERS}
    arrays = arrays_of(view, MIN_ISR)
    masks = unhealthy_masks(arrays, partition_masks(arrays, LIVE))
    of_view = sorted(at.rows("partition_health"), key=itemgetter("partition"))
    rows_of_view = [
        (*(row[f"is_{name}"] for name in FILTERS), row["judged"] and bool(row["missing"]), row["is_understood"])
        for row in of_view
    ]
    expected = [*(masks[name] for name in (*FILTERS, "under_replicated")), ~masks["not_understood"]]
    assert rows_of_view == [*zip(*expected, strict=True)]
    assert [row["judged"] for row in of_view] == arrays.judged.tolist()
    leadership = at.rows("leadership")
    behind = Counter(broker for row in of_view if row["judged"] for broker in row["missing"])
    preferred = {row.broker_id: row.preferred_partitions for row in health.imbalance}
    for name, of_brokers in (("out_of_sync", behind), ("preferred", preferred)):
        assert {row["broker_id"]: row[name] for row in leadership if row[name]} == of_brokers
    unknown_replicas = sum(len(row["replicas"]) for row in of_view if not row["is_understood"])
    assert sum(row["in_sync"] is None for row in at.rows("replicas")) == unknown_replicas
    trouble = {(row["topic"], row["partition"]) for row in at.rows("under_replicated")}
    assert trouble == {(row["topic"], row["partition"]) for kept in filtered.values() for row in StoredRows(kept)}
    of_report = unhealthy_partitions(at).rows["partition"].to_pylist()
    assert sorted(of_report) == sorted(f"{topic}-{partition}" for topic, partition in trouble)
    in_catalogue = as_rows(at.query(catalog.VIEWS["unhealthy_partitions"].format(schema="temp")))
    not_understood = {(row["topic"], row["partition"]) for row in of_view if not row["is_understood"]}
    assert {(row["topic"], row["partition"]) for row in in_catalogue} == trouble | not_understood
