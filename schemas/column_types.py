"""Columns and their types as Spark and Delta write them in JSON, so that a schema can be had without either of them.

`Columns.json` is what a Delta log says of a schema, and what `StructType.fromJson` reads.
"""

from dataclasses import dataclass
from typing import Any, Final

Type = str | dict[str, Any]
"""As in the schema of a Delta log: the name of a simple type, an object for others."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct: every one may be null, and says what it is."""

    name: str
    type: Type
    comment: str

    @property
    def json(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "nullable": True, "metadata": {"comment": self.comment}}


@dataclass(frozen=True, slots=True)
class Columns:
    """Those of a table, or of a struct within one."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def json(self) -> dict[str, Any]:
        return {"type": "struct", "fields": [column.json for column in self.columns]}


def array(of: Type) -> Type:
    return {"type": "array", "elementType": of, "containsNull": True}


def string_map(to: Type) -> Type:
    return {"type": "map", "keyType": STRING, "valueType": to, "valueContainsNull": True}


INT: Final = "integer"
LONG: Final = "long"
DOUBLE: Final = "double"
STRING: Final = "string"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
BROKER_IDS: Final = array(INT)
