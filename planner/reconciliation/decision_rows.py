"""The decision on each partition: a change or the reason for none, and of several changes the first by `Precedence`.

Corresponds to the order in which `KafkaController` handles the effects of one event. A cycle makes one change at most
to a partition, and the next cycle takes the next step. Of several changes the first one in `Precedence` is made, and
the others wait. In: rows of rules. Out: DECISIONS.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from planner.columns.change_rows import changes_in_sql
from planner.columns.sentences import sentence_sql
from schemas.enums import RejectionCode
from schemas.reasons import WAITS_FOR_CHANGE
from schemas.tables import CHANGES

DECISIONS: Final = StructType(
    [
        *CHANGES,
        StructField("code", StringType(), metadata={"comment": "why there is no change, or what remains to be done"}),
        StructField("why_not", StringType(), metadata={"comment": "the same in words"}),
        StructField("wanted", StringType(), metadata={"comment": "the action that was wanted"}),
        StructField("precedence", IntegerType(), metadata={"comment": "the rule's place in the order of rules"}),
        StructField("withdrawn", BooleanType(), metadata={"comment": "the request for it can be withdrawn"}),
    ],
)
"""One row for each partition and rule. `action` is null if the rule makes no change. No table stores these rows."""

_OWN: Final = ("code", "why_not", "wanted", "precedence", "withdrawn")


class Precedence(IntEnum):
    """The order of the rules: a partition gets the change of the first one that makes a change."""

    LEADERSHIP = 1
    """First leaders, elections after failures, ISR shrinks."""
    REASSIGNMENT = 2
    PREFERRED = 3


def to_decisions(
    partitions: DataFrame, change_columns: Mapping[str, str], precedence: Precedence, wanted: str
) -> DataFrame:
    """Make DECISIONS of partitions that have `action`, `code`, `why_not` and `withdrawn`.

    `change_columns`: SQL for the columns that a change modifies, as in `planner.columns.change_rows`. `wanted`: SQL for
    the wanted action.
    """
    own_columns = {"wanted": wanted, "precedence": str(precedence.value)}
    columns = (
        f"CAST({own_columns.get(name, name)} AS {DECISIONS[name].dataType.simpleString()}) AS {name}" for name in _OWN
    )
    return partitions.where("action IS NOT NULL OR code IS NOT NULL OR withdrawn").selectExpr(
        *changes_in_sql({"plan_id": "''", **change_columns}), *columns
    )


def one_change_per_partition(rules: Sequence[DataFrame]) -> DataFrame:
    """Combine the decisions of all rules; each partition gets its first change, and the others wait.

    A request whose change waits is not withdrawn.
    """
    if len(rules) == 1:
        return rules[0]
    changes_first = Window.partitionBy("topic", "partition").orderBy(F.col("action").isNull(), "precedence")
    waits = "action IS NOT NULL AND turn > 1"
    waits_for = sentence_sql(WAITS_FOR_CHANGE, action="first_action")
    own_columns = {
        "action": f"IF({waits}, NULL, action)",
        "code": f"IF({waits}, '{RejectionCode.WAITS_FOR_CHANGE}', code)",
        "why_not": f"IF({waits}, {waits_for}, why_not)",
        "withdrawn": f"withdrawn AND NOT ({waits})",
    }
    ranked = reduce(DataFrame.unionByName, rules).withColumns(
        {"turn": F.row_number().over(changes_first), "first_action": F.first("action").over(changes_first)}
    )
    return ranked.selectExpr(*(f"{own_columns.get(name, name)} AS {name}" for name in DECISIONS.names))
