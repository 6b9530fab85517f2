"""Rows of the tables as Python objects: the one statement of each table, from which `schemas.columns` derives the rest.

The type of a field is annotated with the column's comment; `int` is a column of 32 bits, `Long` one of 64. A row that
does not fit, for example because a column was set to null, is refused when it is read. A column with a default may be
null, or absent from a warehouse of an older version.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta, Struct

from schemas.enums import STANDALONE, WHOLE_TOPIC, PlanKind, PlanStatus, PlanTraits, RequestKind
from schemas.metadata_names import IN_KRAFT, IN_ZOOKEEPER, MetadataNames
from schemas.text import partition_name
from schemas.znode_codecs import Endpoint, State

CONTROL: Final = "control"
"""Parameter that marks the plan of a `surveyor control` cycle; its value is the controller epoch."""

Row = dict[str, Any]
"""A row by column, as read from a table or written to one."""
Brokers = list[int]
Key = tuple[str, int]
"""Topic and partition; WHOLE_TOPIC stands for the partition of a whole topic."""
Place = tuple[int, str, int | None, str]
"""Wave, topic, partition and action."""

LONG: Final = Meta(extra_json_schema={"format": "int64"})
Long = Annotated[int, LONG]

ClusterName = Annotated[str, "name of the cluster, as in --cluster"]
SnapshotId = Annotated[Long, "snapshot that wrote this row"]
TopicName = Annotated[str, "topic name"]
PartitionNumber = Annotated[int, "partition number within the topic"]
SampledAt = Annotated[datetime, "when the broker answered, UTC"]
StoredAt = Annotated[datetime, "when the sampler stored it, UTC"]
TopicId = Annotated[str, "topic id, null if the topic has none (before Kafka 2.8)"]
PlanId = Annotated[str, "hash of the plan's snapshot, kind, parameters and rows"]


class TableRow(Struct, frozen=True, kw_only=True):
    """A row of the table that `TABLE` names. Its columns in `KEY`, and the cluster, are never null."""

    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]
    cluster: ClusterName = ""

    def columns(self) -> dict[str, Any]:
        """Return the values by column, as stored."""
        values: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(datetime,))
        return values


class Voter(Struct, frozen=True, kw_only=True):
    """A voter of a KRaft quorum and its copy of the metadata log."""

    voter_id: Annotated[int, "node id of the voter"]
    log_end_offset: Annotated[Long | None, "end of its copy of the metadata log, null if it is unknown"] = None
    lag: Annotated[Long | None, "offsets that it is behind the quorum's leader, null if it is unknown"] = None
    lag_ms: Annotated[Long | None, "milliseconds since it had caught up with the leader, null if it is unknown"] = None


class Snapshot(TableRow, frozen=True, kw_only=True):
    """One row of SNAPSHOTS."""

    TABLE = "snapshots"
    KEY = ("snapshot_id",)
    snapshot_id: Annotated[Long, "counts up from 1 within a cluster"]
    taken_at: Annotated[datetime, "when reading began, UTC"]
    controller_id: Annotated[
        int | None,
        "broker id in /controller, in KRaft the quorum's leader; -1 if there is none, null if it cannot be decoded",
    ] = None
    controller_epoch: Annotated[
        int | None,
        "number in /controller_epoch, in KRaft the epoch of the quorum's leader; null if it cannot be decoded",
    ] = None
    controller_epoch_version: Annotated[int | None, "znode version of /controller_epoch, null in KRaft"] = None
    zxid_before: Annotated[
        Long | None, "last zxid of the server when reading began, in KRaft the quorum's high watermark"
    ] = None
    zxid_after: Annotated[
        Long | None, "last zxid of the server when reading ended, in KRaft the quorum's high watermark"
    ] = None
    acls: Annotated[int | None, "number of ACLs, null if unreadable"] = None
    quotas: Annotated[int | None, "number of client quotas, one for each entity and name; null if unreadable"] = None
    scram_credentials: Annotated[
        int | None, "number of SCRAM credentials, one for each user and mechanism; null if unreadable"
    ] = None
    acls_digest: Annotated[
        str | None, "SHA-256 of all ACLs, the same from ZooKeeper and from KRaft; null if unreadable"
    ] = None
    quotas_digest: Annotated[str | None, "SHA-256 of all client quotas with their values; null if unreadable"] = None
    scram_digest: Annotated[
        str | None, "SHA-256 of users, mechanisms and iterations of SCRAM credentials; null if unreadable"
    ] = None
    brokers: Annotated[int | None, "registered brokers"] = None
    topics: Annotated[int | None, "topics"] = None
    partitions: Annotated[Long | None, "partitions"] = None
    quarantined: Annotated[Long | None, "znodes that could not be decoded"] = None
    seconds: Annotated[float | None, "how long the snapshot took"] = None
    versions: Annotated[dict[str, Long], "table name to the Delta version that belongs to this snapshot"] = {}
    cluster_id: Annotated[str | None, "id in /cluster/id"] = None
    migration: Annotated[str | None, "the sign of a KRaft migration in ZooKeeper, null if none"] = None
    metadata_version: Annotated[
        int | None, "KRaft: finalized level of the feature metadata.version, null if it is unknown"
    ] = None
    voters: Annotated[list[Voter] | None, "KRaft: voters of the quorum, null if they are unknown"] = None

    @property
    def is_of_kraft(self) -> bool:
        """Whether it was read from the brokers of a KRaft cluster, which has no znode of the controller epoch."""
        return self.controller_epoch_version is None

    @property
    def names(self) -> MetadataNames:
        """How messages name what it was read from: in KRaft, brokers report a metadata.version or voters."""
        return IN_ZOOKEEPER if self.metadata_version is None and self.voters is None else IN_KRAFT


class Broker(TableRow, frozen=True, kw_only=True):
    """One row of BROKERS. If the registration cannot be decoded, only id, epoch and version are known."""

    TABLE = "brokers"
    KEY = ("broker_id",)
    snapshot_id: SnapshotId | None = None
    broker_id: Annotated[int, "child of /brokers/ids"]
    broker_epoch: Annotated[
        Long | None,
        "czxid of the registration: grows when the broker re-registers; -1 if its ACL denies read access, null "
        "in KRaft",
    ] = None
    state_version: Annotated[
        int | None, "znode version of the registration; -2 if its ACL denies read access, null in KRaft"
    ] = None
    host: Annotated[
        str | None, "host of the first PLAINTEXT endpoint, null if there is none; in KRaft of the one endpoint"
    ] = None
    port: Annotated[
        int | None, "port of the first PLAINTEXT endpoint, -1 if there is none; in KRaft of the one endpoint"
    ] = None
    endpoints: Annotated[
        list[Endpoint] | None, "all endpoints, in the order registered; in KRaft the endpoint of the listener used"
    ] = None
    rack: Annotated[str | None, "broker.rack, null if unset"] = None
    understood: Annotated[bool, "false: registered and live, but its znode could not be decoded"]
    fenced: Annotated[
        bool | None,
        "KRaft: registered, but not live; null if brokers do not report it: then fenced brokers have no row",
    ] = None

    @property
    def zk_broker_epoch(self) -> int:
        """The broker epoch of a broker in ZooKeeper; raise ValueError for one of a KRaft cluster."""
        if self.broker_epoch is None:
            raise ValueError(f"the broker epoch of broker {self.broker_id} is not known")
        return self.broker_epoch

    @property
    def is_live(self) -> bool:
        """Whether it is live: any registered broker of ZooKeeper, and one of KRaft that is not fenced."""
        return not self.fenced


class LastSeenBroker(TableRow, frozen=True, kw_only=True):
    """One row of BROKERS_LAST_SEEN."""

    TABLE = "brokers_last_seen"
    KEY = ("broker_id",)
    snapshot_id: Annotated[Long, "last snapshot in which it was registered and decoded"]
    broker_id: Annotated[int, "broker that is no longer registered, or can no longer be decoded"]
    broker_epoch: Annotated[Long | None, "czxid of its registration then"] = None
    host: Annotated[str | None, "host of its first PLAINTEXT endpoint then, null if there was none"] = None
    port: Annotated[int | None, "port of its first PLAINTEXT endpoint then, -1 if there was none"] = None
    endpoints: Annotated[list[Endpoint] | None, "all its endpoints then"] = None
    rack: Annotated[str | None, "broker.rack then, null if it was unset"] = None
    last_seen_at: Annotated[datetime, "when that snapshot was taken, UTC"]


class Topic(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of TOPICS."""

    TABLE = "topics"
    KEY = ("topic",)
    snapshot_id: SnapshotId | None = None
    topic: TopicName
    topic_id: Annotated[str | None, "22 characters of base64url, null before Kafka 2.8"] = None
    topic_version: Annotated[
        int | None, "znode version of /brokers/topics/T; -2 if its ACL denies read access, null in KRaft"
    ] = None
    config: Annotated[
        dict[str, str | None] | None,
        "overrides in /config/topics/T; a value that could not be decoded is null; null if nothing could be decoded",
    ] = None
    deletion_requested: Annotated[bool, "/admin/delete_topics/T exists"]
    understood: Annotated[bool | None, "false: /brokers/topics/T or its config could not be decoded completely"] = None
    assignment_understood: Annotated[bool | None, "false: /brokers/topics/T could not be decoded completely"] = None


class Partition(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of PARTITIONS."""

    TABLE = "partitions"
    KEY: ClassVar[tuple[str, ...]] = ("topic", "partition")
    snapshot_id: Annotated[
        Long | None, "snapshot that last changed this partition; a change of only topic_version does not count"
    ] = None
    topic: TopicName
    partition: PartitionNumber
    replicas: Annotated[Brokers, "assignment, preferred replica first"]
    adding_replicas: Annotated[Brokers, "replicas a running reassignment adds"]
    removing_replicas: Annotated[Brokers, "replicas a running reassignment removes"]
    leader: Annotated[int | None, "leading broker, -1 none, null without a state znode"] = None
    isr: Annotated[Brokers | None, "in-sync replicas, null without a state znode"] = None
    leader_epoch: Annotated[int | None, "leader epoch, null without a state znode"] = None
    controller_epoch: Annotated[int | None, "controller epoch of the last leadership decision"] = None
    state_version: Annotated[
        int | None,
        "znode version of the state (Kafka's partition epoch); -2 if its ACL denies read access, null in KRaft",
    ] = None
    topic_version: Annotated[
        int | None, "znode version of /brokers/topics/T; in partition_history, as of that change"
    ] = None
    leader_recovery_state: Annotated[int | None, "1 while recovering from an unclean election, else 0"] = None
    partition_state: Annotated[
        str | None,
        "New (no state znode), Online, Offline, or NonExistent: vanished, or leaderless during its topic's deletion",
    ] = None
    offline_replicas: Annotated[Brokers | None, "assigned brokers that are not registered"] = None
    under_replicated: Annotated[bool | None, "some assigned replica is not in the ISR"] = None
    under_min_isr: Annotated[bool | None, "the ISR is smaller than min.insync.replicas"] = None
    understood: Annotated[
        bool | None, "false: a znode of this partition could not be decoded; the last good row is kept"
    ] = None
    vanished: Annotated[
        bool | None, "true: it no longer existed, and this is its last row; only in partition_history"
    ] = None
    eligible_leader_replicas: Annotated[
        Brokers | None, "KRaft: replicas out of the ISR that have all records, null if unknown"
    ] = None
    last_known_elr: Annotated[Brokers | None, "KRaft: the last members of the ISR and the ELR, null if unknown"] = None

    @property
    def key(self) -> Key:
        """Topic and partition."""
        return self.topic, self.partition


class PartitionVersion(Partition, frozen=True, kw_only=True, gc=False):
    """One row of PARTITION_HISTORY."""

    TABLE = "partition_history"
    KEY = ("topic", "partition", "snapshot_id")


class ZnodeRequest(TableRow, frozen=True, kw_only=True):
    """One row of REQUESTS: a request in /admin, or a notification of brokers to the controller."""

    TABLE = "requests"
    KEY = ("kind", "path")
    snapshot_id: SnapshotId | None = None
    kind: Annotated[str, "reassign, preferred_election, delete_topic, isr_change or log_dir"]
    topic: TopicName | None = None
    partition: PartitionNumber | None = None
    replicas: Annotated[Brokers | None, "reassign: the target"] = None
    broker_id: Annotated[int | None, "log_dir: the reporting broker"] = None
    path: Annotated[str, "znode of the request, in KRaft the request that listed it and its partition"]

    @property
    def key(self) -> Key:
        """Topic and partition, of a deletion WHOLE_TOPIC; a notification of a log dir has neither."""
        return self.topic or "", WHOLE_TOPIC if self.partition is None else self.partition


def topics_queued_for_deletion(requests: Iterable[ZnodeRequest]) -> frozenset[str]:
    return frozenset(row.key[0] for row in requests if row.kind == RequestKind.DELETE_TOPIC)


class BrokerConfig(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of BROKER_CONFIGS: a setting of a broker, or the highest version of an API as `api.<NAME>`."""

    TABLE = "broker_configs"
    KEY = ("broker_id", "name")
    snapshot_id: SnapshotId | None = None
    broker_id: Annotated[int, "broker"]
    name: Annotated[str, "configuration name, or api.<NAME> for the highest version supported"]
    value: Annotated[str | None, "its value; never a secret"] = None
    assumed: Annotated[bool | None, "the broker did not answer: this is Kafka's default"] = None


HIDDEN_TOPICS: Final = "DescribeLogDirs"
"""Path in QUARANTINE of a KRaft cluster if topics may be missing, because this client may not describe all of them."""

_TOPIC_PATH: Final = re.compile(r"(?:/brokers/topics|DescribeTopicPartitions)/([^/]+)")
_PARTITION_PATH: Final = re.compile(
    r"/brokers/topics/([^/]+)/partitions/([^/]+)(?:/state)?|DescribeTopicPartitions/([^/]+)/([^/]+)"
)


class SecurityEntry(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of SECURITY: what one resource, entity or user has, by number and digest."""

    TABLE = "security"
    KEY = ("kind", "subject")
    snapshot_id: SnapshotId | None = None
    kind: Annotated[str, "acl, quota or scram"]
    subject: Annotated[str, "the resource and its pattern that ACLs are for, the entity of quotas, or the user"]
    entries: Annotated[int, "its number of ACLs, of quotas, or of SCRAM credentials"]
    digest: Annotated[str, "SHA-256 of these, the same from ZooKeeper and from KRaft; no secret is part of it"]


class QuarantinedZnode(TableRow, frozen=True, kw_only=True):
    """One row of QUARANTINE: a znode that could not be decoded, or a request of KRaft that was refused."""

    TABLE = "quarantine"
    KEY = ("path", "reason")
    snapshot_id: SnapshotId | None = None
    path: Annotated[str, "znode that could not be decoded, in KRaft the request that was refused and its subject"]
    data: Annotated[str | None, "its data as read, truncated; bytes that are not text as \\xNN"] = None
    reason: Annotated[str, "what was found and what was expected"]
    blocks: Annotated[str | None, "what it blocks in Kafka, as fail-over or broker start; null for nothing"] = None
    mend: Annotated[
        str | None, "zookeeper-shell.sh command that repairs it without loss; null if there is no safe one"
    ] = None

    @property
    def whole_topic(self) -> str | None:
        """The topic whose partitions are not all known; None if the row is about something else.

        >>> QuarantinedZnode(path="DescribeTopicPartitions/orders", reason="refused").whole_topic
        'orders'
        """
        found = _TOPIC_PATH.fullmatch(self.path)
        return found and found[1]

    @property
    def one_partition(self) -> tuple[str, str] | None:
        """The topic and number, as it is written, of an undecodable partition; None if the entry is not a partition.

        >>> paths = "/brokers/topics/orders/partitions/3/state", "DescribeTopicPartitions/orders/3"
        >>> [QuarantinedZnode(path=path, reason="").one_partition for path in paths]
        [('orders', '3'), ('orders', '3')]
        """
        found = _PARTITION_PATH.fullmatch(self.path)
        return None if found is None else (found[1] or found[3], found[2] or found[4])


class ClusterEvent(TableRow, frozen=True, kw_only=True):
    """One row of EVENTS."""

    TABLE = "events"
    KEY = ("snapshot_id", "kind", "subject")
    snapshot_id: SnapshotId
    kind: Annotated[str, "BrokerJoined, LeaderChanged, IsrShrunk, ..."]
    subject: Annotated[str, "broker, topic or topic-partition"]
    before: Annotated[str | None, "in the snapshot before"] = None
    after: Annotated[str | None, "in this snapshot"] = None


class LossImpact(TableRow, frozen=True, kw_only=True):
    """One row of WHATIF: what the loss of some brokers costs."""

    TABLE = "whatif"
    KEY = ("snapshot_id", "lose", "scenario")
    snapshot_id: SnapshotId
    lose: Annotated[str, "what every scenario loses: brokers=1, racks=1 or pairs"]
    scenario: Annotated[str, "what is lost, as displayed: broker 3, rack a, brokers 3+7"]
    lost: Annotated[Brokers, "the brokers lost, ascending"]
    offline: Annotated[
        Long, "partitions without a leader, after clean elections, including those already without one"
    ] = 0
    unclean_only: Annotated[
        Long, "of newly_offline, those that an unclean election could lead: live replicas, none in sync"
    ] = 0
    no_replica: Annotated[Long, "of newly_offline, those without a live replica that can lead"] = 0
    under_min_isr: Annotated[
        Long, "partitions with fewer live ISR members than min.insync.replicas, offline ones too"
    ] = 0
    newly_under_min_isr: Annotated[Long, "of these, those with enough live ISR members before the loss"] = 0
    leaders_moved: Annotated[Long, "partitions led by another broker after the loss"] = 0
    max_leaders: Annotated[Long, "partitions led by the surviving broker that leads most"] = 0
    most_leaders_on: Annotated[int | None, "that broker, the lowest id of several; null if no broker leads"] = None
    mean_leaders: Annotated[float | None, "partitions led, over surviving brokers; null if none survives"] = None
    leader_skew: Annotated[float | None, "max_leaders / mean_leaders: 1 is even; null if no broker leads"] = None
    not_judged: Annotated[Long, "partitions left out: not decodable, or without a state znode"] = 0
    newly_offline: Annotated[
        Long, "of offline, those that would have a leader without the loss, after the elections due now"
    ] = 0


class ReplicaLog(TableRow, frozen=True, kw_only=True):
    """One row of SIZES: the log of a replica."""

    TABLE = "sizes"
    KEY = ("broker_id", "topic", "partition", "log_dir")
    broker_id: Annotated[int, "broker that holds the log"]
    topic: TopicName
    partition: PartitionNumber
    log_dir: Annotated[str, "folder of the log on that broker"]
    bytes: Annotated[Long, "bytes of its segments"]
    offset_lag: Annotated[
        Long,
        "reported by the broker: offsets behind the high watermark it knows, mostly 0 even for a replica that is "
        "still being copied; of a future log, offsets behind the current one; -1 unknown",
    ]
    is_future: Annotated[bool, "a copy in another log dir that will replace the current one"]
    taken_at: Annotated[datetime, "when the broker reported it, UTC"]


class LogDir(TableRow, frozen=True, kw_only=True):
    """One row of LOG_DIRS."""

    TABLE = "log_dirs"
    KEY = ("broker_id", "log_dir")
    broker_id: Annotated[int, "broker that has the log dir"]
    log_dir: Annotated[str, "folder of logs on that broker"]
    total_bytes: Annotated[Long | None, "size of its volume; null if the broker does not report it (before 3.3)"] = None
    usable_bytes: Annotated[Long | None, "free bytes of that volume; null if the broker does not report it"] = None
    error: Annotated[str | None, "why the broker could not read it, null if it could"] = None
    taken_at: Annotated[datetime, "when the broker reported it, UTC"]
    cordoned: Annotated[bool | None, "true: it takes no new replicas; null if the broker does not report it"] = None


class PartitionSample(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of PARTITION_OFFSETS: the offsets and size of one partition, as its leader reported them."""

    TABLE = "partition_offsets"
    KEY = ("sampled_at", "topic", "partition")
    sampled_at: SampledAt
    stored_at: StoredAt
    topic: TopicName
    topic_id: TopicId | None = None
    partition: PartitionNumber
    leader: Annotated[int, "broker that reported it as the leader"]
    leader_epoch: Annotated[int | None, "leader epoch in its response, null if unknown"] = None
    log_start: Annotated[Long | None, "earliest offset, null if unknown"] = None
    local_start: Annotated[
        Long | None, "earliest offset on the leader's disk; null for topics without tiered storage"
    ] = None
    log_end: Annotated[Long | None, "high watermark, up to which consumers read; null if unknown"] = None
    bytes: Annotated[Long | None, "bytes of the leader's log on its disk, null if unknown"] = None


class GroupSample(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of GROUP_OFFSETS: the position of a group in one partition."""

    TABLE = "group_offsets"
    KEY = ("sampled_at", "group_id", "topic", "partition")
    sampled_at: SampledAt
    stored_at: StoredAt
    group_id: Annotated[str, "consumer group or share group"]
    group_type: Annotated[str, "classic, consumer or share"]
    topic: TopicName
    topic_id: TopicId | None = None
    partition: PartitionNumber
    committed: Annotated[Long, "committed offset; of a share group the start offset of the partition"]
    member_rack: Annotated[
        str | None, "rack of the member that reads the partition; null if it names none, or nothing reads it"
    ] = None


class BrokerMetric(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of BROKER_METRICS: one measurement of a broker, or of a topic on it.

    A row of Prometheus is the mean of the hour that begins at `sampled_at`.
    """

    TABLE = "broker_metrics"
    KEY = ("sampled_at", "broker_id", "metric")
    sampled_at: SampledAt
    broker_id: Annotated[int, "broker that was measured"]
    topic: Annotated[str | None, "topic whose share of the broker's traffic it is, null for the whole broker"] = None
    metric: Annotated[
        str,
        "cpu (percent of all cores), bytes_in and bytes_out (bytes per second of clients), replication_in and "
        "replication_out (bytes per second), network_in and network_out (bytes per second of its machine), disk_used "
        "and disk_total (bytes)",
    ]
    value: Annotated[float, "the measurement, in the unit of its metric"]
    source: Annotated[str, "log_dirs, prometheus or file"]


class PartitionLoad(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of PARTITION_LOAD: the mean load of one partition during the covered part of one hour."""

    TABLE = "partition_load"
    KEY = ("topic", "partition", "method")
    hour: Annotated[datetime | None, "start of the hour, UTC; null for an imported load of every hour"] = None
    topic: TopicName
    topic_id: TopicId | None = None
    partition: PartitionNumber
    leader: Annotated[int | None, "leader in the newest sample of the hour, null if unknown"] = None
    records_in: Annotated[
        float | None, "records written per second, markers of transactions included; null if unknown"
    ] = None
    bytes_in: Annotated[float | None, "bytes written per second by producers, without replication; null if unknown"] = (
        None
    )
    bytes_out: Annotated[
        float | None, "bytes read per second by groups that commit, without replication; null if unknown"
    ] = None
    bytes_out_by_rack: Annotated[
        dict[str, float] | None, "of bytes_out, what readers with a rack read, by rack; null if unknown"
    ] = None
    max_5min: Annotated[float | None, "the most bytes_in of a sampled interval that ends in the hour"] = None
    size_bytes: Annotated[Long | None, "bytes of the log at the end of the hour, null if unknown"] = None
    covered_seconds: Annotated[float | None, "seconds of the hour between samples, null if imported"] = None
    samples: Annotated[int, "sampled intervals that the load is made of, 0 if imported"] = 0
    method: Annotated[
        str,
        "where bytes come from: delta_size (growth of the log), mean_size (records by the mean size of a record), "
        "topic_share (records by the mean of the topic) or imported",
    ]
    flags: Annotated[
        list[str] | None,
        "reasons for less accuracy: compacted, moved (another leader), truncated (offsets went back), partial (less "
        "than half of the hour), recompressed (brokers compress again, and bytes are those stored), reset (a group's "
        "offsets were set by hand), unsized (no size of the topic is known)",
    ] = None
    stored_until: Annotated[
        datetime | None, "newest stored_at among the samples of the cluster when it was computed, UTC"
    ] = None


class BrokerLoad(TableRow, frozen=True, kw_only=True):
    """One row of BROKER_LOAD: the mean load of one broker during one hour, summed over its replicas."""

    TABLE = "broker_load"
    KEY = ("broker_id",)
    hour: Annotated[datetime | None, "start of the hour, UTC; null for an imported load of every hour"] = None
    broker_id: Annotated[int, "broker that holds the replicas"]
    leaders: Annotated[Long, "partitions with a known load that it leads"]
    replicas: Annotated[Long, "replicas of partitions with a known load"]
    bytes_in: Annotated[float | None, "bytes per second from producers, as leader; null if unknown"] = None
    replication_in: Annotated[float | None, "bytes per second from leaders, as follower; null if unknown"] = None
    bytes_out: Annotated[float | None, "bytes per second to readers; null if unknown"] = None
    replication_out: Annotated[float | None, "bytes per second to followers, as leader; null if unknown"] = None
    across_racks: Annotated[
        float | None, "of bytes_out, to readers of another rack; null if no reader's rack is known"
    ] = None
    size_bytes: Annotated[Long | None, "bytes of its replicas on disk, null if unknown"] = None
    cpu: Annotated[float | None, "percent of all cores, measured; null if unknown"] = None


class GroupLoad(TableRow, frozen=True, kw_only=True):
    """One row of GROUP_LOAD: what one group reads of one topic during one hour."""

    TABLE = "group_load"
    KEY = ("hour", "group_id", "topic")
    hour: Annotated[datetime, "start of the hour, UTC"]
    group_id: Annotated[str, "consumer group or share group"]
    topic: TopicName
    records_out: Annotated[float | None, "records read per second, null if unknown"] = None
    bytes_out: Annotated[float | None, "bytes read per second, null if unknown"] = None
    lag: Annotated[Long | None, "records between its offsets and the ends of the logs, at the end of the hour"] = None


class ProfiledLoad(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of LOAD_PROFILES: the load of one partition in one window of the week, which plans are made by."""

    TABLE = "load_profiles"
    KEY = ("profile", "version", "topic", "partition", "window")
    profile: Annotated[str, "name of the profile"]
    version: Annotated[Long, "counts up from 1 within a profile; plans name it"]
    created_at: Annotated[datetime, "when it was computed, UTC"]
    weeks: Annotated[int | None, "weeks of hours that it was computed from"] = None
    window: Annotated[str, "hour of the week as 'Mon 20:00', UTC; 'always' for loads of every hour"]
    topic: TopicName
    topic_id: TopicId | None = None
    partition: PartitionNumber
    bytes_in: Annotated[float | None, "bytes written per second by producers, the 95th percentile"] = None
    bytes_out: Annotated[float | None, "bytes read per second by readers, the 95th percentile"] = None
    size_bytes: Annotated[Long | None, "bytes of the log, the newest value"] = None
    growth: Annotated[float | None, "bytes per second that the log grows by, null if unknown"] = None
    cpu_leader: Annotated[
        float | None, "percent of all cores of a broker for the leader, null if CPU is not modelled"
    ] = None
    cpu_follower: Annotated[
        float | None, "percent of all cores of a broker for a follower, null if CPU is not modelled"
    ] = None
    cpu_leader_in: Annotated[
        float | None, "percent of all cores for a byte per second that a leader gets from producers; null without a fit"
    ] = None
    cpu_leader_out: Annotated[
        float | None, "percent of all cores for a byte per second that a leader sends to readers and followers"
    ] = None
    cpu_follower_in: Annotated[float | None, "percent of all cores for a byte per second that a follower gets"] = None
    cpu_r2: Annotated[
        float | None, "R² of this fit to the CPU of brokers, the same in each row; below 0.6 CPU is not modelled"
    ] = None


class BrokerCapacity(TableRow, frozen=True, kw_only=True):
    """One row of BROKER_CAPACITY: the capacity of one resource of a broker, valid until a newer row."""

    TABLE = "broker_capacity"
    KEY = ("broker_id", "resource", "source", "valid_from")
    broker_id: Annotated[int, "broker, -1 for every broker without a row of its own"]
    log_dir: Annotated[str | None, "log dir, null for the whole broker"] = None
    resource: Annotated[
        str, "disk (bytes), in and out (bytes per second, replication included), cpu (percent of all cores) or replicas"
    ]
    capacity: Annotated[
        float | None, "what the broker has of the resource, in its unit; null: it is no longer known"
    ] = None
    limit_share: Annotated[float | None, "share of the capacity that plans may use, null for the default"] = None
    source: Annotated[str, "log_dirs, conf, file or prometheus"]
    valid_from: Annotated[datetime, "when it was recorded, UTC"]


class BrokerImbalance(Struct, frozen=True, kw_only=True):
    """The partitions that prefer a broker, and how many of them it does not lead."""

    broker_id: Annotated[int, "preferred replica of the partitions counted"]
    preferred_partitions: Annotated[Long, "partitions whose preferred replica this broker is"]
    not_led: Annotated[Long, "of these, the ones it does not lead: the imbalance"]
    ratio: Annotated[float, "not_led / preferred_partitions"]
    exceeds: Annotated[bool, "ratio is strictly above the threshold"]
    threshold: Annotated[float, "the threshold it was compared with"]


class BrokerImbalanceRow(BrokerImbalance, frozen=True, kw_only=True):
    """One row of IMBALANCE."""

    TABLE = "imbalance"
    KEY = ("snapshot_id", "broker_id")
    cluster: ClusterName = ""
    snapshot_id: SnapshotId


class DrainedBroker(TableRow, frozen=True, kw_only=True):
    """One row of DRAINED."""

    TABLE = "drained"
    KEY = ("broker_id",)
    broker_id: Annotated[int, "broker that is elected leader only if no other replica is in sync"]
    mode: Annotated[str, "admin: last in the order of replicas; resident: also out of the ISRs, and stopped"]
    controller_epoch: Annotated[
        int | None, "resident: controller epoch of the commit; the drain ends when another controller takes over"
    ] = None
    broker_epoch: Annotated[
        Long | None,
        "the broker's registration when the commit began, -1 if it had none; a resident drain ends when the "
        "broker registers again; null: drained by an older version",
    ] = None
    plan_id: PlanId | None = None
    since: Annotated[datetime, "when the commit of that plan began, UTC"]


class ThrottledConfig(TableRow, frozen=True, kw_only=True):
    """One row of THROTTLES: a config of a broker or topic that a plan's commit sets, and its value before."""

    TABLE = "throttles"
    KEY = ("plan_id", "kind", "resource", "name")
    plan_id: PlanId
    kind: Annotated[str, "broker (rates) or topic (throttled replicas)"]
    resource: Annotated[str, "broker id or topic"]
    name: Annotated[str, "configuration that the plan's commit sets while its replicas move"]
    before: Annotated[str | None, "override that was set before and is restored, null for none"] = None
    set_to: Annotated[list[str], "values this plan set or was about to set, the newest last"]
    source: Annotated[str | None, "'auto' if rates follow the load of brokers, null for a given rate"] = None
    set_at: Annotated[datetime, "when it was first set, UTC"]


class LeaseRecord(TableRow, frozen=True, kw_only=True):
    """One row of LEASES, a lease of a cluster without ZooKeeper, or of snapshots on a store without locks.

    `holder` is a `schemas.lease_holder.LeaseHolder`, whose command shows which of the two it is.
    """

    TABLE = "leases"
    KEY = ("token", "holder", "deadline")
    token: Annotated[str, "identifies the process that took the lease"]
    holder: Annotated[str, "that process as JSON: user, host, process id, command, plan and since when"]
    deadline: Annotated[datetime, "another process may take the lease from then on, UTC; its holder moves it on"]


class RejectionRecord(TableRow, frozen=True, kw_only=True):
    """One row of REJECTIONS: why a plan has no change for a partition, or no operation for a topic."""

    TABLE = "rejections"
    KEY = ("plan_id", "topic", "partition", "code")
    plan_id: PlanId = ""
    topic: TopicName
    partition: Annotated[int, "partition number within the topic, -1 for the whole topic"]
    """WHOLE_TOPIC for a whole topic."""
    action: Annotated[str | None, "requested action"] = None
    code: Annotated[str, "NO_ELIGIBLE_LEADER, ALREADY_PREFERRED, ..."]
    reason: Annotated[str | None, "why there is no change"] = None

    @property
    def name(self) -> str:
        """Name in messages: orders-7, or the topic."""
        return self.topic if self.partition == WHOLE_TOPIC else partition_name(self.topic, self.partition)


class CandidateEvidence(TableRow, frozen=True, kw_only=True):
    """One row of EVIDENCE: a live replica that could lead a partition without a live ISR member."""

    TABLE = "evidence"
    KEY = ("plan_id", "topic", "partition", "broker_id")
    plan_id: PlanId = ""
    topic: TopicName
    partition: PartitionNumber
    broker_id: Annotated[int, "live replica that could lead a partition without a live ISR member"]
    rank: Annotated[int, "1 may lose least"]
    chosen: Annotated[bool, "the plan elects it if unclean is allowed: in `plan recover` the one ranked first"] = False
    kafkas_choice: Annotated[bool, "Kafka would elect it: the first live replica"]
    last_in_isr_snapshot: Annotated[Long | None, "last snapshot that saw it in the ISR, null if none did"] = None
    last_in_isr_at: Annotated[
        datetime | None, "when that snapshot was taken, UTC: it has everything acknowledged before"
    ] = None
    epochs_since: Annotated[int | None, "leader epochs since then"] = None
    log_size: Annotated[Long | None, "bytes of its log, null if unknown"] = None


class BrokerResponseRow(TableRow, frozen=True, kw_only=True):
    """One row of ANSWERS: the latest response of a broker about one partition, or about none."""

    TABLE = "answers"
    KEY = ("broker_id", "api")
    broker_id: Annotated[int, "broker that answered"]
    api: Annotated[str, "UpdateMetadata, LeaderAndIsr or StopReplica"]
    topic: TopicName | None = None
    partition: PartitionNumber | None = None
    broker_epoch: Annotated[Long | None, "broker epoch in the request"] = None
    controller_epoch: Annotated[int | None, "controller epoch in the request"] = None
    leader_epoch: Annotated[int | None, "leader epoch sent"] = None
    error: Annotated[int | None, "Kafka error code of the response, 0 none"] = None
    delete_partition: Annotated[bool | None, "StopReplica: whether the log is deleted too; else null"] = None
    at: Annotated[datetime | None, "when the response arrived, UTC"] = None


class CommitRecord(TableRow, frozen=True, kw_only=True):
    """One row of COMMITS: an intent, an outcome or a step."""

    TABLE = "commits"
    KEY = ("plan_id", "attempt", "action", "outcome")
    plan_id: PlanId
    attempt: Annotated[int, "counts up from 1 with each commit of the plan"]
    wave: Annotated[int | None, "wave of the change, null for a step"] = None
    topic: TopicName | None = None
    partition: PartitionNumber | None = None
    action: Annotated[
        str, "action of the change, kind of the operation, or take_over, hand_back, throttle, cancel, ..."
    ]
    outcome: Annotated[str, "pending (written before), applied, stale, fenced, failed, unknown or skipped"]
    state_version_after: Annotated[int | None, "state znode version after Surveyor's write"] = None
    committed_at: Annotated[datetime, "when this row was recorded, UTC"]
    who: Annotated[str | None, "user and host that committed, or submitted the plan to `surveyor control`"] = None
    message: Annotated[str | None, "what happened"] = None
    controller_epoch: Annotated[
        int | None, "controller epoch held when this was recorded, null if the request went to Kafka's controller"
    ] = None
    run: Annotated[str | None, "dag/run/task of the Airflow task that committed, null if none did"] = None

    @property
    def change(self) -> tuple[int, str, int] | None:
        """Wave, topic and partition; None for a row that is about no change of the plan."""
        if self.wave is None or self.topic is None or self.partition is None:
            return None
        return self.wave, self.topic, self.partition


class BrokerEpoch(Struct, frozen=True, kw_only=True):
    """A broker that is registered, and its epoch; null in KRaft."""

    broker_id: Annotated[int, "broker"]
    broker_epoch: Annotated[Long | None, "czxid of its registration"] = None


class PlanRecord(TableRow, frozen=True, kw_only=True):
    """One row of PLANS: what is known of a plan besides its rows."""

    TABLE = "plans"
    KEY = ("plan_id",)
    plan_id: PlanId
    name: Annotated[str | None, "the first of its names, null if it has none"] = None
    snapshot_id: Annotated[Long, "snapshot the plan was computed from"]
    kind: Annotated[str, f"{', '.join([*PlanKind][:-1])} or {[*PlanKind][-1]}"]
    parameters: Annotated[str, "JSON object of the options"] = "{}"
    created_at: Annotated[datetime, "when it was planned, UTC"]
    status: Annotated[str, "planned, refused, committing, committed, partial, cancelled or rolled_back"]
    changes: Annotated[Long, "rows in changes"] = 0
    rejected: Annotated[Long, "rows in rejections"] = 0
    moves: Annotated[Long, "replicas that are copied to another broker"] = 0
    cluster_id: Annotated[str | None, "id of the cluster that was snapshotted"] = None
    brokers: Annotated[list[BrokerEpoch], "brokers that are live in the snapshot"] = []
    names: Annotated[list[str] | None, "all its names, each unique within the cluster; null if none"] = None
    submission: Annotated[
        str | None,
        "ZooKeeper session and SHA-256 of the last submission to `surveyor control`, null if none: control "
        "executes nothing else",
    ] = None
    command: Annotated[
        str | None, "the command as typed, without connection options; sensitive values hidden; null if unknown"
    ] = None
    verified_at: Annotated[
        datetime | None, "when `surveyor verify` first found the whole plan complete, UTC; null before"
    ] = None
    last_attempt: Annotated[int | None, "number of the commit that began last; null if none"] = None
    status_reason: Annotated[str | None, "what closed a plan that no user cancelled, as a later plan; null if none"] = (
        None
    )
    figures: Annotated[
        str | None,
        "JSON object: bytes copied, and worst_before and worst_after, the most loaded broker of the worst resource and "
        "window as a multiple of its share of the load; null if no load is known",
    ] = None

    @property
    def state(self) -> str:
        """The status, and what closed the plan if no user did."""
        is_overtaken = self.status == PlanStatus.CANCELLED and self.status_reason is not None
        return f"{self.status} ({self.status_reason})" if is_overtaken else self.status

    @property
    def all_names(self) -> list[str]:
        """The names, in the order they were given; a row of an older version has at most one."""
        return self.names or ([self.name] if self.name else [])

    @property
    def command_name(self) -> str:
        """The name for commands: the first one that was given, else the id."""
        return (self.all_names or [self.plan_id])[0]

    @property
    def title(self) -> str:
        """The id and the names.

        >>> made = datetime(2026, 1, 1)
        >>> plan = PlanRecord(plan_id="5f", snapshot_id=1, kind="elect", created_at=made, status="planned", name="a")
        >>> plan.title, msgspec.structs.replace(plan, names=["a", "b"]).title
        ('5f (a)', '5f (a, b)')
        """
        names = self.all_names
        return f"{self.plan_id} ({', '.join(names)})" if names else self.plan_id

    @property
    def options(self) -> dict[str, Any]:
        """The parameters, decoded."""
        options: dict[str, Any] = msgspec.json.decode(self.parameters)
        return options

    @property
    def traits(self) -> PlanTraits:
        """The traits of its kind; a kind of a later version has none."""
        return next((kind.traits for kind in PlanKind if kind == self.kind), PlanTraits())

    @property
    def is_cycle(self) -> bool:
        """Whether it records a cycle of `surveyor control`, which cannot be committed again."""
        return self.kind == PlanKind.RECONCILE and CONTROL in self.options


class ChangeSummary(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a change that reviews show: before, after, and the reason.

    `Change` has these fields again, with their comments and in the order of the table.
    """

    wave: int = 0
    topic: str
    partition: int
    action: str
    replicas_before: Brokers | None = None
    replicas_after: Brokers
    leader_before: int | None = None
    leader_after: int
    isr_before: Brokers | None = None
    isr_after: Brokers
    requires_live: Brokers
    requires_dead: Brokers
    topic_version: int | None
    reason: str

    @property
    def place(self) -> Place:
        """Identifies the change within its plan."""
        return self.wave, self.topic, self.partition, self.action

    @property
    def name(self) -> str:
        """Name in messages: orders-7."""
        return partition_name(self.topic, self.partition)


class Change(ChangeSummary, frozen=True, kw_only=True, gc=False):
    """One row of CHANGES: everything that is written, sent and checked."""

    TABLE = "changes"
    KEY = ("plan_id", "wave", "topic", "partition")
    cluster: ClusterName = ""
    plan_id: PlanId = ""
    wave: Annotated[int, "changes of one wave are committed together, before the changes of the next wave"] = 0
    topic: TopicName
    partition: PartitionNumber
    action: Annotated[str, "create, elect, take_offline, shrink_isr, elect_preferred, reassign, ..."]
    replicas_before: Annotated[Brokers | None, "assignment before"] = None
    replicas_after: Annotated[Brokers, "target assignment"]
    adding_before: Annotated[Brokers | None, "adding replicas before"] = None
    adding_after: Annotated[Brokers, "replicas to add"]
    removing_before: Annotated[Brokers | None, "removing replicas before"] = None
    removing_after: Annotated[Brokers, "replicas to remove"]
    leader_before: Annotated[int | None, "leader before, -1 none, null without a state znode"] = None
    leader_after: Annotated[int, "new leader, -1 none"]
    isr_before: Annotated[Brokers | None, "ISR before"] = None
    isr_after: Annotated[Brokers, "new ISR"]
    leader_epoch_before: Annotated[int | None, "leader epoch before; null if an earlier wave changes it"] = None
    leader_epoch_after: Annotated[int | None, "new leader epoch; null if Kafka's controller decides"] = None
    controller_epoch_before: Annotated[int | None, "controller epoch of the state before"] = None
    leader_recovery_state_before: Annotated[int | None, "recovery state before"] = None
    leader_recovery_state_after: Annotated[int | None, "new recovery state"] = None
    state_version: Annotated[int | None, "state znode version the change was computed from, -1 if there was none"]
    topic_version: Annotated[int | None, "topic znode version the change was computed from, -1 if there was none"]
    topic_id: Annotated[str | None, "topic id"] = None
    is_new: Annotated[bool, "the replicas do not exist yet"]
    leader_and_isr_to: Annotated[Brokers, "recipients of LeaderAndIsr"]
    stop_replica_to: Annotated[Brokers | None, "recipients of StopReplica, without deletion; null for none"] = None
    requires_live: Annotated[
        Brokers, "precondition: brokers that must still be live at commit; in batch mode with the same registration"
    ]
    requires_dead: Annotated[Brokers, "precondition: brokers that must still not be live at commit"]
    reason: Annotated[str, "why the change is made"]

    @property
    def key(self) -> Key:
        """Topic and partition."""
        return self.topic, self.partition

    def columns(self) -> dict[str, Any]:
        """Return the values by column, as stored."""
        return msgspec.structs.asdict(self)

    @property
    def moves_replicas(self) -> bool:
        """Whether the set of replicas changes; a reassignment that only reorders them completes at once."""
        return set(self.replicas_after) != set(self.replicas_before or ())

    @property
    def state_znode_version(self) -> int:
        """The version that a write to the state's znode checks; raise ValueError if it is unknown, as in KRaft."""
        return _version(self, "state", self.state_version)

    @property
    def topic_znode_version(self) -> int:
        """The version that a write to the topic's znode checks; raise ValueError if it is unknown, as in KRaft."""
        return _version(self, "topic", self.topic_version)

    def state_after(self, controller_epoch: int) -> State:
        """Return the state that this change writes, by the controller of that epoch; for batch mode only.

        Raise ValueError if the change leaves epochs to Kafka's controller, as reassignments do.
        """
        if self.leader_epoch_after is None or self.leader_recovery_state_after is None:
            raise ValueError(f"{self.name}: {self.action} leaves its epochs to Kafka's controller")
        return State(
            controller_epoch=controller_epoch,
            leader=self.leader_after,
            leader_epoch=self.leader_epoch_after,
            isr=self.isr_after,
            leader_recovery_state=self.leader_recovery_state_after,
        )


def _version(change: Change, znode: str, version: int | None) -> int:
    if version is None:
        raise ValueError(f"{change.name}: the plan has no version of the {znode}'s znode, so nothing may be written")
    return version


class Operation(TableRow, frozen=True, kw_only=True):
    """One row of OPERATIONS: work on a whole topic. `data` is JSON, see `schemas.operation_data`.

    A commit records changes and operations, so an operation has the wave and action of a change, and no partition.
    """

    TABLE = "operations"
    KEY = ("plan_id", "sequence")
    plan_id: PlanId = ""
    sequence: Annotated[int, "order within the plan"]
    kind: Annotated[str, "create_topic, expand_topic, alter_config, delete_topic, or a step of a request in /admin"]
    topic: TopicName
    data: Annotated[str, "JSON object of the operation's data"]

    @property
    def wave(self) -> int:
        return 0

    @property
    def partition(self) -> None:
        return None

    @property
    def action(self) -> str:
        return self.kind

    @property
    def key(self) -> Key:
        """The topic, as a whole."""
        return self.topic, WHOLE_TOPIC

    @property
    def place(self) -> Place:
        """Identifies the operation within its plan."""
        return self.wave, self.topic, self.partition, self.action

    @property
    def name(self) -> str:
        """Name in messages: orders."""
        return self.topic

    @property
    def is_standalone(self) -> bool:
        """Whether the operation has no changes of its own."""
        return self.kind in STANDALONE


PlanRow = Change | Operation
"""A row that a commit checks, writes or requests, and records."""


def changes_among(rows: Iterable[PlanRow]) -> list[Change]:
    """Return the rows about a partition."""
    return [row for row in rows if isinstance(row, Change)]


def operations_among(rows: Iterable[PlanRow]) -> list[Operation]:
    """Return the rows about a whole topic."""
    return [row for row in rows if isinstance(row, Operation)]


TABLES: Final[tuple[type[TableRow | BrokerImbalanceRow | Change], ...]] = (
    Snapshot,
    Broker,
    LastSeenBroker,
    Topic,
    Partition,
    PartitionVersion,
    ZnodeRequest,
    BrokerConfig,
    SecurityEntry,
    QuarantinedZnode,
    ClusterEvent,
    BrokerImbalanceRow,
    LossImpact,
    PlanRecord,
    Change,
    Operation,
    RejectionRecord,
    CandidateEvidence,
    ReplicaLog,
    LogDir,
    PartitionSample,
    GroupSample,
    BrokerMetric,
    PartitionLoad,
    BrokerLoad,
    GroupLoad,
    ProfiledLoad,
    BrokerCapacity,
    DrainedBroker,
    ThrottledConfig,
    LeaseRecord,
    CommitRecord,
    BrokerResponseRow,
)
"""The row of each table, in the order of docs/tables.md."""
