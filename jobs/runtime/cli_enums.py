"""The words that options choose from: who writes, how a controller is asked, how results are written.

They stand apart from what acts on them, which takes long to import: `--help` and completion list them.
"""

from enum import StrEnum


class Mode(StrEnum):
    """Who writes what a plan says."""

    AUTO = "auto"
    """Kafka's controller where it can execute the plan, else Surveyor."""
    ADMIN = "admin"
    """Kafka's controller, which is asked."""
    BATCH = "batch"
    """Surveyor, which takes the controllership for a moment."""


class Via(StrEnum):
    """How Kafka's controller is asked."""

    ADMIN = "admin"
    """By the Admin API."""
    ZOOKEEPER = "zookeeper"
    """By /admin/reassign_partitions and /admin/preferred_replica_election, as before Kafka 2.4."""


class Format(StrEnum):
    """What a plan's targets are written for."""

    KAFKA = "kafka"
    """The JSON of kafka-reassign-partitions."""
    KAFKA_GENERATE = "kafka-generate"
    """What its --generate prints."""


class TextFormat(StrEnum):
    """In whose words a verification is written."""

    SURVEYOR = "surveyor"
    KAFKA = "kafka"


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    """Tables and lines for people, as without the option."""
    WIDE = "wide"
    """A table with every column."""
    JSON = "json"
    """The object of --json."""
    YAML = "yaml"
    """The same object."""
