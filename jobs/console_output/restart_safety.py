"""Output of `surveyor whatif --restart`: the verdict, the affected partitions, and the warnings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from msgspec import to_builtins

from jobs.core.errors import ExitCode
from jobs.runtime.console import CommandResult, Line, Result, table
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from planner.rules.quorum import QuorumAfterRestart
from planner.rules.restart_effect import RestartedPartition
from schemas.enums import RestartCode, RestartEffect
from schemas.text import broker_list, pluralise

UNSAFE_PARTITION_COLUMNS: Final = ("topic", "partition", "replicas", "isr", "live", "min_isr", "effect", "reason")
"""Columns of the console; --json has all of RestartedPartition."""

SAFE: Final = "safe"
UNSAFE: Final = "unsafe"
UNKNOWN: Final = "unknown"

EXIT_CODES: Final = {SAFE: ExitCode.DONE, UNSAFE: ExitCode.REFUSED, UNKNOWN: ExitCode.UNREADABLE}
"""Exit codes by the verdict."""

EFFECT_PHRASES: Final = {
    RestartEffect.OFFLINE: "offline",
    RestartEffect.UNDER_MIN_ISR: "under min ISR",
    RestartEffect.BELOW_MARGIN: "below the margin",
    RestartEffect.UNKNOWN: "unknown",
}
"""Effects of a restart in lines for people."""


@dataclass(frozen=True, slots=True)
class RestartedBroker:
    """A node that is to be restarted; its broker epoch grows when it has restarted, and is None in KRaft."""

    broker_id: int
    is_live: bool
    broker_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSafety:
    """Effects of restarting some brokers at once."""

    restarting: Sequence[int]
    margin: int
    snapshot_id: int | None
    """None for the state of now."""
    controller_id: int | None
    brokers: Sequence[RestartedBroker]
    unknown: Sequence[int]
    """Those of the brokers that are neither registered nor voters, and that no partition names."""
    under_replicated: int
    partitions: int
    """Partitions with a replica on the brokers."""
    leaders: int
    """Partitions that the brokers lead."""
    counts: Mapping[RestartEffect, int]
    down: Sequence[int]
    """Brokers that are not registered and have replicas of these partitions; without those named for the restart."""
    quorum: QuorumAfterRestart | None
    unread: Sequence[str]
    """Facts without which no restart counts as safe."""
    warnings: Sequence[str]
    rows: Sequence[RestartedPartition]
    """The affected partitions, and those whose effect is unknown, the worst first."""

    @property
    def counts_with_full_isr(self) -> Counter[RestartEffect]:
        """Count the partitions that the restart affects although all replicas are in sync."""
        return Counter(row.effect_with_full_isr for row in self.rows if row.effect_with_full_isr is not None)

    @property
    def loses_quorum(self) -> bool:
        return self.quorum is not None and self.quorum.keeps_majority is False

    @property
    def verdict(self) -> str:
        if len(self.rows) > self.counts[RestartEffect.UNKNOWN] or self.loses_quorum:
            return UNSAFE
        return UNKNOWN if self.rows or self.unread else SAFE


def restart_result(settings: Settings, safety: RestartSafety, limit: int | None) -> CommandResult:
    """Return what the command shows, with at most `limit` partitions; None for all."""
    lines = [*_lines(settings, safety, limit)]
    if safety.quorum is not None and safety.loses_quorum:
        lines.insert(-1, f"unsafe: {_lost_quorum(safety.quorum)}")
    steps = [*_suggestions(settings, safety)]
    code = ExitCode.USAGE if safety.unknown else EXIT_CODES[safety.verdict]
    return CommandResult(_json(safety), *lines, steps=steps, warnings=safety.warnings, exit_code=code)


def _json(safety: RestartSafety) -> Result:
    quorum = safety.quorum
    return {
        "restart": safety.restarting,
        "margin": safety.margin,
        "verdict": safety.verdict,
        "snapshot_id": safety.snapshot_id,
        "controller_id": safety.controller_id,
        "brokers": [asdict(broker) for broker in safety.brokers],
        "under_replicated": safety.under_replicated,
        "partitions": safety.partitions,
        "leaders": safety.leaders,
        **_by_effect(safety.counts),
        "with_full_isr": _by_effect(safety.counts_with_full_isr),
        "down": safety.down,
        "quorum": None if quorum is None else {**asdict(quorum), "keeps_majority": quorum.keeps_majority},
        "unread": safety.unread,
        "warnings": safety.warnings,
        "rows": [to_builtins(row) for row in safety.rows],
    }


def are_back(brokers: Sequence[int]) -> str:
    """Return a clause about brokers that are down.

    >>> are_back([3]), are_back([3, 4])
    ('broker 3 is back', 'brokers 3, 4 are back')
    """
    return f"{broker_list(brokers)} {'is' if len(brokers) == 1 else 'are'} back"


def _by_effect(counts: Mapping[RestartEffect, int]) -> dict[str, int]:
    return {effect.value: counts[effect] for effect in RestartEffect}


def _lost_quorum(quorum: QuorumAfterRestart) -> str:
    """Return why the quorum has no leader during the restart."""
    current = f"{len(quorum.current)} of {len(quorum.voters)} voters of the quorum remain up to date"
    return f"{current}, and {quorum.needed} are needed: until they are back, no partition gets another leader"


def _lines(settings: Settings, safety: RestartSafety, limit: int | None) -> Iterator[Line]:
    brokers = broker_list(safety.restarting)
    at = "now" if safety.snapshot_id is None else f"snapshot {safety.snapshot_id}"
    if safety.rows:
        title = f"{settings.cluster}, {at}, restarting {brokers}, margin {safety.margin}"
        yield table(title, UNSAFE_PARTITION_COLUMNS, [to_builtins(row) for row in safety.rows[:limit]])
        if limit is not None and len(safety.rows) > limit:
            yield f"... and {len(safety.rows) - limit} more; --limit shows more, --json gives all"
    yield from (f"unknown: {fact}" for fact in safety.unread)
    yield from (f"warning: {warning}" for warning in safety.warnings)
    on_them = f"{pluralise(safety.partitions, 'partition')} there, {safety.leaders} led"
    counted, counted_with_full_isr = (
        ", ".join(f"{counts[effect]} {EFFECT_PHRASES[effect]}" for effect in RestartEffect)
        for counts in (safety.counts, safety.counts_with_full_isr)
    )
    if counted_with_full_isr != counted:
        yield f"with full ISRs{f', once {are_back(safety.down)}' if safety.down else ''}: {counted_with_full_isr}"
    yield f"restarting {brokers} is {safety.verdict}: {counted} ({on_them})"


def _suggestions(settings: Settings, safety: RestartSafety) -> Iterator[Suggestion]:
    codes = {row.code for row in safety.rows}
    if RestartCode.NO_LIVE_LEADER in codes:
        yield suggestion(settings, "see what is due", "status")
    if codes & {RestartCode.TOO_FEW_IN_SYNC, RestartCode.NO_OTHER_IN_SYNC}:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", "--now")
    if RestartCode.MIN_ISR_UNKNOWN in codes:
        yield suggestion(settings, "see which brokers answer", "doctor")
