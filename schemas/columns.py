"""The columns of each Delta table with their documentation, without Spark; `schemas.tables` has them as StructTypes.

Names and types are a contract, as dashboards, schedulers and notebooks read these tables. `cluster` is the first column
and the partition column of every table, so one warehouse serves many clusters. The types are nullable because a
transform ends in `.to(SCHEMA)`; `KEY_COLUMNS` lists the columns that Delta must never find null.
"""

from typing import Final

from schemas.column_types import (
    BOOLEAN,
    BROKER_IDS,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Columns,
    array,
    string_map,
)


def _table(*columns: Column) -> Columns:
    return Columns((Column("cluster", STRING, "name of the cluster, as in --cluster"), *columns))


_SNAPSHOT_ID: Final = Column("snapshot_id", LONG, "snapshot that wrote this row")
_TOPIC: Final = Column("topic", STRING, "topic name")
_PARTITION: Final = Column("partition", INT, "partition number within the topic")
_PLAN_ID: Final = Column("plan_id", STRING, "hash of the plan's snapshot, kind, parameters and rows")

ENDPOINTS: Final = array(
    Columns(
        (
            Column("listener", STRING, "listener name"),
            Column("security_protocol", STRING, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
            Column("host", STRING, "advertised host"),
            Column("port", INT, "advertised port"),
        ),
    ).json,
)

BROKER_EPOCHS: Final = array(
    Columns((Column("broker_id", INT, "broker"), Column("broker_epoch", LONG, "czxid of its registration"))).json,
)

VOTERS: Final = array(
    Columns(
        (
            Column("voter_id", INT, "node id of the voter"),
            Column("log_end_offset", LONG, "end of its copy of the metadata log, null if it is unknown"),
            Column("lag", LONG, "offsets that it is behind the quorum's leader, null if it is unknown"),
            Column("lag_ms", LONG, "milliseconds since it had caught up with the leader, null if it is unknown"),
        )
    ).json,
)

SNAPSHOTS: Final = _table(
    Column("snapshot_id", LONG, "counts up from 1 within a cluster"),
    Column("taken_at", TIMESTAMP, "when reading began, UTC"),
    Column(
        "controller_id",
        INT,
        "broker id in /controller, in KRaft the quorum's leader; -1 if there is none, null if it cannot be decoded",
    ),
    Column(
        "controller_epoch",
        INT,
        "number in /controller_epoch, in KRaft the epoch of the quorum's leader; null if it cannot be decoded",
    ),
    Column("controller_epoch_version", INT, "znode version of /controller_epoch, null in KRaft"),
    Column("zxid_before", LONG, "last zxid of the server when reading began, in KRaft the quorum's high watermark"),
    Column("zxid_after", LONG, "last zxid of the server when reading ended, in KRaft the quorum's high watermark"),
    Column("acls", INT, "number of ACLs, null if unreadable"),
    Column("quotas", INT, "number of client quotas, one for each entity and name; null if unreadable"),
    Column(
        "scram_credentials",
        INT,
        "number of SCRAM credentials, one for each user and mechanism; null if unreadable",
    ),
    Column(
        "acls_digest",
        STRING,
        "SHA-256 of all ACLs, the same from ZooKeeper and from KRaft; null if unreadable",
    ),
    Column("quotas_digest", STRING, "SHA-256 of all client quotas with their values; null if unreadable"),
    Column(
        "scram_digest",
        STRING,
        "SHA-256 of users, mechanisms and iterations of SCRAM credentials; null if unreadable",
    ),
    Column("brokers", INT, "registered brokers"),
    Column("topics", INT, "topics"),
    Column("partitions", LONG, "partitions"),
    Column("quarantined", LONG, "znodes that could not be decoded"),
    Column("seconds", DOUBLE, "how long the snapshot took"),
    Column("versions", string_map(LONG), "table name to the Delta version that belongs to this snapshot"),
    Column("cluster_id", STRING, "id in /cluster/id"),
    Column("migration", STRING, "the sign of a KRaft migration in ZooKeeper, null if none"),
    Column("metadata_version", INT, "KRaft: finalized level of the feature metadata.version, null if it is unknown"),
    Column("voters", VOTERS, "KRaft: voters of the quorum, null if they are unknown"),
)

BROKERS: Final = _table(
    _SNAPSHOT_ID,
    Column("broker_id", INT, "child of /brokers/ids"),
    Column(
        "broker_epoch",
        LONG,
        "czxid of the registration: grows when the broker re-registers; -1 if its ACL denies read access, null in "
        "KRaft",
    ),
    Column("state_version", INT, "znode version of the registration; -2 if its ACL denies read access, null in KRaft"),
    Column("host", STRING, "host of the first PLAINTEXT endpoint, null if there is none; in KRaft of the one endpoint"),
    Column("port", INT, "port of the first PLAINTEXT endpoint, -1 if there is none; in KRaft of the one endpoint"),
    Column(
        "endpoints", ENDPOINTS, "all endpoints, in the order registered; in KRaft the endpoint of the listener used"
    ),
    Column("rack", STRING, "broker.rack, null if unset"),
    Column("understood", BOOLEAN, "false: registered and live, but its znode could not be decoded"),
    Column(
        "fenced",
        BOOLEAN,
        "KRaft: registered, but not live; null if brokers do not report it: then fenced brokers have no row",
    ),
)

BROKERS_LAST_SEEN: Final = _table(
    Column("snapshot_id", LONG, "last snapshot in which it was registered and decoded"),
    Column("broker_id", INT, "broker that is no longer registered, or can no longer be decoded"),
    Column("broker_epoch", LONG, "czxid of its registration then"),
    Column("host", STRING, "host of its first PLAINTEXT endpoint then, null if there was none"),
    Column("port", INT, "port of its first PLAINTEXT endpoint then, -1 if there was none"),
    Column("endpoints", ENDPOINTS, "all its endpoints then"),
    Column("rack", STRING, "broker.rack then, null if it was unset"),
    Column("last_seen_at", TIMESTAMP, "when that snapshot was taken, UTC"),
)

TOPICS: Final = _table(
    _SNAPSHOT_ID,
    _TOPIC,
    Column("topic_id", STRING, "22 characters of base64url, null before Kafka 2.8"),
    Column("topic_version", INT, "znode version of /brokers/topics/T; -2 if its ACL denies read access, null in KRaft"),
    Column(
        "config",
        string_map(STRING),
        "overrides in /config/topics/T; a value that could not be decoded is null; null if nothing could be decoded",
    ),
    Column("deletion_requested", BOOLEAN, "/admin/delete_topics/T exists"),
    Column("understood", BOOLEAN, "false: /brokers/topics/T or its config could not be decoded completely"),
    Column("assignment_understood", BOOLEAN, "false: /brokers/topics/T could not be decoded completely"),
)

PARTITIONS: Final = _table(
    Column(
        "snapshot_id", LONG, "snapshot that last changed this partition; a change of only topic_version does not count"
    ),
    _TOPIC,
    _PARTITION,
    Column("replicas", BROKER_IDS, "assignment, preferred replica first"),
    Column("adding_replicas", BROKER_IDS, "replicas a running reassignment adds"),
    Column("removing_replicas", BROKER_IDS, "replicas a running reassignment removes"),
    Column("leader", INT, "leading broker, -1 none, null without a state znode"),
    Column("isr", BROKER_IDS, "in-sync replicas, null without a state znode"),
    Column("leader_epoch", INT, "leader epoch, null without a state znode"),
    Column("controller_epoch", INT, "controller epoch of the last leadership decision"),
    Column(
        "state_version",
        INT,
        "znode version of the state (Kafka's partition epoch); -2 if its ACL denies read access, null in KRaft",
    ),
    Column("topic_version", INT, "znode version of /brokers/topics/T; in partition_history, as of that change"),
    Column("leader_recovery_state", INT, "1 while recovering from an unclean election, else 0"),
    Column(
        "partition_state",
        STRING,
        "New (no state znode), Online, Offline, or NonExistent: vanished, or leaderless during its topic's deletion",
    ),
    Column("offline_replicas", BROKER_IDS, "assigned brokers that are not registered"),
    Column("under_replicated", BOOLEAN, "some assigned replica is not in the ISR"),
    Column("under_min_isr", BOOLEAN, "the ISR is smaller than min.insync.replicas"),
    Column("understood", BOOLEAN, "false: a znode of this partition could not be decoded; the last good row is kept"),
    Column("vanished", BOOLEAN, "true: it no longer existed, and this is its last row; only in partition_history"),
    Column(
        "eligible_leader_replicas", BROKER_IDS, "KRaft: replicas out of the ISR that have all records, null if unknown"
    ),
    Column("last_known_elr", BROKER_IDS, "KRaft: the last members of the ISR and the ELR, null if unknown"),
)

PARTITION_HISTORY: Final = PARTITIONS

REQUESTS: Final = _table(
    _SNAPSHOT_ID,
    Column("kind", STRING, "reassign, preferred_election, delete_topic, isr_change or log_dir"),
    _TOPIC,
    _PARTITION,
    Column("replicas", BROKER_IDS, "reassign: the target"),
    Column("broker_id", INT, "log_dir: the reporting broker"),
    Column("path", STRING, "znode of the request, in KRaft the request that listed it and its partition"),
)

BROKER_CONFIGS: Final = _table(
    _SNAPSHOT_ID,
    Column("broker_id", INT, "broker"),
    Column("name", STRING, "configuration name, or api.<NAME> for the highest version supported"),
    Column("value", STRING, "its value; never a secret"),
    Column("assumed", BOOLEAN, "the broker did not answer: this is Kafka's default"),
)

SECURITY: Final = _table(
    _SNAPSHOT_ID,
    Column("kind", STRING, "acl, quota or scram"),
    Column("subject", STRING, "the resource and its pattern that ACLs are for, the entity of quotas, or the user"),
    Column("entries", INT, "its number of ACLs, of quotas, or of SCRAM credentials"),
    Column("digest", STRING, "SHA-256 of these, the same from ZooKeeper and from KRaft; no secret is part of it"),
)

QUARANTINE: Final = _table(
    _SNAPSHOT_ID,
    Column("path", STRING, "znode that could not be decoded, in KRaft the request that was refused and its subject"),
    Column("data", STRING, "its data as read, truncated; bytes that are not text as \\xNN"),
    Column("reason", STRING, "what was found and what was expected"),
    Column("blocks", STRING, "what it blocks in Kafka, as fail-over or broker start; null for nothing"),
    Column("mend", STRING, "zookeeper-shell.sh command that repairs it without loss; null if there is no safe one"),
)

EVENTS: Final = _table(
    _SNAPSHOT_ID,
    Column("kind", STRING, "BrokerJoined, LeaderChanged, IsrShrunk, ..."),
    Column("subject", STRING, "broker, topic or topic-partition"),
    Column("before", STRING, "in the snapshot before"),
    Column("after", STRING, "in this snapshot"),
)

IMBALANCE: Final = _table(
    _SNAPSHOT_ID,
    Column("broker_id", INT, "preferred replica of the partitions counted"),
    Column("preferred_partitions", LONG, "partitions whose preferred replica this broker is"),
    Column("not_led", LONG, "of these, the ones it does not lead: the imbalance"),
    Column("ratio", DOUBLE, "not_led / preferred_partitions"),
    Column("exceeds", BOOLEAN, "ratio is strictly above the threshold"),
    Column("threshold", DOUBLE, "the threshold it was compared with"),
)

WHATIF: Final = _table(
    _SNAPSHOT_ID,
    Column("lose", STRING, "what every scenario loses: brokers=1, racks=1 or pairs"),
    Column("scenario", STRING, "what is lost, as displayed: broker 3, rack a, brokers 3+7"),
    Column("lost", BROKER_IDS, "the brokers lost, ascending"),
    Column("offline", LONG, "partitions without a leader, after clean elections, including those already without one"),
    Column(
        "unclean_only",
        LONG,
        "of newly_offline, those that an unclean election could lead: live replicas, none in sync",
    ),
    Column("no_replica", LONG, "of newly_offline, those without a live replica that can lead"),
    Column("under_min_isr", LONG, "partitions with fewer live ISR members than min.insync.replicas, offline ones too"),
    Column("newly_under_min_isr", LONG, "of these, those with enough live ISR members before the loss"),
    Column("leaders_moved", LONG, "partitions led by another broker after the loss"),
    Column("max_leaders", LONG, "partitions led by the surviving broker that leads most"),
    Column("most_leaders_on", INT, "that broker, the lowest id of several; null if no broker leads"),
    Column("mean_leaders", DOUBLE, "partitions led, over surviving brokers; null if none survives"),
    Column("leader_skew", DOUBLE, "max_leaders / mean_leaders: 1 is even; null if no broker leads"),
    Column("not_judged", LONG, "partitions left out: not decodable, or without a state znode"),
    Column(
        "newly_offline",
        LONG,
        "of offline, those that would have a leader without the loss, after the elections due now",
    ),
)

PLANS: Final = _table(
    _PLAN_ID,
    Column("name", STRING, "the first of its names, null if it has none"),
    Column("snapshot_id", LONG, "snapshot the plan was computed from"),
    Column("kind", STRING, "assign, expand, config, delete, elect, reassign, reconcile, drain, undrain or recover"),
    Column("parameters", STRING, "JSON object of the options"),
    Column("created_at", TIMESTAMP, "when it was planned, UTC"),
    Column("status", STRING, "planned, refused, committing, committed, partial, cancelled or rolled_back"),
    Column("changes", LONG, "rows in changes"),
    Column("rejected", LONG, "rows in rejections"),
    Column("moves", LONG, "replicas that are copied to another broker"),
    Column("cluster_id", STRING, "id of the cluster that was snapshotted"),
    Column("brokers", BROKER_EPOCHS, "brokers that are live in the snapshot"),
    Column("names", array(STRING), "all its names, each unique within the cluster; null if none"),
    Column(
        "submission",
        STRING,
        "ZooKeeper session and SHA-256 of the last submission to `surveyor control`, null if none: "
        "control executes nothing else",
    ),
    Column(
        "command", STRING, "the command as typed, without connection options; sensitive values hidden; null if unknown"
    ),
    Column("verified_at", TIMESTAMP, "when `surveyor verify` first found the whole plan complete, UTC; null before"),
    Column("last_attempt", INT, "number of the commit that began last; null if none"),
    Column("status_reason", STRING, "what closed a plan that no user cancelled, as a later plan; null if none"),
)

CHANGES: Final = _table(
    _PLAN_ID,
    Column("wave", INT, "changes of one wave are committed together, before the changes of the next wave"),
    _TOPIC,
    _PARTITION,
    Column("action", STRING, "create, elect, take_offline, shrink_isr, elect_preferred, reassign, ..."),
    Column("replicas_before", BROKER_IDS, "assignment before"),
    Column("replicas_after", BROKER_IDS, "target assignment"),
    Column("adding_before", BROKER_IDS, "adding replicas before"),
    Column("adding_after", BROKER_IDS, "replicas to add"),
    Column("removing_before", BROKER_IDS, "removing replicas before"),
    Column("removing_after", BROKER_IDS, "replicas to remove"),
    Column("leader_before", INT, "leader before, -1 none, null without a state znode"),
    Column("leader_after", INT, "new leader, -1 none"),
    Column("isr_before", BROKER_IDS, "ISR before"),
    Column("isr_after", BROKER_IDS, "new ISR"),
    Column("leader_epoch_before", INT, "leader epoch before; null if an earlier wave changes it"),
    Column("leader_epoch_after", INT, "new leader epoch; null if Kafka's controller decides"),
    Column("controller_epoch_before", INT, "controller epoch of the state before"),
    Column("leader_recovery_state_before", INT, "recovery state before"),
    Column("leader_recovery_state_after", INT, "new recovery state"),
    Column("state_version", INT, "state znode version the change was computed from, -1 if there was none"),
    Column("topic_version", INT, "topic znode version the change was computed from, -1 if there was none"),
    Column("topic_id", STRING, "topic id"),
    Column("is_new", BOOLEAN, "the replicas do not exist yet"),
    Column("leader_and_isr_to", BROKER_IDS, "recipients of LeaderAndIsr"),
    Column("stop_replica_to", BROKER_IDS, "recipients of StopReplica, without deletion; null for none"),
    Column(
        "requires_live",
        BROKER_IDS,
        "precondition: brokers that must still be live at commit; in batch mode with the same registration",
    ),
    Column("requires_dead", BROKER_IDS, "precondition: brokers that must still not be live at commit"),
    Column("reason", STRING, "why the change is made"),
)

OPERATIONS: Final = _table(
    _PLAN_ID,
    Column("sequence", INT, "order within the plan"),
    Column("kind", STRING, "create_topic, expand_topic, alter_config, delete_topic, or a step of a request in /admin"),
    _TOPIC,
    Column("data", STRING, "JSON object of the operation's data"),
)

REJECTIONS: Final = _table(
    _PLAN_ID,
    _TOPIC,
    Column("partition", INT, "partition number within the topic, -1 for the whole topic"),
    Column("action", STRING, "requested action"),
    Column("code", STRING, "NO_ELIGIBLE_LEADER, ALREADY_PREFERRED, ..."),
    Column("reason", STRING, "why there is no change"),
)

EVIDENCE: Final = _table(
    _PLAN_ID,
    _TOPIC,
    _PARTITION,
    Column("broker_id", INT, "live replica that could lead a partition without a live ISR member"),
    Column("rank", INT, "1 may lose least"),
    Column("chosen", BOOLEAN, "the plan elects it if unclean is allowed: in `plan recover` the one ranked first"),
    Column("kafkas_choice", BOOLEAN, "Kafka would elect it: the first live replica"),
    Column("last_in_isr_snapshot", LONG, "last snapshot that saw it in the ISR, null if none did"),
    Column("last_in_isr_at", TIMESTAMP, "when that snapshot was taken, UTC: it has everything acknowledged before"),
    Column("epochs_since", INT, "leader epochs since then"),
    Column("log_size", LONG, "bytes of its log, null if unknown"),
)

SIZES: Final = _table(
    Column("broker_id", INT, "broker that holds the log"),
    _TOPIC,
    _PARTITION,
    Column("log_dir", STRING, "folder of the log on that broker"),
    Column("bytes", LONG, "bytes of its segments"),
    Column(
        "offset_lag",
        LONG,
        "reported by the broker: offsets behind the high watermark it knows, mostly 0 even for a replica that is "
        "still being copied; of a future log, offsets behind the current one; -1 unknown",
    ),
    Column("is_future", BOOLEAN, "a copy in another log dir that will replace the current one"),
    Column("taken_at", TIMESTAMP, "when the broker reported it, UTC"),
)

LOG_DIRS: Final = _table(
    Column("broker_id", INT, "broker that has the log dir"),
    Column("log_dir", STRING, "folder of logs on that broker"),
    Column("total_bytes", LONG, "size of its volume; null if the broker does not report it (before 3.3)"),
    Column("usable_bytes", LONG, "free bytes of that volume; null if the broker does not report it"),
    Column("error", STRING, "why the broker could not read it, null if it could"),
    Column("taken_at", TIMESTAMP, "when the broker reported it, UTC"),
    Column("cordoned", BOOLEAN, "true: it takes no new replicas; null if the broker does not report it"),
)

DRAINED: Final = _table(
    Column("broker_id", INT, "broker that is elected leader only if no other replica is in sync"),
    Column("mode", STRING, "admin: last in the order of replicas; resident: also out of the ISRs, and stopped"),
    Column(
        "controller_epoch",
        INT,
        "resident: controller epoch of the commit; the drain ends when another controller takes over",
    ),
    Column(
        "broker_epoch",
        LONG,
        "the broker's registration when the commit began, -1 if it had none; a resident drain ends when the broker "
        "registers again; null: drained by an older version",
    ),
    _PLAN_ID,
    Column("since", TIMESTAMP, "when the commit of that plan began, UTC"),
)

THROTTLES: Final = _table(
    _PLAN_ID,
    Column("kind", STRING, "broker (rates) or topic (throttled replicas)"),
    Column("resource", STRING, "broker id or topic"),
    Column("name", STRING, "configuration that the plan's commit sets while its replicas move"),
    Column("before", STRING, "override that was set before and is restored, null for none"),
    Column("set_to", array(STRING), "values this plan set or was about to set, the newest last"),
    Column("set_at", TIMESTAMP, "when it was first set, UTC"),
)

LEASES: Final = _table(
    Column("token", STRING, "identifies the process that took the lease"),
    Column("holder", STRING, "that process as JSON: user, host, process id, command, plan and since when"),
    Column("deadline", TIMESTAMP, "another process may take the lease from then on, UTC; its holder moves it on"),
)

COMMITS: Final = _table(
    _PLAN_ID,
    Column("attempt", INT, "counts up from 1 with each commit of the plan"),
    Column("wave", INT, "wave of the change, null for a step"),
    _TOPIC,
    _PARTITION,
    Column(
        "action", STRING, "action of the change, kind of the operation, or take_over, hand_back, throttle, cancel, ..."
    ),
    Column("outcome", STRING, "pending (written before), applied, stale, fenced, failed, unknown or skipped"),
    Column("state_version_after", INT, "state znode version after Surveyor's write"),
    Column("committed_at", TIMESTAMP, "when this row was recorded, UTC"),
    Column("who", STRING, "user and host that committed, or submitted the plan to `surveyor control`"),
    Column("message", STRING, "what happened"),
    Column(
        "controller_epoch",
        INT,
        "controller epoch held when this was recorded, null if the request went to Kafka's controller",
    ),
    Column("run", STRING, "dag/run/task of the Airflow task that committed, null if none did"),
)

ANSWERS: Final = _table(
    Column("broker_id", INT, "broker that answered"),
    Column("api", STRING, "UpdateMetadata, LeaderAndIsr or StopReplica"),
    _TOPIC,
    _PARTITION,
    Column("broker_epoch", LONG, "broker epoch in the request"),
    Column("controller_epoch", INT, "controller epoch in the request"),
    Column("leader_epoch", INT, "leader epoch sent"),
    Column("error", INT, "Kafka error code of the response, 0 none"),
    Column("delete_partition", BOOLEAN, "StopReplica: whether the log is deleted too; else null"),
    Column("at", TIMESTAMP, "when the response arrived, UTC"),
)

TABLE_COLUMNS: Final[dict[str, Columns]] = {
    "snapshots": SNAPSHOTS,
    "brokers": BROKERS,
    "brokers_last_seen": BROKERS_LAST_SEEN,
    "topics": TOPICS,
    "partitions": PARTITIONS,
    "partition_history": PARTITION_HISTORY,
    "requests": REQUESTS,
    "broker_configs": BROKER_CONFIGS,
    "security": SECURITY,
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
    "log_dirs": LOG_DIRS,
    "drained": DRAINED,
    "throttles": THROTTLES,
    "leases": LEASES,
    "commits": COMMITS,
    "answers": ANSWERS,
}

KEY_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "snapshots": ("snapshot_id",),
    "brokers": ("broker_id",),
    "brokers_last_seen": ("broker_id",),
    "topics": ("topic",),
    "partitions": ("topic", "partition"),
    "partition_history": ("topic", "partition", "snapshot_id"),
    "requests": ("kind", "path"),
    "broker_configs": ("broker_id", "name"),
    "security": ("kind", "subject"),
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
    "log_dirs": ("broker_id", "log_dir"),
    "drained": ("broker_id",),
    "throttles": ("plan_id", "kind", "resource", "name"),
    "leases": ("token", "holder", "deadline"),
    "commits": ("plan_id", "attempt", "action", "outcome"),
    "answers": ("broker_id", "api"),
}
"""Columns that are never null, besides `cluster`."""

CHECKS: Final[dict[str, dict[str, str]]] = {
    "partitions": {"partition_not_negative": "partition >= 0"},
    "changes": {
        "isr_never_emptied": "isr_after IS NULL OR cardinality(isr_after) > 0 OR cardinality(isr_before) = 0",
    },
    "sizes": {"bytes_not_negative": "bytes >= 0"},
}
"""Delta CHECK constraints: rows that no writer may store."""

SCHEMA_VERSION: Final = 2
"""The version of all tables, which each of them stores. A release that changes any table increases it, also if it only
adds columns.

New columns must be nullable, because that is all that an upgrade in place does.
"""
