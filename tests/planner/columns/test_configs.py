"""Config values in SQL, in plain Python, and as Kafka's `ConfigDef.parseType` parses them."""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.columns.config_values import MIN_ISR_OVERRIDE, UNCLEAN_OVERRIDE, boolean, whole_number
from schemas import topic_configs
from schemas.tables import TOPICS
from schemas.topic_configs import MIN_ISR, UNCLEAN_ELECTION
from tests.planner.frames import frame, topic_row

# value -> as a BOOLEAN, as an INT; None: ConfigException
VALUES: Final[list[tuple[str | None, bool | None, int | None]]] = [
    ("true", True, None),
    (" true ", True, None),
    (" False ", False, None),
    ("\tTRUE\r\n", True, None),
    ("\x00true\x1f", True, None),
    ("\xa0true", None, None),
    ("tru e", None, None),
    ("yes", None, None),
    ("1", None, 1),
    (" 2", None, 2),
    ("+3\n", None, 3),
    ("-4", None, -4),
    ("007", None, 7),
    ("2.5", None, None),
    ("1e3", None, None),
    ("1_000", None, None),
    ("- 1", None, None),
    ("2147483647", None, 2147483647),
    ("2147483648", None, None),
    ("", None, None),
    ("  ", None, None),
    (None, None, None),
]


def test_values_are_read_alike_in_sql_and_in_python(spark: SparkSession) -> None:
    texts = [value for value, _, _ in VALUES]
    rows = spark.createDataFrame(list(enumerate(texts)), "number int, value string")
    both = rows.select("number", F.expr(boolean("value")), F.expr(whole_number("value"))).orderBy("number")

    by_sql = [tuple(row)[1:] for row in both.collect()]
    by_python = [(topic_configs.boolean(text), topic_configs.whole_number(text)) for text in texts]

    assert by_sql == by_python
    assert by_python == [(as_boolean, as_number) for _, as_boolean, as_number in VALUES]


# a topic's config -> whether it allows unclean elections, its min.insync.replicas; None: not set
OVERRIDES: Final[list[tuple[dict[str, str | None] | None, bool | None, int | None]]] = [
    ({}, None, None),
    ({UNCLEAN_ELECTION: " True ", MIN_ISR: " 2"}, True, 2),
    ({UNCLEAN_ELECTION: "false", MIN_ISR: "many"}, False, None),
    ({UNCLEAN_ELECTION: "maybe"}, False, None),
    # an unreadable value allows nothing
    ({UNCLEAN_ELECTION: None, MIN_ISR: None}, False, None),
    ({"retention.ms": None, MIN_ISR: "3"}, None, 3),
    (None, False, None),
]


def test_what_topics_say(spark: SparkSession) -> None:
    topics = [topic_row(f"t{number}", config=config) for number, (config, _, _) in enumerate(OVERRIDES)]
    said = frame(spark, topics, TOPICS).orderBy("topic").select(F.expr(UNCLEAN_OVERRIDE), F.expr(MIN_ISR_OVERRIDE))

    assert [tuple(row) for row in said.collect()] == [(unclean, minimum) for _, unclean, minimum in OVERRIDES]
