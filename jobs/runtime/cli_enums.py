"""Choices of options: commit modes, formats and dialects.

They are separate from the code that uses them, which is slow to import, because `--help` and completion need them.
"""

from enum import StrEnum


class Mode(StrEnum):
    """Which controller makes the changes of a plan."""

    AUTO = "auto"
    """Kafka's controller if it can execute the plan, else Surveyor."""
    ADMIN = "admin"
    """Kafka's controller, by requests."""
    BATCH = "batch"
    """Surveyor, which takes over the controllership for a moment."""


class Format(StrEnum):
    """Format of exported plan targets."""

    KAFKA = "kafka"
    """The JSON of kafka-reassign-partitions."""
    KAFKA_GENERATE = "kafka-generate"
    """The output of its --generate."""


class Dialect(StrEnum):
    """The program that registers the tables."""

    SPARK = "spark"
    """Spark SQL, with a Hive metastore or Unity Catalog."""
    TRINO = "trino"


class TextFormat(StrEnum):
    """Wording of a verification."""

    SURVEYOR = "surveyor"
    KAFKA = "kafka"


class Output(StrEnum):
    """Format of results."""

    TABLE = "table"
    """Tables and lines for people, as without the option."""
    WIDE = "wide"
    """A table with every column."""
    JSON = "json"
    """The object of --json."""
    YAML = "yaml"
    """The object of --json as YAML."""


class LoadGrouping(StrEnum):
    """Rows of a load."""

    BROKER = "broker"
    RACK = "rack"
    TOPIC = "topic"
    PARTITION = "partition"
    GROUP = "group"
