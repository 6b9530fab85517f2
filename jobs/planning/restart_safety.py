"""Whether given brokers may be restarted at once, without partitions going offline or below their min ISR.

The answer depends on the current state of the cluster. On a stored snapshot the same rule runs on Spark, and its answer
is never "safe", because the cluster may have changed since. Nothing is stored.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict as asdict_of
from typing import Final

from msgspec import convert, to_builtins

from jobs.core.arrow_rows import Bools, StoredRows, values_of
from jobs.core.errors import ExitCode
from jobs.planning.restart_facts import EFFECT_PHRASES, RestartFacts, read_facts, silent_brokers, unread_of_cluster
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.console import CommandResult, Line, table
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from jobs.snapshots.cluster_view import ClusterView, view_of
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import is_in, partition_masks
from planner.rules.inputs import BrokerSets
from planner.rules.quorum import QuorumAfterRestart, quorum_after_restart
from planner.rules.restart_effect import RestartedPartition, known_min_isr, restart_effect
from schemas.enums import RestartCode, RestartEffect
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import BrokerConfig, Row
from schemas.text import abbreviate, broker_list, pluralise
from schemas.topic_configs import DEFAULT_MIN_ISR, boolean

UNSAFE_PARTITION_COLUMNS: Final = ("topic", "partition", "replicas", "isr", "live", "min_isr", "effect", "reason")
"""Columns of the console for `whatif --restart`; --json has all of RestartedPartition."""

SAFE: Final = "safe"
UNSAFE: Final = "unsafe"
UNKNOWN: Final = "unknown"

EXIT_CODES: Final = {SAFE: ExitCode.DONE, UNSAFE: ExitCode.REFUSED, UNKNOWN: ExitCode.UNREADABLE}
"""Exit codes of `whatif --restart` by its verdict."""

_SEVERITY: Final = {effect: place for place, effect in enumerate(RestartEffect)}


def report_restart(
    settings: Settings, restart: str, margin: int, snapshot: int | None, limit: int, *, everything: bool = False
) -> CommandResult:
    """Return which partitions a restart of these brokers at once would hurt, and whether it is safe."""
    restarting = sorted(parse_broker_ids(restart, "--restart"))
    if snapshot is None:
        facts = read_facts(settings)
        rows = _rows_now(facts, frozenset(restarting), margin)
    else:
        facts, rows = _rows_of_snapshot(settings, snapshot, restarting, margin)
    rows.sort(key=lambda row: (_SEVERITY[row.effect], not row.is_internal, row.topic, row.partition))
    counts = Counter(row.effect for row in rows)
    quorum = quorum_after_restart(facts.view.voters or (), restarting)
    unread = [*_unread(facts, restarting), *_uncertain_voters(quorum)]
    is_hurt = len(rows) > counts[RestartEffect.UNKNOWN] or (quorum is not None and quorum.keeps_majority is False)
    verdict = UNSAFE if is_hurt else UNKNOWN if rows or unread else SAFE
    result = {
        "restart": restarting,
        "margin": margin,
        "verdict": verdict,
        "snapshot_id": facts.snapshot_id,
        "controller_id": facts.view.controller_id,
        "brokers": [*_brokers(facts, restarting)],
        "under_replicated": _under_replicated(facts.view),
        **_on_brokers(facts.view, restarting),
        **{effect.value: counts[effect] for effect in RestartEffect},
        "quorum": None if quorum is None else {**asdict_of(quorum), "keeps_majority": quorum.keeps_majority},
        "unread": unread,
        "warnings": [*_warnings(facts, restarting)],
        "rows": [to_builtins(row) for row in rows],
    }
    people = [*_text_output(settings, result, None if everything else limit)]
    if quorum is not None and quorum.keeps_majority is False:
        people.insert(-1, f"unsafe: {_lost_quorum(quorum)}")
    steps = [*_suggestions(settings, rows)]
    return CommandResult(result, *people, steps=steps, warnings=result["warnings"], exit_code=EXIT_CODES[verdict])


def _rows_now(facts: RestartFacts, restarting: frozenset[int], margin: int) -> list[RestartedPartition]:
    view = facts.view
    is_certain = {broker: known and broker not in facts.silent for broker, known in facts.understood.items()}
    brokers = BrokerSets.of(is_certain, {})
    min_isr_of_brokers = known_min_isr(facts.configs)
    concerned = view.partitions.filter(_concerned(view, restarting))
    names = PartitionInfo.__struct_fields__
    partitions = (PartitionInfo(**dict(zip(names, values, strict=True))) for values in values_of(concerned, *names))
    effects = (
        restart_effect(row, _topic(view, row.topic), brokers, min_isr_of_brokers, restarting=restarting, margin=margin)
        for row in partitions
    )
    return [effect for effect in effects if effect is not None]


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
        marks |= is_in(rows.brokers(column), restarting).any(axis=1)
    return marks


def _rows_of_snapshot(
    settings: Settings, snapshot_id: int, restarting: Sequence[int], margin: int
) -> tuple[RestartFacts, list[RestartedPartition]]:
    """Judge a snapshot by the same rule on Spark."""
    from jobs.adapters.delta.spark_warehouse import SparkWarehouse  # noqa: PLC0415 - the state of now needs no JVM
    from jobs.adapters.spark.session import start_session  # noqa: PLC0415 - as above
    from jobs.planning.planning_tables import PlanningTables  # noqa: PLC0415 - as above
    from planner.whatif.restart_effect_rows import restarted_partitions  # noqa: PLC0415 - as above

    warehouse = settings.warehouse
    chosen = find_snapshot(warehouse, snapshot_id)
    facts = RestartFacts(
        view=view_of(warehouse, chosen), configs=rows_as_of(warehouse, chosen, BrokerConfig), snapshot_id=snapshot_id
    )
    with progress("starting Spark"):
        spark = start_session("surveyor whatif", remote=settings.remote, warehouse=settings.warehouse_uri)
        tables = PlanningTables(SparkWarehouse(spark, warehouse), chosen)
    with progress("restarting"):
        frames = tables["partitions"], tables["topics"], tables["brokers"], tables["broker_configs"]
        hurt = restarted_partitions(*frames, restarting=restarting, margin=margin)
        return facts, convert([row.asDict() for row in hurt.collect()], list[RestartedPartition])


def _unread(facts: RestartFacts, restarting: Iterable[int]) -> Iterator[str]:
    """Yield the facts about the cluster without which no restart counts as safe."""
    view, registered, controllers = facts.view, facts.understood, facts.controllers
    if facts.snapshot_id is not None:
        yield f"snapshot {facts.snapshot_id} is not the present: without --snapshot the cluster is read as it is now"
    for broker in restarting:
        if broker not in registered and broker not in controllers:
            yield f"broker {broker} is not registered: it is down, or no broker has this id"
    yield from unread_of_cluster(view)


def _uncertain_voters(quorum: QuorumAfterRestart | None) -> Iterator[str]:
    if quorum is not None and quorum.keeps_majority is None:
        yield f"whether voters {abbreviate(quorum.uncertain)} of the quorum are up to date is unknown"


def _lost_quorum(quorum: QuorumAfterRestart) -> str:
    """Return why the quorum has no leader during the restart."""
    current = f"{len(quorum.current)} of {len(quorum.voters)} voters of the quorum remain up to date"
    return f"{current}, and {quorum.needed} are needed: until they are back, no partition gets another leader"


def _brokers(facts: RestartFacts, restarting: Iterable[int]) -> Iterator[Row]:
    """Yield whether each node is live, and its broker epoch, which grows when it has restarted; null in KRaft."""
    epochs, controllers = {row.broker_id: row.broker_epoch for row in facts.view.brokers}, facts.controllers
    for broker in restarting:
        is_live = broker in epochs or broker in controllers
        yield {"broker_id": broker, "is_live": is_live, "broker_epoch": epochs.get(broker)}


def _under_replicated(view: ClusterView) -> int:
    """Count the partitions of the whole cluster that have a replica outside the ISR, or whose ISR is unknown."""
    rows = arrays_of(view, DEFAULT_MIN_ISR)
    lagging = partition_masks(rows, [row.broker_id for row in view.brokers]).under_replicated
    return int(((lagging | ~rows.understood) & ~rows.deleting).sum())


def _on_brokers(view: ClusterView, restarting: Collection[int]) -> Row:
    """Count the partitions with a replica on the brokers, and those that they lead."""
    rows = StoredRows(view.partitions)
    return {
        "partitions": int(is_in(rows.brokers("replicas"), restarting).any(axis=1).sum()),
        "leaders": int(is_in(rows.brokers("leader"), restarting).any(axis=1).sum()),
    }


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


def _text_output(settings: Settings, result: Row, limit: int | None) -> Iterator[Line]:
    rows, brokers = result["rows"], broker_list(result["restart"])
    at = "now" if result["snapshot_id"] is None else f"snapshot {result['snapshot_id']}"
    if rows:
        title = f"{settings.cluster}, {at}, restarting {brokers}, margin {result['margin']}"
        yield table(title, UNSAFE_PARTITION_COLUMNS, rows[:limit])
        if limit is not None and len(rows) > limit:
            yield f"... and {len(rows) - limit} more; --limit shows more, --json gives all"
    yield from (f"unknown: {fact}" for fact in result["unread"])
    yield from (f"warning: {warning}" for warning in result["warnings"])
    held = pluralise(result["partitions"], "partition")
    on_them = f"{held} there, {result['leaders']} led"
    counted = ", ".join(f"{result[effect.value]} {EFFECT_PHRASES[effect]}" for effect in RestartEffect)
    yield f"restarting {brokers} is {result['verdict']}: {counted} ({on_them})"


def _suggestions(settings: Settings, rows: Sequence[RestartedPartition]) -> Iterator[Suggestion]:
    codes = {row.code for row in rows}
    if RestartCode.NO_LIVE_LEADER in codes:
        yield suggestion(settings, "see what is due", "status")
    if codes & {RestartCode.TOO_FEW_IN_SYNC, RestartCode.NO_OTHER_IN_SYNC}:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", "--now")
    if RestartCode.MIN_ISR_UNKNOWN in codes:
        yield suggestion(settings, "see which brokers answer", "doctor")
