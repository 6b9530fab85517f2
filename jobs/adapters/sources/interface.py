"""The interface of a metadata source: what snapshots and live views read, wherever a cluster keeps it.

Two implementations exist, `jobs.adapters.sources.zookeeper` and `jobs.adapters.sources.kraft`. Code that reads a
cluster uses only this interface and does not distinguish them. A fact that a source does not have is null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from schemas.metadata_names import IN_ZOOKEEPER, MetadataNames
from schemas.rows import Broker, QuarantinedZnode, Voter, ZnodeRequest, topics_queued_for_deletion
from schemas.security_digests import SecurityReading

TopicOverrides = Mapping[str, str | None] | None
"""A topic's config; None if it cannot be read, and values likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefaults:
    """Broker configs that are known before the brokers are queried."""

    defaults: Mapping[str, str | None]
    """Names that get a row, with Kafka's defaults."""
    overrides: Mapping[int | None, Mapping[str, str | None]] = field(default_factory=dict)
    """Dynamic settings by broker id; the key None applies to every broker."""


@dataclass(slots=True, kw_only=True)
class ClusterMetadata:
    """The small part of a cluster's metadata: everything except topics and partitions."""

    controller_id: int | None
    """The controller, or the leader of the quorum; NO_CONTROLLER if there is none, None if it cannot be read."""
    controller_epoch: int | None
    controller_epoch_version: int | None = None
    position: int | None
    """Last transaction at the time of reading: a zxid, or the high watermark of the quorum."""
    cluster_id: str | None
    migration: str | None = None
    brokers: list[Broker]
    """Registered brokers, including those that are not understood or fenced."""
    requests: list[ZnodeRequest] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    metadata_version: int | None = None
    voters: list[Voter] | None = None
    names: MetadataNames = IN_ZOOKEEPER
    """How messages name what was read."""

    @property
    def control(self) -> dict[str, int | None]:
        """The controller's id and epoch, as columns of SNAPSHOTS."""
        return {"controller_id": self.controller_id, "controller_epoch": self.controller_epoch}

    @property
    def live_brokers(self) -> list[Broker]:
        """Registered brokers that are not fenced."""
        return [row for row in self.brokers if row.is_live]

    @property
    def live(self) -> dict[int, int | None]:
        """Broker epochs of the live brokers by broker id; an epoch that the source does not have is None."""
        return {row.broker_id: row.broker_epoch for row in self.live_brokers}

    @property
    def deleting(self) -> frozenset[str]:
        """Topics queued for deletion."""
        return topics_queued_for_deletion(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """The part of a cluster's metadata that the driver reads before Spark starts."""

    metadata: ClusterMetadata
    is_small: bool
    """Whether there are so few partitions that Spark's parallelism costs more than it saves."""
    settings: ConfigDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading:
    """The current state of a cluster, or of one of its topics."""

    metadata: ClusterMetadata
    configs: Mapping[str, TopicOverrides]
    partitions: pa.Table
    quarantine: Sequence[QuarantinedZnode]
    """All rows of QUARANTINE, including the rows of `metadata`."""
    throttle_rates: Mapping[str, Mapping[str, str]]
    """Throttle rates by broker or DEFAULT_ENTITY."""
    unread_broker_configs: Mapping[str, str]
    """Reasons why throttle rates are unknown, by the path that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Topics and partitions as one process read them: columns of TOPICS and of PARTITIONS without derived ones."""

    topics: pa.Table
    partitions: pa.Table
    quarantine: Sequence[QuarantinedZnode]
    read_seconds: float
    decode_seconds: float
    torn: Sequence[str] = ()
    """Topics that are left out, as they changed while they were read; they have to be read once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingEnd:
    """The position after reading, ACLs and the like, and warnings about what could not be read."""

    position: int | None
    security: SecurityReading
    warnings: Sequence[str] = ()


class ClusterSource(Protocol):
    """The source of a cluster's metadata; `str` gives its address."""

    @property
    def medium(self) -> str:
        """Name of the metadata's store, for messages."""

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read everything except topics and partitions; up to `small_partitions` partitions a cluster is small.

        Raise UnreadableError if the source cannot be reached, or contains no Kafka cluster.
        """

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id, None if it is not known, and the registered brokers."""

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers, and what is known of their configs before they are asked."""

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the whole cluster without Spark, with the partitions of all topics or one.

        `columns` of PARTITIONS are in the order of its schema.
        """

    def read_end(self) -> ReadingEnd:
        """Read the position after topics and partitions were read."""
