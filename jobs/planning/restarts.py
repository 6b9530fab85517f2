"""Whether given brokers may be restarted now, and in which order all brokers can be restarted.

Both answers depend on the current state of the cluster: the default min.insync.replicas is requested from every broker
first, and the cluster's metadata is read last. No JVM is needed. On a stored snapshot the same rule runs on Spark, and
its answer is never "safe", because the cluster may have changed since. Neither command stores anything.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict as asdict_of
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import convert, to_builtins

from jobs.adapters.brokers.configs import CONFIG_TIMEOUT_SECONDS, read_configs_and_failures
from jobs.adapters.delta.warehouse import values_of
from jobs.core.errors import ExitCode, SurveyorError
from jobs.repositories.brokers_last_seen import brokers_last_seen, rack_of_each
from jobs.repositories.snapshots import find_snapshot, last_snapshot, rows_as_of
from jobs.repositories.stored_rows import Bools, StoredRows
from jobs.runtime.console import CommandResult, Line, table
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line, suggestion
from jobs.snapshots.cluster_view import SOURCE_COLUMNS, ClusterView, view_now, view_of
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import has_broker, is_in, partition_masks
from planner.rules.inputs import BrokerSets, PartitionInfo, TopicInfo
from planner.rules.quorum import QuorumAfterRestart, is_current, quorum_after_restart
from planner.rules.restart_effect import RestartedPartition, known_min_isr, restart_effect
from planner.rules.restart_order import InSyncNeed, RestartStep, restart_order
from schemas.enums import NO_CONTROLLER, NO_LEADER, RestartCode, RestartEffect
from schemas.rows import BrokerConfig, LastSeenBroker, Row
from schemas.text import abbreviate, broker_list, pluralise
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR, boolean, whole_number

COLUMNS: Final = ("topic", "partition", "replicas", "isr", "live", "min_isr", "effect", "reason")
"""Columns of the console for `whatif --restart`; --json has all of RestartedPartition."""

STEP_COLUMNS: Final = ("position", "wave", "broker_id", "rack", "action", "reason")
"""Columns of the console for `plan restarts`."""

SAFE: Final = "safe"
UNSAFE: Final = "unsafe"
UNKNOWN: Final = "unknown"

EXIT_CODES: Final = {SAFE: ExitCode.DONE, UNSAFE: ExitCode.REFUSED, UNKNOWN: ExitCode.UNREADABLE}
"""Exit codes of `whatif --restart` by its verdict."""

_PHRASES: Final = {
    RestartEffect.OFFLINE: "offline",
    RestartEffect.UNDER_MIN_ISR: "under min ISR",
    RestartEffect.BELOW_MARGIN: "below the margin",
    RestartEffect.UNKNOWN: "unknown",
}
_SEVERITY: Final = {effect: place for place, effect in enumerate(RestartEffect)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartFacts:
    """What is known of a cluster, now or at a snapshot, wherever it was read from."""

    view: ClusterView
    configs: Sequence[BrokerConfig]
    silent: Mapping[int, str] = field(default_factory=dict)
    """Why registered brokers did not answer: they may be dead, with a session that has not ended yet."""
    snapshot_id: int | None = None
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
        return current - self.understood.keys() - _with_replicas(self.view)


def _with_replicas(view: ClusterView) -> set[int]:
    """Return the ids of all brokers that some partition has as a replica."""
    replicas = StoredRows(view.partitions).brokers("replicas")
    return {*np.unique(replicas[has_broker(replicas)]).tolist()} - {NO_LEADER}


def read_facts(settings: Settings) -> RestartFacts:
    """Read the cluster as it is now; raise UnreadableError if its source cannot be read."""
    source = settings.source
    with progress("asking brokers for min.insync.replicas"):
        brokers, broker_settings = source.read_broker_settings()
        configs, silent = read_configs_and_failures(
            [row for row in brokers if row.is_live],
            settings.conf.command_config,
            broker_settings.overrides,
            CONFIG_TIMEOUT_SECONDS,
            defaults=broker_settings.defaults,
        )
    with progress("reading the cluster"):
        return RestartFacts(view=view_now(source, columns=SOURCE_COLUMNS), configs=configs, silent=silent)


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
    yield from _unread_of_cluster(view)


def _unread_of_cluster(view: ClusterView) -> Iterator[str]:
    if view.controller_id is None:
        yield "the controller cannot be read: whether leaders can move is unknown"
    elif view.controller_id == NO_CONTROLLER:
        yield "the cluster has no controller, so no leader can move"
    if view.migration is not None:
        yield f"a migration to KRaft has begun: {view.migration}"
    for broker in sorted(view.log_dir_events):
        yield f"broker {broker} reports a failed log dir, and no controller has handled it yet"
    if view.hidden_topics is not None:
        yield view.hidden_topics
    unread = sorted(view.unread_topics - view.deleting)
    if unread:
        yield f"topics whose partitions cannot all be read: {abbreviate(unread)}"


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


def _silent_brokers(facts: RestartFacts, restarting: Collection[int] = ()) -> Iterator[str]:
    for broker, reason in sorted(facts.silent.items()):
        if broker not in restarting:
            yield f"broker {broker} is registered and does not answer, so its replicas do not count as safe: {reason}"


_CONTROLLED_SHUTDOWN: Final = "controlled.shutdown.enable"


def _warnings(facts: RestartFacts, restarting: Collection[int]) -> Iterator[str]:
    for row in facts.configs:
        if row.broker_id in restarting and row.name == _CONTROLLED_SHUTDOWN and boolean(row.value) is False:
            yield (
                f"broker {row.broker_id} has {_CONTROLLED_SHUTDOWN}=false: what it leads has no leader until its "
                "session ends"
            )
    yield from _silent_brokers(facts, restarting)
    held = StoredRows(facts.view.partitions).where(_concerned(facts.view, restarting))
    deleted = sorted(facts.view.deleting.intersection(held.values("topic")))
    if deleted:
        yield f"topics queued for deletion are not counted, and their deletion waits: {abbreviate(deleted)}"


def _text_output(settings: Settings, result: Row, limit: int | None) -> Iterator[Line]:
    rows, brokers = result["rows"], broker_list(result["restart"])
    at = "now" if result["snapshot_id"] is None else f"snapshot {result['snapshot_id']}"
    if rows:
        title = f"{settings.cluster}, {at}, restarting {brokers}, margin {result['margin']}"
        yield table(title, COLUMNS, rows[:limit])
        if limit is not None and len(rows) > limit:
            yield f"... and {len(rows) - limit} more; --limit shows more, --json gives all"
    yield from (f"unknown: {fact}" for fact in result["unread"])
    yield from (f"warning: {warning}" for warning in result["warnings"])
    held = pluralise(result["partitions"], "partition")
    on_them = f"{held} there, {result['leaders']} led"
    counted = ", ".join(f"{result[effect.value]} {_PHRASES[effect]}" for effect in RestartEffect)
    yield f"restarting {brokers} is {result['verdict']}: {counted} ({on_them})"


def _suggestions(settings: Settings, rows: Sequence[RestartedPartition]) -> Iterator[Suggestion]:
    codes = {row.code for row in rows}
    if RestartCode.NO_LIVE_LEADER in codes:
        yield suggestion(settings, "see what is due", "status")
    if codes & {RestartCode.TOO_FEW_IN_SYNC, RestartCode.NO_OTHER_IN_SYNC}:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", "--now")
    if RestartCode.MIN_ISR_UNKNOWN in codes:
        yield suggestion(settings, "see which brokers answer", "doctor")


def report_restart_order(settings: Settings, margin: int) -> CommandResult:
    """Return the order in which all brokers restart, in waves; nothing is stored."""
    facts = read_facts(settings)
    racks, notes = _racks(settings, facts)
    understood, controller = facts.understood, facts.view.controller_id
    down = sorted(racks.keys() - understood.keys())
    voters = [voter.voter_id for voter in facts.view.voters or ()]
    steps = restart_order(_needs(facts), racks, down, controller, margin=margin, voters=voters)
    checks = [_check(settings, step, steps, margin) for step in steps]
    rows = [
        _step_row(position, step, check) for position, (step, check) in enumerate(zip(steps, checks, strict=True), 1)
    ]
    unread = [*_unread_of_cluster(facts.view)]
    warnings = [*notes, *(f"unknown: {fact}" for fact in unread), *_silent_brokers(facts), *_order_warnings(steps)]
    warnings += _quorum_warnings(steps, sorted({*voters}.difference(racks)))
    waves = steps[-1].wave if steps else 0
    result = {
        "margin": margin,
        "controller_id": controller,
        "brokers": len(rows),
        "waves": waves,
        "down": down,
        "warnings": warnings,
        "rows": rows,
    }
    waves_and_checks = dict.fromkeys((step.wave, check) for step, check in zip(steps, checks, strict=True))
    lines = [f"wave {wave}: {check}" for wave, check in waves_and_checks if check]
    size = f"{pluralise(len(rows), 'broker')} in {pluralise(waves, 'wave')}"
    people: list[Line] = [
        table(f"{settings.cluster}, order of restarts, margin {margin}", STEP_COLUMNS, rows),
        "before each wave this must end with exit code 0:",
        *lines,
        *(f"warning: {warning}" for warning in warnings),
        f"{size}; the next wave starts only when all ISRs are full",
    ]
    return CommandResult(result, *people, warnings=warnings)


def _needs(facts: RestartFacts) -> Counter[InSyncNeed]:
    """Count the partitions with equal needs: their replicas on live brokers, and min.insync.replicas.

    During a reassignment its targets count. Topics queued for deletion and partitions without known replicas need
    nothing here; the check before each wave names the latter.
    """
    view, registered = facts.view, facts.understood
    min_isr_of_brokers = known_min_isr(facts.configs)
    default = None if registered.keys() - min_isr_of_brokers.keys() else max(min_isr_of_brokers.values(), default=None)
    minima = {topic: _min_isr_of(view, topic, default) for topic in view.configs}
    needs: Counter[InSyncNeed] = Counter()
    live = {broker for broker, is_understood in registered.items() if is_understood}
    for batch in view.partitions.select(["topic", "replicas", "removing_replicas"]).to_batches():
        columns = (batch[name].to_pylist() for name in ("topic", "replicas", "removing_replicas"))
        for topic, replicas, removing in zip(*columns, strict=True):
            if topic not in view.deleting and replicas:
                staying = live.intersection(replicas).difference(removing or ())
                needs[InSyncNeed(frozenset(staying), minima.get(topic))] += 1
    return needs


def _min_isr_of(view: ClusterView, topic: str, default: int | None) -> int | None:
    config = view.configs[topic]
    if config is None:
        return None
    return whole_number(config[MIN_ISR]) if MIN_ISR in config else default


def _racks(settings: Settings, facts: RestartFacts) -> tuple[dict[int, str | None], list[str]]:
    """Return the rack of each broker that is registered or has replicas, and what is unknown of it.

    The rack of a broker that is down is the one in the last snapshot, if there is one.
    """
    ids = {*facts.understood} | _with_replicas(facts.view)
    last_seen: dict[int, LastSeenBroker] = {}
    notes: list[str] = []
    try:
        snapshot = last_snapshot(settings.warehouse) if settings.warehouse.exists() else None
        last_seen = {} if snapshot is None else brokers_last_seen(settings.warehouse, snapshot)
    except (SurveyorError, OSError) as error:
        notes.append(f"racks of brokers that are down are unknown: {error}")
    racks = rack_of_each(facts.view.brokers, last_seen)
    return {broker: racks.get(broker) for broker in sorted(ids)}, notes


def _check(settings: Settings, step: RestartStep, steps: Sequence[RestartStep], margin: int) -> str | None:
    """Return the command that checks the wave of a step; None for a broker that is down."""
    together = ",".join(str(other.broker_id) for other in steps if other.wave == step.wave)
    with_margin = ["--margin", str(margin)] if margin else []
    return None if step.is_down else command_line(settings, "whatif", "--restart", together, *with_margin)


def _step_row(position: int, step: RestartStep, check: str | None) -> Row:
    return {
        "position": position,
        "wave": step.wave,
        "broker_id": step.broker_id,
        "rack": step.rack,
        "action": "start" if step.is_down else "restart",
        "is_controller": step.is_controller,
        "loses_quorum": step.loses_quorum,
        "reason": _reason(step),
        "wait": f"broker {step.broker_id} has registered again, and no partition is under-replicated",
        "check": check,
        **{effect.value: step.harmed.get(effect, 0) for effect in RestartEffect},
    }


def _reason(step: RestartStep) -> str:
    if step.is_down:
        return "it is down: start it before another broker stops"
    last = "it is the controller, which comes last" if step.is_controller else ""
    harmed = ", ".join(f"{count} {_PHRASES[effect]}" for effect, count in step.harmed.items())
    by_rack = "" if step.is_controller else "a rack of its own" if step.rack is None else f"rack {step.rack}"
    quorum = "; the quorum loses its majority" if step.loses_quorum else ""
    return (last or by_rack) + (f"; even with full ISRs: {harmed}" if harmed else "") + quorum


def _quorum_warnings(steps: Sequence[RestartStep], controllers: Sequence[int]) -> Iterator[str]:
    """Yield what the order cannot avoid or does not have; `controllers` are voters that are no brokers."""
    losing = [step.broker_id for step in steps if step.loses_quorum]
    if losing:
        named = broker_list(losing)
        yield f"no majority of the quorum remains in the restart of a voter, so its check will fail: {named}"
    if controllers:
        yield (
            f"the order has brokers only: restart the controllers {abbreviate(controllers)} one at a time as well, the "
            "leader of the quorum last, each once `surveyor whatif --restart` of it is safe"
        )


def _order_warnings(steps: Sequence[RestartStep]) -> Iterator[str]:
    for effect in RestartEffect:
        brokers = [step.broker_id for step in steps if step.harmed.get(effect)]
        if brokers:
            phrase = _PHRASES[effect]
            named = broker_list(brokers)
            yield f"even with full ISRs a restart leaves partitions {phrase}, so its check will fail: {named}"
