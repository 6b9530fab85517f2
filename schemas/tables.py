"""One StructType for each Delta table, documented field by field.

Names and types are a contract: dashboards, schedulers and notebooks read these tables. `cluster` is the first
column and the partition column everywhere, so one warehouse serves a fleet. The types are nullable, because a
transform's last line is `.to(SCHEMA)`; `KEYS` says which columns Delta must never find null.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

INT: Final = IntegerType()
LONG: Final = LongType()
DOUBLE: Final = DoubleType()
STRING: Final = StringType()
BOOLEAN: Final = BooleanType()
TIMESTAMP: Final = TimestampType()
BROKER_IDS: Final = ArrayType(INT)
STRING_MAP: Final = MapType(STRING, STRING)


def _column(name: str, data_type: DataType, comment: str) -> StructField:
    return StructField(name, data_type, metadata={"comment": comment})


def _table(*columns: StructField) -> StructType:
    return StructType([_column("cluster", STRING, "name of the cluster, as in --cluster"), *columns])


_SNAPSHOT_ID: Final = _column("snapshot_id", LONG, "snapshot that wrote this row")
_TOPIC: Final = _column("topic", STRING, "topic name")
_PARTITION: Final = _column("partition", INT, "partition number within the topic")
_PLAN_ID: Final = _column("plan_id", STRING, "hash of the plan's snapshot, kind, parameters and rows")

ENDPOINTS: Final = ArrayType(
    StructType(
        [
            _column("listener", STRING, "listener name"),
            _column("security_protocol", STRING, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
            _column("host", STRING, "advertised host"),
            _column("port", INT, "advertised port"),
        ],
    ),
)

BROKER_EPOCHS: Final = ArrayType(
    StructType([_column("broker_id", INT, "broker"), _column("broker_epoch", LONG, "czxid of its registration")]),
)

SNAPSHOTS: Final = _table(
    _column("snapshot_id", LONG, "counts up from 1 within a cluster"),
    _column("taken_at", TIMESTAMP, "when reading began, UTC"),
    _column("controller_id", INT, "broker id in /controller, -1 if there is none, null if it is not understood"),
    _column("controller_epoch", INT, "number in /controller_epoch, null if it is not understood"),
    _column("controller_epoch_version", INT, "znode version of /controller_epoch"),
    _column("zxid_before", LONG, "last zxid the server had seen when reading began"),
    _column("zxid_after", LONG, "the same when reading ended"),
    _column("brokers", INT, "registered brokers"),
    _column("topics", INT, "topics"),
    _column("partitions", LONG, "partitions"),
    _column("quarantined", LONG, "znodes that could not be understood"),
    _column("seconds", DOUBLE, "how long the snapshot took"),
    _column("versions", MapType(STRING, LONG), "table name to the Delta version that belongs to this snapshot"),
    _column("cluster_id", STRING, "id in /cluster/id"),
    _column("migration", STRING, "the sign of a KRaft migration that was found, null if none"),
)

BROKERS: Final = _table(
    _SNAPSHOT_ID,
    _column("broker_id", INT, "child of /brokers/ids"),
    _column("broker_epoch", LONG, "czxid of the registration: grows when the broker re-registers"),
    _column("state_version", INT, "znode version of the registration"),
    _column("host", STRING, "host of the first PLAINTEXT endpoint, null if there is none"),
    _column("port", INT, "port of the first PLAINTEXT endpoint, -1 if there is none"),
    _column("endpoints", ENDPOINTS, "all endpoints, in the order registered"),
    _column("rack", STRING, "broker.rack, null if unset"),
    _column("understood", BOOLEAN, "false: registered, so alive, but its znode could not be decoded"),
)

TOPICS: Final = _table(
    _SNAPSHOT_ID,
    _TOPIC,
    _column("topic_id", STRING, "22 characters of base64url, null before Kafka 2.8"),
    _column("topic_version", INT, "znode version of /brokers/topics/T"),
    _column("config", STRING_MAP, "overrides in /config/topics/T"),
    _column("deletion_requested", BOOLEAN, "/admin/delete_topics/T exists"),
    _column("understood", BOOLEAN, "false: /brokers/topics/T or its config could not be decoded"),
)

PARTITIONS: Final = _table(
    _column("snapshot_id", LONG, "snapshot that last changed this row"),
    _TOPIC,
    _PARTITION,
    _column("replicas", BROKER_IDS, "assignment, preferred replica first"),
    _column("adding_replicas", BROKER_IDS, "replicas a running reassignment adds"),
    _column("removing_replicas", BROKER_IDS, "replicas a running reassignment removes"),
    _column("leader", INT, "leading broker, -1 none, null without a state znode"),
    _column("isr", BROKER_IDS, "in-sync replicas, null without a state znode"),
    _column("leader_epoch", INT, "leader epoch, null without a state znode"),
    _column("controller_epoch", INT, "controller epoch of the last leadership decision"),
    _column("state_version", INT, "znode version of the state (Kafka's partition epoch)"),
    _column("topic_version", INT, "znode version of /brokers/topics/T"),
    _column("leader_recovery_state", INT, "1 while recovering from an unclean election, else 0"),
    _column(
        "partition_state",
        STRING,
        "New (no state znode), Online, Offline, or NonExistent: vanished, or no longer led as its topic is deleted",
    ),
    _column("offline_replicas", BROKER_IDS, "assigned brokers that are not registered"),
    _column("under_replicated", BOOLEAN, "some assigned replica is not in the ISR"),
    _column("under_min_isr", BOOLEAN, "the ISR is smaller than min.insync.replicas"),
    _column("understood", BOOLEAN, "false: a znode of this partition could not be decoded; the last good row is kept"),
    _column("vanished", BOOLEAN, "true: it was gone by then, and this is what it was last; in partition_history alone"),
)

PARTITION_HISTORY: Final = PARTITIONS

REQUESTS: Final = _table(
    _SNAPSHOT_ID,
    _column("kind", STRING, "reassign, preferred_election, delete_topic, isr_change or log_dir"),
    _TOPIC,
    _PARTITION,
    _column("replicas", BROKER_IDS, "reassign: the target"),
    _column("broker_id", INT, "log_dir: the broker that reports"),
    _column("path", STRING, "znode that asks"),
)

BROKER_CONFIGS: Final = _table(
    _SNAPSHOT_ID,
    _column("broker_id", INT, "broker"),
    _column("name", STRING, "configuration name, or api.<NAME> for the highest version spoken"),
    _column("value", STRING, "its value; never a secret"),
    _column("assumed", BOOLEAN, "the broker did not answer: this is Kafka's default"),
)

QUARANTINE: Final = _table(
    _SNAPSHOT_ID,
    _column("path", STRING, "znode that could not be understood"),
    _column("data", STRING, "its data as read, cut; bytes that are no text as \\xNN"),
    _column("reason", STRING, "what was found and what was expected"),
)

EVENTS: Final = _table(
    _SNAPSHOT_ID,
    _column("kind", STRING, "BrokerJoined, LeaderChanged, IsrShrunk, ..."),
    _column("subject", STRING, "broker, topic or topic-partition"),
    _column("before", STRING, "in the snapshot before"),
    _column("after", STRING, "in this snapshot"),
)

IMBALANCE: Final = _table(
    _SNAPSHOT_ID,
    _column("broker_id", INT, "preferred replica of the partitions counted"),
    _column("preferred_partitions", LONG, "partitions whose preferred replica this broker is"),
    _column("not_led", LONG, "of these, the ones it does not lead"),
    _column("ratio", DOUBLE, "not_led / preferred_partitions"),
    _column("exceeds", BOOLEAN, "ratio is strictly above the threshold"),
    _column("threshold", DOUBLE, "the threshold it was compared with"),
)

WHATIF: Final = _table(
    _SNAPSHOT_ID,
    _column("lose", STRING, "what every scenario loses: brokers=1, racks=1 or pairs"),
    _column("scenario", STRING, "who is lost, as people read it: broker 3, rack a, brokers 3+7"),
    _column("lost", BROKER_IDS, "the brokers lost, ascending"),
    _column("offline", LONG, "partitions without a leader, after clean elections; those that are so already, too"),
    _column(
        "unclean_only",
        LONG,
        "of newly_offline, those that an unclean election could lead: live replicas, none in sync",
    ),
    _column("no_replica", LONG, "of newly_offline, those without a live replica that could lead"),
    _column("under_min_isr", LONG, "partitions with fewer live ISR members than min.insync.replicas, offline ones too"),
    _column("newly_under_min_isr", LONG, "of these, those with enough of them before the loss"),
    _column("leaders_moved", LONG, "partitions that another broker leads after the loss"),
    _column("max_leaders", LONG, "partitions led by the surviving broker that leads most"),
    _column("most_leaders_on", INT, "that broker, the lowest id of several; null if nobody leads"),
    _column("mean_leaders", DOUBLE, "partitions led, over surviving brokers; null if none survives"),
    _column("leader_skew", DOUBLE, "max_leaders / mean_leaders: 1 is even; null if nobody leads"),
    _column("not_judged", LONG, "partitions left out: not understood, or without a state znode"),
    _column(
        "newly_offline", LONG, "of offline, those that have a leader before the loss, once the elections due are held"
    ),
)

PLANS: Final = _table(
    _PLAN_ID,
    _column("name", STRING, "the first of its names, null if it has none"),
    _column("snapshot_id", LONG, "snapshot the plan was computed from"),
    _column("kind", STRING, "assign, expand, config, delete, elect, reassign, reconcile, drain, undrain or recover"),
    _column("parameters", STRING, "JSON object of what was asked"),
    _column("created_at", TIMESTAMP, "when it was planned, UTC"),
    _column("status", STRING, "planned, refused, committing, committed, partial, cancelled or rolled_back"),
    _column("changes", LONG, "rows in changes"),
    _column("rejected", LONG, "rows in rejections"),
    _column("moves", LONG, "replicas that are copied to another broker"),
    _column("cluster_id", STRING, "id of the cluster that was snapshotted"),
    _column("brokers", BROKER_EPOCHS, "brokers alive in the snapshot"),
    _column("names", ArrayType(STRING), "all its names, each unique within the cluster; null as no name"),
)

CHANGES: Final = _table(
    _PLAN_ID,
    _column("wave", INT, "changes of one wave are committed together, those of the next after them"),
    _TOPIC,
    _PARTITION,
    _column("action", STRING, "create, elect, take_offline, shrink_isr, elect_preferred, reassign, ..."),
    _column("replicas_before", BROKER_IDS, "assignment found"),
    _column("replicas_after", BROKER_IDS, "assignment wanted: the target"),
    _column("adding_before", BROKER_IDS, "adding replicas found"),
    _column("adding_after", BROKER_IDS, "replicas to add"),
    _column("removing_before", BROKER_IDS, "removing replicas found"),
    _column("removing_after", BROKER_IDS, "replicas to remove"),
    _column("leader_before", INT, "leader found, -1 none, null without a state znode"),
    _column("leader_after", INT, "leader wanted, -1 none"),
    _column("isr_before", BROKER_IDS, "ISR found"),
    _column("isr_after", BROKER_IDS, "ISR wanted"),
    _column("leader_epoch_before", INT, "leader epoch found; null where an earlier wave moves it"),
    _column("leader_epoch_after", INT, "leader epoch wanted; null where Kafka's controller decides"),
    _column("controller_epoch_before", INT, "controller epoch found in the state"),
    _column("leader_recovery_state_before", INT, "recovery state found"),
    _column("leader_recovery_state_after", INT, "recovery state wanted"),
    _column("state_version", INT, "state znode version the change was computed from, -1 if there was none"),
    _column("topic_version", INT, "topic znode version the change was computed from, -1 if there was none"),
    _column("topic_id", STRING, "topic id"),
    _column("is_new", BOOLEAN, "the replicas do not exist yet"),
    _column("leader_and_isr_to", BROKER_IDS, "brokers to be told by LeaderAndIsr"),
    _column("stop_replica_to", BROKER_IDS, "brokers to be told by StopReplica, without deletion; null for none"),
    _column("requires_live", BROKER_IDS, "premise: brokers that must still be alive, unbounced, at commit"),
    _column("requires_dead", BROKER_IDS, "premise: brokers that must still be gone at commit"),
    _column("reason", STRING, "why"),
)

OPERATIONS: Final = _table(
    _PLAN_ID,
    _column("sequence", INT, "order within the plan"),
    _column("kind", STRING, "create_topic, expand_topic, alter_config or delete_topic"),
    _TOPIC,
    _column("data", STRING, "JSON object of what the operation needs"),
)

REJECTIONS: Final = _table(
    _PLAN_ID,
    _TOPIC,
    _column("partition", INT, "partition number within the topic, -1 for the whole topic"),
    _column("action", STRING, "what was wanted"),
    _column("code", STRING, "NO_ELIGIBLE_LEADER, ALREADY_PREFERRED, ..."),
    _column("reason", STRING, "why not"),
)

EVIDENCE: Final = _table(
    _PLAN_ID,
    _TOPIC,
    _PARTITION,
    _column("broker_id", INT, "live replica that could lead a partition without a live ISR member"),
    _column("rank", INT, "1 is the one that may lose least"),
    _column("chosen", BOOLEAN, "ranked first: the plan elects it if unclean is allowed"),
    _column("kafkas_choice", BOOLEAN, "Kafka would elect it: the first live replica"),
    _column("last_in_isr_snapshot", LONG, "last snapshot that saw it in the ISR, null if none did"),
    _column("last_in_isr_at", TIMESTAMP, "when that snapshot was taken, UTC: what was acknowledged before is there"),
    _column("epochs_since", INT, "leader epochs since then"),
    _column("log_size", LONG, "bytes of its log, null if unknown"),
)

SIZES: Final = _table(
    _column("broker_id", INT, "broker that holds the log"),
    _TOPIC,
    _PARTITION,
    _column("log_dir", STRING, "folder of the log on that broker"),
    _column("bytes", LONG, "bytes of its segments"),
    _column(
        "offset_lag",
        LONG,
        "as the broker says: offsets behind the high watermark it knows, most often 0, also for a replica that is "
        "still being copied; of a future log, offsets behind the current one; -1 unknown",
    ),
    _column("is_future", BOOLEAN, "a copy in another log dir that is to take the place of the current one"),
    _column("taken_at", TIMESTAMP, "when the broker said so, UTC"),
)

DRAINED: Final = _table(
    _column("broker_id", INT, "broker that is never to be elected leader"),
    _column("mode", STRING, "admin: last in the order of replicas; resident: also out of the ISRs, and stopped"),
    _column("controller_epoch", INT, "resident: controller epoch of the commit; it ends when another takes over"),
    _PLAN_ID,
    _column("since", TIMESTAMP, "when the commit of that plan began, UTC"),
)

THROTTLES: Final = _table(
    _PLAN_ID,
    _column("kind", STRING, "broker (rates) or topic (throttled replicas)"),
    _column("resource", STRING, "broker id or topic"),
    _column("name", STRING, "configuration that the plan's commit sets while its replicas move"),
    _column("before", STRING, "override that stood there before and is put back, null for none"),
    _column("set_to", ArrayType(STRING), "values this plan set or was about to, the newest last"),
    _column("set_at", TIMESTAMP, "when it was first set, UTC"),
)

COMMITS: Final = _table(
    _PLAN_ID,
    _column("attempt", INT, "counts up from 1 with each commit of the plan"),
    _column("wave", INT, "wave of the change, null for a step"),
    _TOPIC,
    _PARTITION,
    _column("action", STRING, "action of the change, kind of the operation, or take_over, hand_back, cancel, ..."),
    _column("outcome", STRING, "pending (written before), applied, stale, fenced, failed, unknown or skipped"),
    _column("state_version_after", INT, "state znode version that our write made"),
    _column("committed_at", TIMESTAMP, "when this row was recorded, UTC"),
    _column("who", STRING, "user and host that committed"),
    _column("message", STRING, "what happened"),
)

ANSWERS: Final = _table(
    _column("broker_id", INT, "broker that answered"),
    _column("api", STRING, "UpdateMetadata, LeaderAndIsr or StopReplica"),
    _TOPIC,
    _PARTITION,
    _column("broker_epoch", LONG, "broker epoch the request named"),
    _column("controller_epoch", INT, "controller epoch the request named"),
    _column("leader_epoch", INT, "leader epoch told"),
    _column("error", INT, "Kafka error code answered, 0 none"),
    _column("at", TIMESTAMP, "when the answer came, UTC"),
)

TABLES: Final[dict[str, StructType]] = {
    "snapshots": SNAPSHOTS,
    "brokers": BROKERS,
    "topics": TOPICS,
    "partitions": PARTITIONS,
    "partition_history": PARTITION_HISTORY,
    "requests": REQUESTS,
    "broker_configs": BROKER_CONFIGS,
    "quarantine": QUARANTINE,
    "events": EVENTS,
    "imbalance": IMBALANCE,
    "whatif": WHATIF,
    "plans": PLANS,
    "changes": CHANGES,
    "operations": OPERATIONS,
    "rejections": REJECTIONS,
    "evidence": EVIDENCE,
    "sizes": SIZES,
    "drained": DRAINED,
    "throttles": THROTTLES,
    "commits": COMMITS,
    "answers": ANSWERS,
}

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "snapshots": ("snapshot_id",),
    "brokers": ("broker_id",),
    "topics": ("topic",),
    "partitions": ("topic", "partition"),
    "partition_history": ("topic", "partition", "snapshot_id"),
    "requests": ("kind", "path"),
    "broker_configs": ("broker_id", "name"),
    "quarantine": ("path", "reason"),
    "events": ("snapshot_id", "kind", "subject"),
    "imbalance": ("snapshot_id", "broker_id"),
    "whatif": ("snapshot_id", "lose", "scenario"),
    "plans": ("plan_id",),
    "changes": ("plan_id", "wave", "topic", "partition"),
    "operations": ("plan_id", "sequence"),
    "rejections": ("plan_id", "topic", "partition", "code"),
    "evidence": ("plan_id", "topic", "partition", "broker_id"),
    "sizes": ("broker_id", "topic", "partition", "log_dir"),
    "drained": ("broker_id",),
    "throttles": ("plan_id", "kind", "resource", "name"),
    "commits": ("plan_id", "attempt", "action", "outcome"),
    "answers": ("broker_id", "api"),
}
"""Columns that are never null, besides `cluster`."""

CHECKS: Final[dict[str, dict[str, str]]] = {
    "partitions": {
        "partition_not_negative": "partition >= 0",
        "isr_never_empty": "isr IS NULL OR cardinality(isr) > 0",
    },
    "changes": {"isr_never_empty": "isr_after IS NULL OR cardinality(isr_after) > 0"},
    "sizes": {"bytes_not_negative": "bytes >= 0"},
}
"""Delta CHECK constraints: what must not enter a table, whoever writes it."""
