"""The words stored in the tables: sentinels, states, actions, codes and outcomes, each with one spelling.

Names follow Kafka (`PartitionState`, `LeaderAndIsr`, `Errors`). Codes are stable, so programs may match on them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

NO_LEADER: Final = -1
"""`leader` of a partition without one, as Kafka writes it."""

LEADER_DURING_DELETE: Final = -2
"""`leader`, and leader epoch, sent to brokers for a topic being deleted (`LeaderAndIsr.LeaderDuringDelete`)."""

CONFIRMED_UNDER: Final = "controller_epoch"
"""Key in a plan's parameters, and in the data of a topic removal: the controller epoch of the confirmations."""

NO_CONTROLLER: Final = -1
"""`controller_id` of a cluster without /controller."""

NO_VERSION: Final = -1
"""Version of a znode that must not exist yet."""

UNKNOWN_VERSION: Final = -2
"""Version of a znode whose ACL denies this client read access. No znode has it: every write that checks it fails.
"""

UNKNOWN_EPOCH: Final = -1
"""Broker epoch of a registration whose ACL does not let this client read it."""

WHOLE_TOPIC: Final = -1
"""`partition` of a rejection that is about a topic."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""`leader_recovery_state` after an unclean election, until the new leader has recovered."""


class PartitionState(StrEnum):
    """States of Kafka's PartitionStateMachine."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


class EventKind(StrEnum):
    """Differences between two snapshots; most correspond to an event that Kafka's controller handles."""

    BROKER_JOINED = "BrokerJoined"
    BROKER_FAILED = "BrokerFailed"
    BROKER_BOUNCED = "BrokerBounced"
    BROKER_CHANGED = "BrokerChanged"
    TOPIC_CREATED = "TopicCreated"
    TOPIC_VANISHED = "TopicVanished"
    TOPIC_RECREATED = "TopicRecreated"
    """The topic id changed: the topic was deleted and created again."""
    TOPIC_ID_ASSIGNED = "TopicIdAssigned"
    TOPIC_ID_LOST = "TopicIdLost"
    """The topic exists without the id that it had."""
    PARTITIONS_ADDED = "PartitionsAdded"
    DELETION_REQUESTED = "DeletionRequested"
    REASSIGNMENT_REQUESTED = "ReassignmentRequested"
    PREFERRED_ELECTION_REQUESTED = "PreferredElectionRequested"
    LEADER_CHANGED = "LeaderChanged"
    ISR_SHRUNK = "IsrShrunk"
    ISR_EXPANDED = "IsrExpanded"
    STATE_VANISHED = "StateVanished"
    LOG_DIR_FAILED = "LogDirFailed"
    CONTROLLER_MOVED = "ControllerMoved"
    EPOCH_GREW = "EpochGrew"


class Action(StrEnum):
    """Effect of a change on its partition."""

    CREATE = "create"
    """Write the first leader and ISR (New -> Online)."""
    ELECT = "elect"
    """Replace a dead leader (Offline -> Online)."""
    TAKE_OFFLINE = "take_offline"
    """Record that no replica can lead: leader -1, and the ISR is kept."""
    SHRINK_ISR = "shrink_isr"
    """Take dead or drained followers out of the ISR."""
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    """Move leadership off a drained broker, and remove all drained brokers from the ISR."""
    STOP_REPLICA = "stop_replica"
    """Stop a drained follower that is not in the ISR, so that it does not rejoin it."""
    START_REPLICA = "start_replica"
    """Restart a replica that a drain stopped: LeaderAndIsr to all replicas at the next leader epoch."""
    ELECT_PREFERRED = "elect_preferred"
    REASSIGN = "reassign"
    """Request a reassignment from Kafka's controller."""
    START_REASSIGNMENT = "start_reassignment"
    """Start the reassignment: assign target and current replicas, so that the new ones copy."""
    NARROW_TO_TARGET = "narrow_to_target"
    """The target is in sync: one of its replicas leads, and the ISR contains only the target."""
    CANCEL = "cancel"
    """Request from Kafka's controller that a reassignment which runs be cancelled."""
    END_REASSIGNMENT = "end_reassignment"
    """The leaving replicas are stopped: assign only the target."""


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
    """Work of a plan on a whole topic."""

    CREATE_TOPIC = "create_topic"
    EXPAND_TOPIC = "expand_topic"
    """Add partitions; the plan's changes write their first leaders."""
    ALTER_CONFIG = "alter_config"
    DELETE_TOPIC = "delete_topic"
    WITHDRAW_REASSIGNMENT = "withdraw_reassignment"
    """Remove completed and invalid requests from /admin/reassign_partitions."""
    WITHDRAW_ELECTION = "withdraw_election"
    """Delete /admin/preferred_replica_election after its elections."""
    WITHDRAW_DELETION = "withdraw_deletion"
    """Remove the request for a topic that does not exist, or must not be deleted."""
    DELETE_REPLICAS = "delete_replicas"
    """Notify brokers that a queued topic is deleted, and delete its replicas."""
    REMOVE_TOPIC = "remove_topic"
    """Remove a queued topic from ZooKeeper once all its replicas are deleted."""


WITHDRAWALS: Final = frozenset(
    {
        OperationKind.WITHDRAW_REASSIGNMENT,
        OperationKind.WITHDRAW_ELECTION,
        OperationKind.WITHDRAW_DELETION,
    }
)
"""Removals of requests after the requested work is written."""

CARRIED_OUT: Final = WITHDRAWALS | {OperationKind.DELETE_REPLICAS, OperationKind.REMOVE_TOPIC}
"""Work of a controller on requests in /admin, in addition to changes."""

STANDALONE: Final = CARRIED_OUT | {OperationKind.ALTER_CONFIG, OperationKind.DELETE_TOPIC}
"""Operations without changes: a commit checks and records them on their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTraits:
    """How commands treat the plans of a kind, as far as the plans' rows do not determine it."""

    is_of_named_topics: bool = False
    """It changes only topics that the user names; metadata that is not understood does not matter to it."""
    deletes_topics: bool = False
    moves_replicas: bool = False
    """A rollback moves the replicas back."""
    elects_leaders: bool = False
    """It is made to elect leaders of offline partitions."""
    has_evidence: bool = False
    """It ranks the replicas that an unclean election could elect."""
    is_superseded: bool = False
    """A later plan of the kind replaces it, because both contain all that is due."""
    drains: bool = False
    """Its commit marks its brokers as drained."""
    undrains: bool = False
    """Its commit removes these marks."""

    @property
    def changes_drained(self) -> bool:
        """Whether a commit has an effect besides the plan's rows, which only a commit completes."""
        return self.drains or self.undrains


class PlanKind(StrEnum):
    """What a plan does: the word in the tables, and the traits of its plans."""

    traits: PlanTraits

    def __new__(cls, word: str, traits: PlanTraits) -> Self:
        kind = str.__new__(cls, word)
        kind._value_, kind.traits = word, traits
        return kind

    ASSIGN = "assign", PlanTraits(is_of_named_topics=True)
    EXPAND = "expand", PlanTraits(is_of_named_topics=True)
    CONFIG = "config", PlanTraits(is_of_named_topics=True)
    DELETE = "delete", PlanTraits(is_of_named_topics=True, deletes_topics=True)
    ELECT = "elect", PlanTraits(has_evidence=True)
    REASSIGN = "reassign", PlanTraits(moves_replicas=True)
    RECONCILE = "reconcile", PlanTraits(elects_leaders=True, is_superseded=True)
    DRAIN = "drain", PlanTraits(drains=True)
    UNDRAIN = "undrain", PlanTraits(undrains=True)
    RECOVER = "recover", PlanTraits(elects_leaders=True, has_evidence=True)
    CANCEL = "cancel", PlanTraits()


class DrainMode(StrEnum):
    """How a drained broker is kept from leading."""

    ADMIN = "admin"
    """By Kafka's controller: the broker comes last in the order of replicas."""
    RESIDENT = "resident"
    """By `surveyor control`: Kafka's controlled shutdown."""


class PlanStatus(StrEnum):
    PLANNED = "planned"
    REFUSED = "refused"
    COMMITTING = "committing"
    COMMITTED = "committed"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


class RejectionCode(StrEnum):
    """Reason why a partition gets no change."""

    NO_ELIGIBLE_LEADER = "NO_ELIGIBLE_LEADER"
    """No replica can lead it; the reason names those that are dead, not decodable or out of the ISR."""
    ALREADY_PREFERRED = "ALREADY_PREFERRED"
    """Its preferred replica is the leader already."""
    PREFERRED_NOT_ALIVE = "PREFERRED_NOT_ALIVE"
    """The broker of its preferred replica is not registered."""
    PREFERRED_NOT_IN_ISR = "PREFERRED_NOT_IN_ISR"
    """Its preferred replica is live, and not in the ISR."""
    NO_STATE = "NO_STATE"
    """It has no state znode yet."""
    DELETION_REQUESTED = "DELETION_REQUESTED"
    """Its topic is queued for deletion."""
    UNKNOWN_PARTITION = "UNKNOWN_PARTITION"
    """The snapshot has no such partition."""
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    """The snapshot has no such topic."""
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    """A znode of it cannot be decoded and is in quarantine."""
    ALREADY_ASSIGNED = "ALREADY_ASSIGNED"
    """It has the requested replicas, in this order, already."""
    REASSIGNMENT_IN_PROGRESS = "REASSIGNMENT_IN_PROGRESS"
    """It is being reassigned, or a request for it is in /admin/reassign_partitions."""
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    """The state machine has no such transition from its state."""
    NOT_STABLE = "NOT_STABLE"
    """Its preferred replica has not been in the ISR for the requested number of snapshots."""
    NOT_SETTLED = "NOT_SETTLED"
    """The broker of its preferred replica joined too recently."""
    CAPPED = "CAPPED"
    """The plan has more elections than allowed; brokers with more imbalance come first."""
    LOG_DIR_FAILED = "LOG_DIR_FAILED"
    """The broker is live, but the log dir of this replica failed (KAFKA_STORAGE_ERROR)."""
    DRAINED = "DRAINED"
    """The replica that would be needed is on a drained broker."""
    WOULD_GO_OFFLINE = "WOULD_GO_OFFLINE"
    """No other replica could lead it once the drained brokers stop."""
    LEADER_NOT_ALIVE = "LEADER_NOT_ALIVE"
    """Its leader is not live, so a reconcile must come first."""
    LAST_IN_ISR = "LAST_IN_ISR"
    """No other replica is in the ISR, so the broker cannot leave it."""
    REASSIGNED_SINCE = "REASSIGNED_SINCE"
    """Its replicas have changed since the drain, or since the plan that a rollback reverts."""
    NOT_REQUESTED = "NOT_REQUESTED"
    """No commit of the plan requested it; something else moved it."""
    REORDERED_SINCE = "REORDERED_SINCE"
    """The order of its replicas has changed since the drain."""
    NOT_OFFLINE = "NOT_OFFLINE"
    """A recovery named it, and it has a live leader or a clean candidate."""
    UNCLEAN_NOT_ALLOWED = "UNCLEAN_NOT_ALLOWED"
    """Only an unclean election would find a leader, and neither the user nor its config allows one."""
    NOT_SET = "NOT_SET"
    """A config to be deleted is not set."""
    STATE_VANISHED = "STATE_VANISHED"
    """It has no state znode but had one before; it is not new, and the user must choose its leader."""
    REPLICA_NOT_ALIVE = "REPLICA_NOT_ALIVE"
    """A broker that is not live holds a replica, and the plan was not asked to empty it."""
    NO_LIVE_LEADER = "NO_LIVE_LEADER"
    """No live member of its ISR leads it; a replica that has its data must not be moved away."""
    TARGET_NOT_ALIVE = "TARGET_NOT_ALIVE"
    """A request names a broker that is not live as a new replica."""
    INVALID_TARGET = "INVALID_TARGET"
    """A request names a broker twice, a negative id, or no broker."""
    WAITS_FOR_ISR = "WAITS_FOR_ISR"
    """The target of a reassignment is not in sync yet."""
    WAITS_FOR_BROKER = "WAITS_FOR_BROKER"
    """The target of a reassignment has a broker that is not live."""
    WAITS_FOR_STOP = "WAITS_FOR_STOP"
    """A leaving replica has not confirmed that it stopped."""
    WAITS_FOR_CHANGE = "WAITS_FOR_CHANGE"
    """Another change of the same partition comes first."""
    WAITS_FOR_REPLICAS = "WAITS_FOR_REPLICAS"
    """A topic is not deleted while a replica is unreachable, moving, or waiting for an election."""
    TOO_FEW_BROKERS = "TOO_FEW_BROKERS"
    """There are fewer brokers that may hold its replicas than replicas."""
    DELETION_DISABLED = "DELETION_DISABLED"
    """delete.topic.enable is false."""


AS_REQUESTED: Final = frozenset(
    {RejectionCode.ALREADY_PREFERRED, RejectionCode.ALREADY_ASSIGNED, RejectionCode.NOT_OFFLINE, RejectionCode.NOT_SET}
)
"""Reasons why a partition gets no change that mean that it needs none."""


class FailureScenario(StrEnum):
    """Kinds of loss of a what-if, examined one at a time; values as on the command line."""

    BROKERS = "brokers=1"
    RACKS = "racks=1"
    PAIRS = "pairs"


class RestartEffect(StrEnum):
    """Effect of restarting brokers on a partition, the worst first."""

    OFFLINE = "offline"
    """No live replica in sync can lead it; clients can neither write nor read."""
    UNDER_MIN_ISR = "under_min_isr"
    """Fewer replicas than min.insync.replicas are in sync; acks=all fails with NotEnoughReplicas (`UnderMinIsr`)."""
    BELOW_MARGIN = "below_margin"
    """Enough replicas are in sync, but fewer than min.insync.replicas and the margin (with margin 1: `AtMinIsr`)."""
    UNKNOWN = "unknown"
    """A fact that decides it cannot be read. It never counts as safe."""


class RestartCode(StrEnum):
    """Reason why a restart has its effect on a partition."""

    NO_LIVE_LEADER = "NO_LIVE_LEADER"
    """It is offline already."""
    ONLY_REPLICA = "ONLY_REPLICA"
    """It has one replica, so every restart takes it offline."""
    NO_OTHER_IN_SYNC = "NO_OTHER_IN_SYNC"
    """No replica of another broker is live and in sync."""
    ONLY_TARGET = "ONLY_TARGET"
    """Its reassignment, which may end at any moment, leaves replicas on the restarted brokers only."""
    TOO_FEW_REPLICAS = "TOO_FEW_REPLICAS"
    """Its replicas on other brokers would not suffice even if all were in sync."""
    TOO_FEW_IN_SYNC = "TOO_FEW_IN_SYNC"
    """Its replicas on other brokers suffice once they are in sync."""
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    NO_STATE = "NO_STATE"
    MIN_ISR_UNKNOWN = "MIN_ISR_UNKNOWN"
    BROKER_UNCERTAIN = "BROKER_UNCERTAIN"
    """It depends on a broker that is registered, but cannot be decoded or does not answer."""


class LintCode(StrEnum):
    """Reason why a reassignment must not be requested."""

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
    INTERNAL_TOPIC = "INTERNAL_TOPIC"


class Outcome(StrEnum):
    """Outcome of a plan row at commit."""

    PENDING = "pending"
    APPLIED = "applied"
    STALE = "stale"
    FENCED = "fenced"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Step(StrEnum):
    """Rows of `commits` that are not changes of the plan."""

    TAKE_OVER = "take_over"
    HAND_BACK = "hand_back"
    DISCARD_NOTIFICATION = "discard_notification"
    """An empty or unreadable notification of ISRs or log dirs was deleted."""
    CANCEL = "cancel"
    """The plan was closed; a plan of kind `cancel` turns its reassignments back."""
    ROLL_BACK = "roll_back"
    """Everything that the plan moved was found back in place."""
    THROTTLE = "throttle"
    """Replication of a broker, or replicas of a topic, was throttled."""
    LIFT_THROTTLE = "lift_throttle"
    """The configs from before a throttle were restored."""


EVERY_HOUR: Final = "always"
"""The window of loads that hold for every hour."""

IMPORTED: Final = "imported"
"""The method of loads that are not from samples."""


class SecurityKind(StrEnum):
    """Kinds of entries in the table `security`."""

    ACL = "acl"
    QUOTA = "quota"
    SCRAM = "scram"


class RequestKind(StrEnum):
    """Requests in /admin and in the notification znodes."""

    REASSIGN = "reassign"
    PREFERRED_ELECTION = "preferred_election"
    DELETE_TOPIC = "delete_topic"
    ISR_CHANGE = "isr_change"
    LOG_DIR = "log_dir"


ADMIN_REQUESTS: Final = frozenset({RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION, RequestKind.DELETE_TOPIC})
"""Requests in /admin."""
