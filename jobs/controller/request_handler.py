"""Handles brokers' requests as the active controller; without a controllership the response is NOT_CONTROLLER.

Corresponds to the part of `KafkaApis` that needs the active controller. The server runs as long as the process, and a
controllership may end earlier. A broker that receives NOT_CONTROLLER looks for the controller again.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import Any, Final

from kazoo.exceptions import KazooException

from jobs.adapters.request_server.api_handler import ApiMessage, Caller, ServerListener
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.admin_apis.admin_handlers import CONFIG_VERSIONS, WAITING, handle_admin, refusal_of
from jobs.controller.admin_apis.admin_handlers import VERSIONS as ADMIN_VERSIONS
from jobs.controller.admin_apis.cluster_metadata import METADATA, METADATA_VERSIONS, asks_for_brokers
from jobs.controller.admin_apis.controller_as_broker import concerns_controller
from jobs.controller.admin_apis.redirected_apis import REDIRECTED_VERSIONS
from jobs.controller.admin_apis.requests import AdminApiContext
from jobs.controller.advertised_endpoints import AdvertisedEndpoints
from jobs.controller.broker_apis.controlled_shutdowns import UNCHECKED_EPOCH, ControlledShutdowns, ShutdownRequest
from jobs.controller.broker_apis.controller_api_messages import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    VERSIONS,
    alter_partition_request,
    alter_partition_response,
    controlled_shutdown_response,
    producer_ids_response,
)
from jobs.controller.broker_apis.isr_writer import IsrResponse, IsrWriter
from jobs.controller.broker_apis.producer_ids import allocate_block
from jobs.controller.client_logins import authorizer_of
from jobs.controller.controller_context import ControllerContext
from jobs.core.errors import RefusedError, SurveyorError
from jobs.core.logs import module_logger
from schemas.response_codes import STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH
from schemas.znode_json import PLAINTEXT

_LOG: Final = module_logger(__name__)

_NOT_CONTROLLER: Final = 41
_UNKNOWN_SERVER_ERROR: Final = -1

MAX_WAITING_REQUESTS: Final = 200
"""Requests of people that may wait at the same time until a cycle has carried them out."""

_QUICK_THREADS: Final = 4
"""Threads for requests that wait for no cycle."""

_BROKER_ID_NOT_REGISTERED: Final = 102


@dataclass(slots=True)
class ActiveController:
    """The parts of one controllership that handle requests."""

    control: Controllership
    context: ControllerContext
    isr_writer: IsrWriter
    shutdowns: ControlledShutdowns
    api_context: AdminApiContext
    endpoints: AdvertisedEndpoints
    """Where brokers and clients see us.

    An address stays open after brokers have got another security, and the clients there are refused.
    """
    _turns: Iterator[int] = field(default_factory=count)

    def api_context_for(self, api: int, caller: Caller) -> AdminApiContext:
        """Return what handles a request of a client."""
        is_served = self.serves_clients_of(caller.clients_of)
        refusal = refusal_of(api, caller, self.authorizer, is_served=is_served)
        announced = self.endpoints.announced
        return replace(self.api_context, refusal=refusal, listener=caller.clients_of, endpoints=announced)

    @property
    def authorizer(self) -> str | None:
        """The authorizer of the brokers, as `authorizer_of` returns it."""
        return authorizer_of(self.api_context.configs())

    def serves_clients_of(self, listener: str | None) -> bool:
        """Return whether the clients of a listener are served here, None for the plain-text address of brokers."""
        return listener in self.endpoints.served_listeners

    def expects_brokers(self, protocol: str) -> bool:
        """Return whether a broker may ask at an address with this security protocol.

        Brokers that have all been secured ask nothing in plain text, and the address stays open.
        """
        endpoints = [broker.endpoints for broker in [*self.context.brokers.values()]]
        if protocol != PLAINTEXT or not endpoints or None in endpoints:
            return True
        return any(endpoint.security_protocol == PLAINTEXT for known in endpoints for endpoint in known or ())

    def relay_address(self, listener: ServerListener) -> tuple[str, int] | None:
        """Return a live broker's address at the listener at which a client sees us, a different broker each time.

        A broker names the addresses of the listener at which it is asked. None if no broker is live, if clients are
        not served there, or if brokers have an authorizer, which would take the client for us.
        """
        if self.authorizer or not self.serves_clients_of(listener.clients_of):
            return None
        names: set[str | None] = {listener.clients_of} if listener.clients_of else self._broker_listeners
        addresses = [
            (endpoint.host, endpoint.port)
            for broker in [*self.context.brokers.values()]
            if broker.understood and broker.broker_id not in self.context.shutting_down
            for endpoint in broker.endpoints or ()
            if endpoint.listener in names and endpoint.security_protocol == PLAINTEXT
        ]
        return addresses[next(self._turns) % len(addresses)] if addresses else None

    @property
    def _broker_listeners(self) -> set[str | None]:
        """The plain-text listeners at which brokers see us, without those that are only for clients."""
        plain = {endpoint.listener for endpoint in self.endpoints.announced if endpoint.security_protocol == PLAINTEXT}
        return plain - {endpoint.listener for endpoint in self.endpoints.for_clients}


@dataclass(slots=True)
class RequestHandler:
    """The handler of a request server."""

    _active: ActiveController | None = None
    _lock: Lock = field(default_factory=Lock)
    _executor: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=1, thread_name_prefix="producer-ids")
    )

    _waiting_executor: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_WAITING_REQUESTS, thread_name_prefix="admin-requests")
    )
    _quick_executor: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_QUICK_THREADS, thread_name_prefix="quick-requests")
    )

    def open(self, active: ActiveController) -> None:
        """Handle requests as this active controller from now on."""
        with self._lock:
            self._active = active
        active.isr_writer.start()

    def close(self) -> None:
        """Respond with NOT_CONTROLLER from now on, also to requests that wait."""
        with self._lock:
            active, self._active = self._active, None
        if active is not None:
            active.api_context.ended.set()
            active.isr_writer.stop()
            active.shutdowns.stop()

    def stop(self) -> None:
        """Stop handling requests; called at the end of the process."""
        self.close()
        self._executor.shutdown()
        for executor in (self._waiting_executor, self._quick_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    def versions(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs that are served, with their first and last version; `refusal_of` refuses some of them.

        At a separate listener of clients, no ISR can be changed and no broker shut down.
        """
        return ADMIN_VERSIONS if listener.clients_of else {**VERSIONS, **ADMIN_VERSIONS}

    def relay_to(self, listener: ServerListener) -> tuple[str, int] | None:
        """Return the address of a live broker for clients of a plain-text listener; None for others."""
        with self._lock:
            active = self._active
        return None if active is None or listener.protocol != PLAINTEXT else active.relay_address(listener)

    def conditional_apis(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs for settings, and the API for the brokers if nothing is relayed."""
        if _serves_brokers_only(listener):
            return {}
        with self._lock:
            active = self._active
        is_relayed = listener.protocol == PLAINTEXT and not (active and active.authorizer)
        return CONFIG_VERSIONS if is_relayed or not listener.clients_of else {**CONFIG_VERSIONS, **METADATA_VERSIONS}

    def redirected_apis(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs that clients may ask any broker, at a listener that they use."""
        return {} if _serves_brokers_only(listener) else REDIRECTED_VERSIONS

    def handles(self, api_key: int, request: ApiMessage) -> bool:
        """Return whether a request for settings is about the controller, or one for metadata about brokers only."""
        with self._lock:
            active = self._active
        if active is None:
            return False
        if api_key == METADATA:
            return asks_for_brokers(request)
        return concerns_controller(active.control.controller_id, request)

    def submit(self, caller: Caller, api_key: int, version: int, request: ApiMessage) -> Future[ApiMessage]:
        """Handle a request; its future gets the response.

        A client that takes this process for the controller finds its connection closed, and looks for another one. So
        does a client that requests the brokers, and whose listener is not served now. A broker's request in plain text
        is not served once all brokers are secured.
        """
        with self._lock:
            active = self._active
            if api_key in VERSIONS and active is not None and not active.expects_brokers(caller.protocol):
                active = None
            if api_key == ALTER_PARTITION:
                return _alter_partition(active, version, request)
            if api_key == CONTROLLED_SHUTDOWN:
                return _controlled_shutdown(active, version, request)
            if api_key == ALLOCATE_PRODUCER_IDS:
                return self._executor.submit(_allocate_producer_ids, active, version, request)
            if api_key in ADMIN_VERSIONS or api_key in CONFIG_VERSIONS or api_key == METADATA:
                if active is None:
                    raise ConnectionAbortedError("this process is not the controller")
                if api_key == METADATA and not active.serves_clients_of(caller.clients_of):
                    raise ConnectionAbortedError("brokers know whether this client may ask them")
                api_context = active.api_context_for(api_key, caller)
                executor = self._waiting_executor if api_key in WAITING else self._quick_executor
                return executor.submit(_handle_admin, api_context, api_key, version, request)
        raise ValueError(f"API {api_key} is not served")


def _serves_brokers_only(listener: ServerListener) -> bool:
    return listener.clients_of is None and listener.protocol != PLAINTEXT


def _alter_partition(active: ActiveController | None, version: int, request: ApiMessage) -> Future[ApiMessage]:
    if active is None:
        return _done(alter_partition_response(version, request, IsrResponse(_NOT_CONTROLLER, {}), lambda _: None))
    name_of = active.context.topic_of_id
    pending = active.isr_writer.submit(alter_partition_request(version, request, name_of))
    return _map_future(pending, lambda result: alter_partition_response(version, request, result, name_of))


def _controlled_shutdown(active: ActiveController | None, version: int, request: ApiMessage) -> Future[ApiMessage]:
    if active is None:
        return _done(controlled_shutdown_response(version, STALE_CONTROLLER_EPOCH))
    epoch = getattr(request, "broker_epoch", UNCHECKED_EPOCH)
    pending = active.shutdowns.submit(ShutdownRequest(request.broker_id, epoch))
    return _map_future(pending, lambda ended: controlled_shutdown_response(version, ended.error, ended.remaining))


def _allocate_producer_ids(active: ActiveController | None, version: int, request: ApiMessage) -> ApiMessage:
    if active is None:
        return producer_ids_response(version, _NOT_CONTROLLER)
    broker = active.context.brokers.get(request.broker_id)
    if broker is None:
        return producer_ids_response(version, _BROKER_ID_NOT_REGISTERED)
    if broker.broker_epoch != request.broker_epoch:
        return producer_ids_response(version, STALE_BROKER_EPOCH)
    try:
        block = allocate_block(active.control, request.broker_id)
    except RefusedError as error:
        _LOG.warning("surveyor: broker %s gets no producer ids: %s", request.broker_id, error)
        return producer_ids_response(version, _UNKNOWN_SERVER_ERROR)
    except (SurveyorError, KazooException) as error:  # the broker asks again, and looks for the controller first
        _LOG.info("surveyor: broker %s gets no producer ids now: %s", request.broker_id, error)
        return producer_ids_response(version, _NOT_CONTROLLER)
    return producer_ids_response(version, 0, block.start, block.length)


def _handle_admin(api_context: AdminApiContext, api_key: int, version: int, request: ApiMessage) -> ApiMessage:
    try:
        with api_context.turns if api_key in WAITING else nullcontext():
            return handle_admin(api_context, api_key, version, request)
    except (SurveyorError, KazooException) as error:  # the client asks again, and looks for the controller first
        raise ConnectionAbortedError(str(error)) from None


def _done(response: ApiMessage) -> Future[ApiMessage]:
    future = Future[ApiMessage]()
    future.set_result(response)
    return future


def _map_future(pending: Future[Any], convert: Callable[[Any], ApiMessage]) -> Future[ApiMessage]:
    """Return a future that gets the converted result of another."""
    response = Future[ApiMessage]()

    def set_response(done: Future[Any]) -> None:
        try:
            response.set_result(convert(done.result()))
        except Exception as error:  # noqa: BLE001 - the server logs it, and closes the connection
            response.set_exception(error)

    pending.add_done_callback(set_response)
    return response
