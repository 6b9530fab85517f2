"""Admin mode: Kafka's own controller is asked, and does it under its own fence.

This way has no compare-and-set, so what each change was computed from is read again just before asking, for each wave.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from jobs.adapters.admin import ELECTION_NOT_NEEDED, NONE, Admin, error_name
from jobs.adapters.lake import Row
from jobs.console import progress, say
from jobs.ledger import Ledger, Verdict
from jobs.settings import Settings
from jobs.waves import by_wave, still_due
from schemas.names import Action, OperationKind, Outcome

EXECUTABLE: Final = frozenset({Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN})
"""What the Admin API can do of what plans contain; first leaders only with their topic."""

Codes = Mapping[tuple[str, Any], int | str]
"""What the controller answered, by topic and partition: an error code or, where there is more to say, its message."""

_DONE: Final[dict[int | str, str]] = {
    NONE: "asked and accepted",
    ELECTION_NOT_NEEDED: "led by its preferred replica already",
}


def commit_admin(settings: Settings, ledger: Ledger, admin: Admin, due: Sequence[Row]) -> None:
    """Ask for what is due, wave by wave and kind by kind, and judge by the answers."""
    ledger.intend(due)
    for number, wave in enumerate(by_wave(due)):
        _ask(ledger, admin, still_due(settings, ledger, wave) if number else wave)
    say(f"  Kafka's controller accepted {len(ledger.of(Outcome.APPLIED))} of {len(due)}")


def _ask(ledger: Ledger, admin: Admin, due: Sequence[Row]) -> None:
    ledger.refuse_closed()
    asks: dict[Action | OperationKind, Callable[[Ledger, Admin, Sequence[Row]], Codes]] = {
        Action.CREATE: _create,
        Action.ELECT_PREFERRED: _elect,
        Action.REASSIGN: _reassign,
        OperationKind.ALTER_CONFIG: _alter_configs,
        OperationKind.DELETE_TOPIC: _delete_topics,
    }
    for action, ask in asks.items():
        changes = [change for change in due if change["action"] == action]
        if changes:
            with progress(f"asking Kafka's controller: {action}"):
                codes = ask(ledger, admin, changes)
            ledger.judge(_verdict(change, codes) for change in changes)


def _verdict(change: Row, codes: Codes) -> Verdict:
    code = codes.get((change["topic"], change["partition"]))
    if code is None:
        return Verdict(change, Outcome.UNKNOWN, "the controller's answer did not name it")
    if code in _DONE:
        return Verdict(change, Outcome.APPLIED, _DONE[code])
    why = error_name(code) if isinstance(code, int) else code
    return Verdict(change, Outcome.FAILED, f"the controller refused: {why}")


def _elect(_: Ledger, admin: Admin, changes: Sequence[Row]) -> Codes:
    return admin.elect_preferred([(change["topic"], change["partition"]) for change in changes])


def _reassign(_: Ledger, admin: Admin, changes: Sequence[Row]) -> Codes:
    return admin.reassign({(c["topic"], c["partition"]): c["replicas_after"] for c in changes})


def _create(ledger: Ledger, admin: Admin, changes: Sequence[Row]) -> Codes:
    codes: dict[tuple[str, int], int] = {}
    for operation in ledger.plan.operations:
        topic, data = operation["topic"], json.loads(operation["data"])
        mine = {change["partition"]: change["replicas_after"] for change in changes if change["topic"] == topic}
        if mine and operation["kind"] == OperationKind.CREATE_TOPIC:
            codes |= dict.fromkeys(_keys(topic, mine), admin.create_topic(topic, mine, data["config"]))
        elif mine and operation["kind"] == OperationKind.EXPAND_TOPIC:
            added = [mine[partition] for partition in sorted(mine)]
            codes |= dict.fromkeys(_keys(topic, mine), admin.create_partitions(topic, data["partitions"], added))
    return codes


def _keys(topic: str, partitions: Iterable[int]) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in partitions]


def _alter_configs(_: Ledger, admin: Admin, tasks: Sequence[Row]) -> Codes:
    return {(t["topic"], None): admin.alter_config(t["topic"], json.loads(t["data"])["after"]) for t in tasks}


def _delete_topics(_: Ledger, admin: Admin, tasks: Sequence[Row]) -> Codes:
    codes = admin.delete_topics({task["topic"]: json.loads(task["data"])["topic_id"] for task in tasks})
    return {(topic, None): code for topic, code in codes.items()}
