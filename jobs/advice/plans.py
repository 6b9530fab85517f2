"""The next commands for a plan that was made, committed, verified or cancelled.

They follow from the plan's row and its results; `name` is the name by which the user calls the plan. The list is empty
if nothing is left to do.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from jobs.core.masking import HIDDEN
from jobs.preconditions.change_preconditions import creates
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.plan_goal import goal_of
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import ENGINE_OPTIONS, Suggestion, same_line, same_step, suggestion
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.enums import OperationKind, Outcome, PlanStatus
from schemas.lease_holder import LeaseHolder
from schemas.operation_data import AlteredConfig, data_of
from schemas.rows import Broker, Change, PlanRecord
from schemas.stored_plan import BEGUN, CLOSED, OPEN, Plan, RowOutcome
from schemas.znode_json import PLAINTEXT

if TYPE_CHECKING:
    from jobs.adapters.delta.warehouse import Warehouse

RECONCILE_ONLY_OPTIONS: Final = ("allow_unclean", *ENGINE_OPTIONS, "requests", "until_quiet")
"""Options of `surveyor reconcile` that `surveyor commit` does not have."""

UNDONE_OUTCOMES: Final = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED)


def after_planning(settings: Settings, plan: PlanRecord, name: str, *, due: bool) -> list[Suggestion]:
    """Suggest what to do after a plan was made, or was found to be made already."""
    steps = after_review(settings, plan, name, due=due)
    is_new = plan.status == PlanStatus.PLANNED and steps
    review = suggestion(settings, "review", "show", "plan", name, *settings.given_options.get("throttle", ()))
    return [review, *steps] if is_new else steps


def after_review(settings: Settings, plan: PlanRecord, name: str, *, due: bool) -> list[Suggestion]:
    """Suggest what to do after a plan was shown; `due` is whether its commit would change anything."""
    status = plan.status
    if status == PlanStatus.COMMITTED:
        return [suggestion(settings, "verify", "verify", name)]
    if plan.is_cycle:
        return [suggestion(settings, "see what is due now", "status")]
    if status in BEGUN:
        return [_resume(settings, name, *_unknown_access(settings, plan))]
    if status != PlanStatus.PLANNED or not due:
        return []
    return [_apply(settings, name, *_unknown_access(settings, plan))]


def after_dry_run(settings: Settings, name: str, *, due: bool, holder: LeaseHolder | None = None) -> list[Suggestion]:
    """Suggest the same commit with --apply and with all its other options, unless `holder` has the lease."""
    if holder is not None:
        return [suggestion(settings, "wait for it", "verify", holder.plan)] if holder.plan else []
    return [same_step(settings, "apply", "commit", name, "--apply", exclude=RECONCILE_ONLY_OPTIONS)] if due else []


def after_stale(settings: Settings, plan: PlanRecord, name: str, stale: Iterable[RowOutcome]) -> list[Suggestion]:
    """Suggest to discard a plan whose changes are all stale, after making it again unless that could do harm."""
    is_planned = plan.status == PlanStatus.PLANNED
    discard = [suggestion(settings, "discard it", "cancel", name, "--apply")] if is_planned else []
    again = None if any(map(_rules_out_same_plan, stale)) else _plan_again(settings, plan)
    return [*discard, suggestion(settings, "see what is due now", "status")] if again is None else [again, *discard]


def _rules_out_same_plan(stale: RowOutcome) -> bool:
    """Return whether planning the same again would empty a broker that has returned, delete a topic that was created
    since, or be refused because the topic or partition exists.

    Without a topic's former version, it is not known whether the partitions to be added exist.
    """
    change = stale.change
    versions = (reasons.OTHER_VERSION,) if isinstance(change, Change) and creates(change) else ()
    return any(sentence.matches(stale.message) for sentence in (*_RULES_OUT_SAME_PLAN, *versions))


_RULES_OUT_SAME_PLAN: Final = (
    reasons.BROKER_BACK,
    reasons.NOT_THE_TOPIC_TO_DELETE,
    reasons.OTHER_TOPIC_EXISTS,
    reasons.PARTITION_EXISTS,
    reasons.PARTITIONS_DIFFER,
    reasons.CONFIG_DIFFERS,
)


def _plan_again(settings: Settings, plan: PlanRecord) -> Suggestion | None:
    """Return the command that makes a plan again; None if it is not known."""
    words = goal_of(plan.command)
    if words[:1] != ["plan"] or HIDDEN in str(plan.command):
        return None
    throttle = settings.given_options.get("throttle", ()) if plan.traits.moves_replicas else ()
    return suggestion(settings, "plan again on a new snapshot", *words, *throttle)


def list_all_command(settings: Settings, name: str) -> str:
    """Return the dry run of a commit, with all its other options, that lists all rows."""
    return same_line(settings, "commit", name, "--all", exclude=(*RECONCILE_ONLY_OPTIONS, "apply", "yes"))


def after_commit(settings: Settings, name: str, status: str, outcomes: Mapping[str, int]) -> list[Suggestion]:
    """Suggest what to do after a finished attempt; `outcomes` has counts by outcome."""
    if status == PlanStatus.COMMITTED:
        return [suggestion(settings, "verify", "verify", name)]
    if status in CLOSED:  # no commit continues it
        return [
            suggestion(settings, "see the result", "show", "commits", name),
            suggestion(settings, "see what is due now, and plan again", "status"),
        ]
    steps = []
    if any(outcomes.get(outcome.value) for outcome in UNDONE_OUTCOMES):
        steps.append(suggestion(settings, "why", "show", "commits", name))
        steps.append(_resume(settings, name))
    if outcomes.get(Outcome.STALE.value):
        steps.append(suggestion(settings, "see what is due now", "status"))
    return steps


def after_verification(
    settings: Settings,
    plan: Plan,
    statuses: Collection[ReassignmentStatus],
    *,
    moving: bool,
    throttled: bool = False,
    holder: LeaseHolder | None = None,
) -> list[Suggestion]:
    """Suggest what to do after a verification; `moving` is whether replicas are moving and could be cancelled.

    `throttled`: a throttle of the plan's commit is still set, for instance because the commit was interrupted.
    `holder`: the process that commits or cancels the plan; until it ends, another commit is refused.
    """
    steps = list(_after_verification(settings, plan.row, plan.called, statuses, moving=moving, holder=holder))
    clear_throttle = remove_throttle(settings, plan)
    is_due = throttled and not moving and not holder and clear_throttle.command not in {step.command for step in steps}
    return [clear_throttle, *steps] if is_due else steps


def remove_throttle(settings: Settings, plan: Plan) -> Suggestion:
    """Suggest the commit that removes the throttle which an earlier command has left."""
    return suggestion(settings, "remove its throttle", "commit", plan.called, "--apply")


def _after_verification(
    settings: Settings,
    plan: PlanRecord,
    name: str,
    statuses: Collection[ReassignmentStatus],
    *,
    moving: bool,
    holder: LeaseHolder | None,
) -> Iterator[Suggestion]:
    is_open = plan.status in OPEN and not plan.is_cycle and holder is None
    user = None if holder is None else f"{holder.user}@{holder.host}"
    if ReassignmentStatus.IN_PROGRESS in statuses or holder:
        yield suggestion(settings, "verify again", "verify", name)
    if moving:
        asked = f", after asking {user}" if user not in {None, this_actor().user} else ""
        yield suggestion(settings, f"cancel it{asked}", "cancel", name)
    if is_open and ReassignmentStatus.NOT_STARTED in statuses and ReassignmentStatus.IN_PROGRESS not in statuses:
        yield _apply(settings, name) if plan.status == PlanStatus.PLANNED else _resume(settings, name)
    if ReassignmentStatus.DIVERGED in statuses or (plan.is_cycle and ReassignmentStatus.NOT_STARTED in statuses):
        yield suggestion(settings, "see what is due now", "status")
    if set(statuses) == {ReassignmentStatus.COMPLETE} and plan.traits.drains:
        brokers = ",".join(map(str, plan.options["brokers"]))
        yield suggestion(settings, "when the work is done", "plan", "undrain", "--brokers", brokers, "--apply")


def undo_steps(settings: Settings, plan: Plan) -> list[Suggestion]:
    """Suggest what undoes a plan that was committed, except for a drain, whose verification suggests it."""
    if plan.row.status != PlanStatus.COMMITTED:
        return []
    throttle = settings.given_options.get("throttle", ()) if plan.row.traits.moves_replicas else ()
    return [suggestion(settings, "undo", *command, *throttle, "--apply") for command in _undoing(plan)]


def _undoing(plan: Plan) -> Iterator[list[str]]:
    """Yield the commands that plan the opposite; elections, added partitions and deletions have none."""
    if plan.row.traits.moves_replicas:
        yield ["rollback", plan.called]
    if plan.row.traits.undrains:
        yield ["plan", "drain", "--brokers", ",".join(map(str, plan.row.options["brokers"]))]
    if created := sorted({row.topic for row in plan.operations if row.kind == OperationKind.CREATE_TOPIC}):
        yield ["plan", "delete", "--topics", ",".join(created)]
    for operation in plan.operations:
        if operation.kind == OperationKind.ALTER_CONFIG:
            words = [
                word
                for name, value in data_of(operation, AlteredConfig).before.items()
                for word in (("--delete", name) if value is None else ("--set", f"{name}={value}"))
            ]
            yield ["plan", "config", "--topic", operation.topic, *words]


def after_cancellation(settings: Settings, plan: Plan, *, again: bool, complete: bool) -> list[Suggestion]:
    """Suggest what to do after a cancellation.

    `again`: part of it failed. `complete`: part of the plan was complete before.
    """
    if again:
        return [same_step(settings, "cancel again", "cancel", plan.called, "--apply", exclude=["apply"])]
    if complete and plan.row.traits.moves_replicas:
        return [suggestion(settings, "roll back what is complete", "rollback", plan.called)]
    return []


def _apply(settings: Settings, name: str, *access: str) -> Suggestion:
    return suggestion(settings, "apply", *commit_command(settings, name), *access)


def _resume(settings: Settings, name: str, *access: str) -> Suggestion:
    return suggestion(settings, "continue", *commit_command(settings, name), *access)


def _unknown_access(settings: Settings, plan: PlanRecord) -> Iterator[str]:
    """Yield the options that a commit needs, in words to replace, and that planning on a snapshot did not need."""
    if not settings.has_address:
        is_of_kraft = bool(plan.brokers) and all(broker.broker_epoch is None for broker in plan.brokers)
        yield from ("--bootstrap-server" if is_of_kraft else "--zookeeper", "HOST:PORT")
    if settings.conf.command_config is None and _only_secured(settings.warehouse):
        yield from ("--command-config", "FILE")


def _only_secured(warehouse: "Warehouse") -> bool:
    """Return whether no broker has a listener for clients without credentials and certificates."""
    if not warehouse.exists() or not warehouse.has("brokers"):
        return False
    endpoints = [endpoint for row in warehouse.typed_rows(Broker) for endpoint in row.endpoints or []]
    return bool(endpoints) and all(endpoint.security_protocol != PLAINTEXT for endpoint in endpoints)


def commit_command(settings: Settings, name: str) -> list[str]:
    """Return the commit command of a plan, with the throttle that was typed for it."""
    return ["commit", name, "--apply", *settings.given_options.get("throttle", ())]
