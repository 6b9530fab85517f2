"""Selects the mode of a commit, with the reason: admin if a live controller can carry out the plan, otherwise batch."""

from jobs.adapters.brokers.admin_client import AdminUnavailableError, bootstrap, is_reachable, read_properties
from jobs.adapters.clusters.interface import WHY_NO_FENCE, Cluster, ClusterMetadata
from jobs.core.errors import RefusedError, UsageError
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from jobs.execution.admin.connections import LoginFailedError, admin_of, login_failure_of
from jobs.execution.admin.controller_client import EXECUTABLE
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.resident_controller_client import REQUESTABLE
from jobs.preconditions.change_preconditions import adds_partition, is_unclean
from jobs.preconditions.config_validation import needs_tiered_storage
from jobs.runtime.cli_enums import Mode
from jobs.runtime.settings import Settings
from schemas.enums import CARRIED_OUT, NO_VERSION, Action, DrainMode, PlanKind
from schemas.lease_holder import LeaseHolder
from schemas.stored_plan import Plan
from schemas.topic_configs import TIERED


def choose_mode(
    mode: Mode,
    settings: Settings,
    plan: Plan,
    state: ClusterMetadata,
    running: ReassignmentOptions = DEFAULT,
    *,
    cluster: Cluster,
    resident_controller: LeaseHolder | None = None,
    epoch_behind: str | None = None,
) -> tuple[Mode, str]:
    """Return admin or batch, and the reason.

    `resident_controller` is the Surveyor that is the resident controller, if there is one. `epoch_behind` reports that
    brokers know a later epoch than the controller's: they refuse its requests, so it can carry out nothing.
    """
    if resident_controller is not None:
        return _mode_with_resident_controller(mode, plan, resident_controller)
    if epoch_behind and mode is not Mode.BATCH and (mode is Mode.ADMIN or _why_not_batch(plan)):
        raise RefusedError(
            f"{epoch_behind}. Kafka's controller cannot carry out a plan until that is repaired: `surveyor "
            "reconcile --apply` takes the controllership with a later epoch, then resigns; then commit again",
        )
    if mode is Mode.BATCH and running.throttle is not None:
        raise UsageError("--throttle is for replicas that Kafka's controller moves: --mode batch moves none")
    why_not_admin = _why_not_admin(plan, cluster)
    why_not_batch = _why_not_batch(plan) if cluster.fence else WHY_NO_FENCE
    if why_not_admin and not cluster.fence:
        raise RefusedError(f"plan {plan.title} cannot be committed: {why_not_admin}; and {WHY_NO_FENCE}")
    _refuse_unable(mode, plan, why_not_admin, why_not_batch)
    if mode is not Mode.AUTO:
        return mode, "requested by --mode"
    if why_not_batch:
        return Mode.ADMIN, why_not_batch
    if why_not_admin or epoch_behind:
        return Mode.BATCH, why_not_admin or str(epoch_behind)
    why_unresponsive = _unresponsive_controller(settings, state)
    return (
        (Mode.BATCH, why_unresponsive)
        if why_unresponsive
        else (Mode.ADMIN, f"broker {state.controller_broker} is the controller")
    )


def _refuse_unable(mode: Mode, plan: Plan, why_not_admin: str | None, why_not_batch: str | None) -> None:
    """Raise RefusedError if the requested mode cannot carry out the plan."""
    if mode is Mode.ADMIN and why_not_admin:
        raise RefusedError(f"--mode admin cannot commit plan {plan.title}: {why_not_admin}; use --mode batch")
    if mode is Mode.BATCH and why_not_batch:
        raise RefusedError(f"--mode batch cannot commit plan {plan.title}: {why_not_batch}; use --mode admin")


def _mode_with_resident_controller(mode: Mode, plan: Plan, resident_controller: LeaseHolder) -> tuple[Mode, str]:
    """Select the mode while a resident controller runs.

    Replicas are moved by requests in /admin, as Kafka's tools do; other plans are submitted to the resident controller.
    """
    controller = f"{resident_controller}, is the controller"
    if _moves(plan):
        if mode is Mode.BATCH:
            raise RefusedError(f"--mode batch: {controller}, which moves replicas by requests in /admin; omit --mode")
        _refuse_unrequestable(plan)
        return Mode.ADMIN, f"{resident_controller}, is the controller; requests are written to /admin"
    if mode is Mode.ADMIN:
        raise RefusedError(f"--mode admin cannot be used: {controller}; omit --mode to submit the plan to it")
    if _carries_out_requests(plan):
        raise RefusedError(f"{controller}, and carries out requests in /admin itself: plan {plan.title} is left to it")
    if why_not_batch := _why_not_batch(plan):
        raise RefusedError(f"{controller} and cannot commit plan {plan.title}: {why_not_batch}")
    return Mode.BATCH, f"{resident_controller}, is the controller; the plan is submitted to it"


def _refuse_unrequestable(plan: Plan) -> None:
    kinds = {change.action for change in plan.changes} | {task.action for task in plan.tasks}
    unrequestable = sorted(kinds - REQUESTABLE)
    if unrequestable:
        raise RefusedError(
            f"plan {plan.title} moves replicas and cannot be committed while Surveyor is the controller: only "
            "reassignments and preferred elections have a request in /admin, not "
            f"{', '.join(unrequestable)}",
        )


def _why_not_admin(plan: Plan, cluster: Cluster) -> str | None:
    """Return why the Admin API cannot carry out a plan; None if it can."""
    actions = {Action(change.action) for change in plan.changes}
    if not cluster.fence and any(map(is_unclean, plan.changes)):
        actions -= {Action.ELECT}  # the controller makes the clean ones among them by itself
    unsupported = sorted(actions - EXECUTABLE)
    if unsupported == [Action.ELECT] and not cluster.fence:
        return "the cluster's controller elects live replicas in sync by itself"
    if unsupported:
        return f"the Admin API offers no repair of leaders and ISRs: {', '.join(unsupported)}"
    if _carries_out_requests(plan):
        return "requests in /admin are carried out by the current controller"
    first_leaders = (
        change for change in plan.changes if change.action == Action.CREATE and change.topic_version != NO_VERSION
    )
    states_only = [change for change in first_leaders if not adds_partition(change)]
    return "the Admin API does not elect first leaders of existing partitions" if states_only else None


def _carries_out_requests(plan: Plan) -> bool:
    """Return whether a plan contains steps that carry out requests in /admin."""
    if plan.row.kind == PlanKind.CANCEL:
        return False
    steps = {Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT}
    return any(task.action in CARRIED_OUT for task in plan.tasks) or any(c.action in steps for c in plan.changes)


def _why_not_batch(plan: Plan) -> str | None:
    """Return why batch mode cannot carry out a plan; None if it can."""
    if needs_tiered_storage(plan.operations):
        return f"only a broker can check {TIERED} against its own configs, and it fails if they do not fit"
    return "Kafka's controller moves replicas" if _moves(plan) else None


def _moves(plan: Plan) -> bool:
    return any(change.action in {Action.REASSIGN, Action.CANCEL} for change in plan.changes)


def refuse_resident_drain(plan: Plan) -> None:
    """Raise RefusedError for a drain that lasts only while Surveyor is the resident controller.

    For commits that resign afterwards.
    """
    if plan.row.traits.drains and plan.row.options["mode"] == DrainMode.RESIDENT:
        raise RefusedError(
            f"plan {plan.title} is a drain in resident mode, and this commit resigns afterwards: Kafka's "
            "controller would start the replicas again at once; use `plan drain --mode admin`, or commit it while "
            "`surveyor control` is the controller",
        )


def _unresponsive_controller(settings: Settings, state: ClusterMetadata) -> str | None:
    """Return why no live controller can be asked; None if one answers.

    Raise RefusedError if the fault may be on our side. The controllership is taken only if the cluster itself gives a
    reason: ZooKeeper names no controller, or an unregistered one, or the controller is reachable and does not answer.
    If this host cannot reach any broker, it could not send control requests in batch mode either.
    """
    controller = state.controller_broker
    if controller not in state.live:
        return _no_live_controller(controller)
    addresses = _addresses(settings, state)
    others_answer = False
    try:
        with admin_of(settings, state) as admin:
            others_answer = True
            why_silent = admin.unresponsive_reason()
    except LoginFailedError:
        raise
    except AdminUnavailableError as error:
        failure = login_failure_of(settings, state)
        raise failure or _unreachable_from_here(state, str(error), others_answer=others_answer) from None
    if why_silent is not None and not is_reachable(addresses):
        reason = f"{why_silent}, and cannot be reached at {', '.join(addresses) or 'any address'}"
        raise _unreachable_from_here(state, reason, others_answer=True)
    return why_silent


def why_controller_unreachable(settings: Settings, state: ClusterMetadata) -> str | None:
    """Say why Kafka's controller cannot be asked now; a dry run, which sends no requests, reports it in advance."""
    controller = state.controller_broker
    if controller not in state.live:
        return _no_live_controller(controller)
    addresses = _addresses(settings, state)
    failure = login_failure_of(settings, state)
    if failure is not None:
        return str(failure)
    if is_reachable(addresses):
        return None
    return f"cannot reach the controller (broker {controller}) at {', '.join(addresses) or 'any address'}"


def _no_live_controller(controller: int) -> str:
    return "no broker is the controller" if controller < 0 else f"controller {controller} is not a live broker"


def _addresses(settings: Settings, state: ClusterMetadata) -> list[str]:
    """Addresses of Kafka's controller for the protocol in --command-config."""
    controller = [row for row in state.brokers if row.broker_id == state.controller_broker]
    return bootstrap(controller, read_properties(settings.conf.command_config), settings.conf.control_listener)


def _unreachable_from_here(state: ClusterMetadata, reason: str, *, others_answer: bool) -> RefusedError:
    """Return the error; batch mode, which sends requests to brokers too, is a way out only if some of them answer."""
    batch = ", or, if the controller does not recover, take the controllership with --mode batch"
    return RefusedError(
        f"{reason}. But broker {state.controller_broker} is the controller and registered in ZooKeeper: the fault may "
        "be in the connection and not in the cluster. Give the right credentials in "
        f"{option_name(COMMAND_CONFIG)}, or repair the network{batch if others_answer else ''}",
    )
