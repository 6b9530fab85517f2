"""Reports on the cycles of the resident controller: a line for each that changed something, and totals at the end."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.preconditions.change_preconditions import is_unclean
from jobs.runtime.console import LogLine
from planner.rules.decisions import Decision
from schemas.enums import Action, Outcome
from schemas.rows import Change, Key, RejectionRecord, changes_among
from schemas.stored_plan import RowOutcome
from schemas.text import DRAINED_LEADS, pluralise, with_others


@dataclass(slots=True)
class CycleSummary:
    """Totals of the cycles by action, and what was already reported."""

    log_line: LogLine
    cycles: int = 0
    by_action: Counter[str] = field(default_factory=Counter)
    stale: int = 0
    _reported_rejections: dict[Key, str] = field(default_factory=dict)
    _failed_partitions: set[Key] = field(default_factory=set)

    def line(self) -> str:
        """Return the totals in one line."""
        actions = ", ".join(f"{count} {action}" for action, count in sorted(self.by_action.items())) or "nothing"
        return f"{pluralise(self.cycles, 'cycle')} wrote {actions}" + (
            f"; {pluralise(self.stale, 'row', 'was', 'were')} stale" if self.stale else ""
        )

    def add_cycle(self, outcomes: Sequence[RowOutcome], rejections: Iterable[RejectionRecord]) -> None:
        """Add a cycle to the totals, and log its outcomes and new rejections."""
        self.stale += sum(outcome.outcome not in {Outcome.APPLIED, Outcome.SKIPPED} for outcome in outcomes)
        new_outcomes = self._new_failures(outcomes)
        counts = Counter(f"{outcome.change.action} {outcome.outcome}" for outcome in new_outcomes)
        counts.update(f"{row.action}: {row.code}" for row in rejections)
        written = changes_among(outcome.change for outcome in outcomes if outcome.outcome is Outcome.APPLIED)
        self._warn_of([change for change in written if DRAINED_LEADS in change.reason])
        self._warn_of([change for change in written if is_unclean(change)])
        self._warn_of([change for change in written if change.action == Action.TAKE_OFFLINE])
        if counts:
            self.log_line("  " + ", ".join(f"{count} {event}" for event, count in sorted(counts.items())))

    def _warn_of(self, changes: Sequence[Change]) -> None:
        """Log the first of these changes with its reason, and how many others there are."""
        if changes:
            names = with_others(changes[0].name, len(changes))
            self.log_line(f"surveyor: warning: {names}: {changes[0].reason}", logging.WARNING)

    def _new_failures(self, outcomes: Sequence[RowOutcome]) -> list[RowOutcome]:
        """Log new failures with their reason; return the outcomes without failures that were logged before."""
        failed = [outcome for outcome in outcomes if outcome.outcome is Outcome.FAILED]
        self._failed_partitions -= {outcome.change.key for outcome in outcomes if outcome.outcome is not Outcome.FAILED}
        new: dict[str, list[str]] = defaultdict(list)
        for outcome in failed:
            if outcome.change.key not in self._failed_partitions:
                new[outcome.message].append(outcome.change.name)
        for message, names in new.items():
            self.log_line(f"surveyor: {with_others(names[0], len(names))}: {message}; retrying", logging.WARNING)
        reported = set(self._failed_partitions)
        self._failed_partitions |= {outcome.change.key for outcome in failed}
        return [v for v in outcomes if v.outcome is not Outcome.FAILED or v.change.key not in reported]

    def new_rejections(self, decisions: Iterable[Decision]) -> list[RejectionRecord]:
        """Return the rejections that were not reported for their partitions before."""
        new: list[RejectionRecord] = []
        for decision in decisions:
            code, text = decision.code, f"{decision.code}: {decision.why_not}"
            if code is None or self._reported_rejections.get(decision.key) == text:
                continue
            self._reported_rejections[decision.key] = text
            (topic, partition), action = decision.key, decision.wanted.value
            new.append(
                RejectionRecord(
                    topic=topic, partition=partition, action=action, code=code.value, reason=decision.why_not
                )
            )
        return new
