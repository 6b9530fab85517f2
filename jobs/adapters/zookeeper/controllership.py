"""The controllership: taken over in one multi, checked by every write, released by ending the session.

Corresponds to `KafkaZkClient.registerControllerAndIncrementControllerEpoch`, and to the take-over of a KRaft
migration, with an ephemeral node. One multi deletes /controller at its version, creates it again and increments
/controller_epoch at its version, so no other controller can act in between. A loop that waits until an old ephemeral
node is gone, as in `KafkaController.elect`, is therefore not needed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import SessionExpiredError

from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import CONNECTION_LOST, LOST, commit, connected, servers_of, sync, with_retries
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.kafka_acl import use_kafka_acl
from jobs.adapters.zookeeper.multi_failure import MultiFailure, lost_response, multi_failure
from jobs.adapters.zookeeper.multi_operations import ANY_VERSION, Check, Create, Delete, Op, SetData, add
from jobs.adapters.zookeeper.znode_reads import read, read_latest
from jobs.core.errors import FencedError, RefusedError, SurveyorError, UnreadableError
from jobs.core.migration_refusal import refuse_migration
from jobs.core.option_sources import conf_section
from jobs.core.signals import is_interrupted
from schemas.current_state import CurrentCluster
from schemas.enums import NO_CONTROLLER
from schemas.znode_codecs import MalformedZnodeError, decode_controller, encode_controller, encode_epoch
from schemas.znode_json import LAST_EPOCH

RELEASE_TIMEOUT_SECONDS: Final = 15.0
"""Seconds to wait until another Surveyor releases /controller; a killed process keeps it for SESSION_TIMEOUT."""

MAX_TAKEOVER_ATTEMPTS: Final = 5
"""Attempts to take over while other clients change /controller at the same time."""

MAX_READ_ATTEMPTS: Final = 2
"""Attempts of a controller to read, if the connection is lost during each."""

NOT_CONNECTED: Final = 0

COMMIT_AGAIN: Final = "commit again"
SESSION_OVER: Final = "our ZooKeeper session ended, and the controllership with it: nothing more was written"

Notify = Callable[[str], None]

T = TypeVar("T")

RecordIntent = Callable[[int], None]
"""Called with the controller epoch just before each attempt to take over, to record the intent."""


class OvertakenError(FencedError):
    """Another controller took over after the caller had read the cluster and before our take-over."""


class ControllershipHeldError(RefusedError):
    """Another Surveyor is the controller."""


class SessionLostError(SurveyorError):
    """The session ended; requests that were in flight may or may not have been executed."""


@dataclass(slots=True)
class Controllership:
    """A controllership; it is valid while /controller_epoch has `epoch_version`, which only `raise_above` changes."""

    client: KazooClient
    controller_id: int
    epoch: int
    epoch_version: int
    since: float
    """When the take-over was sent, by the monotonic clock."""
    session: int

    def commit(self, ops: Iterable[Op]) -> MultiFailure | None:
        """Commit one fenced multi, which ZooKeeper applies as a whole or not at all; return why not, None if it did.

        Raise FencedError if another controller has taken over: nothing of the multi was applied. If the connection is
        lost, the failure has `is_lost`, and the multi may have been applied or not. This is decided by the time the
        method returns, because it waits until the same session is connected again and synced. The caller must read the
        znodes back before it writes or reports anything. Raise SessionLostError if the session has ended: the outcome
        stays unknown, because another controller may have written since.
        """
        multi = self.client.transaction()
        add(multi, [Check(CONTROLLER_EPOCH, self.epoch_version), *ops])
        try:
            results = commit(multi)
        except LOST as error:
            self.await_reconnect()
            return lost_response(multi, error)
        refused = multi_failure(multi, results)
        if refused is not None and refused.path == CONTROLLER_EPOCH and not refused.is_forbidden:
            raise fenced(self.epoch)
        return refused

    def read(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; after a lost connection read again, if the session is still ours.

        Raise SessionLostError if it is not, or if the connection is lost each time.
        """
        for _ in range(MAX_READ_ATTEMPTS):
            try:
                return read()
            except LOST:
                self.await_reconnect()
        raise SessionLostError("the connection to ZooKeeper was lost repeatedly", advice=COMMIT_AGAIN)

    def await_reconnect(self) -> None:
        """Wait until our session is connected again and synced; raise SessionLostError if it has ended."""
        await_reconnect(self.client, self.session)

    def refuse_fenced(self) -> None:
        """Raise FencedError if another controller has taken over."""
        epoch = read(self.client, CONTROLLER_EPOCH)
        if epoch.version != self.epoch_version:
            raise fenced(self.epoch)

    def refuse_lost(self) -> None:
        """Raise FencedError if another controller has taken over, SessionLostError if our session has ended."""
        self.refuse_fenced()
        # a client that is disconnected just now finds out with its next read
        if session_of(self.client) not in {self.session, NOT_CONNECTED}:
            raise SessionLostError(SESSION_OVER)

    def raise_above(self, epoch: int) -> None:
        """Raise our controller epoch above `epoch`, which a partition state or a broker has; no-op if it is higher.

        Brokers refuse requests with an earlier controller epoch, and Kafka never overwrites a partition state that has
        a later one. Raise FencedError if another controller has taken over.
        """
        if epoch < self.epoch:
            return
        raised = encode_epoch(next_epoch(epoch))
        refused = self.commit([SetData(CONTROLLER_EPOCH, raised, self.epoch_version)])
        if refused is not None and not refused.is_lost:
            raise SurveyorError(f"controller epoch {self.epoch} could not be raised: {refused}")
        if refused is not None:
            is_ours = _owns_controller(self.client, self.session)
            if not is_ours or read(self.client, CONTROLLER_EPOCH).data != raised:
                self.refuse_fenced()
                self.raise_above(epoch)
                return
        self.epoch, self.epoch_version = epoch + 1, self.epoch_version + 1

    def held(self) -> float:
        """Seconds since the take-over."""
        return time.monotonic() - self.since

    def stop_reason(self, max_hold: float) -> str | None:
        """Return why no further writes may start, None while `max_hold` seconds are not over and no signal came."""
        if is_interrupted():
            return "interrupted before it"
        return f"--max-hold {max_hold:g}s is over" if self.held() > max_hold else None


def check_registered(broker: int) -> list[Op]:
    """Return operations that make a multi fail unless the broker is registered."""
    return [Check(f"{BROKER_IDS}/{broker}", ANY_VERSION)]


def check_absent(broker: int) -> list[Op]:
    """Return operations that make a multi fail if the broker is registered.

    ZooKeeper can check that a znode exists, but not that it is absent. Creating it checks that, and deleting it in the
    same multi leaves nothing behind. A multi is atomic, so no client reads the znode and no registering broker finds
    it. The multi changes cversion and pzxid of /brokers/ids and fires watches on it. Only a Kafka controller watches
    it, and that controller has lost the controllership to us. The znode is ephemeral, as a registration is.
    """
    path = f"{BROKER_IDS}/{broker}"
    return [Create(path, b"", ephemeral=True), Delete(path)]


def fenced(epoch: int) -> FencedError:
    return FencedError(
        f"another controller took over after our epoch {epoch}: nothing more was written",
        advice="take a new snapshot and plan again",
    )


def lost_while_writing(error: Exception) -> SessionLostError:
    """Return the error of a controller that lost ZooKeeper, or could not read it, before a write was decided."""
    detail = f" ({error})" if isinstance(error, UnreadableError) else ""
    return SessionLostError(
        f"ZooKeeper was lost while we held the controllership{detail}: the outcome of the last write is unknown",
        advice="commit the plan again: it reads back what was written and continues",
    )


def _ignore(_: object) -> None:
    """Discard a notification."""


def next_epoch(epoch: int) -> int:
    """Return the controller epoch after `epoch`, the latest known one; raise RefusedError if brokers accept none."""
    if epoch >= LAST_EPOCH:
        raise RefusedError(
            f"controller epoch {epoch} is the last one: brokers accept no later epoch, so no controller could follow. "
            "Find out which znode contains it (/controller_epoch, or a state: `surveyor show partitions -o wide`), and "
            "what wrote it",
        )
    return epoch + 1


@contextmanager
def controllership(
    endpoint: ZooKeeperEndpoint,
    controller_id: int,
    notify: Notify = _ignore,
    record_intent: RecordIntent = _ignore,
    *,
    expected_epoch: int | None = None,
    latest_known_epoch: int = 0,
    release_timeout: float | None = RELEASE_TIMEOUT_SECONDS,
) -> Iterator[Controllership]:
    """Take over the controllership as `take_over` does; release it at the end by closing the session."""
    with connected(endpoint) as client:
        yield take_over(
            client,
            controller_id,
            notify,
            record_intent,
            expected_epoch=expected_epoch,
            latest_known_epoch=latest_known_epoch,
            release_timeout=release_timeout,
        )


def take_over(
    client: KazooClient,
    controller_id: int,
    notify: Notify = _ignore,
    record_intent: RecordIntent = _ignore,
    *,
    expected_epoch: int | None = None,
    latest_known_epoch: int = 0,
    release_timeout: float | None = RELEASE_TIMEOUT_SECONDS,
) -> Controllership:
    """Become the controller, or raise an error and change nothing.

    `notify` is called with a message if another Surveyor must be waited for. `record_intent` is called right before
    each attempt, so that the caller can audit it. `expected_epoch` is the controller epoch at which the caller read the
    cluster; OvertakenError is raised if the epoch is different now. `latest_known_epoch` is the latest controller epoch
    in partition states and in the warehouse, since /controller_epoch may have been deleted or set back.
    `release_timeout` is how many seconds another Surveyor is waited for; None takes over from it at once, and its next
    write is fenced.
    """
    use_kafka_acl(client)
    for _ in range(MAX_TAKEOVER_ATTEMPTS):
        state = _wait_until_free(client, controller_id, notify, release_timeout)
        if expected_epoch not in {None, state.epoch}:
            raise OvertakenError(f"another controller took over in the meantime, with epoch {state.epoch}")
        multi = client.transaction()
        if state.controller_version is not None:
            multi.delete(CONTROLLER, state.controller_version)
        multi.create(CONTROLLER, encode_controller(controller_id, time.time_ns() // 1_000_000), ephemeral=True)
        epoch = next_epoch(max(state.epoch, latest_known_epoch))
        if state.epoch_version < 0:
            multi.create(CONTROLLER_EPOCH, encode_epoch(epoch))
        else:
            multi.set_data(CONTROLLER_EPOCH, encode_epoch(epoch), state.epoch_version)
        record_intent(epoch)
        session, since = session_of(client), time.monotonic()  # the response may be late
        if _commit_takeover(client, multi, session):
            return Controllership(client, controller_id, epoch, state.epoch_version + 1, since, session)
    raise SurveyorError(
        f"{CONTROLLER} changed hands during each of {MAX_TAKEOVER_ATTEMPTS} attempts to take it over; "
        "find out which processes compete for it (broker logs: 'Controller'), then commit again",
    )


def refuse_take_over(state: CurrentCluster, controller_id: int) -> None:
    """Raise RefusedError if the controllership must not be taken over.

    That is so during a migration to KRaft, if /controller or /controller_epoch cannot be decoded, or if a broker has
    our id.
    """
    refuse_migration(state.migration)
    unreadable = [row for row in state.quarantine if row.path in {CONTROLLER, CONTROLLER_EPOCH}]
    if unreadable:
        path, reason = unreadable[0].path, unreadable[0].reason
        raise RefusedError(
            f"{path} could not be decoded ({reason}): until it is repaired, no process can become the "
            "controller; `surveyor status` shows the command"
        )
    if controller_id in state.live:
        raise RefusedError(f"broker {controller_id} exists: choose another controller_id in {conf_section()}")


def _wait_until_free(
    client: KazooClient, controller_id: int, notify: Notify, release_timeout: float | None
) -> ClusterState:
    """Read the cluster; wait while another Surveyor is the controller, unless `release_timeout` is None.

    A killed process is still the controller until ZooKeeper expires its session. Raise ControllershipHeldError after
    `release_timeout` seconds.
    """
    deadline = time.monotonic() + (release_timeout or 0.0)
    announced = False
    while True:
        state = read_cluster(client)
        refuse_take_over(state, controller_id)
        if state.controller.broker_id != controller_id or release_timeout is None:
            return state
        if time.monotonic() > deadline:
            raise ControllershipHeldError(
                f"another Surveyor holds the controllership (/controller names {controller_id}); "
                "wait until its process ends. `surveyor control --standby` waits for that, and "
                "`surveyor control --replace` takes over from it",
            )
        if not announced:
            notify(_waiting_message(client, controller_id, release_timeout))
        announced = True
        if is_interrupted():
            raise KeyboardInterrupt
        time.sleep(0.2)


def _waiting_message(client: KazooClient, controller_id: int, release_timeout: float) -> str:
    node = read(client, CONTROLLER)
    session = f"session 0x{node.stat.ephemeralOwner:x}" if node.stat else "a session that just ended"
    return (
        f"waiting up to {release_timeout:g} s for another Surveyor ({session}, id {controller_id}) to release "
        "/controller; ZooKeeper expires the session of a killed process after about 10 s"
    )


def _commit_takeover(client: KazooClient, multi: TransactionRequest, session: int) -> bool:
    """Commit the take-over; return whether it succeeded, also if the response was lost."""
    try:
        results = commit(multi)
    except SessionExpiredError:
        raise SessionLostError("ZooKeeper ended our session during the take-over", advice=COMMIT_AGAIN) from None
    except LOST:
        await_reconnect(client, session)
        return _owns_controller(client, session)
    refused = multi_failure(multi, results)
    if refused is not None and refused.is_forbidden:
        raise SurveyorError(f"nothing was written, the controllership was not taken over: {refused}")
    return refused is None


def _owns_controller(client: KazooClient, session: int) -> bool:
    """Return whether our session owns /controller."""
    node = read(client, CONTROLLER)
    return node.stat is not None and node.stat.ephemeralOwner == session


def session_of(client: KazooClient) -> int:
    """Return the id of the client's session, or NOT_CONNECTED while kazoo is disconnected and does not keep the id."""
    return client.client_id[0] if client.client_id else NOT_CONNECTED


def await_reconnect(client: KazooClient, session: int) -> None:
    """Wait until this session is connected again and synced; raise SessionLostError if it has ended.

    ZooKeeper answers the requests of a session in order, so once `sync` is answered, the outcome of every earlier
    request is decided.
    """
    with suppress(*LOST):
        with_retries(lambda: sync(client), CONNECTION_LOST)
        if session_of(client) == session:
            return
    raise SessionLostError("the connection to ZooKeeper was lost and our session with it", advice=COMMIT_AGAIN)


def current_controller(client: KazooClient) -> int:
    """Return the broker id in /controller after a sync, -1 if there is no controller."""
    return controller_and_session(client)[0]


def controller_and_session(client: KazooClient) -> tuple[int, int]:
    """Return the broker id in /controller after a sync, and the session that owns it; -1 and 0 without a controller."""
    node = with_retries(lambda: read_latest(client, CONTROLLER))
    try:
        if node.stat is None:
            return NO_CONTROLLER, NOT_CONNECTED
        return decode_controller(node.data).broker_id, node.stat.ephemeralOwner
    except MalformedZnodeError as error:
        raise UnreadableError(
            f"{CONTROLLER} at {servers_of(client)}{client.chroot} could not be decoded: {error}; repair it first"
        ) from None
