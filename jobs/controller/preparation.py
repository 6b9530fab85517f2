"""Preparation of a take-over: the brokers' settings and the cluster are read and checked, which is slow.

While there is no controller, no dead leader is replaced. So all work that does not need the controllership precedes
the take-over, and the rest follows it (`jobs.controller.term`). A standby prepares again from time to time. Partitions
without a state znode that had one by the recorded history are marked.
"""

import gc
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc
from kazoo.client import KazooClient

from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.zookeeper.broker_overrides import read_overrides
from jobs.adapters.zookeeper.cluster_state import DELETE_TOPICS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession, with_retries
from jobs.adapters.zookeeper.controllership import refuse_take_over
from jobs.adapters.zookeeper.znode_reads import forbidden
from jobs.controller.broker_protocols import complete_configs, refuse_protocols
from jobs.controller.client_logins import with_logins
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.zk_watches import ZkWatches
from jobs.core.arrow_rows import values_of
from jobs.core.errors import NoAnswerError, RefusedError, UnreadableError
from jobs.execution.batch.batch_commit import refuse_unreachable
from jobs.repositories.snapshots import OtherClusterError, has_vanished, refuse_other_cluster_id, topics_before
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.rules.lost_states import PastState, is_same_topic, lost_state
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Key, Topic

_PAST_COLUMNS: Final = ("topic", "partition", "snapshot_id", "topic_version", "leader", "partition_state", "vanished")

RECONNECT_SECONDS: Final = 1.0
"""Seconds until a standby tries again if no take-over had begun, for instance if ZooKeeper does not respond."""


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of `surveyor control`."""

    apply: bool
    until_quiet: bool
    allow_unclean: bool
    allow_silent: frozenset[int]
    standby: bool = False
    replace: bool = False
    metrics: tuple[str, int] | None = None
    """Address at which metrics and health are served; None if they are not."""
    listen: ListenConfig | None = None
    """Address and listeners for brokers' requests; None if they are not served."""
    sample: str | None = None
    """Period of samples of load, None for none."""


@dataclass(slots=True)
class Preparation:
    """Settings and services that a controller needs before its take-over."""

    cluster_id: str | None
    engine: DecisionEngine
    context: ControllerContext
    broker_epochs: Mapping[int, int]
    """By broker, the broker epoch before its settings were read."""

    def release_context(self) -> ControllerContext:
        """Return the context, which the controller reads again; another controllership begins with an empty one."""
        context, self.context = self.context, ControllerContext(lost_states={*self.context.lost_states})
        return context


def prepare_first(
    settings: Settings, options: ControlOptions, zookeeper: ZooKeeperSession, await_tables: Callable[[], None]
) -> Preparation:
    """Prepare; a standby waits for a ZooKeeper that does not respond. A signal interrupts this.

    It does not wait for errors that time does not fix: a wrong chroot or password, or an ACL. `await_tables` returns
    once all tables exist, and raises the error if they cannot be made.
    """
    is_reported = False
    while True:
        try:
            with zookeeper.connected() as client:
                return prepare(settings, options, client, await_tables)
        except NoAnswerError as error:
            if not options.standby:
                raise
            if not is_reported:
                log(f"surveyor: {error}; trying again", logging.WARNING)
            is_reported = True
        time.sleep(RECONNECT_SECONDS)


def read_state_before_take_over(settings: Settings, client: KazooClient) -> ClusterState:
    """Read the cluster; raise RefusedError if it refuses a take-over, UnreadableError if it cannot be read."""
    state = with_retries(lambda: read_cluster(client))
    refuse_take_over(state, settings.conf.controller_id)
    refuse_unreachable(state, settings.listener)
    if any(row.path == DELETE_TOPICS for row in state.quarantine):
        raise UnreadableError(forbidden(f"list {DELETE_TOPICS}"))
    return state


def prepare_again(
    settings: Settings, options: ControlOptions, client: KazooClient, prepared: Preparation
) -> Preparation:
    """Prepare again; if that is refused, for instance because a broker does not respond, return `prepared`.

    Raises OtherClusterError if another cluster has the address by now: `prepared` does not fit it.
    """
    try:
        return prepare(settings, options, client)
    except OtherClusterError:
        raise
    except RefusedError as error:
        log(f"surveyor: {error}; standing by with what was read before", logging.WARNING)
        return prepared


def prepare(
    settings: Settings, options: ControlOptions, client: KazooClient, await_tables: Callable[[], None] = lambda: None
) -> Preparation:
    """Read the cluster and the brokers' settings, and make the checks before a take-over."""
    state = read_state_before_take_over(settings, client)
    overrides, _ = with_retries(lambda: read_overrides(client))
    with progress("asking brokers for their configs"):
        defaults = with_logins(options.listen.logins if options.listen else ())
        configs, _ = read_broker_configs(
            state.brokers, settings.conf.command_config, overrides, settings.pace.configs, defaults=defaults
        )
    is_serving = options.listen is not None
    if not is_serving:
        refuse_protocols(configs)
    if options.apply:
        configs = complete_configs(
            configs, settings, client, options.allow_silent, is_serving=is_serving, defaults=defaults
        )
        controller_id, seconds = settings.conf.controller_id, settings.pace.contact
        refuse_unresponsive(state.brokers, controller_id, options.allow_silent, settings.listener, seconds)
    await_tables()
    refuse_other_cluster_id(settings.warehouse, state.cluster_id, settings.address)
    engine = DecisionEngine(settings.warehouse, configs, allow_unclean=options.allow_unclean)
    engine.refresh_drained()
    broker_epochs = {row.broker_id: row.zk_broker_epoch for row in state.brokers}
    return Preparation(state.cluster_id, engine, _first_context(settings, client), broker_epochs)


def _first_context(settings: Settings, client: KazooClient) -> ControllerContext:
    """Read the cluster as the controller will, and mark the partitions that lost their state."""
    context = ControllerContext()
    with progress("reading topics and partitions"), without_garbage_collection():
        with_retries(lambda: MetadataReader(client, ZkWatches(client), context).load_all())
    for topic, partition in sorted(_lost_states(settings.warehouse, context)):
        log(
            f"surveyor: {topic}-{partition} has no state znode and had one: see `surveyor plan recover`",
            logging.WARNING,
        )
        context.mark_lost((topic, partition))
    return context


def _lost_states(warehouse: Warehouse, context: ControllerContext) -> set[Key]:
    """Return the partitions of the context without a state that had one; none if there is no history."""
    stateless = {
        key: row
        for key, row in context.partitions.items()
        if row.understood and not row.had_state and not context.is_queued(row.topic)
    }
    if not stateless or not warehouse.has("partition_history"):
        return set()
    lost: dict[Key, int | None] = {}
    for key, history in _history(warehouse, stateless).items():
        state = lost_state(history, stateless[key].topic_version or 0)
        if state is not None:
            lost[key] = state.gone
    before = {
        snapshot_id: topics_before(warehouse, snapshot_id)
        for snapshot_id in {*lost.values()}
        if snapshot_id is not None
    }
    return {
        key
        for key, snapshot_id in lost.items()
        if snapshot_id is None or _is_same(stateless[key], context.topics[key[0]], before[snapshot_id].get(key[0]))
    }


def _history(warehouse: Warehouse, keys: Iterable[Key]) -> dict[Key, list[PastState]]:
    stateless, history = {*keys}, defaultdict[Key, list[PastState]](list)
    topics = sorted({topic for topic, _ in stateless})
    table = warehouse.read("partition_history", ("topic", "in", topics), columns=_PAST_COLUMNS)
    partitions = sorted({partition for _, partition in stateless})
    rows = values_of(table.filter(pc.field("partition").isin(partitions)), *_PAST_COLUMNS)
    for topic, partition, snapshot_id, topic_version, leader, state, vanished in rows:
        if (topic, partition) in stateless:
            past = PastState(snapshot_id, topic_version, leader is not None, has_vanished(state, vanished))
            history[topic, partition].append(past)
    return history


def _is_same(row: PartitionInfo, topic: TopicInfo, then: Topic | None) -> bool:
    if then is None:
        return True
    return is_same_topic(topic.topic_id, row.topic_version or 0, then.topic_id, then.topic_version)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Read the cluster without scanning what was read again and again, which takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
