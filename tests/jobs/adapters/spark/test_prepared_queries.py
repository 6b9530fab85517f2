"""What a query answers that was prepared when its tables were empty, about whatever rows are there now."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.spark.prepared_queries import ParameterTables, PreparedQuery, with_minimal_optimizer

Rows = list[dict[str, Any]]

SHAPES = {"led": "topic string, partition int, leader int", "live": "broker int"}

QUERY = """
    SELECT topic, count(*) AS lost, collect_list(partition) AS partitions, (SELECT count(*) FROM live) AS there
    FROM led LEFT ANTI JOIN live ON leader = broker
    WHERE leader NOT IN (SELECT max(broker) FROM live)
    GROUP BY topic ORDER BY topic
"""
"""A join that is broadcast, subqueries of both kinds, and a sum: whatever a plan may keep of the rows it saw first."""


@pytest.fixture
def files(spark: SparkSession) -> Iterator[ParameterTables]:
    empty = {name: spark.createDataFrame([], shape).schema for name, shape in SHAPES.items()}
    files = ParameterTables(spark, empty)
    for name, frame in files.frames.items():
        frame.createOrReplaceTempView(name)
    yield files
    for name in SHAPES:
        spark.catalog.dropTempView(name)


@pytest.fixture
def query(spark: SparkSession, files: ParameterTables) -> DataFrame:
    assert set(files.frames) == set(SHAPES)
    return spark.sql(QUERY)


def oracle(led: Rows, live: set[int]) -> Rows:
    lost = [row for row in led if live and row["leader"] not in live]
    rows = sorted(lost, key=itemgetter("topic", "partition"))
    topics = [(topic, [row["partition"] for row in some]) for topic, some in groupby(rows, itemgetter("topic"))]
    return [{"topic": topic, "lost": len(some), "partitions": some, "there": len(live)} for topic, some in topics]


def test_it_answers_about_the_rows_that_are_there_now(
    spark: SparkSession, files: ParameterTables, query: DataFrame
) -> None:
    prepared = PreparedQuery.of(query, with_minimal_optimizer(spark))
    dice = Random(7)  # noqa: S311 - the same each time
    asked, answers = [], []
    for size in (0, 9, 2, 9, 0, 5):
        live = {*dice.sample(range(5), dice.randint(1, 3))}
        led = [
            {"topic": dice.choice("ab"), "partition": number, "leader": dice.randint(0, 4)} for number in range(size)
        ]
        files.put("led", led)
        files.put("live", [{"broker": broker} for broker in sorted(live)])
        asked.append(oracle(led, live))
        answers.append([{**row, "partitions": sorted(row["partitions"])} for row in prepared.run()])
    assert answers == asked
    assert [len(rows) for rows in asked] != [0] * 6


def test_a_value_of_another_type_is_refused(spark: SparkSession, files: ParameterTables, query: DataFrame) -> None:
    prepared = PreparedQuery.of(query, with_minimal_optimizer(spark))
    files.put("live", [{"broker": 1}])
    files.put("led", [{"topic": "a", "partition": 0, "leader": "two"}])
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        prepared.run()


def test_the_session_it_came_from_keeps_all_rules(spark: SparkSession) -> None:
    setting = "spark.sql.optimizer.excludedRules"
    few = with_minimal_optimizer(spark)
    assert spark.conf.get(setting, "") == ""
    assert "ColumnPruning" in str(few.conf.get(setting))
    assert "ComputeCurrentTime" not in str(few.conf.get(setting))
