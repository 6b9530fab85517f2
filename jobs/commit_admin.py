"""Admin mode: Kafka's own controller is asked, and does it under its own fence.

This way has no compare-and-set, so what each change was computed from is read again just before asking, for each wave.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final

from jobs.adapters.admin import ELECTION_NOT_NEEDED, NONE, Admin, Key, error_name
from jobs.adapters.lake import Row
from jobs.console import progress, say
from jobs.ledger import Ledger, Verdict
from jobs.settings import Settings
from jobs.waves import by_wave, still_due
from schemas.names import Action, OperationKind, Outcome

EXECUTABLE: Final = frozenset({Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN})
"""What the Admin API can do of what plans contain; first leaders only with their topic."""

_DONE: Final = {NONE: "asked and accepted", ELECTION_NOT_NEEDED: "led by its preferred replica already"}


def commit_admin(settings: Settings, ledger: Ledger, admin: Admin, due: Sequence[Row]) -> None:
    """Ask for what is due, wave by wave and kind by kind, and judge by the answers."""
    ledger.intend(due)
    for number, wave in enumerate(by_wave(due)):
        _ask(ledger, admin, still_due(settings, ledger, wave) if number else wave)
    say(f"  Kafka's controller accepted {len(ledger.of(Outcome.APPLIED))} of {len(due)}")


def _ask(ledger: Ledger, admin: Admin, due: Sequence[Row]) -> None:
    asks: dict[Action, Callable[[Ledger, Admin, Sequence[Row]], dict[Key, int]]] = {
        Action.CREATE: _create,
        Action.ELECT_PREFERRED: _elect,
        Action.REASSIGN: _reassign,
    }
    for action, ask in asks.items():
        changes = [change for change in due if change["action"] == action]
        if changes:
            with progress(f"asking Kafka's controller: {action}"):
                codes = ask(ledger, admin, changes)
            ledger.judge(_verdict(change, codes) for change in changes)


def _verdict(change: Row, codes: dict[Key, int]) -> Verdict:
    code = codes.get((change["topic"], change["partition"]))
    if code is None:
        return Verdict(change, Outcome.UNKNOWN, "the controller's answer did not name it")
    if code in _DONE:
        return Verdict(change, Outcome.APPLIED, _DONE[code])
    return Verdict(change, Outcome.FAILED, f"the controller refused: {error_name(code)}")


def _elect(_: Ledger, admin: Admin, changes: Sequence[Row]) -> dict[Key, int]:
    return admin.elect_preferred([(change["topic"], change["partition"]) for change in changes])


def _reassign(_: Ledger, admin: Admin, changes: Sequence[Row]) -> dict[Key, int]:
    return admin.reassign({(c["topic"], c["partition"]): c["replicas_after"] for c in changes})


def _create(ledger: Ledger, admin: Admin, changes: Sequence[Row]) -> dict[Key, int]:
    codes: dict[Key, int] = {}
    for operation in ledger.plan.operations:
        if operation["kind"] == OperationKind.CREATE_TOPIC:
            mine = [change for change in changes if change["topic"] == operation["topic"]]
            assignment = {change["partition"]: change["replicas_after"] for change in mine}
            code = admin.create_topic(operation["topic"], assignment, json.loads(operation["data"])["config"])
            codes |= {(change["topic"], change["partition"]): code for change in mine}
    return codes
