"""The order in which all brokers of a cluster can be restarted, in waves, with the check that precedes each wave.

It is computed from the current state of the cluster, and nothing is stored.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.restart_safety import EFFECT_PHRASES, are_back
from jobs.core.arrow_rows import values_of
from jobs.core.errors import SurveyorError
from jobs.planning.restart_facts import (
    RestartFacts,
    brokers_with_replicas,
    read_facts,
    silent_brokers,
    unread_of_cluster,
)
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.racks import rack_of_each
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.console import CommandResult, Line, table
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from planner.rules.effective_min_isr import certain_min_isr, known_min_isr
from planner.rules.restart_order import InSyncNeed, RestartStep, restart_order
from schemas import reasons
from schemas.enums import RestartEffect
from schemas.rows import LastSeenBroker, Row
from schemas.text import abbreviate, broker_list, pluralise

STEP_COLUMNS: Final = ("position", "wave", "broker_id", "rack", "action", "reason")
"""Columns of the console for `whatif --restart-order`."""


def report_restart_order(settings: Settings, margin: int) -> CommandResult:
    """Return the order in which all brokers restart, in waves; nothing is stored."""
    facts = read_facts(settings)
    racks, notes = _racks(settings.warehouse, facts)
    understood, controller = facts.understood, facts.view.controller_id
    down = sorted(racks.keys() - understood.keys())
    voters = [voter.voter_id for voter in facts.view.voters or ()]
    steps = restart_order(_needs(facts), racks, down, controller, margin=margin, voters=voters)
    checks = [_check(settings, step, steps, margin) for step in steps]
    rows = [
        _step_row(position, step, check) for position, (step, check) in enumerate(zip(steps, checks, strict=True), 1)
    ]
    unread = [*unread_of_cluster(facts.view)]
    warnings = [*notes, *(f"unknown: {fact}" for fact in unread), *silent_brokers(facts), *_order_warnings(steps)]
    warnings += [*_now_warnings(steps, down)]
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
    """Count the partitions with equal needs: their replicas, min.insync.replicas, and the live members of their ISR.

    During a reassignment its targets count. Replicas on a broker that is not understood count as never in sync. Topics
    queued for deletion and partitions without known replicas need nothing here; the check before each wave names the
    latter.
    """
    view, registered = facts.view, facts.understood
    min_isr_of_brokers = known_min_isr(facts.configs)
    default = None if registered.keys() - min_isr_of_brokers.keys() else max(min_isr_of_brokers.values(), default=None)
    minima = {topic: certain_min_isr(config, default) for topic, config in view.configs.items()}
    needs: Counter[InSyncNeed] = Counter()
    live = {broker for broker, is_understood in registered.items() if is_understood}
    not_understood = registered.keys() - live
    for topic, replicas, removing, isr, leader in values_of(view.partitions, *_NEED_COLUMNS):
        if topic not in view.deleting and replicas:
            staying = frozenset(replicas).difference(removing or (), not_understood)
            in_sync = live.intersection(isr or ()) if leader in registered else frozenset[int]()
            is_full = in_sync == staying
            needs[InSyncNeed(staying, minima.get(topic), None if is_full else frozenset(in_sync))] += 1
    return needs


_NEED_COLUMNS: Final = ("topic", "replicas", "removing_replicas", "isr", "leader")


def _racks(warehouse: Warehouse, facts: RestartFacts) -> tuple[dict[int, str | None], list[str]]:
    """Return the rack of each broker that is registered or has replicas, and what is unknown of it.

    The rack of a broker that is down comes from the last snapshot, if there is one.
    """
    ids = {*facts.understood} | brokers_with_replicas(facts.view)
    last_seen: dict[int, LastSeenBroker] = {}
    notes: list[str] = []
    try:
        snapshot = last_snapshot(warehouse) if warehouse.exists() else None
        last_seen = {} if snapshot is None else brokers_last_seen(warehouse, snapshot)
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
        "now": {effect.value: step.harmed_now.get(effect, 0) for effect in RestartEffect},
    }


def _reason(step: RestartStep) -> str:
    if step.is_down:
        return "it is down: start it before another broker stops"
    rack = "a rack of its own" if step.rack is None else reasons.RACK.render(rack=step.rack)
    why_now = "it is the controller, which comes last" if step.is_controller else rack
    effects, effects_now = (
        ", ".join(f"{count} {EFFECT_PHRASES[effect]}" for effect, count in harmed.items())
        for harmed in (step.harmed, step.harmed_now)
    )
    harm = f"; even with full ISRs: {effects}" if effects else ""
    if effects_now != effects:
        harm += f"; with the present ISRs: {effects_now}"
    return why_now + harm + ("; the quorum loses its majority" if step.loses_quorum else "")


def _quorum_warnings(steps: Sequence[RestartStep], controllers: Sequence[int]) -> Iterator[str]:
    """Yield what the order cannot avoid or does not have; `controllers` are voters that are not brokers."""
    losing = [step.broker_id for step in steps if step.loses_quorum]
    if losing:
        named = broker_list(losing)
        yield f"the quorum loses its majority while one of these voters restarts, so its check is not safe: {named}"
    if controllers:
        yield (
            f"the order has brokers only: restart the controllers {abbreviate(controllers)} one at a time as well, the "
            "leader of the quorum last, each once `surveyor whatif --restart` of it is safe"
        )


def _now_warnings(steps: Sequence[RestartStep], down: Sequence[int]) -> Iterator[str]:
    """Yield what a restart affects only until the brokers that are down run again and all ISRs are full."""
    until = f"until {are_back(down) if down else 'all ISRs are full'}"
    for effect in RestartEffect:
        brokers = [step.broker_id for step in steps if step.harmed_now.get(effect, 0) > step.harmed.get(effect, 0)]
        if brokers:
            yield f"{until}, a restart leaves more partitions {EFFECT_PHRASES[effect]}: {broker_list(brokers)}"


def _order_warnings(steps: Sequence[RestartStep]) -> Iterator[str]:
    for effect in RestartEffect:
        brokers = [step.broker_id for step in steps if step.harmed.get(effect)]
        if brokers:
            phrase = EFFECT_PHRASES[effect]
            named = broker_list(brokers)
            yield f"even with full ISRs a restart leaves partitions {phrase}, so its check will fail: {named}"
