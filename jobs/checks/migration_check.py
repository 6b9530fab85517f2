"""Obstacles to a migration to KRaft, and metadata that would be lost, as ZooKeeper and the brokers show them.

Corresponds to `KRaftMigrationDriver` and `ZkMigrationClient` of Kafka 3.9, the last release with ZooKeeper. Nothing is
changed. Unreadable metadata count as a fault, because it is unknown whether they are carried over.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from kazoo.client import KazooClient

from jobs.adapters.brokers.migration_configs import (
    BROKER_ID,
    MIGRATION_ENABLED,
    MigrationConfig,
    read_migration_configs,
)
from jobs.adapters.zookeeper.cluster_state import CONFIGS, MIGRATION, TOPICS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import with_retries
from jobs.adapters.zookeeper.kraft_carried_znodes import CONSUMERS, SCRAM, CarriedZnodes, read_carried
from jobs.adapters.zookeeper.scram_users import USERS
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.adapters.zookeeper.znode_reads import children
from jobs.checks.check_results import CheckResult
from jobs.checks.cluster_checks import quarantine_advice, remedies
from jobs.core.migration_refusal import is_started, migration_refusal
from jobs.repositories.controller_epochs import later_states_message
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.broker_config_names import AUTHORIZER, CONTROL_PLANE_LISTENER, PROTOCOL_VERSION
from schemas.enums import NO_CONTROLLER, NO_LEADER, RequestKind
from schemas.inter_broker_protocol import TOPIC_IDS_SINCE, Protocol
from schemas.partition_info import PartitionInfo
from schemas.rows import QuarantinedZnode
from schemas.text import abbreviate, join_ids, partition_name, pluralise
from schemas.topic_configs import FOLLOWER_REPLICAS, LEADER_REPLICAS

MIGRATION_SINCE: Final = Protocol(3, 4, 0)
"""First protocol version of brokers that can migrate (`MetadataVersion.isMigrationSupported`)."""

LOG_DIRS_SINCE: Final = Protocol(3, 7, 2)
"""The first protocol that migrates several log dirs (`MetadataVersion.isDirectoryAssignmentSupported`)."""

LAST_RELEASE: Final = Protocol(3, 9, 0)
"""The last release that runs with ZooKeeper, from which Kafka 4 can be reached."""

_AFTER_THE_START: Final = (
    "this check is for a cluster whose migration has not begun; compare snapshots by `surveyor migration prove`, which "
    "also proves a rollback (docs/migration.md)"
)

ZOOKEEPER_AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(slots=True)
class TopicFacts:
    """Irregularities of topics and partitions, except topics queued for deletion."""

    names: list[str] = field(default_factory=list)
    """All topics, also those queued for deletion."""
    partitions: int = 0
    without_id: list[str] = field(default_factory=list)
    without_state: list[str] = field(default_factory=list)
    """Partitions, as TOPIC-N."""
    without_leader: list[str] = field(default_factory=list)
    later_epochs: list[tuple[str, int, int]] = field(default_factory=list)
    """Partitions whose state has a later controller epoch than /controller_epoch, with that epoch."""
    moving: list[str] = field(default_factory=list)
    throttled: list[str] = field(default_factory=list)
    replicas_by_broker: dict[int, int] = field(default_factory=dict)
    """Number of partitions that name a broker as a replica, by broker."""
    quarantine: list[QuarantinedZnode] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFacts:
    """Everything that the checks judge."""

    state: ClusterState
    topics: TopicFacts
    carried: CarriedZnodes
    configs: Mapping[int, MigrationConfig]
    """Settings by broker."""
    silent: Mapping[int, str]
    """Reasons why brokers returned none, by broker."""

    @property
    def quarantine(self) -> list[QuarantinedZnode]:
        """Znodes that cannot be decoded; znodes of topics queued for deletion are not carried over anyway."""
        return [*self.state.quarantine, *self.topics.quarantine]


def read_facts(settings: Settings, client: KazooClient) -> MigrationFacts:
    """Read the live cluster by the session of `client`."""
    state = with_retries(lambda: read_cluster(client))
    with progress("asking brokers for their configs"):
        configs, silent = read_migration_configs(state.brokers, settings.conf.command_config, settings.pace.configs)
    with progress("reading topics and partitions"):
        topics = _read_topics(client, state)
    carried = with_retries(lambda: read_carried(client, topics.names))
    return MigrationFacts(state=state, topics=topics, carried=carried, configs=configs, silent=silent)


def _read_topics(client: KazooClient, state: ClusterState) -> TopicFacts:
    facts = TopicFacts(with_retries(lambda: children(client, TOPICS) or []))
    carried = [name for name in facts.names if name not in state.deleting]
    for rows in read_topic_rows(client, carried):
        facts.quarantine += rows.quarantine
        for topic in rows.topics:
            config = topic.config or {}
            facts.without_id += [topic.topic] * (topic.assignment_understood and topic.topic_id is None)
            facts.throttled += [topic.topic] * any(config.get(name) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS))
        for partition in rows.partitions:
            _count_partition(facts, partition, state.controller_epoch)
    return facts


def _count_partition(facts: TopicFacts, partition: PartitionInfo, controller_epoch: int | None) -> None:
    name = partition_name(*partition.key)
    facts.partitions += 1
    for broker in partition.replicas:
        facts.replicas_by_broker[broker] = facts.replicas_by_broker.get(broker, 0) + 1
    if controller_epoch is not None and (partition.controller_epoch or 0) > controller_epoch:
        facts.later_epochs.append((*partition.key, partition.controller_epoch or 0))
    if partition.is_being_reassigned:
        facts.moving.append(name)
    if partition.replicas and partition.state_version is None:
        facts.without_state.append(name)
    elif partition.leader == NO_LEADER:
        facts.without_leader.append(name)


def migration_checks(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    """Judge the facts: the brokers first, then topics, then what else is carried over or left behind.

    Once a KRaft controller has taken over, nothing else is judged: brokers leave ZooKeeper then, one at a time.
    """
    yield _started(settings, facts)
    if facts.state.migration and is_started(facts.state.migration):
        return
    yield from _brokers(settings, facts)
    yield from _protocols(settings, facts)
    yield from _configs(facts)
    yield from _topics(settings, facts)
    yield from _requests(settings, facts)
    yield from _carried(settings, facts)


def _started(settings: Settings, facts: MigrationFacts) -> CheckResult:
    sign = facts.state.migration
    if sign:
        return CheckResult.fault("started", sign, _AFTER_THE_START if is_started(sign) else migration_refusal(sign))
    if facts.state.controller_id in {NO_CONTROLLER, None}:
        return CheckResult.fault("started", "no broker is the controller", command_line(settings, "doctor"))
    return CheckResult.fine("started", "no KRaft controller has taken over")


def _brokers(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    """Check that every broker with replicas is registered: the migration waits until all have registered with KRaft."""
    live = facts.state.live
    gone = {broker: count for broker, count in sorted(facts.topics.replicas_by_broker.items()) if broker not in live}
    for broker, count in gone.items():
        yield CheckResult.fault(
            "brokers",
            f"broker {broker} is not registered and has {pluralise(count, 'replica')}: the migration waits for it",
            "start it, or: " + command_line(settings, "plan", "reassign", "--remove-brokers", str(broker)),
        )
    unread = sorted(row.broker_id for row in facts.state.brokers if not row.understood)
    if unread:
        found = f"the registration of brokers {join_ids(unread)} cannot be decoded"
        yield CheckResult.fault("brokers", found, command_line(settings, "doctor"))
    if not live:
        listed = f"zookeeper-shell.sh {settings.zookeeper_endpoint.hosts} ls /brokers/ids"
        advice = f"check the chroot of {settings.address_option}, start brokers, then: {listed}"
        yield CheckResult.fault("brokers", "none is registered", advice)
    elif not gone and not unread:
        yield CheckResult.fine("brokers", f"{len(live)} registered; no replica is on another one")


def _protocols(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    for broker, reason in sorted(facts.silent.items()):
        advice = f"{remedies([reason])}: {command_line(settings, 'doctor')}"
        yield CheckResult.fault("settings", f"broker {broker} did not return its configs: {reason}", advice)
    releases = {broker: Protocol.parse(config.release) for broker, config in facts.configs.items()}
    early = sorted(broker for broker, release in releases.items() if release is None or release < MIGRATION_SINCE)
    if early:
        yield CheckResult.fault(
            "release", f"brokers {join_ids(early)} run a release before 3.4, or an unknown one", _upgrade(facts)
        )
    elif any(release < LAST_RELEASE for release in releases.values() if release):
        yield CheckResult.warning(
            "release",
            f"the brokers' releases are {_joined(config.release for config in facts.configs.values())}",
            f"{_upgrade(facts)}: it is the last release with ZooKeeper and the only upgrade path to Kafka 4",
        )
    elif facts.configs:
        yield CheckResult.fine("release", _joined(config.release for config in facts.configs.values()))
    yield from _protocol_versions(facts)


def _protocol_versions(facts: MigrationFacts) -> Iterator[CheckResult]:
    protocols = {broker: Protocol.parse(config.protocol) for broker, config in facts.configs.items()}
    early = sorted(broker for broker, protocol in protocols.items() if protocol is None or protocol < MIGRATION_SINCE)
    several = sorted(broker for broker, config in facts.configs.items() if config.log_dirs > 1)
    early_log_dirs = sorted(
        broker for broker in several if broker not in early and (protocols[broker] or MIGRATION_SINCE) < LOG_DIRS_SINCE
    )
    if early:
        yield CheckResult.fault(
            "protocol",
            f"brokers {join_ids(early)} run with {PROTOCOL_VERSION} before 3.4",
            _raise_protocol(facts, MIGRATION_SINCE),
        )
    if early_log_dirs:
        yield CheckResult.fault(
            "log dirs",
            f"brokers {join_ids(early_log_dirs)} have several log dirs and run with {PROTOCOL_VERSION} before 3.7-IV2",
            _raise_protocol(facts, LOG_DIRS_SINCE),
        )
    versions = {config.protocol for config in facts.configs.values()}
    if len(versions) > 1:
        advice = f"a rolling upgrade is in progress, finish it: {_raise_protocol(facts, MIGRATION_SINCE)}"
        yield CheckResult.fault("protocol", f"{PROTOCOL_VERSION} differs: {_joined(versions)}", advice)
    elif facts.configs and not early:
        yield CheckResult.fine("protocol", f"{PROTOCOL_VERSION} {_joined(versions)}")
    if several and not early_log_dirs:
        yield CheckResult.fine("log dirs", f"brokers {join_ids(several)} have several")


def _upgrade(facts: MigrationFacts) -> str:
    """Advise an upgrade, during which brokers of the old release must understand the new ones."""
    protocols = [protocol for config in facts.configs.values() if (protocol := Protocol.parse(config.protocol))]
    present = f"{PROTOCOL_VERSION}={_short(min(protocols))}" if protocols else f"their {PROTOCOL_VERSION}"
    return f"upgrade to Kafka 3.9, with {present} in server.properties until all brokers run it"


def _short(protocol: Protocol) -> str:
    return f"{protocol.major}.{protocol.minor}"


def _raise_protocol(facts: MigrationFacts, since: Protocol) -> str:
    """Advise the line for server.properties; a broker does not start with a version that its release does not know."""
    releases = [Protocol.parse(config.release) for config in facts.configs.values()]
    known = [release for release in releases if release]
    if len(known) < len(releases) or min(known) < since:
        return _upgrade(facts)
    line = f"{PROTOCOL_VERSION}={_short(min(known))}"
    return f"set {line} in server.properties of all brokers, and restart them one at a time; this cannot be undone"


def _configs(facts: MigrationFacts) -> Iterator[CheckResult]:
    """Check that `KafkaConfig.validateValues` accepts the settings with migration enabled and process.roles set."""
    generated = [broker for broker, config in sorted(facts.configs.items()) if (config.broker_id or "-1") == "-1"]
    if generated:
        found = f"{BROKER_ID} of brokers {join_ids(generated)} is generated, which a migration refuses"
        lines = ", ".join(f"{BROKER_ID}={broker}" for broker in generated)
        # a broker that may generate ids refuses one above reserved.broker.max.id, as generated ones are
        advice = f"set in their server.properties {lines}, and on each of them broker.id.generation.enable=false"
        yield CheckResult.fault("configs", found, advice)
    planes = [broker for broker, config in sorted(facts.configs.items()) if config.control_plane]
    if planes:
        found = f"{CONTROL_PLANE_LISTENER} is set on brokers {join_ids(planes)}, which KRaft refuses"
        lines = ", ".join(
            sorted({f"{CONTROL_PLANE_LISTENER}={facts.configs[broker].control_plane}" for broker in planes})
        )
        advice = f"remove from their server.properties, and restart them one at a time: {lines}"
        yield CheckResult.fault("configs", found, advice)
    authorizers = {config.authorizer for config in facts.configs.values() if config.authorizer in ZOOKEEPER_AUTHORIZERS}
    if authorizers:
        found = f"{AUTHORIZER} is {_joined(authorizers)}, which needs ZooKeeper"
        advice = f"in the server.properties that have process.roles, and not before: {AUTHORIZER}={STANDARD_AUTHORIZER}"
        yield CheckResult.warning("configs", found, advice)
    for broker, names in sorted(facts.carried.password_configs.items()):
        found = f"dynamic configs of broker {broker} are stored encoded: {', '.join(names)}"
        advice = (
            "in server.properties of every KRaft controller, with the brokers' secret: password.encoder.secret=SECRET; "
            "without it the migration fails"
        )
        yield CheckResult.warning("configs", found, advice)
    if any(config.enabled for config in facts.configs.values()):
        yield CheckResult.fine("configs", f"{MIGRATION_ENABLED} is set")


def _topics(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    topics, carried = facts.topics, facts.carried
    for row in facts.quarantine:
        advice = (
            f"zookeeper-shell.sh {settings.zookeeper_endpoint.hosts} {row.mend}"
            if row.mend
            else quarantine_advice(settings)
        )
        yield CheckResult.fault("znodes", f"{row.path}: {row.reason}", advice)
    if topics.without_id:
        yield CheckResult.fault(
            "topic ids",
            f"{pluralise(len(topics.without_id), 'topic', 'has', 'have')} no id, and the migration fails at the "
            f"first: {abbreviate(topics.without_id)}",
            f"{_raise_protocol(facts, TOPIC_IDS_SINCE)}; restart the broker that is the controller last, since its "
            "successor assigns the ids"
            if facts.configs
            else f"no broker returned its release; find out why, then check again: {command_line(settings, 'doctor')}",
        )
    if topics.without_state:
        yield CheckResult.fault(
            "states",
            f"{pluralise(len(topics.without_state), 'partition', 'has', 'have')} no state; the migration would "
            f"let the first replica lead with all replicas in sync, which may lose data: "
            f"{abbreviate(topics.without_state)}",
            f"{command_line(settings, 'plan', 'recover', *_named(topics.without_state))}; if it plans "
            "nothing, no snapshot has seen the state, and a controller lets the first live replica lead: start all "
            "its replicas first",
        )
    if topics.later_epochs:
        found = later_states_message(facts.state.epoch, topics.later_epochs)
        yield CheckResult.fault("epochs", found, command_line(settings, "reconcile"))
    if topics.without_leader:
        found = f"{pluralise(len(topics.without_leader), 'partition', 'has', 'have')} no leader"
        advice = (
            "start their replicas: a KRaft controller cannot elect others either; "
            f"`{command_line(settings, 'status')}` lists them"
        )
        yield CheckResult.warning("leaders", f"{found}: {abbreviate(topics.without_leader)}", advice)
    if carried.orphaned_configs:
        yield CheckResult.warning(
            "orphans",
            f"configs of topics that do not exist are not carried over: {abbreviate(carried.orphaned_configs)}",
            f"nothing, or: zookeeper-shell.sh {settings.zookeeper_endpoint.hosts} delete {CONFIGS}/TOPIC",
        )
    count = len(topics.names) - len(facts.state.deleting.intersection(topics.names))
    found = f"{pluralise(count, 'topic')} with {pluralise(topics.partitions, 'partition')}"
    yield CheckResult.fine("topics", found)


def _named(partitions: Sequence[str]) -> list[str]:
    """Return the options that name the first partitions."""
    return [word for partition in partitions[:_NAMED] for word in ("--partition", partition)]


_NAMED: Final = 3
"""Partitions that a command names; a later check names the next."""

_REQUESTS: Final = {
    RequestKind.REASSIGN: "requests in /admin/reassign_partitions",
    RequestKind.PREFERRED_ELECTION: "requests in /admin/preferred_replica_election",
}
"""Requests that no KRaft controller reads."""


def _requests(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    deleting = sorted(facts.state.deleting)
    if deleting:
        yield CheckResult.fault(
            "deletions",
            f"topics queued for deletion are not carried over: {abbreviate(deleting)}",
            f"wait until they are deleted; `{command_line(settings, 'status')}` shows which brokers that waits for",
        )
    for kind, meaning in _REQUESTS.items():
        names = [partition_name(*row.key) for row in facts.state.requests if row.kind == kind]
        if names:
            found = f"{meaning} would be lost: {abbreviate(names)}"
            status = command_line(settings, "status")
            yield CheckResult.fault(
                "requests", found, f"wait until they are done; `{status}` shows how to cancel what is stuck"
            )
    if facts.topics.moving:
        yield CheckResult.warning(
            "reassignments",
            f"reassignments that run are carried over: {abbreviate(facts.topics.moving)}",
            "wait until they are complete, because brokers restart several times during a migration: "
            + command_line(settings, "status"),
        )
    throttled = [*facts.topics.throttled, *(f"the rate of broker {name}" for name in facts.carried.throttled_brokers)]
    if throttled:
        found = f"throttles are carried over: {abbreviate(throttled)}"
        yield CheckResult.warning("throttles", found, command_line(settings, "cancel", "--throttles"))


def _carried(settings: Settings, facts: MigrationFacts) -> Iterator[CheckResult]:
    carried = facts.carried
    shell = f"zookeeper-shell.sh {settings.zookeeper_endpoint.hosts}"
    for path, reason in sorted(carried.malformed.items()):
        shown = f"{shell} get {shlex.quote(path)}"
        yield CheckResult.fault(
            "znodes",
            f"{path}: {reason}; its content would be lost, or stop the migration",
            _credential_command(path, reason) or f"correct or delete it by Kafka's tools; what it has: {shown}",
        )
    advice = "with the brokers' credentials: " + command_line(
        settings, "migration", "check", "--zookeeper-config", "FILE"
    )
    for path, reason in sorted(carried.unread.items()):
        yield CheckResult.fault("znodes", f"{path}: {reason}", advice)
    if carried.ignored_acls:
        found = f"ACLs of unknown resource types are not carried over: {abbreviate(carried.ignored_acls)}"
        shown = f"{shell} ls {shlex.quote(carried.ignored_acls[0])}"
        advice = (
            "create what you need again, for a type that Kafka knows, with kafka-acls.sh --add; "
            f"list them with: {shown}"
        )
        yield CheckResult.warning("acls", found, advice)
    if carried.has_empty_migration:
        yield CheckResult.warning(
            "znodes",
            f"{MIGRATION} is empty, as zookeeper-security-migration creates it; KRaft controllers before 3.9 cannot "
            "decode it, and do not begin the migration",
            f"before you start a KRaft controller: {shell} delete {MIGRATION}",
        )
    if carried.consumers:
        yield CheckResult.warning(
            "left behind",
            f"{pluralise(carried.consumers, 'consumer group')} under {CONSUMERS} with offsets in ZooKeeper",
            "move their consumers to offsets in Kafka before you stop ZooKeeper; "
            f"list them with: {shell} ls {CONSUMERS}",
        )
    if carried.foreign:
        found = f"znodes that are not Kafka's stay in ZooKeeper: {abbreviate(carried.foreign)}"
        shown = f"{shell} ls {shlex.quote(carried.foreign[0])}"
        advice = f"move what other programs keep there before you stop ZooKeeper; list it with: {shown}"
        yield CheckResult.warning("left behind", found, advice)
    counted = [
        f"{pluralise(carried.acls, 'ACL')} of {pluralise(carried.acl_resources, 'resource pattern')}",
        pluralise(carried.scram_credentials, "SCRAM credential"),
        pluralise(carried.quotas, "quota"),
        pluralise(carried.delegation_tokens, "delegation token"),
        f"dynamic configs of {pluralise(len(carried.broker_configs), 'broker')}",
    ]
    yield CheckResult.fine("carried over", ", ".join(counted))


def _credential_command(path: str, reason: str) -> str | None:
    """Return how to remove a SCRAM credential that cannot be decoded, whose content must not be shown; else None.

    >>> _credential_command("/config/users/a%40b", "SCRAM-SHA-256 is not a credential")[-75:]
    '--alter --delete-config SCRAM-SHA-256 --entity-type users --entity-name a@b'
    >>> _credential_command("/config/users/a", "producer_byte_rate is not a number")
    """
    mechanism = next((name for name in sorted(SCRAM) if name in reason), None)
    if mechanism is None or not path.startswith(f"{USERS}/"):
        return None
    user = shlex.quote(unquote(path.removeprefix(f"{USERS}/")))
    return (
        f"the user cannot log in by it; remove it, and set it again: kafka-configs.sh --bootstrap-server HOST:PORT "
        f"--alter --delete-config {mechanism} --entity-type users --entity-name {user}"
    )


def _joined(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value or "unknown" for value in values}))
