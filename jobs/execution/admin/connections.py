"""Connections of a commit in admin mode: to the Admin API or to `surveyor control`.

Throttles need the Admin API in both cases, and a client of it alters configs only while the command holds the lease.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError, bootstrap, connected_admin, read_properties
from jobs.adapters.brokers.connection import connection_refusal
from jobs.adapters.brokers.listeners import Listener
from jobs.adapters.clusters.interface import Cluster, ClusterMetadata, Lease
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UsageError
from jobs.core.option_sources import COMMAND_CONFIG, WAREHOUSE, option_name, value_at
from jobs.execution.admin.audited_configs import ConfigAdmin
from jobs.execution.admin.controller_client import ControllerClient
from jobs.execution.admin.reassignment_options import ReassignmentOptions
from jobs.execution.admin.resident_controller_client import ResidentControllerClient
from jobs.execution.admin.throttles import throttle_rows
from jobs.repositories.snapshots import OtherClusterError, refuse_other_cluster_id
from jobs.runtime.console import warn
from jobs.runtime.settings import Settings

MAX_BROKERS_ASKED: Final = 3
"""Brokers that are asked why the Admin API does not answer; a login that one refuses is refused by the others, too."""


class LoginFailedError(AdminUnavailableError):
    """A broker and this client cannot agree on a connection; a retry fails as well until the cause is corrected."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class LeaseGuardedAdmin:
    """A client that alters configs only while we hold the lease."""

    admin: ConfigAdmin
    lease: Lease

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        self.lease.refuse_lost()
        return self.admin.alter_override(kind, resource, overrides)


def refuse_known_other_cluster(settings: Settings, cluster_id: str | None) -> None:
    """Raise OtherClusterError if the warehouse has another cluster under this name; without an answer only warn.

    A cancellation takes nothing from the warehouse, so an unreadable warehouse does not prevent it.
    """
    try:
        refuse_other_cluster_id(settings.warehouse, cluster_id, settings.address)
    except OtherClusterError:
        raise
    except (SurveyorError, OSError, DeltaError) as error:
        warn(f"could not check whether {option_name(WAREHOUSE)} has another cluster under this name: {error}")


@contextmanager
def admin_of(settings: Settings, state: ClusterMetadata) -> Iterator[Admin]:
    """Yield a connection to the Admin API of the cluster's live brokers, of the controller if that answers.

    Raise LoginFailedError if brokers refuse the login or this client does not trust them, and AdminUnavailableError if
    none answers.
    """
    properties = read_properties(settings.conf.command_config)
    preferred_broker = state.controller_broker if state.controller_broker in state.live else None
    controller_first = sorted(state.brokers, key=lambda row: row.broker_id != preferred_broker)
    addresses = bootstrap(controller_first, properties, settings.conf.control_listener)
    with ExitStack() as stack:
        try:
            seconds = settings.pace.bootstrap
            connection = connected_admin(addresses, properties, preferred_broker, bootstrap_seconds=seconds)
            admin = stack.enter_context(connection)
        except AdminUnavailableError as error:
            raise login_failure_of(settings, state) or error from None
        yield admin


def login_failure_of(settings: Settings, state: ClusterMetadata) -> LoginFailedError | None:
    """Ask the controller, or else a few brokers, for a connection; return why they and this client cannot agree on one.

    Return None if a retry may succeed, or if the connection succeeds.
    """
    file, listener = settings.conf.command_config, settings.conf.control_listener
    asked = [row for row in state.brokers if row.broker_id == state.controller_broker] or state.brokers
    for broker in asked[:MAX_BROKERS_ASKED]:
        try:
            refusal = connection_refusal(broker, str(settings.conf.controller_id), Listener.of(file, listener))
        except UsageError as error:  # the file lacks what a login needs
            refusal = str(error)
        if refusal:
            place = option_name(COMMAND_CONFIG) if file is None else value_at(COMMAND_CONFIG, file)
            return LoginFailedError(
                f"no connection to the brokers: {refusal}. Correct {place}, or what that message names, then run the "
                "same command again"
            )
    return None


@contextmanager
def controller_of(
    settings: Settings,
    cluster: Cluster,
    state: ClusterMetadata,
    *,
    is_resident: bool,
    running: ReassignmentOptions,
    lease: Lease,
) -> Iterator[tuple[ControllerClient, ConfigAdmin | None]]:
    """Yield the client of the controller, and the Admin API for throttles; None if not needed or not available.

    `is_resident`: `surveyor control` is the controller.
    """
    if not is_resident:
        with admin_of(settings, state) as admin:
            yield admin, LeaseGuardedAdmin(admin, lease)
        return
    controller = ResidentControllerClient(cluster.required_fence)
    with ExitStack() as stack:
        admin_or_none = _throttler(stack, settings, state, running)
        yield controller, None if admin_or_none is None else LeaseGuardedAdmin(admin_or_none, lease)


def _throttler(
    stack: ExitStack, settings: Settings, state: ClusterMetadata, running: ReassignmentOptions
) -> Admin | None:
    """Return the Admin API for throttles; None if none is needed, or if it does not answer and none was requested."""
    if running.throttle is None and not throttle_rows(settings.warehouse):
        return None
    try:
        return stack.enter_context(admin_of(settings, state))
    except AdminUnavailableError as error:
        if running.throttle is not None:
            raise RefusedError(
                f"--throttle needs the Admin API, also while `surveyor control` is the controller: {error}"
            ) from None
        return None
