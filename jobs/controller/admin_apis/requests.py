"""Requests of admin clients: how they are handled, and what all of them share.

Corresponds to the part of `KafkaApis` that needs the active controller for `Admin`. A request is
written, under the fence, to the znodes that the controller processes anyway. The cycle carries it out, and the response
waits for that as long as the client does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from threading import Event, Semaphore
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_failure import too_large
from jobs.adapters.zookeeper.multi_operations import Op
from jobs.controller.controller_context import ControllerContext
from jobs.core.errors import SurveyorError
from schemas.inter_broker_protocol import Protocol
from schemas.rows import BrokerConfig
from schemas.znode_codecs import Endpoint

POLL_SECONDS: Final = 0.02
"""Seconds between the first two looks at what the cycle has done; the interval grows with the wait."""

MAX_POLL_SECONDS: Final = 0.5
"""Maximum number of seconds between two looks."""

MAX_ACTIVE_REQUESTS: Final = 8
"""Requests that are worked on at the same time; those that wait for a cycle do not count."""

MAX_WAIT_SECONDS: Final = 60.0
"""Maximum number of seconds that a client may have the response wait."""

MAX_ATTEMPTS: Final = 5
"""Attempts to write a znode that others write as well."""


class AdminError(IntEnum):
    """Kafka's error codes in the responses."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    INVALID_TOPIC = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    REASSIGNMENT_IN_PROGRESS = 60
    TOPIC_DELETION_DISABLED = 73
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    UNKNOWN_TOPIC_ID = 100


class ApiError(NamedTuple):
    """The outcome for one topic or partition: a code, which may be NONE, and a message (`ApiError`)."""

    error: AdminError = AdminError.NONE
    message: str | None = None


OK: Final = ApiError()
NO_TOPIC: Final = ApiError(AdminError.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
TIMED_OUT: Final = ApiError(
    AdminError.REQUEST_TIMED_OUT,
    "not complete in time; Surveyor continues with it, and `surveyor status` shows what it waits for",
)
CHANGED: Final = ApiError(AdminError.REQUEST_TIMED_OUT, "its znode changed during each attempt to write it; ask again")


class RefusedRequestError(Exception):
    """A request, or a part of it, whose response is an error."""

    def __init__(self, error: AdminError, message: str | None) -> None:
        super().__init__(message)
        self.api_error = ApiError(error, message)


@dataclass(frozen=True, slots=True)
class AdminApiContext:
    """The parts of one controllership that the handlers of the Admin APIs need."""

    control: Controllership
    context: ControllerContext
    configs: Callable[[], Sequence[BrokerConfig]]
    """The settings of the brokers."""
    protocol: Callable[[], Protocol | None]
    """The earliest protocol version of the brokers, None if a broker's version is unknown."""
    wake: Callable[[], None]
    """Starts a cycle."""
    refusal: ApiError | None = None
    """The response to every request of this client; None if they are carried out."""
    listener: str | None = None
    """Name of the brokers' listener for clients at which this client asks."""
    endpoints: Sequence[Endpoint] = ()
    """Endpoints at which brokers and clients see us, under the names of their listeners."""
    cluster_id: str | None = None
    ended: Event = field(default_factory=Event)
    """Set when the controllership has ended: no cycle will do what is waited for."""
    turns: Semaphore = field(default_factory=lambda: Semaphore(MAX_ACTIVE_REQUESTS))
    """Limits active requests: each holds one permit while it is processed."""

    def refuse_client(self) -> None:
        """Raise RefusedRequestError if nothing is carried out for this client."""
        if self.refusal is not None:
            raise RefusedRequestError(*self.refusal)

    def config(self, name: str, default: str) -> str:
        """Return a setting of the brokers; the first known value if they differ."""
        return next(
            (config.value for config in self.configs() if config.name == name and config.value is not None), default
        )

    def write(self, ops: Sequence[Op]) -> ApiError | None:
        """Write under the fence; return why not, None if it was written.

        A multi above ZooKeeper's limit for requests is not sent: ZooKeeper would close our connection.
        """
        failure = too_large(ops) or self.control.commit(ops)
        if failure is None:
            return None
        return ApiError(AdminError.POLICY_VIOLATION, str(failure)) if failure.is_final else CHANGED

    def await_cycle(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Wait until the cycle has done something; return whether it has.

        Other requests are handled in the meantime. Raise SurveyorError if the controllership ends.
        """
        self.wake()
        self.turns.release()
        try:
            return self._await(is_done, min(seconds, MAX_WAIT_SECONDS))
        finally:
            self.turns.acquire()

    def _await(self, is_done: Callable[[], bool], seconds: float) -> bool:
        began = time.monotonic()
        while not is_done():
            waited = time.monotonic() - began
            if waited > seconds:
                return False
            if self.ended.wait(min(max(POLL_SECONDS, waited / 10), MAX_POLL_SECONDS)):
                raise SurveyorError("this process is no longer the controller")
        return True


def error_fields(error: ApiError) -> dict[str, Any]:
    """Return the fields of an entity that hold an outcome."""
    return {"error_code": ErrorCode(error.error), "error_message": error.message}


def seconds_of(timeout: timedelta) -> float:
    return max(0.0, timeout.total_seconds())
