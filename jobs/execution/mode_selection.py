"""Which way a plan is committed, and why: admin where a live controller can execute it, batch where it cannot."""

import json

from jobs.adapters.brokers.admin import AdminUnavailableError, bootstrap, is_reachable, read_properties
from jobs.adapters.zookeeper.cluster import ClusterState
from jobs.core.errors import RefusedError, UsageError
from jobs.execution.admin.connections import admin_of
from jobs.execution.admin.controller_client import EXECUTABLE
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.zk_controller_client import REQUESTABLE
from jobs.preconditions.changes import adds_partition
from jobs.repositories.plans.checked_configs import tiered
from jobs.repositories.plans.repository import Plan
from jobs.runtime.cli_enums import Mode, Via
from jobs.runtime.settings import Settings
from schemas.enums import CARRIED_OUT, NO_VERSION, Action, DrainMode, PlanKind
from schemas.lease import LeaseHolder
from schemas.topic_configs import TIERED


def choose_mode(
    mode: Mode,
    settings: Settings,
    plan: Plan,
    state: ClusterState,
    running: ReassignmentOptions = DEFAULT,
    *,
    resident_controller: LeaseHolder | None = None,
    epoch_behind: str | None = None,
) -> tuple[Mode, str]:
    """Return admin or batch, and why.

    `in_office` is the Surveyor that is the controller to stay, if one is. `behind` says that the controller's epoch is
    earlier than one that brokers know: they refuse what it sends, so that it can carry out nothing.
    """
    if resident_controller is not None:
        return _under_resident(mode, plan, running, resident_controller)
    if (
        epoch_behind
        and mode is not Mode.BATCH
        and (mode is Mode.ADMIN or running.via is Via.ZOOKEEPER or _why_not_batch(plan))
    ):
        raise RefusedError(
            f"{epoch_behind}. A plan that Kafka's controller is to carry out waits until that is mended: `surveyor "
            "reconcile --apply` takes over above it and hands back, then commit again",
        )
    if running.via is Via.ZOOKEEPER:
        return _via_zookeeper(mode, plan, state)
    if mode is Mode.BATCH and running.throttle is not None:
        raise UsageError("--throttle is for replicas that Kafka's controller moves: --mode batch moves none")
    cannot_ask = _why_not_admin(plan)
    cannot_write = _why_not_batch(plan)
    if mode is Mode.ADMIN and cannot_ask:
        raise RefusedError(f"--mode admin cannot commit plan {plan.title}: {cannot_ask}; use --mode batch")
    if mode is Mode.BATCH and cannot_write:
        raise RefusedError(f"--mode batch cannot commit plan {plan.title}: {cannot_write}; use --mode admin")
    if mode is not Mode.AUTO:
        return mode, "as asked"
    if cannot_write:
        return Mode.ADMIN, cannot_write
    if cannot_ask or epoch_behind:
        return Mode.BATCH, cannot_ask or str(epoch_behind)
    silent = _unresponsive_controller(settings, state)
    return (Mode.BATCH, silent) if silent else (Mode.ADMIN, f"broker {state.controller.broker_id} is the controller")


def _under_resident(
    mode: Mode, plan: Plan, running: ReassignmentOptions, resident_controller: LeaseHolder
) -> tuple[Mode, str]:
    """Replicas are moved by requests in /admin, as by Kafka's tools; everything else is handed in."""
    who = f"{resident_controller}, is the controller"
    moving = any(change.action == Action.REASSIGN for change in plan.changes)
    if moving or running.via is Via.ZOOKEEPER:
        if mode is Mode.BATCH:
            raise RefusedError(f"--mode batch: {who}, which moves replicas by requests in /admin; leave --mode out")
        _refuse_unrequestable(plan, "while Surveyor is the controller, a plan that moves replicas")
        return Mode.ADMIN, f"{who}, asked by requests in /admin"
    if mode is Mode.ADMIN:
        raise RefusedError(f"--mode admin: {who}, which serves no Admin API; leave --mode out: the plan is handed in")
    if _carries_out_requests(plan):
        raise RefusedError(f"{who}, and does by itself what /admin asks for: plan {plan.title} is left to it")
    if cannot_write := _why_not_batch(plan):
        raise RefusedError(f"{who} and cannot commit plan {plan.title}: {cannot_write}")
    return Mode.BATCH, f"{who}: the plan is handed in"


def _via_zookeeper(mode: Mode, plan: Plan, state: ClusterState) -> tuple[Mode, str]:
    if mode is Mode.BATCH:
        raise UsageError("--via zookeeper asks Kafka's controller, --mode batch is the controller: give one of the two")
    _refuse_unrequestable(plan, "--via zookeeper")
    if state.controller.broker_id not in state.live:
        raise RefusedError("--via zookeeper: no live broker is the controller, nobody would find a request in /admin")
    return Mode.ADMIN, f"broker {state.controller.broker_id} is the controller, asked by requests in /admin"


def _refuse_unrequestable(plan: Plan, who: str) -> None:
    kinds = {change.action for change in plan.changes} | {task.action for task in plan.tasks}
    others = sorted(kinds - REQUESTABLE)
    if others:
        raise RefusedError(
            f"{who} cannot commit plan {plan.title}: only reassignments and preferred elections have a "
            f"request in /admin, not {', '.join(others)}; use --via admin",
        )


def _why_not_admin(plan: Plan) -> str | None:
    actions = {Action(change.action) for change in plan.changes}
    others = sorted(actions - EXECUTABLE)
    if others:
        return f"the Admin API offers no repair of leaders and ISRs: {', '.join(others)}"
    if _carries_out_requests(plan):
        return "what /admin asks for is done by whoever is the controller"
    first_leaders = (c for c in plan.changes if c.action == Action.CREATE and c.topic_version != NO_VERSION)
    states_only = [change for change in first_leaders if not adds_partition(change)]
    return "the Admin API makes no first leaders of partitions that exist" if states_only else None


def _carries_out_requests(plan: Plan) -> bool:
    """Tell whether a plan does what requests in /admin ask a controller for."""
    steps = {Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT}
    return any(task.action in CARRIED_OUT for task in plan.tasks) or any(c.action in steps for c in plan.changes)


def _why_not_batch(plan: Plan) -> str | None:
    if tiered(plan.operations):
        return f"only a broker knows whether {TIERED} goes with its settings, and dies of it where it does not"
    moving = any(change.action == Action.REASSIGN for change in plan.changes)
    return "a reassignment takes longer than the controllership may be held" if moving else None


def refuse_resident_drain(plan: Plan) -> None:
    """Raise RefusedError for a plan that lasts only while Surveyor stays the controller; for commits that hand back."""
    if plan.row["kind"] == PlanKind.DRAIN and json.loads(plan.row["parameters"])["mode"] == DrainMode.RESIDENT:
        raise RefusedError(
            f"plan {plan.title} is a drain in resident mode, and this commit hands the controllership back: Kafka's "
            "controller would start the replicas again at once; use `plan drain --mode admin`, or commit it under a "
            "resident controller, one that keeps the controllership",
        )


def _unresponsive_controller(settings: Settings, state: ClusterState) -> str | None:
    """Say why no live controller can be asked, None if one answers; refused where the fault may be on our side.

    Only what the cluster says is a reason to take its controllership: ZooKeeper names no controller, or none that is
    registered, or it is reached and does not answer. From where nobody is reached, nobody could be told either.
    """
    controller = state.controller.broker_id
    if controller not in state.live:
        return _no_live_controller(controller)
    addresses = _addresses(settings, state)
    try:
        with admin_of(settings, state) as admin:
            silence = admin.unresponsive_reason()
    except AdminUnavailableError as error:
        raise _unreachable_from_here(controller, str(error)) from None
    if silence is not None and not is_reachable(addresses):
        raise _unreachable_from_here(
            controller, f"{silence}, and is not reached at {', '.join(addresses) or 'no address'}"
        )
    return silence


def why_controller_unreachable(settings: Settings, state: ClusterState) -> str | None:
    """Say why Kafka's controller could not be asked now; a dry run, which asks nobody, tells so beforehand."""
    controller = state.controller.broker_id
    if controller not in state.live:
        return _no_live_controller(controller)
    addresses = _addresses(settings, state)
    if is_reachable(addresses):
        return None
    return f"broker {controller}, the controller, is not reached at {', '.join(addresses) or 'any address'}"


def _no_live_controller(controller: int) -> str:
    return "no broker is the controller" if controller < 0 else f"controller {controller} is no live broker"


def _addresses(settings: Settings, state: ClusterState) -> list[str]:
    """Where Kafka's controller listens, by the protocol that --command-config has."""
    controller = [row for row in state.brokers if row["broker_id"] == state.controller.broker_id]
    return bootstrap(controller, read_properties(settings.conf.command_config))


def _unreachable_from_here(controller: int, why: str) -> RefusedError:
    return RefusedError(
        f"{why}. But broker {controller} is the controller and registered in ZooKeeper: nothing says that the cluster "
        "is at fault, and not the way to it. Give the right --command-config, mend the network, or, if the controller "
        "cannot be asked at all, take the controllership by --mode batch",
    )
