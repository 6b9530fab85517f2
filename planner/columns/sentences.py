"""Sentences of `schemas.reasons` on Spark: their details are columns."""

from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, format_ids, format_ids_sql, no_brokers
from schemas import reasons
from schemas.reasons import DRAINED_BROKER_LEADS, FAILED_LOG_DIRS, Sentence


def sentence(words: Sentence, **details: Column) -> Column:
    """Return the sentence with these details, null if one of them is null.

    >>> row = spark.range(1).select(F.array(F.lit(1), F.lit(2)).alias("isr"), F.lit(3).alias("leader"))
    >>> words = Sentence("ISR {isr:ids}, led by {leader}")
    >>> row.select(sentence(words, isr=F.col("isr"), leader=F.col("leader")).alias("said")).first().said
    'ISR 1, 2, led by 3'
    """
    return F.concat(*_columns(words, details))


def sentences(first: Column, *parts: Column) -> Column:
    """Return a sentence with the parts that follow it, without those that are null; null if the sentence is.

    >>> row = spark.createDataFrame([(1, None), (2, 3)], "leader int, drained int")
    >>> drained = sentence(Sentence("; drained: {drained}"), drained=F.col("drained"))
    >>> leads = sentence(Sentence("broker {leader} leads"), leader=F.col("leader"))
    >>> [said for said, in row.select(sentences(leads, drained)).collect()]
    ['broker 1 leads', 'broker 2 leads; drained: 3']
    """
    return F.concat(first, F.concat_ws("", *parts))


def _columns(words: Sentence, details: Mapping[str, Column]) -> Iterator[Column]:
    for text, name, is_list in words.parts():
        if text:
            yield F.lit(text)
        if name is not None:
            yield format_ids(details[name]) if is_list else details[name].cast("string")


def sentence_sql(words: Sentence, **details: str) -> str:
    """Return SQL for the sentence with these details, which are SQL as well.

    >>> sentence_sql(Sentence("broker {leader} is not live"), leader="leader")
    "concat('broker ', string(leader), ' is not live')"
    """
    return f"concat({', '.join(_expressions(words, details))})"


def sentences_sql(first: str, *parts: str) -> str:
    """Return SQL for a sentence with the parts that follow it, as `sentences` does.

    >>> sentences_sql("reason", "IF(unclean, '; may lose data', NULL)")
    "concat(reason, concat_ws('', IF(unclean, '; may lose data', NULL)))"
    """
    return f"concat({first}, concat_ws('', {', '.join(parts)}))"


def _expressions(words: Sentence, details: Mapping[str, str]) -> Iterator[str]:
    for text, name, is_list in words.parts():
        if text:
            yield f"'{text}'"
        if name is not None:
            yield format_ids_sql(details[name]) if is_list else f"string({details[name]})"


def drained_leads(leader: str) -> str:
    """Return SQL for the part of a reason that names the leader if it is drained, else null."""
    return f"IF(array_contains(drained, {leader}), {sentence_sql(DRAINED_BROKER_LEADS, leader=leader)}, NULL)"


FAILED_SUFFIX: Final = f"IF(size({FAILED_COLUMN}) > 0, {sentence_sql(FAILED_LOG_DIRS, failed=FAILED_COLUMN)}, NULL)"
"""SQL for the part of a reason that names the brokers with a failed log dir, else null."""


def leaderless_reason() -> Column:
    """Return the reason why a partition without a live leader in its ISR must not be moved."""
    leader = F.coalesce(F.col("leader").cast("string"), F.lit("none"))
    return sentence(reasons.LEADERLESS, leader=leader, isr=F.coalesce("isr", no_brokers()))
