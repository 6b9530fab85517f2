"""Receives requests of brokers, in a separate thread.

Corresponds to `SocketServer`. The handler never blocks, so one client cannot delay another.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Final

from jobs.adapters.request_server.api_handler import ApiHandler
from jobs.adapters.request_server.client_warnings import ClientWarnings
from jobs.adapters.request_server.connection import ClientConnection, ConnectionContext
from jobs.adapters.request_server.connection_quotas import (
    CLIENT_SHARE,
    FEW_CONNECTIONS,
    ConnectionQuotas,
    raise_max_files,
)
from jobs.adapters.request_server.limits import ServerLimits
from jobs.adapters.request_server.listen_config import Binding, ListenConfig
from jobs.adapters.request_server.messages import MalformedRequestError
from jobs.adapters.request_server.processing_quota import ProcessingQuota
from jobs.adapters.request_server.sasl_authenticator import AuthenticationError
from jobs.adapters.request_server.sasl_mechanisms import Credentials
from jobs.core.errors import UsageError
from jobs.core.logs import module_logger
from schemas.text import pluralise
from schemas.znode_codecs import Endpoint

_LOG: Final = module_logger(__name__)

_CREDENTIAL_THREADS: Final = 4
_START_SECONDS: Final = 30.0


@dataclass(slots=True)
class RequestServer:
    """Listens as long as the process runs; the handler may change its APIs in the meantime."""

    config: ListenConfig
    handler: ApiHandler
    credentials: Credentials = lambda _user, _mechanism: None
    """Credentials for SCRAM; called in separate threads."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    endpoints: list[Endpoint] = field(default_factory=list)
    """Announced to brokers: listener, security protocol and advertised address of each binding, once it listens.

    The listener is `Binding.listener`.
    """
    raise_max_files: Callable[[int], int] = raise_max_files
    """Raises the limit of open files as far as it may; returns it."""
    warnings: ClientWarnings = field(default_factory=ClientWarnings)
    _for_brokers: ConnectionContext = field(init=False)
    _for_clients: ConnectionContext = field(init=False)
    """Of listeners only for clients: however many there are, they take no connection and no time from brokers."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: Thread | None = None
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        share = CLIENT_SHARE if any(binding.listener for binding in self.config.bindings) else 0.0
        self._for_brokers, self._for_clients = self._context(1.0 - share), self._context(share)

    @property
    def quotas(self) -> ConnectionQuotas:
        """Quotas of the connections of brokers."""
        return self._for_brokers.quotas

    def _context(self, share: float) -> ConnectionContext:
        quotas = ConnectionQuotas(self.warnings, self.limits, share=share)
        executor = ThreadPoolExecutor(_CREDENTIAL_THREADS, thread_name_prefix="credentials")
        return ConnectionContext(
            self.handler, self.credentials, self.limits, quotas, ProcessingQuota(self.limits), executor
        )

    def start(self) -> None:
        """Listen; raise UsageError if an address cannot be bound."""
        max_files = self.raise_max_files(self.limits.max_connections)
        for context in (self._for_brokers, self._for_clients):
            context.quotas.max_files = max_files
        if (most := self.quotas.max_connections) < FEW_CONNECTIONS:
            _LOG.warning(
                "surveyor: warning: brokers can have %s open at the same time, because the limit of open files is %s: "
                "raise it (LimitNOFILE of systemd, ulimit -n)",
                pluralise(most, "connection"),
                max_files,
            )
        self._thread = Thread(target=self._loop.run_forever, daemon=True, name="request-server")
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_START_SECONDS)
        except OSError as error:
            self.stop()
            addresses = " and ".join(f"{binding.host}:{binding.port}" for binding in self.config.bindings)
            raise UsageError(
                f"cannot listen at {addresses} ({error.strerror or error}); give --listen another port, or an address "
                "of this machine"
            ) from None

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for context in (self._for_brokers, self._for_clients):
            context.executor.shutdown(cancel_futures=True)
        self._thread = None

    async def _listen(self) -> None:
        for binding in self.config.bindings:
            server = await asyncio.start_server(partial(self._accept, binding), binding.host, binding.port)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            self.endpoints.append(
                Endpoint(
                    binding.listener,
                    binding.security_protocol,
                    binding.advertised_host,
                    binding.advertised_port or port,
                )
            )

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    def _accept(self, binding: Binding, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a separate task, in place of another if there are too many."""
        address = str((writer.get_extra_info("peername") or ("unknown",))[0])
        context = self._for_clients if binding.listener else self._for_brokers
        if not context.quotas.make_room(address):
            writer.close()
            return
        connection = ClientConnection(context, binding, address, reader, writer)
        context.quotas.opened(connection)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, connection))

    def _ended(self, connection: ClientConnection, task: asyncio.Task[None]) -> None:
        connection.close()  # a task that is cancelled before it begins closes nothing
        self._tasks.discard(task)
        connection.context.quotas.ended(connection)

    async def _serve(self, connection: ClientConnection) -> None:
        """Answer the requests of a connection until it ends."""
        address = connection.address
        try:
            await connection.run()
        except (MalformedRequestError, AuthenticationError) as error:
            self.warnings.warn(address, f"the connection of {address} is closed: {error}")
        except (OSError, EOFError, TimeoutError, ssl.SSLError):
            pass  # the client is gone, or silent
        except Exception as error:  # noqa: BLE001 - the client finds the connection closed
            message = f"cannot answer a request of {address}: unexpected {type(error).__name__}: {error}"
            self.warnings.warn(address, message, with_traceback=True)
