"""Columns and their types in the JSON of Spark and Delta, so that schemas can be used without either of them.

`Columns.json` is the schema string of a Delta log, and the input of `StructType.fromJson`.
"""

from dataclasses import dataclass
from typing import Any, Final

Type = str | dict[str, Any]
"""As in the schema of a Delta log: the name of a simple type, or an object for other types."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct; all are nullable and documented."""

    name: str
    type: Type
    comment: str

    @property
    def json(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "nullable": True, "metadata": {"comment": self.comment}}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table, or the fields of a struct."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def json(self) -> dict[str, Any]:
        return {"type": "struct", "fields": [column.json for column in self.columns]}


def uncommented(part: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema's JSON without comments, which are metadata that other schemas of the same table lack."""
    if isinstance(part, dict):
        return {key: {} if key == "metadata" else uncommented(value) for key, value in part.items()}
    return [uncommented(item) for item in part] if isinstance(part, list) else part


def array(element: Type) -> Type:
    return {"type": "array", "elementType": element, "containsNull": True}


def string_map(to: Type) -> Type:
    return {"type": "map", "keyType": STRING, "valueType": to, "valueContainsNull": True}


INT: Final = "integer"
LONG: Final = "long"
DOUBLE: Final = "double"
STRING: Final = "string"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
BROKER_IDS: Final = array(INT)
