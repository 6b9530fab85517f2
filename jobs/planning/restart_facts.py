"""Facts of the cluster that decide which brokers may restart, from its current state or from a snapshot.

The default min.insync.replicas is requested from every broker first, and the cluster's metadata is read last.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.core.arrow_rows import StoredRows
from jobs.core.migration_refusal import is_started, migration_refusal
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import SOURCE_COLUMNS, ClusterView, view_now
from planner.columns.partition_masks import has_broker
from planner.rules.quorum import is_current
from schemas.enums import NO_CONTROLLER, NO_LEADER
from schemas.rows import BrokerConfig, BrokerResponseRow, Snapshot
from schemas.text import abbreviate


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartFacts:
    """State of a cluster, current or at a snapshot, from any source."""

    view: ClusterView
    configs: Sequence[BrokerConfig]
    silent: Mapping[int, str] = field(default_factory=dict)
    """Reasons why registered brokers did not answer: they may be dead, with a session that has not ended yet."""
    failed: Sequence[BrokerResponseRow] = ()
    """Replicas of a snapshot whose log dir failed."""
    snapshot: Snapshot | None = None
    """None for the state of now."""

    @property
    def understood(self) -> dict[int, bool]:
        return {row.broker_id: row.understood for row in self.view.brokers}

    @property
    def controllers(self) -> set[int]:
        """Live nodes that are controllers only: voters that are up to date, not registered, and have no replica.

        A voter that has replicas is a broker, too, and that broker is down.
        """
        current = {voter.voter_id for voter in self.view.voters or () if is_current(voter)}
        return current - self.understood.keys() - brokers_with_replicas(self.view)


def brokers_with_replicas(view: ClusterView) -> set[int]:
    """Return the ids of all brokers that some partition has as a replica."""
    replicas = StoredRows(view.partitions).brokers("replicas")
    return {*np.unique(replicas[has_broker(replicas)]).tolist()} - {NO_LEADER}


def read_facts(settings: Settings) -> RestartFacts:
    """Read the current state of the cluster; raise UnreadableError if it cannot be read."""
    with settings.connect() as cluster:
        with progress("asking brokers for min.insync.replicas"):
            brokers, broker_settings = cluster.read_broker_settings()
            configs, silent = read_broker_configs(
                [row for row in brokers if row.is_live],
                settings.conf.command_config,
                broker_settings.overrides,
                settings.pace.configs,
                defaults=broker_settings.defaults,
            )
        with progress("reading the cluster"):
            return RestartFacts(view=view_now(cluster, columns=SOURCE_COLUMNS), configs=configs, silent=silent)


def unread_of_cluster(view: ClusterView) -> Iterator[str]:
    if view.controller_id is None:
        yield "the controller cannot be read: whether leaders can move is unknown"
    elif view.controller_id == NO_CONTROLLER:
        yield "the cluster has no controller, so no leader can move"
    if view.migration is not None:
        has_begun = f"a migration to KRaft has begun: {view.migration}"
        yield has_begun if is_started(view.migration) else migration_refusal(view.migration)
    for broker in sorted(view.log_dir_events):
        yield f"broker {broker} reports a failed log dir, and no controller has handled it yet"
    if view.hidden_topics is not None:
        yield view.hidden_topics
    unread = sorted(view.unread_topics - view.deleting)
    if unread:
        yield f"topics whose partitions cannot all be read: {abbreviate(unread)}"


def silent_brokers(facts: RestartFacts, restarting: Collection[int] = ()) -> Iterator[str]:
    for broker, reason in sorted(facts.silent.items()):
        if broker not in restarting:
            yield f"broker {broker} is registered and does not answer, so its replicas do not count as safe: {reason}"
