"""Batch mode: take the controllership, write the plan under the fence, tell the brokers, hand back.

Corresponds to `KafkaController.onControllerFailover` and `onControllerResignation`, around one plan. When the session
closes, Kafka elects a controller of its own, whose fail-over announces everything again; so a crash anywhere after a
write leaves nobody uninformed for long.
"""

import time
from collections.abc import Sequence
from typing import Final

from jobs.adapters.cluster import BROKER_IDS, ClusterState, read_cluster
from jobs.adapters.control_messages import Announcement, plaintext_address
from jobs.adapters.controllership import Controllership, SessionLostError, controllership, who_controls
from jobs.adapters.lake import Row
from jobs.adapters.multi_read import read_many
from jobs.adapters.requests import NOT_TOLD, announce
from jobs.adapters.zookeeper import Znode
from jobs.console import progress, say
from jobs.errors import FencedError, RefusedError, SurveyorError
from jobs.fenced_operations import write_tasks
from jobs.fenced_writes import FencedWriter
from jobs.ledger import Ledger, Verdict
from jobs.premises import Premises, state_path, understood
from jobs.settings import Settings
from schemas.names import NO_CONTROLLER, Outcome, Step

HAND_BACK_PATIENCE: Final = 20.0
"""Seconds within which a broker should have become the controller again."""


def refuse_unreachable(state: ClusterState) -> None:
    """Refuse to take over where some live broker could not be told what was written."""
    for row in state.quarantine:
        if row["path"].startswith(f"{BROKER_IDS}/"):
            raise RefusedError(
                f"{row['path']} is not understood ({row['reason']}): "
                "the brokers cannot be told who is alive; mend it first",
            )
    for broker in state.brokers:
        if plaintext_address(broker) is None:
            raise RefusedError(
                f"broker {broker['broker_id']} has no PLAINTEXT endpoint: batch mode cannot tell it what was written; "
                "use --mode admin",
            )


def commit_batch(
    settings: Settings,
    ledger: Ledger,
    due: Sequence[Row],
    max_hold: float,
    held: Controllership | None = None,
) -> None:
    """Write what is due, in the ledger's name; under `held` the controllership stays with the caller."""
    if held is not None:
        _commit_held(settings, ledger, held, due, max_hold)
        return
    with controllership(settings.zookeeper, settings.conf.controller_id) as control:
        ledger.step(Step.TAKE_OVER, Outcome.APPLIED, f"controller epoch {control.epoch}")
        say(f"  controllership taken over: epoch {control.epoch}, id {control.controller_id}")
        _commit_held(settings, ledger, control, due, max_hold)
        seconds = control.held()
    _hand_back(settings, ledger, seconds)


def _commit_held(
    settings: Settings,
    ledger: Ledger,
    control: Controllership,
    due: Sequence[Row],
    max_hold: float,
) -> None:
    ledger.intend(due)
    state = read_cluster(control.client, settings.zookeeper)
    refuse_unreachable(state)
    tasks = [row for row in due if row["partition"] is None]
    changes = [row for row in due if row["partition"] is not None]
    still_due, verdicts = Premises.of(ledger.plan, state).judge(control.client, changes)
    ledger.judge(verdicts)
    writer = FencedWriter(control, ledger.plan, settings.zookeeper, max_hold)
    written: list[Verdict] = []
    try:
        with progress("writing to ZooKeeper"):
            for judged in write_tasks(control, tasks):
                ledger.judge(judged)
            for judged in writer.write(still_due):
                ledger.judge(judged)
                written += [verdict for verdict in judged if verdict.outcome is Outcome.APPLIED]
    except (FencedError, SessionLostError):
        _set_aside_the_rest(ledger, [*tasks, *still_due])
        raise
    if written:
        topics = sorted({verdict.change["topic"] for verdict in written} & set(writer.creations))
        created = f"topic and config znodes of {', '.join(topics)}, " if topics else ""
        say(f"  written under the fence: {created}{len(written)} state znodes")
        with progress("telling the brokers"):
            _tell(ledger, control, state, written, max_hold)
        _prove(control, written)


def _set_aside_the_rest(ledger: Ledger, due: Sequence[Row]) -> None:
    judged = {(v.change["topic"], v.change["partition"]) for v in ledger.verdicts}
    left = (change for change in due if (change["topic"], change["partition"]) not in judged)
    ledger.judge(Verdict(change, Outcome.SKIPPED, "the commit stopped before it") for change in left)


def _tell(
    ledger: Ledger,
    control: Controllership,
    state: ClusterState,
    written: Sequence[Verdict],
    max_hold: float,
) -> None:
    """Tell the brokers of what was written; who does not answer is told by Kafka's controller after the hand-back."""
    announcement = Announcement(
        controller_id=control.controller_id,
        controller_epoch=control.epoch,
        brokers=state.brokers,
        states=[_told(verdict) for verdict in written],
    )
    deadline = time.monotonic() + max(1.0, max_hold - control.held())
    answers = announce(announcement, deadline)
    ledger.lake.append("answers", answers)
    silent = sorted({row["broker_id"] for row in answers if row["error"] == NOT_TOLD})
    accepted = {row["broker_id"] for row in answers} - {row["broker_id"] for row in answers if row["error"]}
    stopped = ", StopReplica" if any(state["stop"] for state in announcement.states) else ""
    by = f"brokers {', '.join(map(str, sorted(accepted)))}" if accepted else "no broker"
    say(f"  UpdateMetadata, LeaderAndIsr{stopped} accepted by {by}")
    if silent:
        who = ", ".join(map(str, silent))
        say(f"surveyor: no answer from brokers {who}: Kafka's controller tells them, once there is one again")
    for row in answers:
        if row["error"] not in {0, NOT_TOLD}:
            what = f" for {row['topic']}-{row['partition']}" if row.get("topic") else ""
            say(f"surveyor: broker {row['broker_id']} answered {row['api']}{what} with error {row['error']}")


def _told(verdict: Verdict) -> Row:
    change = verdict.change
    return {
        "topic": change["topic"],
        "topic_id": change["topic_id"],
        "partition": change["partition"],
        "leader": change["leader_after"],
        "leader_epoch": change["leader_epoch_after"],
        "isr": change["isr_after"],
        "replicas": change["replicas_after"],
        "adding": change["adding_after"],
        "removing": change["removing_after"],
        "is_new": change["is_new"],
        "leader_recovery_state": change["leader_recovery_state_after"],
        "state_version": verdict.state_version_after,
        "to": change["leader_and_isr_to"],
        "stop": change["stop_replica_to"] or [],
    }


def _prove(control: Controllership, written: Sequence[Verdict]) -> None:
    """Read back what was written, while nobody else can have touched it, and say whose it is."""
    control.refuse_fenced()
    znodes = read_many(control.client, [state_path(verdict.change) for verdict in written])
    others = [znode.path for znode in znodes if _author(znode) != control.epoch]
    if others:
        raise SurveyorError(
            f"{len(others)} of {len(written)} state znodes just written do not carry our controller epoch "
            f"{control.epoch}, the first is {others[0]}: somebody writes without being the controller; find out who",
        )
    say(f"  {len(written)} of {len(written)} changed state znodes carry our controller epoch {control.epoch}")


def _author(znode: Znode) -> int | None:
    state = understood(znode)
    return None if state is None else state.controller_epoch


def _hand_back(settings: Settings, ledger: Ledger, seconds: float) -> None:
    deadline = time.monotonic() + HAND_BACK_PATIENCE
    with progress("waiting for a broker to become the controller"):
        while (controller := who_controls(settings.zookeeper)) == NO_CONTROLLER and time.monotonic() < deadline:
            time.sleep(0.2)
    if controller == NO_CONTROLLER:
        message = "no broker has become the controller yet: /controller is free for one"
    else:
        message = f"broker {controller} is the controller; held for {seconds:.1f} s"
    ledger.step(Step.HAND_BACK, Outcome.APPLIED, message)
    say(f"  controllership handed back: {message}")
