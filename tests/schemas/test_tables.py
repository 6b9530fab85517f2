"""The contract of the tables: names and types that others read, and a comment for every column."""

from datetime import datetime
from typing import Any, Final

import msgspec
import pytest
from msgspec import Struct
from pyspark.sql.types import StructType

from schemas.columns import CHECKS, TABLE_COLUMNS
from schemas.plan_digest import HASHED
from schemas.rows import BrokerEpoch, Change, Operation, TableRow, Voter
from schemas.tables import KEY_COLUMNS, SPARK_SCHEMAS
from schemas.znode_codecs import Endpoint

IDS: Final = "array<int>"

CONTRACT: Final[dict[str, dict[str, str]]] = {
    "snapshots": {
        "snapshot_id": "bigint",
        "taken_at": "timestamp",
        "controller_id": "int",
        "controller_epoch": "int",
        "controller_epoch_version": "int",
        "zxid_before": "bigint",
        "zxid_after": "bigint",
        "brokers": "int",
        "topics": "int",
        "partitions": "bigint",
        "quarantined": "bigint",
        "seconds": "double",
    },
    "brokers": {
        "snapshot_id": "bigint",
        "broker_id": "int",
        "broker_epoch": "bigint",
        "state_version": "int",
        "host": "string",
        "port": "int",
        "endpoints": "array<struct<listener:string,security_protocol:string,host:string,port:int>>",
        "rack": "string",
        "understood": "boolean",
    },
    "brokers_last_seen": {
        "cluster": "string",
        "snapshot_id": "bigint",
        "broker_id": "int",
        "broker_epoch": "bigint",
        "host": "string",
        "port": "int",
        "endpoints": "array<struct<listener:string,security_protocol:string,host:string,port:int>>",
        "rack": "string",
        "last_seen_at": "timestamp",
    },
    "topics": {
        "snapshot_id": "bigint",
        "topic": "string",
        "topic_id": "string",
        "topic_version": "int",
        "config": "map<string,string>",
        "deletion_requested": "boolean",
    },
    "partitions": {
        "snapshot_id": "bigint",
        "topic": "string",
        "partition": "int",
        "replicas": IDS,
        "adding_replicas": IDS,
        "removing_replicas": IDS,
        "leader": "int",
        "isr": IDS,
        "leader_epoch": "int",
        "controller_epoch": "int",
        "state_version": "int",
        "topic_version": "int",
        "partition_state": "string",
        "offline_replicas": IDS,
    },
    "requests": {"kind": "string", "topic": "string", "partition": "int"},
    "broker_configs": {"broker_id": "int", "name": "string", "value": "string", "assumed": "boolean"},
    "security": {"kind": "string", "subject": "string", "entries": "int", "digest": "string"},
    "quarantine": {"path": "string", "data": "string", "reason": "string"},
    "events": {"snapshot_id": "bigint", "kind": "string", "subject": "string", "before": "string", "after": "string"},
    "imbalance": {
        "snapshot_id": "bigint",
        "broker_id": "int",
        "preferred_partitions": "bigint",
        "not_led": "bigint",
        "ratio": "double",
        "exceeds": "boolean",
    },
    "whatif": {
        "snapshot_id": "bigint",
        "lose": "string",
        "scenario": "string",
        "lost": IDS,
        "offline": "bigint",
        "unclean_only": "bigint",
        "no_replica": "bigint",
        "under_min_isr": "bigint",
        "newly_under_min_isr": "bigint",
        "leaders_moved": "bigint",
        "max_leaders": "bigint",
        "most_leaders_on": "int",
        "mean_leaders": "double",
        "leader_skew": "double",
        "not_judged": "bigint",
    },
    "plans": {
        "plan_id": "string",
        "name": "string",
        "snapshot_id": "bigint",
        "kind": "string",
        "parameters": "string",
        "created_at": "timestamp",
        "status": "string",
        "changes": "bigint",
        "rejected": "bigint",
        "moves": "bigint",
    },
    "changes": {
        "plan_id": "string",
        "wave": "int",
        "topic": "string",
        "partition": "int",
        "action": "string",
        "replicas_before": IDS,
        "replicas_after": IDS,
        "adding_before": IDS,
        "adding_after": IDS,
        "removing_before": IDS,
        "removing_after": IDS,
        "leader_before": "int",
        "leader_after": "int",
        "isr_before": IDS,
        "isr_after": IDS,
        "leader_epoch_before": "int",
        "leader_epoch_after": "int",
        "state_version": "int",
        "topic_version": "int",
        "topic_id": "string",
        "is_new": "boolean",
        "reason": "string",
    },
    "operations": {"plan_id": "string", "sequence": "int", "kind": "string", "topic": "string", "data": "string"},
    "rejections": {
        "plan_id": "string",
        "topic": "string",
        "partition": "int",
        "action": "string",
        "code": "string",
        "reason": "string",
    },
    "evidence": {
        "plan_id": "string",
        "topic": "string",
        "partition": "int",
        "broker_id": "int",
        "rank": "int",
        "chosen": "boolean",
        "last_in_isr_snapshot": "bigint",
        "last_in_isr_at": "timestamp",
        "epochs_since": "int",
        "log_size": "bigint",
    },
    "sizes": {
        "broker_id": "int",
        "topic": "string",
        "partition": "int",
        "log_dir": "string",
        "bytes": "bigint",
        "offset_lag": "bigint",
        "is_future": "boolean",
        "taken_at": "timestamp",
    },
    "log_dirs": {
        "broker_id": "int",
        "log_dir": "string",
        "total_bytes": "bigint",
        "usable_bytes": "bigint",
        "error": "string",
        "taken_at": "timestamp",
    },
    "drained": {"broker_id": "int", "mode": "string", "plan_id": "string", "since": "timestamp"},
    "throttles": {
        "plan_id": "string",
        "kind": "string",
        "resource": "string",
        "name": "string",
        "before": "string",
        "set_to": "array<string>",
        "set_at": "timestamp",
    },
    "commits": {
        "plan_id": "string",
        "attempt": "int",
        "wave": "int",
        "topic": "string",
        "partition": "int",
        "outcome": "string",
        "state_version_after": "int",
        "committed_at": "timestamp",
        "who": "string",
        "message": "string",
        "controller_epoch": "int",
        "run": "string",
    },
    "answers": {
        "broker_id": "int",
        "api": "string",
        "topic": "string",
        "partition": "int",
        "broker_epoch": "bigint",
        "controller_epoch": "int",
        "leader_epoch": "int",
        "error": "int",
        "at": "timestamp",
    },
    "leases": {"token": "string", "holder": "string", "deadline": "timestamp"},
}
CONTRACT["partition_history"] = CONTRACT["partitions"]


def _types(schema: StructType) -> dict[str, str]:
    return {column.name: column.dataType.simpleString() for column in schema}


def test_the_tables_are_those_agreed_on() -> None:
    assert SPARK_SCHEMAS.keys() == CONTRACT.keys()


@pytest.mark.parametrize("table", CONTRACT)
def test_the_columns_agreed_on_are_there(table: str) -> None:
    types = _types(SPARK_SCHEMAS[table])
    assert {name: types.get(name) for name in CONTRACT[table]} == CONTRACT[table]


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_cluster_comes_first(table: str) -> None:
    assert SPARK_SCHEMAS[table].names[0] == "cluster"


def _without_comment(schema: StructType) -> list[str]:
    missing = [column.name for column in schema if not column.metadata.get("comment")]
    nested = [getattr(column.dataType, "elementType", None) for column in schema]
    return missing + [name for inner in nested if isinstance(inner, StructType) for name in _without_comment(inner)]


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_every_column_says_what_it_is(table: str) -> None:
    assert _without_comment(StructType.fromJson(TABLE_COLUMNS[table].json)) == []


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_every_column_may_be_null_for_spark(table: str) -> None:
    """`.to(SCHEMA)` refuses other schemas; Delta's constraints enforce non-null columns."""
    assert [column.name for column in SPARK_SCHEMAS[table] if not column.nullable] == []


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_keys_are_columns(table: str) -> None:
    assert KEY_COLUMNS[table]
    assert set(KEY_COLUMNS[table]) <= set(SPARK_SCHEMAS[table].names)


def test_checks_speak_of_columns() -> None:
    words = {
        (table, word)
        for table, checks in CHECKS.items()
        for check in checks.values()
        for word in check.replace("(", " ").replace(")", " ").split()
        if word.isidentifier() and word.islower() and word != "cardinality"
    }
    assert {(table, word) for table, word in words if word not in SPARK_SCHEMAS[table].names} == set()
    changes = {("changes", "isr_before"), ("changes", "isr_after")}
    expected = {("partitions", "partition"), *changes, ("sizes", "bytes")}
    assert words == expected


def test_a_plans_id_covers_all_but_itself() -> None:
    """In the order of names, so that a column's position in its table does not matter."""
    expected = {name: tuple(sorted(set(SPARK_SCHEMAS[name].names) - {"cluster", "plan_id"})) for name in HASHED}
    assert expected.keys() == {"changes", "operations", "rejections"}
    assert expected == HASHED


SIMPLE: Final[dict[str, set[Any]]] = {
    "int": {int},
    "bigint": {int},
    "double": {float},
    "string": {str},
    "boolean": {bool},
    "timestamp": {datetime},
    IDS: {list[int], tuple[int, ...]},
    "map<string,bigint>": {dict[str, int]},
    "array<string>": {list[str]},
    "array<struct<listener:string,security_protocol:string,host:string,port:int>>": {list[Endpoint]},
    "array<struct<broker_id:int,broker_epoch:bigint>>": {list[BrokerEpoch]},
    "map<string,string>": {dict[str, str | None]},
    "array<struct<voter_id:int,log_end_offset:bigint,lag:bigint,lag_ms:bigint>>": {list[Voter]},
}
"""The types in Python of a type in Spark."""

TYPED: Final[dict[type[Struct], StructType]] = {
    Change: SPARK_SCHEMAS["changes"],
    Operation: SPARK_SCHEMAS["operations"],
    **{row: SPARK_SCHEMAS[row.TABLE] for row in TableRow.__subclasses__()},
}


@pytest.mark.parametrize("row", TYPED)
def test_typed_rows_have_the_columns_of_their_table(row: type[Struct]) -> None:
    typed, schema = {field.name: field.type for field in msgspec.structs.fields(row)}, TYPED[row]
    columns = {field.name: SIMPLE[field.dataType.simpleString()] for field in schema.fields}

    assert typed.keys() == columns.keys()
    assert all(
        typed[name] in {form for kind in kinds for form in (kind, kind | None)} for name, kinds in columns.items()
    )
