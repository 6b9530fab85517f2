"""Where `surveyor control` says that it is in office, and where commits hand their plans in to it.

/surveyor/control is ephemeral, of the session that has /controller; /surveyor/plans/PLAN is that of the commit, which
reads its answer there. Neither is believed for itself: a session without /controller is not in office, and a plan is
carried out only if the commit recorded in the warehouse what it submits.
"""

from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError

from jobs.adapters.zookeeper.cluster import CONTROLLER
from jobs.adapters.zookeeper.connection import Znode, await_result, children, read, sync, use_kafka_acl
from jobs.adapters.zookeeper.multi import ANY_VERSION
from jobs.core.errors import RefusedError
from schemas.lease import LeaseHolder, decode_holder, encode_holder
from schemas.submitted_plan import SubmittedPlan, decode_submitted, encode_submitted
from schemas.znodes import MalformedZnodeError

RESIDENT: Final = "/surveyor/control"
PLANS: Final = "/surveyor/plans"


def announce_resident(client: KazooClient, holder: LeaseHolder) -> bool:
    """Say that this session is in office; False where ZooKeeper does not let us write there."""
    try:
        await_result(client.ensure_path_async(PLANS))
        previous = read(client, RESIDENT)
        if previous.version is not None:  # of one that lost its office and does not know yet
            _delete(client, RESIDENT)
        await_result(client.create_async(RESIDENT, encode_holder(holder), ephemeral=True))
    except NoAuthError:
        return False
    return True


def resident(client: KazooClient) -> LeaseHolder | None:
    """Who is in office to stay, None where nobody is, as where Kafka's controller is."""
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
            f"{RESIDENT} is not understood ({error}): another version of Surveyor is the controller; use that one",
        ) from None


def path_of(plan_id: str) -> str:
    return f"{PLANS}/{plan_id}"


def submit(client: KazooClient, plan_id: str, data: bytes) -> None:
    """Hand a plan in; raise RefusedError where the same is there."""
    use_kafka_acl(client)
    try:
        await_result(client.create_async(path_of(plan_id), data, ephemeral=True))
    except NodeExistsError:
        existing = read(client, path_of(plan_id))
        if existing.stat is not None and (fault := fault_of(existing)):
            raise RefusedError(_not_a_plan(existing.path, fault)) from None
        raise RefusedError(
            f"plan {plan_id} is handed in to `surveyor control` already ({path_of(plan_id)}): wait for that commit, or "
            "interrupt it",
        ) from None


def withdraw(client: KazooClient, plan_id: str, version: int) -> bool:
    """Take a plan back that nobody has begun; False where somebody has."""
    return _delete(client, path_of(plan_id), version)


def submitted(client: KazooClient) -> list[Znode]:
    """What is in /surveyor/plans, in the order of the names; without a stat what an ACL keeps from us."""
    pending = [(path_of(name), client.get_async(path_of(name))) for name in children(client, PLANS) or ()]
    znodes = []
    for path, each in pending:
        try:
            znodes.append(Znode(path, *await_result(each)))
        except NoNodeError:
            continue  # taken back
        except NoAuthError:
            znodes.append(Znode(path, None, None))
    return znodes


def fault_of(znode: Znode) -> str | None:
    """Say why this cannot be what a commit submitted, None if it can."""
    if znode.stat is None:
        return "its ACL does not let us read it"
    if not znode.stat.ephemeralOwner:
        return "it is persistent, and what a commit creates is ephemeral"
    try:
        decode_submitted(znode.data)
    except MalformedZnodeError as error:
        return f"it is not understood: {error}"
    return None


def _not_a_plan(path: str, fault: str) -> str:
    return f"{path} is not a plan that a commit submitted ({fault}): remove it by `delete {path}` in zookeeper-shell"


def ignored_reason(path: str, fault: str) -> str:
    """Say that a znode of another client is not touched."""
    return f"{_not_a_plan(path, fault)}; it is left alone"


def respond(client: KazooClient, path: str, result: SubmittedPlan, version: int = ANY_VERSION) -> bool:
    """Say how far a plan has come; False where whoever handed it in is gone, or has taken it back."""
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
