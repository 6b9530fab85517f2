"""The columns of each Delta table, derived from its row in `schemas.rows`, in the JSON of Spark and Delta.

Names and types are a contract, as dashboards, schedulers and notebooks read these tables. `cluster` is the first column
and the partition column of every table, so one warehouse serves many clusters. The types are nullable because a
transform ends in `.to(SCHEMA)`; `KEY_COLUMNS` lists the columns that Delta must never find null.
"""

from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from schemas.rows import LONG, TABLES

Type = str | dict[str, Any]
"""As in the schema of a Delta log: the name of a simple type, or an object for other types."""

_SIMPLE: Final[dict[type, str]] = {
    int: "integer",
    float: "double",
    str: "string",
    bool: "boolean",
    datetime: "timestamp",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table, or the fields of a struct; all are nullable and documented.

    >>> from schemas.rows import Voter
    >>> lag = Columns(Voter).json["fields"][2]
    >>> lag["type"], lag["metadata"]["comment"]
    ('long', "offsets that it is behind the quorum's leader, null if it is unknown")
    """

    row: type[Struct]

    @property
    def names(self) -> list[str]:
        """The cluster, then what the class of the row states itself, then what it inherits."""
        fields = self.row.__struct_fields__
        return [name for name in dict.fromkeys(("cluster", *self.row.__annotations__, *fields)) if name in fields]

    @property
    def json(self) -> dict[str, Any]:
        """The schema string of a Delta log, and the input of `StructType.fromJson`."""
        hints = get_type_hints(self.row, include_extras=True)
        return {"type": "struct", "fields": [_field(name, hints[name]) for name in self.names]}


def _field(name: str, hint: object) -> dict[str, Any]:
    *_, comment = _parts(hint)
    return {"name": name, "type": _type(hint), "nullable": True, "metadata": {"comment": comment}}


def _type(hint: object) -> Type:
    kind, *notes = _parts(hint)
    if LONG in notes:
        return "long"
    arguments = [_type(argument) for argument in get_args(kind)]
    if get_origin(kind) is list:
        return {"type": "array", "elementType": arguments[0], "containsNull": True}
    if get_origin(kind) is dict:
        return {"type": "map", "keyType": arguments[0], "valueType": arguments[1], "valueContainsNull": True}
    return Columns(kind).json if issubclass(kind, Struct) else _SIMPLE[kind]


def _parts(hint: object) -> list[Any]:
    """Return a type without null, and its annotations, of which the last is the comment of a column."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return [*_parts(kind), *notes]
    if get_origin(hint) in {Union, UnionType}:
        return next(_parts(kind) for kind in get_args(hint) if kind is not NoneType)
    return [hint]


def uncommented(part: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema's JSON without comments, which are metadata that other schemas of the same table lack."""
    if isinstance(part, dict):
        return {key: {} if key == "metadata" else uncommented(value) for key, value in part.items()}
    return [uncommented(item) for item in part] if isinstance(part, list) else part


TABLE_COLUMNS: Final[dict[str, Columns]] = {row.TABLE: Columns(row) for row in TABLES}

KEY_COLUMNS: Final[dict[str, tuple[str, ...]]] = {row.TABLE: row.KEY for row in TABLES}
"""Columns that are never null, besides `cluster`."""

CHECKS: Final[dict[str, dict[str, str]]] = {
    "partitions": {"partition_not_negative": "partition >= 0"},
    "changes": {
        "isr_never_emptied": "isr_after IS NULL OR cardinality(isr_after) > 0 OR cardinality(isr_before) = 0",
    },
    "sizes": {"bytes_not_negative": "bytes >= 0"},
}
"""Delta CHECK constraints: rows that no writer may store."""

SCHEMA_VERSION: Final = 4
"""The version of all tables, which each of them stores. A release that changes any table increases it, also if it only
adds columns.

New columns must be nullable, because that is all that an upgrade in place does.
"""
