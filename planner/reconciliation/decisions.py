"""What rules decide of partitions: a change, or why there is none; and which of several changes comes first.

Corresponds to the order in which `KafkaController` handles what one event sets off. A cycle gives a partition one
change at most, and the next cycle takes the next step; so of several the first in `Precedence` is taken, and the
others wait. In: rows of rules. Out: DECISIONS.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from planner.columns.changes import changes_in_sql
from schemas.enums import RejectionCode
from schemas.tables import CHANGES

DECISIONS: Final = StructType(
    [
        *CHANGES,
        StructField("code", StringType(), metadata={"comment": "why there is no change, or what stays to be done"}),
        StructField("why_not", StringType(), metadata={"comment": "the same in words"}),
        StructField("wanted", StringType(), metadata={"comment": "the action that was wanted"}),
        StructField("precedence", IntegerType(), metadata={"comment": "the rule's place in the order of rules"}),
        StructField("withdrawn", BooleanType(), metadata={"comment": "the request for it is done with"}),
    ],
)
"""A row a partition and rule: `action` is null where the rule makes no change; no table stores them."""

FULFILLED: Final = frozenset({RejectionCode.ALREADY_ASSIGNED, RejectionCode.ALREADY_PREFERRED})
"""Codes of requests that are done with because they are carried out."""

_OWN: Final = ("code", "why_not", "wanted", "precedence", "withdrawn")


class Precedence(IntEnum):
    """Which rule's change a partition gets, the first of these."""

    LEADERSHIP = 1
    """First leaders, elections after failures, ISR shrinks."""
    REASSIGNMENT = 2
    PREFERRED = 3


def decided(partitions: DataFrame, what: Mapping[str, str], precedence: Precedence, action: str) -> DataFrame:
    """Make DECISIONS of partitions that have `action`, `code`, `why_not` and `withdrawn`.

    `what`: the columns that a change changes, in SQL, as in `planner.columns.changes`; `action`: the one wanted, in
    SQL.
    """
    own = {"wanted": action, "precedence": str(precedence.value)}
    columns = (f"CAST({own.get(name, name)} AS {DECISIONS[name].dataType.simpleString()}) AS {name}" for name in _OWN)
    return partitions.where("action IS NOT NULL OR code IS NOT NULL OR withdrawn").selectExpr(
        *changes_in_sql({"plan_id": "''", **what}), *columns
    )


def one_change_each(rules: Sequence[DataFrame]) -> DataFrame:
    """Put the decisions of all rules together, of which each partition gets its first change, and the others wait.

    A request whose change waits stays where it is.
    """
    if len(rules) == 1:
        return rules[0]
    changes_first = Window.partitionBy("topic", "partition").orderBy(F.col("action").isNull(), "precedence")
    waits = "action IS NOT NULL AND turn > 1"
    own = {
        "action": f"IF({waits}, NULL, action)",
        "code": f"IF({waits}, '{RejectionCode.WAITS_FOR_CHANGE}', code)",
        "why_not": f"IF({waits}, concat('another change of it comes first: ', first_action), why_not)",
        "withdrawn": f"withdrawn AND NOT ({waits})",
    }
    ranked = reduce(DataFrame.unionByName, rules).withColumns(
        {"turn": F.row_number().over(changes_first), "first_action": F.first("action").over(changes_first)}
    )
    return ranked.selectExpr(*(f"{own.get(name, name)} AS {name}" for name in DECISIONS.names))
