"""Whether given brokers may be restarted at once, without partitions going offline or below their min ISR.

The answer depends on the current state of the cluster. On a stored snapshot it is never "safe", because the cluster may
have changed since. Nothing is stored.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from jobs.console_output.restart_safety import RestartedBroker, RestartSafety
from jobs.core.arrow_rows import Bools, StoredRows, values_of
from jobs.core.units import format_age
from jobs.planning.restart_facts import RestartFacts, read_facts, silent_brokers, unread_of_cluster
from jobs.repositories.broker_responses import failed_replicas
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import PARTITION, ClusterView, view_of
from jobs.snapshots.health import arrays_of, unhealthy_masks
from planner.columns.partition_masks import partition_masks, slot_mask
from planner.rules.effective_min_isr import known_min_isr
from planner.rules.inputs import BrokerSets, failed_log_dirs
from planner.rules.quorum import QuorumAfterRestart, quorum_after_restart
from planner.rules.restart_effect import RestartedPartition, restart_effect
from schemas.enums import RestartEffect
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import BrokerConfig, BrokerResponseRow, Key
from schemas.text import abbreviate
from schemas.topic_configs import DEFAULT_MIN_ISR, boolean

_SEVERITY: Final = {effect: place for place, effect in enumerate(RestartEffect)}


def restart_safety(settings: Settings, restart: str, margin: int, snapshot: int | None) -> RestartSafety:
    """Return the partitions that restarting these brokers at once would affect, and whether it is safe."""
    restarting = sorted(parse_broker_ids(restart, "--restart"))
    facts = read_facts(settings) if snapshot is None else _facts_of_snapshot(settings, snapshot)
    rows = _rows(facts, frozenset(restarting), margin)
    rows.sort(key=lambda row: (_SEVERITY[row.effect], not row.is_internal, row.topic, row.partition))
    quorum = quorum_after_restart(facts.view.voters or (), restarting)
    stored = StoredRows(facts.view.partitions)
    return RestartSafety(
        restarting=restarting,
        margin=margin,
        snapshot_id=snapshot,
        controller_id=facts.view.controller_id,
        brokers=[*_brokers(facts, restarting)],
        unknown=[*_unknown(facts, restarting)],
        under_replicated=_under_replicated(facts.view),
        partitions=_count(stored, "replicas", restarting),
        leaders=_count(stored, "leader", restarting),
        counts=Counter(row.effect for row in rows),
        down=sorted({broker for row in rows for broker in row.replicas}.difference(facts.understood, restarting)),
        quorum=quorum,
        unread=[*_unread(facts, restarting), *_uncertain_voters(quorum)],
        warnings=[*_warnings(facts, restarting)],
        rows=rows,
    )


def _rows(facts: RestartFacts, restarting: frozenset[int], margin: int) -> list[RestartedPartition]:
    view = facts.view
    is_certain = {broker: known and broker not in facts.silent for broker, known in facts.understood.items()}
    brokers = BrokerSets.of(is_certain, {})
    min_isr_of_brokers = known_min_isr(facts.configs)
    concerned = view.partitions.filter(_concerned(view, restarting))
    names = [name for name in PartitionInfo.__struct_fields__ if name in concerned.column_names]
    known = ({"topic_version": None} | dict(zip(names, values, strict=True)) for values in values_of(concerned, *names))
    failed: dict[Key, list[BrokerResponseRow]] = defaultdict(list)
    for response in facts.failed:
        failed[response.topic or "", response.partition or 0].append(response)
    effects = (
        restart_effect(
            row,
            _topic(view, row.topic),
            brokers.with_failed(failed_log_dirs(row, failed.get(row.key, ()))),
            min_isr_of_brokers,
            restarting=restarting,
            margin=margin,
        )
        for row in map(_partition, known)
    )
    return [effect for effect in effects if effect is not None]


def _partition(columns: dict[str, Any]) -> PartitionInfo:
    """Return a stored partition; what is unknown of it may be null."""
    lists = {name: columns[name] or [] for name in ("replicas", "adding_replicas", "removing_replicas")}
    return PartitionInfo(**columns | lists | {"understood": columns["understood"] is not False})


def _topic(view: ClusterView, topic: str) -> TopicInfo | None:
    if topic not in view.configs:
        return None
    config = view.configs[topic]
    is_deleted = topic in view.deleting
    return TopicInfo(
        topic=topic, topic_version=0, config=None if config is None else dict(config), deletion_requested=is_deleted
    )


def _concerned(view: ClusterView, restarting: Collection[int]) -> Bools:
    """Mark the partitions that reference a restarted broker, and those whose replicas are unknown."""
    rows = StoredRows(view.partitions)
    marks: Bools = rows.lengths("replicas") == 0
    for column in ("replicas", "isr", "leader"):
        marks |= slot_mask(rows.brokers(column), restarting).any(axis=1)
    return marks


def _facts_of_snapshot(settings: Settings, snapshot_id: int) -> RestartFacts:
    warehouse = settings.warehouse
    chosen = find_snapshot(warehouse, snapshot_id)
    return RestartFacts(
        view=view_of(warehouse, chosen, columns=(*PARTITION, "leader_epoch")),
        configs=rows_as_of(warehouse, chosen, BrokerConfig),
        failed=failed_replicas(warehouse, chosen),
        snapshot=chosen,
    )


def _unread(facts: RestartFacts, restarting: Iterable[int]) -> Iterator[str]:
    """Yield the facts about the cluster without which no restart counts as safe."""
    if facts.snapshot is not None:
        yield (
            f"snapshot {facts.snapshot.snapshot_id} may differ from the cluster now, as it is "
            f"{format_age(facts.snapshot.taken_at)} old; omit --snapshot to read the cluster"
        )
    for broker in _unregistered(facts, restarting):
        yield f"broker {broker} is not registered: it is down, or no broker has this id"
    yield from unread_of_cluster(facts.view)


def _unregistered(facts: RestartFacts, restarting: Iterable[int]) -> list[int]:
    registered, controllers = facts.understood, facts.controllers
    return [broker for broker in restarting if broker not in registered and broker not in controllers]


def _unknown(facts: RestartFacts, restarting: Iterable[int]) -> Iterator[int]:
    """Yield ids that no registration, voter or partition has, so that waiting for them would not end."""
    voters = {voter.voter_id for voter in facts.view.voters or ()}
    for broker in _unregistered(facts, restarting):
        if broker not in voters and not _concerned(facts.view, [broker]).any():
            yield broker


def _uncertain_voters(quorum: QuorumAfterRestart | None) -> Iterator[str]:
    if quorum is not None and quorum.keeps_majority is None:
        yield f"whether voters {abbreviate(quorum.uncertain)} of the quorum are up to date is unknown"


def _brokers(facts: RestartFacts, restarting: Iterable[int]) -> Iterator[RestartedBroker]:
    epochs, controllers = {row.broker_id: row.broker_epoch for row in facts.view.brokers}, facts.controllers
    for broker in restarting:
        yield RestartedBroker(broker, broker in epochs or broker in controllers, epochs.get(broker))


def _under_replicated(view: ClusterView) -> int:
    """Count the partitions of the whole cluster that have a replica outside the ISR, or whose ISR is unknown."""
    rows = arrays_of(view, DEFAULT_MIN_ISR)
    masks = unhealthy_masks(rows, partition_masks(rows, [row.broker_id for row in view.brokers]))
    return int((masks["under_replicated"] | (masks["not_understood"] & ~rows.deleting)).sum())


def _count(partitions: StoredRows, column: str, brokers: Collection[int]) -> int:
    """Count the partitions that name one of the brokers in a column."""
    return int(slot_mask(partitions.brokers(column), brokers).any(axis=1).sum())


_CONTROLLED_SHUTDOWN: Final = "controlled.shutdown.enable"


def _warnings(facts: RestartFacts, restarting: Collection[int]) -> Iterator[str]:
    for row in facts.configs:
        if row.broker_id in restarting and row.name == _CONTROLLED_SHUTDOWN and boolean(row.value) is False:
            yield (
                f"broker {row.broker_id} has {_CONTROLLED_SHUTDOWN}=false: what it leads has no leader until its "
                "session ends"
            )
    yield from silent_brokers(facts, restarting)
    held = StoredRows(facts.view.partitions).where(_concerned(facts.view, restarting))
    deleted = sorted(facts.view.deleting.intersection(held.values("topic")))
    if deleted:
        yield f"topics queued for deletion are not counted, and their deletion waits: {abbreviate(deleted)}"
