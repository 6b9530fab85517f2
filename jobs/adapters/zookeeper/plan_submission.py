"""The znodes through which a commit submits its plan to the resident controller (`surveyor control`).

/surveyor/control is ephemeral and belongs to the session that owns /controller. /surveyor/plans/PLAN is ephemeral,
belongs to the session of the commit, and gets the controller's result. Neither znode is trusted without the other: a
session without /controller is not the controller, and a plan is executed only if the commit recorded it in the
warehouse.
"""

from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError

from jobs.adapters.zookeeper.cluster_state import CONTROLLER
from jobs.adapters.zookeeper.connection import await_result, sync
from jobs.adapters.zookeeper.kafka_acl import use_kafka_acl
from jobs.adapters.zookeeper.multi_operations import ANY_VERSION
from jobs.adapters.zookeeper.znode_reads import Znode, children, read
from jobs.core.errors import RefusedError
from jobs.core.option_sources import ZOOKEEPER_CONFIG, option_name
from schemas.lease_holder import LeaseHolder, decode_holder, encode_holder
from schemas.submitted_plan import SubmittedPlan, decode_submitted, encode_submitted
from schemas.znode_codecs import MalformedZnodeError

RESIDENT: Final = "/surveyor/control"
PLANS: Final = "/surveyor/plans"


def announce_resident(client: KazooClient, holder: LeaseHolder) -> bool:
    """Announce that this session is the resident controller; return False if an ACL forbids that."""
    try:
        await_result(client.ensure_path_async(PLANS))
        previous = read(client, RESIDENT)
        if previous.version is not None:  # of a former controller whose session still exists
            _delete(client, RESIDENT)
        await_result(client.create_async(RESIDENT, encode_holder(holder), ephemeral=True))
    except NoAuthError:
        return False
    return True


def read_resident_controller(client: KazooClient) -> LeaseHolder | None:
    """Return the resident controller, None if there is none, for example because Kafka's controller is active.

    Raise RefusedError if its announcement cannot be decoded.
    """
    sync(client)
    announcement, controller = read(client, RESIDENT), read(client, CONTROLLER)
    if (
        announcement.stat is None
        or controller.stat is None
        or announcement.stat.ephemeralOwner != controller.stat.ephemeralOwner
    ):
        return None
    try:
        return decode_holder(announcement.data)
    except MalformedZnodeError as error:
        raise RefusedError(
            f"{RESIDENT} cannot be decoded ({error}): another version of Surveyor is the controller; use that version",
        ) from None


def path_of(plan_id: str) -> str:
    return f"{PLANS}/{plan_id}"


def submit(client: KazooClient, plan_id: str, data: bytes) -> None:
    """Submit a plan; raise RefusedError if its znode already exists, or if an ACL forbids it."""
    use_kafka_acl(client)
    try:
        await_result(client.create_async(path_of(plan_id), data, ephemeral=True))
    except NodeExistsError:
        existing = read(client, path_of(plan_id))
        if existing.stat is not None and (fault := fault_of(existing)):
            raise RefusedError(_not_a_plan(existing.path, fault)) from None
        by = "" if existing.data is None else f" by {decode_submitted(existing.data).holder}"
        raise RefusedError(
            f"plan {plan_id} has already been submitted to `surveyor control` ({path_of(plan_id)}){by}: wait for that "
            f"commit; `surveyor show commits {plan_id}` shows the result"
        ) from None
    except NoAuthError:
        raise RefusedError(
            f"an ACL denies Surveyor permission to create {path_of(plan_id)} (NoAuth), by which a commit submits its "
            f"plan to `surveyor control`: let {option_name(ZOOKEEPER_CONFIG)} name the user that runs `surveyor "
            "control`"
        ) from None


def withdraw(client: KazooClient, plan_id: str, version: int) -> bool:
    """Withdraw a submitted plan; return False if the controller has already started it."""
    return _delete(client, path_of(plan_id), version)


def read_submissions(client: KazooClient) -> list[Znode]:
    """Return the znodes in /surveyor/plans in the order of their names; those that an ACL hides have no stat."""
    pending = [(path_of(name), client.get_async(path_of(name))) for name in children(client, PLANS) or ()]
    znodes = []
    for path, submission in pending:
        try:
            znodes.append(Znode(path, *await_result(submission)))
        except NoNodeError:
            continue  # withdrawn
        except NoAuthError:
            znodes.append(Znode(path, None, None))
    return znodes


def fault_of(znode: Znode) -> str | None:
    """Return why this znode is not a submitted plan, None if it may be one."""
    if znode.stat is None:
        return "its ACL denies Surveyor permission to read it"
    if not znode.stat.ephemeralOwner:
        return "it is persistent, and what a commit creates is ephemeral"
    try:
        decode_submitted(znode.data)
    except MalformedZnodeError as error:
        return f"it cannot be decoded: {error}"
    return None


def _not_a_plan(path: str, fault: str) -> str:
    return f"{path} is not a plan that a commit submitted ({fault}): remove it by `delete {path}` in zookeeper-shell"


def ignored_reason(path: str, fault: str) -> str:
    """Return the message for a znode of another client, which is not changed."""
    return f"{_not_a_plan(path, fault)}; it is left alone"


def respond(client: KazooClient, path: str, result: SubmittedPlan, version: int = ANY_VERSION) -> bool:
    """Write the status of a plan into its znode; return False if the commit has withdrawn it or its session ended."""
    try:
        await_result(client.set_async(path, encode_submitted(result), version))
    except (NoNodeError, BadVersionError):
        return False
    return True


def _delete(client: KazooClient, path: str, version: int = ANY_VERSION) -> bool:
    try:
        await_result(client.delete_async(path, version))
    except (NoNodeError, BadVersionError):
        return False
    return True
