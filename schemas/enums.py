"""The words of the tables: sentinels, states, actions, codes and outcomes, each with one spelling.

Names follow Kafka (`PartitionState`, `LeaderAndIsr`, `Errors`); codes are stable, programs may match on them.
"""

from enum import StrEnum
from typing import Final

NO_LEADER: Final = -1
"""`leader` of a partition that has none, as Kafka writes it."""

LEADER_DURING_DELETE: Final = -2
"""`leader` that brokers are told of a topic being deleted, and its leader epoch (`LeaderAndIsr.LeaderDuringDelete`)."""

CONFIRMED_UNDER: Final = "controller_epoch"
"""Key in a plan's parameters, and in the data of a topic's removal: the controller epoch that confirmations are of."""

NO_CONTROLLER: Final = -1
"""`controller_id` of a cluster without /controller."""

NO_VERSION: Final = -1
"""Version of a znode that must not exist yet."""

WHOLE_TOPIC: Final = -1
"""`partition` of a rejection that is about a topic."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own (`Topic.INTERNAL_TOPICS`): which partition holds a group or a transaction follows from their number."""

INTERNAL_PREFIX: Final = "__"
"""How the names of topics begin that belong to Kafka or to the tools around it, by custom."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's log, which no topic may be named after."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""`leader_recovery_state` after an unclean election, until the new leader has recovered."""


class PartitionState(StrEnum):
    """States of Kafka's PartitionStateMachine."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


class Action(StrEnum):
    """What a change does to its partition."""

    CREATE = "create"
    """Write the first leader and ISR (New -> Online)."""
    ELECT = "elect"
    """Replace a dead leader (Offline -> Online)."""
    TAKE_OFFLINE = "take_offline"
    """Record that nobody can lead: leader -1, the ISR kept."""
    SHRINK_ISR = "shrink_isr"
    """Take dead or drained followers out of the ISR."""
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    """Move leadership off a broker that is drained, and all that are drained out of the ISR."""
    STOP_REPLICA = "stop_replica"
    """Let a drained follower that is not in the ISR stop fetching, so that it does not join it."""
    START_REPLICA = "start_replica"
    """Let a replica that a drain stopped follow again: LeaderAndIsr to all, at the next leader epoch."""
    ELECT_PREFERRED = "elect_preferred"
    REASSIGN = "reassign"
    """Ask Kafka's controller to carry out a reassignment."""
    START_REASSIGNMENT = "start_reassignment"
    """Carry it out: assign the target and whoever has been there, and let the new replicas copy."""
    NARROW_TO_TARGET = "narrow_to_target"
    """The target is in sync: it leads, and the ISR holds nobody else."""
    END_REASSIGNMENT = "end_reassignment"
    """The replicas that leave are stopped: assign the target alone."""


class ReplicaState(StrEnum):
    """States of Kafka's ReplicaStateMachine."""

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class OperationKind(StrEnum):
    """Topic-level work of a plan."""

    CREATE_TOPIC = "create_topic"
    EXPAND_TOPIC = "expand_topic"
    """Add partitions; its changes write their first leaders."""
    ALTER_CONFIG = "alter_config"
    DELETE_TOPIC = "delete_topic"
    WITHDRAW_REASSIGNMENT = "withdraw_reassignment"
    """Take requests that are carried out, or cannot be, out of /admin/reassign_partitions."""
    WITHDRAW_ELECTION = "withdraw_election"
    """A pass was made: take /admin/preferred_replica_election away."""
    WITHDRAW_DELETION = "withdraw_deletion"
    """Take a request away for a topic that is not there, or must not be deleted."""
    DELETE_REPLICAS = "delete_replicas"
    """Tell brokers that a queued topic is deleted, and to delete its replicas."""
    REMOVE_TOPIC = "remove_topic"
    """Every replica of a queued topic is deleted: remove it from ZooKeeper."""


WITHDRAWALS: Final = frozenset(
    {
        OperationKind.WITHDRAW_REASSIGNMENT,
        OperationKind.WITHDRAW_ELECTION,
        OperationKind.WITHDRAW_DELETION,
    }
)
"""Requests that are taken away, once what was asked for is written."""

CARRIED_OUT: Final = WITHDRAWALS | {OperationKind.DELETE_REPLICAS, OperationKind.REMOVE_TOPIC}
"""What a controller does about requests in /admin, beside changes."""

STANDALONE: Final = CARRIED_OUT | {OperationKind.ALTER_CONFIG, OperationKind.DELETE_TOPIC}
"""Operations that no change carries: a commit judges and records them by themselves."""


class PlanKind(StrEnum):
    ASSIGN = "assign"
    ELECT = "elect"
    REASSIGN = "reassign"
    RECONCILE = "reconcile"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    RECOVER = "recover"
    EXPAND = "expand"
    CONFIG = "config"
    DELETE = "delete"


class DrainMode(StrEnum):
    """Who keeps a drained broker from leading."""

    ADMIN = "admin"
    """Kafka's controller: the broker comes last in the order of replicas."""
    RESIDENT = "resident"
    """Surveyor holding the controllership: Kafka's controlled shutdown."""


class PlanStatus(StrEnum):
    PLANNED = "planned"
    REFUSED = "refused"
    COMMITTING = "committing"
    COMMITTED = "committed"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


class RejectionCode(StrEnum):
    """Why a partition gets no change."""

    NO_ELIGIBLE_LEADER = "NO_ELIGIBLE_LEADER"
    ALREADY_PREFERRED = "ALREADY_PREFERRED"
    PREFERRED_NOT_ALIVE = "PREFERRED_NOT_ALIVE"
    PREFERRED_NOT_IN_ISR = "PREFERRED_NOT_IN_ISR"
    NO_STATE = "NO_STATE"
    DELETION_REQUESTED = "DELETION_REQUESTED"
    UNKNOWN_PARTITION = "UNKNOWN_PARTITION"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    ALREADY_ASSIGNED = "ALREADY_ASSIGNED"
    REASSIGNMENT_IN_PROGRESS = "REASSIGNMENT_IN_PROGRESS"
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    """Its state allows no such step: the state machine has none from there."""
    ELECTION_NOT_NEEDED = "ELECTION_NOT_NEEDED"
    """Its leader is alive."""
    NOT_STABLE = "NOT_STABLE"
    """Its preferred replica has not been in the ISR for as many snapshots as was asked for."""
    NOT_SETTLED = "NOT_SETTLED"
    """Its preferred replica's broker joined too short a time ago."""
    CAPPED = "CAPPED"
    """There are more elections than the plan may have, and worse brokers come first."""
    LOG_DIR_FAILED = "LOG_DIR_FAILED"
    """The broker is alive, but the log dir of this replica failed: it answered KAFKA_STORAGE_ERROR."""
    DRAINED = "DRAINED"
    GOES_OFFLINE = "GOES_OFFLINE"
    LEADER_NOT_ALIVE = "LEADER_NOT_ALIVE"
    LAST_IN_ISR = "LAST_IN_ISR"
    REASSIGNED_SINCE = "REASSIGNED_SINCE"
    NOT_ASKED_FOR = "NOT_ASKED_FOR"
    """No commit of the plan ever asked for it: what moved it was something else."""
    REORDERED_SINCE = "REORDERED_SINCE"
    NOT_OFFLINE = "NOT_OFFLINE"
    UNCLEAN_NOT_ALLOWED = "UNCLEAN_NOT_ALLOWED"
    NOT_SET = "NOT_SET"
    """A config that is to be deleted is not set."""
    STATE_VANISHED = "STATE_VANISHED"
    """It has no state znode, and had one before: it is not new, and somebody must say who is to lead."""
    REPLICA_NOT_ALIVE = "REPLICA_NOT_ALIVE"
    """A broker that is not alive holds a replica, and nobody asked to empty it."""
    NO_LIVE_LEADER = "NO_LIVE_LEADER"
    """Nobody alive in its ISR leads it: whoever has its data must not be moved away."""
    TARGET_NOT_ALIVE = "TARGET_NOT_ALIVE"
    """A request names a broker that is not alive as a new replica."""
    INVALID_TARGET = "INVALID_TARGET"
    """A request names a broker twice, a negative one, or nobody."""
    WAITS_FOR_ISR = "WAITS_FOR_ISR"
    """The target of a reassignment is not in sync yet."""
    WAITS_FOR_BROKER = "WAITS_FOR_BROKER"
    """The target of a reassignment has a broker that is not alive."""
    WAITS_FOR_STOP = "WAITS_FOR_STOP"
    """A replica that leaves has not said yet that it stopped."""
    WAITS_FOR_CHANGE = "WAITS_FOR_CHANGE"
    """Another change of the same partition comes first."""
    WAITS_FOR_REPLICAS = "WAITS_FOR_REPLICAS"
    """A topic is not deleted while a replica is out of reach, is moved, or is to be elected."""
    TOO_FEW_BROKERS = "TOO_FEW_BROKERS"
    """There are fewer brokers that may hold its replicas than it has replicas."""
    DELETION_DISABLED = "DELETION_DISABLED"
    """delete.topic.enable is false."""


class FailureScenario(StrEnum):
    """What a what-if takes away, all of a kind one after the other; as the command line says it."""

    BROKERS = "brokers=1"
    RACKS = "racks=1"
    PAIRS = "pairs"


class LintCode(StrEnum):
    """Why a reassignment must not be asked for."""

    UNKNOWN_PARTITION = "UNKNOWN_PARTITION"
    NAMED_TWICE = "NAMED_TWICE"
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    DELETION_REQUESTED = "DELETION_REQUESTED"
    REASSIGNMENT_IN_PROGRESS = "REASSIGNMENT_IN_PROGRESS"
    NO_REPLICAS = "NO_REPLICAS"
    DUPLICATE_BROKER = "DUPLICATE_BROKER"
    BROKER_NOT_ALIVE = "BROKER_NOT_ALIVE"
    REPLICATION_FACTOR_CHANGED = "REPLICATION_FACTOR_CHANGED"
    RACKS_LOST = "RACKS_LOST"
    RACK_CROWDED = "RACK_CROWDED"
    MIN_ISR_UNREACHABLE = "MIN_ISR_UNREACHABLE"
    ZNODE_TOO_LARGE = "ZNODE_TOO_LARGE"
    NO_LIVE_LEADER = "NO_LIVE_LEADER"


class Outcome(StrEnum):
    """What became of a row of a plan at commit."""

    PENDING = "pending"
    APPLIED = "applied"
    STALE = "stale"
    FENCED = "fenced"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Step(StrEnum):
    """Rows of `commits` that are no change of the plan."""

    TAKE_OVER = "take_over"
    HAND_BACK = "hand_back"
    DISCARD_NOTIFICATION = "discard_notification"
    """A notification of ISRs or log dirs that says nothing, or cannot be read, was deleted."""
    CANCEL = "cancel"
    """Without a partition: the plan was closed; with one: its reassignment was cancelled."""
    ROLL_BACK = "roll_back"
    """All that the plan moved was found back where it was."""
    RESTORE_ORDER = "restore_order"
    """The order of replicas as before the reassignment that was cancelled; no data moves."""
    THROTTLE = "throttle"
    """Replication of a broker, or replicas of a topic, was throttled."""
    LIFT_THROTTLE = "lift_throttle"
    """What stood before a throttle was put back."""


class RequestKind(StrEnum):
    """What stands in /admin and the notification znodes."""

    REASSIGN = "reassign"
    PREFERRED_ELECTION = "preferred_election"
    DELETE_TOPIC = "delete_topic"
    ISR_CHANGE = "isr_change"
    LOG_DIR = "log_dir"
