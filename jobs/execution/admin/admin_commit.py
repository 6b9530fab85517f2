"""Admin mode: submits a plan to Kafka's controller wave by wave, and refuses while other reassignments are in the way.

This mode has no compare-and-set. So before each wave the commit reads again what each change was computed from, and
checks that it still holds the cluster's lease: no other commit, cancellation or change of throttles runs at the same
time. A throttle is set for the replicas that move or are about to, and it is removed once none of the plan's replicas
move, no matter how the commit ends. A commit that crashed leaves its rows in `throttles`, and the next one removes the
throttle. Of a closed plan only the throttle is maintained: reassignments that a cancellation could not turn back may
still run.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from jobs.adapters.brokers.admin_client import UNKNOWN_OUTCOME
from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.advice.reassignments import owners_of, warnings_of_others
from jobs.core.errors import RefusedError, StillRunningError, SurveyorError, UnreadableError
from jobs.core.migration_refusal import refuse_migration
from jobs.core.signals import raise_on_signal
from jobs.core.units import hour_of
from jobs.execution.admin.audited_configs import ConfigAdmin
from jobs.execution.admin.auto_throttle import rates_at
from jobs.execution.admin.commit_lease import lease_for
from jobs.execution.admin.connections import LeaseGuardedAdmin, admin_of
from jobs.execution.admin.controller_client import ControllerClient, request_changes
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.resident_controller_client import LEADER_RETURN_SECONDS, ResidentControllerClient
from jobs.execution.admin.throttle_configs import AUTO, Throttle, throttled_brokers
from jobs.execution.admin.throttle_texts import foreign_throttle_texts
from jobs.execution.admin.throttles import (
    clear_leftover_throttles,
    clear_throttle,
    rates_of,
    set_throttle,
    throttle_of,
    throttle_rows,
)
from jobs.execution.admin.wave_progress import (
    count_moving,
    make_poll_hook,
    moving_partitions,
    read_cancelled,
    recheck_wave,
    record_concurrent_changes,
    resume_hint,
    wait_complete,
)
from jobs.execution.copy_measurement import copied_text
from jobs.preconditions.change_preconditions import turns_back
from jobs.preconditions.limits import refuse_other_cluster
from jobs.preconditions.planned_registrations import PlannedRegistrations
from jobs.preconditions.reassignment_progress import classify, reassignments_of
from jobs.preconditions.wave_outcomes import by_wave
from jobs.repositories.plans.commit_log import STOPPED, CommitLog
from jobs.repositories.plans.plans_reader import planned_registrations, refuse_edited
from jobs.runtime.console import log
from jobs.runtime.pace import Pace
from jobs.runtime.settings import Settings
from planner.load.throttle_rates import Rates
from schemas import reasons
from schemas.enums import Action, OperationKind, Outcome
from schemas.rows import Change, Key, Place, PlanRow, changes_among
from schemas.stored_plan import Plan, RowOutcome
from schemas.text import join_ids, pluralise


def _now(pace: Pace) -> datetime:
    return datetime.fromtimestamp(pace.clock.time(), UTC)


def commit_admin(
    settings: Settings,
    cluster: Cluster,
    commit_log: CommitLog,
    controller: ControllerClient,
    pending: Sequence[PlanRow],
    *,
    lease: Lease,
    running: ReassignmentOptions = DEFAULT,
    throttler: ConfigAdmin | None = None,
) -> None:
    """Request the pending changes, record the outcomes, and wait if the next wave or a throttle needs it.

    `throttler` is the Admin API; None if no throttle must be set or removed. Raise RefusedError if other
    reassignments are in the way, and StillRunningError if the time to wait is over or the user interrupts; requested
    changes then continue in the cluster.
    """
    rows = throttle_rows(settings.warehouse, commit_log.plan.plan_id)
    throttle = throttle_of(rows) if running.throttle is None else running.throttle
    on_poll = make_poll_hook(running.max_wait, commit_log, lease)
    registrations = planned_registrations(settings.warehouse, commit_log.plan)
    run = AdminCommit(
        settings, cluster, commit_log, controller, throttler, running, lease, on_poll, registrations, throttle
    )
    try:
        with raise_on_signal():
            run.run_waves(pending)
    except KeyboardInterrupt:
        run.record_unrequested(pending)
        moving = run.running_moves()
        if moving is None:
            raise StillRunningError(f"interrupted; whether replicas move is unknown{resume_hint(commit_log)}") from None
        if not moving:
            raise
        raise StillRunningError(f"interrupted{resume_hint(commit_log)}") from None
    except SurveyorError as error:
        run.record_unrequested(pending, reasons.NOT_REQUESTED.render(cause=str(error).partition("\n")[0]))
        # requested changes continue, so a failure to read is no longer the right error
        if commit_log.intents_written and isinstance(error, UnreadableError):
            raise StillRunningError(f"{error}{resume_hint(commit_log)}") from error
        raise
    finally:
        run.clear_throttle()
    if not commit_log.is_closed:
        accepted = len(commit_log.of(Outcome.APPLIED))
        log(f"  Kafka's controller accepted {accepted} of {commit_log.plan.size}")


@dataclass(slots=True)
class AdminCommit:
    """One commit of one plan in admin mode."""

    settings: Settings
    cluster: Cluster
    commit_log: CommitLog
    controller: ControllerClient
    throttler: ConfigAdmin | None
    running: ReassignmentOptions
    lease: Lease
    on_poll: Callable[[], None]
    registrations: PlannedRegistrations
    """State that the plan's changes depend on, in a cluster without versions."""
    throttle: Throttle | None
    """The throttle of the plan's copies; None if none was requested."""
    _ended: set[Place] = field(default_factory=set, init=False)
    """Reassignments that were waited for until they ended; a later wave does not read them again."""
    _idle: set[Place] = field(default_factory=set, init=False)
    """Reassignments that were found not to run, and that this commit has not requested since."""

    _throttles_reported: set[str] = field(default_factory=set, init=False)
    _hour: datetime | None = field(default=None, init=False)
    """The hour whose load determines the rates."""
    _rates: Rates = field(default_factory=dict, init=False)

    @property
    def pace(self) -> Pace:
        return self.settings.pace

    def run_waves(self, pending: Sequence[PlanRow]) -> None:
        self._throttle()
        waves = list(by_wave(pending))
        for index, wave in enumerate(waves):
            before = [move for move in self._moves if move.wave < wave[0].wave]
            if before:
                self._wait(before)
            self._request_wave(wave, waves[index + 1 :], is_first=index == 0)
        if self.running.wait or throttle_rows(self.settings.warehouse, self.commit_log.plan.plan_id):
            self._wait(self._moves)

    def record_unrequested(self, pending: Sequence[PlanRow], reason: str = STOPPED) -> None:
        """Record the outcome of changes that are no longer requested.

        The plan is marked as unfinished, even if all its changes were requested.
        """
        self.commit_log.unfinished = True
        if self.commit_log.intents_written:
            moving = {move.place for move in self.running_moves() or ()}
            next_by_key: dict[Key, PlanRow] = {}
            for row in self.commit_log.undecided(pending):  # a later wave may lead to the same replicas
                next_by_key.setdefault(row.key, row)
            requested = [row for row in next_by_key.values() if row.place in moving]
            continues = "requested, and in progress"
            self.commit_log.add_outcomes([RowOutcome(change, Outcome.APPLIED, continues) for change in requested])
            self.commit_log.skip_undecided(pending, reason)

    def clear_throttle(self) -> None:
        """Remove the throttle unless replicas of the plan still move; an error here must not hide another error."""
        plan_id = self.commit_log.plan.plan_id
        try:
            if throttle_rows(self.settings.warehouse, plan_id):
                self.lease.acquire(self.pace.lease_handover)  # we may have handed the lease over to a cancellation
                plan, attempt = self.commit_log.plan, self.commit_log.attempt
                self.commit_log.throttle_left = not end_throttle(
                    self.settings, self.cluster, plan, self.throttler, attempt
                )
                over = self.commit_log.is_closed or throttle_rows(self.settings.warehouse, plan_id)
                if self.commit_log.unfinished and not over:
                    again = f"--throttle {self.throttle} is given again"
                    log(f"  the rest of the plan is not throttled unless {again}")
        except (SurveyorError, *UNKNOWN_OUTCOME) as error:
            self.commit_log.throttle_left = True
            uncertain = f"the throttle of plan {plan_id} may still be set ({error})"
            log(f"surveyor: {uncertain}; {_retry_hint(plan_id)}", logging.WARNING)

    def running_moves(self) -> list[Change] | None:
        """The changes of the plan that are moving now; None if the cluster cannot be read."""
        try:
            return moving_partitions(self.cluster, self.commit_log.plan)
        except SurveyorError as error:
            log(f"surveyor: what moves is unknown: {error}", logging.WARNING)
            return None

    @property
    def _moves(self) -> list[Change]:
        return reassignments_of(self.commit_log.plan)

    def _wait(self, moves: Sequence[Change]) -> None:
        """Wait until the reassignments that have not ended yet are complete."""
        waited = [move for move in moves if move.place not in self._ended]
        if not waited:
            return
        self._report_foreign_throttles(waited)
        measured = partial(copied_text, self.cluster, self.settings, waited)
        complete = wait_complete(self.cluster, self.commit_log, waited, self._poll, measured, self.pace.clock)
        self._ended.update(move.place for move in waited)
        waves = join_ids(sorted({move.wave for move in waited}))
        log(f"  complete: {complete} of {len(waited)} reassignments of wave {waves}")

    def _report_foreign_throttles(self, moves: Sequence[Change]) -> None:
        """Report the throttles of other tools and plans that limit these moves, each once."""
        throttle = self.throttle if self.throttler is not None else None
        plan, warehouse = self.commit_log.plan, self.settings.warehouse
        for text in foreign_throttle_texts(warehouse, self.cluster, plan, moves, throttle):
            if text not in self._throttles_reported:
                self._throttles_reported.add(text)
                log(f"surveyor: {text}", logging.WARNING)

    def _request_wave(self, wave: Sequence[PlanRow], later: Sequence[Sequence[PlanRow]], *, is_first: bool) -> None:
        """Request one wave, after checking that the plan is open, the lease is ours and the changes are still due."""
        self.commit_log.refuse_closed()
        if any(change.action == Action.REASSIGN for change in wave):
            self._refuse_others(wave)
        pending = self._recheck(wave, 0.0 if is_first else self.pace.previous_wave)
        if not pending:
            return
        if not self.commit_log.intents_written:
            self.commit_log.append_intents([*pending, *(change for rows in later for change in rows)])
        moves = [change for change in changes_among(pending) if change.action == Action.REASSIGN]
        self._throttle(moves)
        self.commit_log.refuse_closed()
        checked_at = self.pace.clock.monotonic()
        pending = self._recheck(pending, 0.0)  # setting the throttle and reading the plan's status took time
        parts = self.cluster, self.commit_log, self.controller
        try:
            request_changes(*parts, pending, self.lease, self._check_again, self._read_back, checked_at, self.pace)
        finally:
            self._read_cancelled(pending)
        stale = {outcome.change.place for outcome in self.commit_log.of(Outcome.STALE)}
        requested = [row for row in pending if row.place not in stale]
        log(f"  wave {wave[0].wave}: {pluralise(len(requested), 'change')} requested")

    def _recheck(self, wave: Sequence[PlanRow], timeout_seconds: float) -> list[PlanRow]:
        if any(row.action in {Action.CANCEL, OperationKind.WITHDRAW_REASSIGNMENT} for row in wave):
            self._refuse_other_controller()
        return recheck_wave(self.cluster, self.commit_log, wave, timeout_seconds, self.registrations)

    @property
    def _is_resident(self) -> bool:
        return isinstance(self.controller, ResidentControllerClient)

    def _refuse_other_controller(self) -> None:
        """Raise RefusedError if the cluster is being migrated by now, or another kind of controller has taken over."""
        refuse_migration(self.cluster.read_cluster().migration)
        if (self.cluster.read_resident_controller() is not None) != self._is_resident:
            change = "is no longer" if self._is_resident else "has become"
            raise RefusedError(f"`surveyor control` {change} the controller; run the same command again")

    def _check_again(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        """Check the changes of the next requests; raise RefusedError if the plan has been closed since."""
        self.commit_log.refuse_closed()
        return self._recheck(rows, 0.0)

    def _read_back(self, accepted: Sequence[PlanRow]) -> None:
        for outcome in record_concurrent_changes(self.cluster, self.commit_log, accepted, self.registrations):
            log(f"surveyor: {outcome.change.name}: {outcome.message}", logging.WARNING)

    def _read_cancelled(self, requested: Sequence[PlanRow]) -> None:
        """Replace the outcomes of cancellations that were accepted by what the cluster shows once they have ended."""
        accepted = {row.change.place for row in self.commit_log.of(Outcome.APPLIED)}
        rows = [row for row in changes_among(requested) if row.action == Action.CANCEL and row.place in accepted]
        turned = [row for row in rows if turns_back(row)]
        if turned:
            seconds = LEADER_RETURN_SECONDS if self._is_resident else self.pace.cancellation
            self.commit_log.replace_outcomes(read_cancelled(self.cluster, self.commit_log.plan, turned, seconds))

    def _throttle(self, upcoming: Sequence[Change] = ()) -> None:
        """Throttle the replicas that move now and those that are about to."""
        if self.throttle is None or self.throttler is None:
            return
        candidates = [move for move in self._moves if move.place not in self._idle]
        moving = count_moving(self.cluster, candidates)
        self._idle.update(move.place for move in candidates)
        self._idle.difference_update(move.place for move in [*moving, *upcoming])
        moves = [*moving, *upcoming]
        if moves:
            plan_id, attempt, rates = self.commit_log.plan.plan_id, self.commit_log.attempt, self._present_rates()
            set_throttle(self.settings.warehouse, self.cluster, self.throttler, plan_id, moves, rates, attempt=attempt)

    def _present_rates(self) -> Rates:
        """Return the rates of all brokers of the plan; those of AUTO are read again when the hour changes.

        A later hour whose load is not known has the rates of the hour before it.
        """
        if self.throttle is not None and self.throttle != AUTO:
            return self.throttle
        hour = hour_of(_now(self.pace))
        if hour != self._hour:
            try:
                live = self.cluster.read_cluster().live
                self._rates = rates_at(self.settings, throttled_brokers(self._moves), live, hour)
            except RefusedError as error:
                if self._hour is None:
                    raise
                log(f"surveyor: the throttle keeps its rates: {error}", logging.WARNING)
            self._hour = hour
        return self._rates

    def _poll(self) -> None:
        """Set the rates of AUTO again in a new hour; if that fails, those of the hour before stay set."""
        self.on_poll()
        if self._hour in {None, hour_of(_now(self.pace))} or self.commit_log.is_closed:
            return
        try:
            self._throttle()
        except (SurveyorError, *UNKNOWN_OUTCOME) as error:
            log(f"surveyor: the throttle keeps rates of the hour before: {error}", logging.WARNING)

    def _refuse_others(self, wave: Sequence[PlanRow]) -> None:
        """Raise RefusedError if other reassignments are in the way of this wave."""
        moving, plan = self.controller.reassignments(), self.commit_log.plan
        self.cluster.sync()
        others = classify(self.cluster.read_reassignments(moving))
        try:
            warnings_of_others(self.settings, self.cluster, plan, changes_among(wave), others)
        except RefusedError as error:
            if not self.commit_log.intents_written:
                raise
            raise RefusedError(f"{error}; wave {wave[0].wave} was not requested, nor was any later one") from None
        if self.throttler is not None:
            in_use = {
                plan.plan_id,
                *(owner.row.plan_id for owner in owners_of(self.settings.warehouse, others.understood)),
            }
            clear_leftover_throttles(self.settings.warehouse, self.cluster, self.throttler, in_use)


def _retry_hint(plan_id: str) -> str:
    return f"`surveyor commit {plan_id} --apply` removes it once no replica of the plan moves"


def end_throttle(
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    throttler: ConfigAdmin | None,
    attempt: int | None = None,
) -> bool:
    """Remove a plan's throttle if none of its replicas still move; otherwise report that it stays.

    Return False if it should have been removed and was not.
    """
    plan_id = plan.plan_id
    moving = moving_partitions(cluster, plan)
    if moving:
        moves = pluralise(len({move.key for move in moving}), "partition", "is", "are")
        stays = f"the throttle of plan {plan_id} stays set while {moves} moving"
        log(f"surveyor: {stays}; {_retry_hint(plan_id)}")
        return True
    if throttler is None:
        still = f"the throttle of plan {plan_id} is still set, the Admin API does not answer"
        log(f"surveyor: {still}; {_retry_hint(plan_id)}")
        return False
    return not clear_throttle(settings.warehouse, cluster, throttler, plan_id, attempt)


def maintain_throttle(settings: Settings, cluster: Cluster, plan: Plan, throttle: Throttle | None) -> int:
    """Set the given throttle, or restore the previous configs; return how many changes of the plan still move."""
    state = cluster.read_cluster()
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    with lease_for(settings, cluster, plan.plan_id, "commit") as lease, admin_of(settings, state) as admin:
        throttler = LeaseGuardedAdmin(admin, lease)
        moving = moving_partitions(cluster, plan)
        rates = None
        if moving and throttle is not None:
            refuse_edited(plan)  # the plan determines what is throttled
            rates = rates_of(settings, plan.plan_id, moving, throttle, state.live, _now(settings.pace))
        if rates is not None:
            set_throttle(settings.warehouse, cluster, throttler, plan.plan_id, moving, rates)
        elif throttle_rows(settings.warehouse, plan.plan_id):
            end_throttle(settings, cluster, plan, throttler)
    return len(moving)
