"""Rows of the tables as Python objects.

The columns are the same as in `schemas.tables`; a test compares the two. A row that does not fit, for example because a
column was set to null, is refused when it is read. A column with a default may be null, or absent from a warehouse of
an older version.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from schemas.enums import STANDALONE, WHOLE_TOPIC, PlanKind, PlanStatus, RequestKind
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


class TableRow(Struct, frozen=True, kw_only=True):
    """A row of the table that `TABLE` names."""

    TABLE: ClassVar[str]
    cluster: str = ""

    def columns(self) -> dict[str, Any]:
        """Return the values by column, as stored."""
        values: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(datetime,))
        return values


class Voter(Struct, frozen=True, kw_only=True):
    """A voter of a KRaft quorum and its copy of the metadata log."""

    voter_id: int
    log_end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None


class Snapshot(TableRow, frozen=True, kw_only=True):
    """One row of SNAPSHOTS."""

    TABLE = "snapshots"
    snapshot_id: int
    taken_at: datetime
    controller_id: int | None = None
    controller_epoch: int | None = None
    controller_epoch_version: int | None = None
    zxid_before: int | None = None
    zxid_after: int | None = None
    acls: int | None = None
    quotas: int | None = None
    scram_credentials: int | None = None
    acls_digest: str | None = None
    quotas_digest: str | None = None
    scram_digest: str | None = None
    brokers: int | None = None
    topics: int | None = None
    partitions: int | None = None
    quarantined: int | None = None
    seconds: float | None = None
    versions: dict[str, int] = {}
    cluster_id: str | None = None
    migration: str | None = None
    metadata_version: int | None = None
    voters: list[Voter] | None = None

    @property
    def is_of_kraft(self) -> bool:
        """Whether it was read from the brokers of a KRaft cluster, which has no znode of the controller epoch."""
        return self.controller_epoch_version is None

    @property
    def names(self) -> MetadataNames:
        """How messages name what it was read from: in KRaft, brokers report a metadata.version or voters."""
        return IN_ZOOKEEPER if self.metadata_version is None and self.voters is None else IN_KRAFT


class SecurityCounts(Struct, frozen=True, kw_only=True):
    """Columns of SNAPSHOTS that count what no table has in full, so that a migration can be proved to keep it.

    The digests are defined in `schemas.security_digests`.
    """

    acls: int | None = None
    quotas: int | None = None
    scram_credentials: int | None = None
    acls_digest: str | None = None
    quotas_digest: str | None = None
    scram_digest: str | None = None


class Broker(TableRow, frozen=True, kw_only=True):
    """One row of BROKERS. If the registration cannot be decoded, only id, epoch and version are known."""

    TABLE = "brokers"
    snapshot_id: int | None = None
    broker_id: int
    broker_epoch: int | None = None
    state_version: int | None = None
    host: str | None = None
    port: int | None = None
    endpoints: list[Endpoint] | None = None
    rack: str | None = None
    understood: bool
    fenced: bool | None = None

    @property
    def czxid(self) -> int:
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
    snapshot_id: int
    broker_id: int
    broker_epoch: int | None = None
    host: str | None = None
    port: int | None = None
    endpoints: list[Endpoint] | None = None
    rack: str | None = None
    last_seen_at: datetime


class Topic(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of TOPICS."""

    TABLE = "topics"
    snapshot_id: int | None = None
    topic: str
    topic_id: str | None = None
    topic_version: int | None = None
    config: dict[str, str | None] | None = None
    deletion_requested: bool
    understood: bool | None = None
    assignment_understood: bool | None = None


class Partition(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of PARTITIONS."""

    TABLE = "partitions"
    snapshot_id: int | None = None
    topic: str
    partition: int
    replicas: Brokers
    adding_replicas: Brokers
    removing_replicas: Brokers
    leader: int | None = None
    isr: Brokers | None = None
    leader_epoch: int | None = None
    controller_epoch: int | None = None
    state_version: int | None = None
    topic_version: int | None = None
    leader_recovery_state: int | None = None
    partition_state: str | None = None
    offline_replicas: Brokers | None = None
    under_replicated: bool | None = None
    under_min_isr: bool | None = None
    understood: bool | None = None
    vanished: bool | None = None
    eligible_leader_replicas: Brokers | None = None
    last_known_elr: Brokers | None = None

    @property
    def key(self) -> Key:
        """Topic and partition."""
        return self.topic, self.partition


class ZnodeRequest(TableRow, frozen=True, kw_only=True):
    """One row of REQUESTS: a request in /admin, or a notification of brokers to the controller."""

    TABLE = "requests"
    snapshot_id: int | None = None
    kind: str
    topic: str | None = None
    partition: int | None = None
    replicas: Brokers | None = None
    broker_id: int | None = None
    path: str

    @property
    def key(self) -> Key:
        """Topic and partition, of a deletion WHOLE_TOPIC; a notification of a log dir has neither."""
        return self.topic or "", WHOLE_TOPIC if self.partition is None else self.partition


def topics_queued_for_deletion(requests: Iterable[ZnodeRequest]) -> frozenset[str]:
    return frozenset(row.key[0] for row in requests if row.kind == RequestKind.DELETE_TOPIC)


class BrokerConfig(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of BROKER_CONFIGS: a setting of a broker, or the highest version of an API as `api.<NAME>`."""

    TABLE = "broker_configs"
    snapshot_id: int | None = None
    broker_id: int
    name: str
    value: str | None = None
    assumed: bool | None = None


HIDDEN_TOPICS: Final = "DescribeLogDirs"
"""Path in QUARANTINE of a KRaft cluster if topics may be missing, because this client may not describe all of them."""

_TOPIC_PATH: Final = re.compile(r"(?:/brokers/topics|DescribeTopicPartitions)/([^/]+)")
_PARTITION_PATH: Final = re.compile(
    r"/brokers/topics/([^/]+)/partitions/([^/]+)(?:/state)?|DescribeTopicPartitions/([^/]+)/([^/]+)"
)


class SecurityEntry(TableRow, frozen=True, kw_only=True, gc=False):
    """One row of SECURITY: what one resource, entity or user has, by number and digest."""

    TABLE = "security"
    snapshot_id: int | None = None
    kind: str
    subject: str
    entries: int
    digest: str


class QuarantinedZnode(TableRow, frozen=True, kw_only=True):
    """One row of QUARANTINE: a znode that could not be decoded, or a request of KRaft that was refused."""

    TABLE = "quarantine"
    snapshot_id: int | None = None
    path: str
    data: str | None = None
    reason: str
    blocks: str | None = None
    mend: str | None = None

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
    snapshot_id: int
    kind: str
    subject: str
    before: str | None = None
    after: str | None = None


class LossImpact(TableRow, frozen=True, kw_only=True):
    """One row of WHATIF: what the loss of some brokers costs."""

    TABLE = "whatif"
    snapshot_id: int
    lose: str
    scenario: str
    lost: Brokers
    offline: int = 0
    unclean_only: int = 0
    no_replica: int = 0
    under_min_isr: int = 0
    newly_under_min_isr: int = 0
    leaders_moved: int = 0
    max_leaders: int = 0
    most_leaders_on: int | None = None
    mean_leaders: float | None = None
    leader_skew: float | None = None
    not_judged: int = 0
    newly_offline: int = 0


class DrainedBroker(TableRow, frozen=True, kw_only=True):
    """One row of DRAINED."""

    TABLE = "drained"
    broker_id: int
    mode: str
    controller_epoch: int | None = None
    broker_epoch: int | None = None
    plan_id: str | None = None
    since: datetime


class ThrottledConfig(TableRow, frozen=True, kw_only=True):
    """One row of THROTTLES: a config of a broker or topic that a plan's commit sets, and its value before."""

    TABLE = "throttles"
    plan_id: str
    kind: str
    resource: str
    name: str
    before: str | None = None
    set_to: list[str]
    set_at: datetime


class LeaseRecord(TableRow, frozen=True, kw_only=True):
    """One row of LEASES, a lease of a cluster without ZooKeeper, or of snapshots on a store without locks.

    `holder` is a `schemas.lease_holder.LeaseHolder`, whose command shows which of the two it is.
    """

    TABLE = "leases"
    token: str
    holder: str
    deadline: datetime


class RejectionRecord(TableRow, frozen=True, kw_only=True):
    """One row of REJECTIONS: why a plan has no change for a partition, or no operation for a topic."""

    TABLE = "rejections"
    plan_id: str = ""
    topic: str
    partition: int
    """WHOLE_TOPIC for a whole topic."""
    action: str | None = None
    code: str
    reason: str | None = None

    @property
    def name(self) -> str:
        """Name in messages: orders-7, or the topic."""
        return self.topic if self.partition == WHOLE_TOPIC else partition_name(self.topic, self.partition)


class CandidateEvidence(TableRow, frozen=True, kw_only=True):
    """One row of EVIDENCE: a live replica that could lead a partition without a live ISR member."""

    TABLE = "evidence"
    plan_id: str = ""
    topic: str
    partition: int
    broker_id: int
    rank: int
    chosen: bool = False
    kafkas_choice: bool
    last_in_isr_snapshot: int | None = None
    last_in_isr_at: datetime | None = None
    epochs_since: int | None = None
    log_size: int | None = None


class BrokerResponseRow(TableRow, frozen=True, kw_only=True):
    """One row of ANSWERS: the latest response of a broker about one partition, or about none."""

    TABLE = "answers"
    broker_id: int
    api: str
    topic: str | None = None
    partition: int | None = None
    broker_epoch: int | None = None
    controller_epoch: int | None = None
    leader_epoch: int | None = None
    error: int | None = None
    delete_partition: bool | None = None
    at: datetime | None = None


class CommitRecord(TableRow, frozen=True, kw_only=True):
    """One row of COMMITS: an intent, an outcome or a step."""

    TABLE = "commits"
    plan_id: str
    attempt: int
    wave: int | None = None
    topic: str | None = None
    partition: int | None = None
    action: str
    outcome: str
    state_version_after: int | None = None
    committed_at: datetime
    who: str | None = None
    message: str | None = None
    controller_epoch: int | None = None
    run: str | None = None

    @property
    def change(self) -> tuple[int, str, int] | None:
        """Wave, topic and partition; None for a row that is about no change of the plan."""
        if self.wave is None or self.topic is None or self.partition is None:
            return None
        return self.wave, self.topic, self.partition


class BrokerEpoch(Struct, frozen=True, kw_only=True):
    """A broker that is registered, and its epoch; null in KRaft."""

    broker_id: int
    broker_epoch: int | None = None


class PlanRecord(TableRow, frozen=True, kw_only=True):
    """One row of PLANS: what is known of a plan besides its rows."""

    TABLE = "plans"
    plan_id: str
    name: str | None = None
    snapshot_id: int
    kind: str
    parameters: str = "{}"
    created_at: datetime
    status: str
    changes: int = 0
    rejected: int = 0
    moves: int = 0
    cluster_id: str | None = None
    brokers: list[BrokerEpoch] = []
    names: list[str] | None = None
    submission: str | None = None
    command: str | None = None
    verified_at: datetime | None = None
    last_attempt: int | None = None
    status_reason: str | None = None

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
    def is_cycle(self) -> bool:
        """Whether it records a cycle of `surveyor control`, which cannot be committed again."""
        return self.kind == PlanKind.RECONCILE and CONTROL in self.options


class ChangeSummary(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a change that reviews show: before, after, and the reason."""

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

    adding_before: Brokers | None = None
    adding_after: Brokers
    removing_before: Brokers | None = None
    removing_after: Brokers
    leader_epoch_before: int | None = None
    leader_epoch_after: int | None = None
    controller_epoch_before: int | None = None
    leader_recovery_state_before: int | None = None
    leader_recovery_state_after: int | None = None
    state_version: int | None
    topic_id: str | None = None
    is_new: bool
    leader_and_isr_to: Brokers
    stop_replica_to: Brokers | None = None
    cluster: str = ""
    plan_id: str = ""

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
    plan_id: str = ""
    sequence: int
    kind: str
    topic: str
    data: str

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
