"""`surveyor cancel --throttles`: remove replication throttles that were left behind by any client.

Corresponds to `clearAllThrottles` of `ReassignPartitionsCommand`. Refused while replicas move, because the throttle may
be in use. Throttles of plans of this warehouse come first; their previous configs are restored.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.adapters.brokers.admin_client import UNKNOWN_OUTCOME, Admin, describe_error
from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.core.errors import ExitCode, RefusedError
from jobs.core.migration_refusal import refuse_migration
from jobs.execution.admin.audited_configs import override_text
from jobs.execution.admin.commit_lease import lease_for
from jobs.execution.admin.connections import LeaseGuardedAdmin, admin_of, refuse_known_other_cluster
from jobs.execution.admin.throttle_configs import Resource, ResourceKind
from jobs.execution.admin.throttles import clear_throttle
from jobs.repositories.actor import this_process
from jobs.repositories.snapshots import refuse_other_cluster_id
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.approval import Review
from jobs.runtime.console import CommandResult, truncate, warn
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import same_step
from jobs.snapshots.cluster_view import ClusterView, view_now
from jobs.snapshots.health import health_of
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.lease_holder import LeaseHolder, held_now_text
from schemas.response_codes import NO_ERROR
from schemas.text import LINES_SHOWN, pluralise

ThrottleConfigs = dict[Resource, dict[str, str]]
"""The throttle configs that are set, by broker and topic."""


@dataclass(frozen=True, slots=True)
class LeftoverThrottles:
    """The throttles of a cluster in which no replica moves."""

    configs: ThrottleConfigs
    is_complete: bool
    """Whether all brokers returned their throttles."""

    @property
    def review(self) -> Review:
        """The question before they are removed."""
        return Review("remove these throttles?", self._lines)

    def command_result(self, settings: Settings, holder: LeaseHolder | None) -> CommandResult:
        """Return what shows them, for a command that removes none; `holder` has the lease, which it would need."""
        result = {"throttles": [*_rows(self.configs)]}
        if not self.configs:
            nothing = "no throttle is set" if self.is_complete else "no throttle is known"
            return CommandResult(result, nothing, warnings=[])
        note = "dry run: nothing was written; --apply removes them"
        steps = [] if holder else [same_step(settings, "apply", "cancel", "--apply")]
        if holder is not None:
            note = (
                f"dry run: nothing was written; --apply would fail: {held_now_text(this_process('cancel', ''), holder)}"
            )
        count = pluralise(len(self.configs), "broker or topic", "is set", "are set")
        title = f"throttles of {count}, and nothing moves"
        return CommandResult(result | {"dry_run": True}, title, *self._lines, note, steps=steps, warnings=[])

    @property
    def _lines(self) -> list[str]:
        return truncate([f"  {override_text(resource, values)}" for resource, values in self.configs.items()])


def find_leftover_throttles(settings: Settings, cluster: Cluster) -> LeftoverThrottles:
    """Read the throttles; raise RefusedError while replicas move, or if another cluster has the name."""
    view = view_now(cluster)
    refuse_known_other_cluster(settings, view.cluster_id)
    throttles = _leftover_throttles(view)
    for text in view.throttle_warnings:
        warn(text)
    return LeftoverThrottles(throttles, not view.throttle_warnings)


def _leftover_throttles(view: ClusterView) -> ThrottleConfigs:
    """Return the throttle configs that are set; raise RefusedError while replicas move."""
    health = health_of(view, default_min_isr=1, threshold=1.0)
    if health.throttled_lagging:
        lagging = pluralise(health.throttled_lagging, "partition", "lacks", "lack")
        warn(f"{lagging} in-sync replicas that catch up under these throttles: without them, at full speed")
    if moving := health.moving:
        raise RefusedError(
            f"{pluralise(moving, 'partition', 'moves', 'move')}, and the throttle may be in use: wait, or run "
            "`surveyor status` to see which of them wait for a broker"
        )
    live = {DEFAULT_ENTITY, *(str(row.broker_id) for row in view.brokers)}
    for name in sorted(view.throttled_brokers.keys() - live):
        warn(f"broker {name} is not live: its throttle limits nothing now, and only the broker itself can remove it")
    rates_of_live = {name: rates for name, rates in view.throttled_brokers.items() if name in live}
    brokers = {(ResourceKind.BROKER, name): dict(rates) for name, rates in sorted(rates_of_live.items())}
    return brokers | {(ResourceKind.TOPIC, name): lists for name, lists in sorted(view.throttled_topics.items())}


def remove_leftover_throttles(settings: Settings, cluster: Cluster) -> CommandResult:
    """Remove the throttles that are set by now, throttles of plans first; raise RefusedError while replicas move."""
    state = cluster.read_cluster()
    refuse_migration(state.migration)
    refuse_other_cluster_id(settings.warehouse, state.cluster_id, settings.address)
    with lease_for(settings, cluster, "", "cancel") as lease, admin_of(settings, state) as admin:
        _leftover_throttles(view_now(cluster))  # a move may have begun since, before we had the lease
        for plan_id in throttled_plans(settings.warehouse) if settings.warehouse.exists() else []:
            clear_throttle(settings.warehouse, cluster, LeaseGuardedAdmin(admin, lease), plan_id)
        throttles = _leftover_throttles(view_now(cluster))
        refused = {
            resource: reason
            for resource, values in throttles.items()
            if (reason := _delete_overrides(admin, lease, resource, values)) is not None
        }
    cleared = [resource for resource in throttles if resource not in refused]
    lines = [f"  {kind} {name}: {reason}" for (kind, name), reason in refused.items()]
    result = {"cleared": len(cleared), "failed": len(refused), "throttles": [*_rows(throttles)]}
    lines += [f"  cleared {override_text(resource, throttles[resource])}" for resource in cleared]
    title = f"throttles of {pluralise(len(cleared), 'resource')} removed, {len(refused)} not removed"
    return CommandResult(
        result, title, *lines[:LINES_SHOWN], warnings=[], exit_code=ExitCode.ERROR if refused else ExitCode.DONE
    )


def _delete_overrides(admin: Admin, lease: Lease, resource: Resource, values: dict[str, str]) -> str | None:
    """Delete the overrides of one broker or topic; return why that was refused, or None."""
    kind, name = resource
    lease.refuse_lost()
    try:
        code = admin.alter_override(kind.value, "" if name == DEFAULT_ENTITY else name, dict.fromkeys(values))
    except UNKNOWN_OUTCOME as error:
        return f"no answer ({describe_error(error)}); start it, then cancel again"
    return None if code == NO_ERROR else str(code)


def _rows(throttles: ThrottleConfigs) -> Iterator[dict[str, str]]:
    for (kind, resource), values in throttles.items():
        for name, value in values.items():
            yield {"kind": kind.value, "resource": resource, "name": name, "value": value}
