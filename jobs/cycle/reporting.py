"""What a controller that stays says of its cycles: a line for each that did something, and what came of all of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from jobs.adapters.delta.lake import Row
from jobs.records.ledger import Verdict
from schemas.names import Outcome
from schemas.rows import Key


@dataclass(slots=True)
class Report:
    """What cycles did, for people: counts by action, and what came of it."""

    say: Callable[[str], None]
    cycles: int = 0
    by_action: Counter[str] = field(default_factory=Counter)
    stale: int = 0
    _said: dict[Key, str] = field(default_factory=dict)

    def line(self) -> str:
        """Say it in one line."""
        actions = ", ".join(f"{count} {action}" for action, count in sorted(self.by_action.items())) or "nothing"
        return f"{self.cycles} cycles wrote {actions}" + (f"; {self.stale} rows were stale" if self.stale else "")

    def of_cycle(self, verdicts: Sequence[Verdict], rejections: Iterable[Row]) -> None:
        """Say what a cycle did, and which rejections are new."""
        self.stale += sum(verdict.outcome is not Outcome.APPLIED for verdict in verdicts)
        counts = Counter(f"{verdict.change.action} {verdict.outcome}" for verdict in verdicts)
        counts.update(f"{row['action']}: {row['code']}" for row in rejections)
        if counts:
            self.say("  " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))

    def news(self, rows: Iterable[Row]) -> list[Row]:
        """Rejections, of decisions that were not said of their partitions before."""
        found = []
        for row in rows:
            key, said = (row["topic"], row["partition"]), f"{row['code']}: {row['why_not']}"
            if self._said.get(key) != said:
                self._said[key] = said
                found.append(_rejection(row))
        return found


def _rejection(row: Row) -> Row:
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "action": row["wanted"],
        "code": row["code"],
        "reason": row["why_not"],
    }
