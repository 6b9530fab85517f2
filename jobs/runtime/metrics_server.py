"""An HTTP server of metrics for Prometheus, and of a process's health for probes."""

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from io import BufferedReader, RawIOBase, StringIO
from threading import BoundedSemaphore, Lock
from typing import IO, TYPE_CHECKING, Any, Final, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

from prometheus_client import Metric, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from jobs.core.errors import SurveyorError, UnreadableError, UsageError
from jobs.runtime.console import log

if TYPE_CHECKING:
    from types import TracebackType
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from _typeshed import WriteableBuffer

PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"


MAX_UNREAD_REQUESTS: Final = 64
"""Connections whose request is still incomplete; a further one closes the oldest, which bounds threads and files."""

MAX_SCRAPES: Final = 8
"""Requests for the metrics at once. One is computed at a time; a further one is answered 503."""

BACKLOG: Final = 1024
"""Connections that the operating system accepts ahead; socketserver's 5 would delay a request by a second or more."""


@dataclass(frozen=True, slots=True)
class MetricsCollector:
    """A collector of prometheus_client."""

    collect: Callable[[], list[Metric]]


def _no_fault() -> None:
    """Report that the process is well."""


class MetricsServer(ThreadingWSGIServer):
    """Serves the metrics that `read` returns at PATH, and answers an error with 503 and one line.

    At HEALTH_PATH it answers 200, or 503 with the `fault` of the process. A client's fault is not logged.
    """

    request_queue_size = BACKLOG

    def __init__(
        self,
        address: tuple[str, int],
        read: Callable[[], list[Metric]],
        fault: Callable[[], str | None] = _no_fault,
        *,
        request_seconds: float = 5.0,
        max_scrapes: int = MAX_SCRAPES,
    ) -> None:
        """Listen; `request_seconds` is how long a client may send its request, and an answer may be sent."""
        self.request_seconds = request_seconds
        self._unread: dict[socket.socket, None] = {}
        self._unread_lock = Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _RequestHandler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]} ({error.strerror or error}); give another port, or an "
                "address of this machine",
            ) from None
        self.set_app(_application(read, fault, max_scrapes))

    @property
    def url(self) -> str:
        """The URL of the metrics; for port 0 with the port that was chosen."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}{PATH}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Start a thread for a request; of too many incomplete requests close the oldest."""
        with self._unread_lock:
            oldest = next(iter(self._unread)) if len(self._unread) >= MAX_UNREAD_REQUESTS else None
            if oldest is not None:
                del self._unread[oldest]
            self._unread[request] = None
        if oldest is not None:
            with suppress(OSError):  # it has been closed since
                oldest.shutdown(socket.SHUT_RDWR)  # this ends its thread, which waits for the request
        super().process_request(request, client_address)

    def forget_unread(self, request: Any) -> None:  # noqa: ANN401 - as the base has it
        """Note that a request is complete or closed."""
        with self._unread_lock:
            self._unread.pop(request, None)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as the base has it
        """Close a connection."""
        self.forget_unread(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as the base has it
        """Log an error that is not the client's, instead of a stack trace on stderr."""
        _log_unless_of_client(sys.exc_info()[1])


def _log_unless_of_client(error: BaseException | None) -> None:
    """Log an error of the server; an OSError is one of the connection, and thus the client's."""
    if error is not None and not isinstance(error, OSError):
        _log_unexpected(error)


def _log_unexpected(error: BaseException) -> None:
    log(f"surveyor: metrics: unexpected {type(error).__name__}: {error}", logging.ERROR, error)


class _RequestReader(RawIOBase):
    """Reads one request within a total time limit; a per-read time-out would let a slow client send it byte by byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        try:
            self._connection.settimeout(max(self._end - time.monotonic(), 0.001))  # 0 would mean not to wait at all
            count = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._seconds)
        if not count:
            raise ConnectionAbortedError("the client sent no complete request")
        return count


class _ResponseHandler(ServerHandler):
    request_handler: WSGIRequestHandler

    def log_exception(
        self, exc_info: "tuple[type[BaseException], BaseException, TracebackType] | tuple[Any, ...]"
    ) -> None:
        _log_unless_of_client(exc_info[1])


class _RequestHandler(WSGIRequestHandler):
    server: MetricsServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BufferedReader(_RequestReader(self.connection, self.server.request_seconds))

    def handle(self) -> None:
        """Handle one request, with the errors of the connection, which the base does not handle."""
        self.handle_one_request()

    def do_GET(self) -> None:  # noqa: N802 - as the base has it
        """Answer the request, which is complete."""
        self.server.forget_unread(self.request)
        streams = cast("IO[bytes]", self.rfile), cast("IO[bytes]", self.wfile), StringIO()
        handler = _ResponseHandler(*streams, self.get_environ(), multithread=True)
        handler.request_handler = self
        handler.run(cast("WSGIApplication", self.server.get_app()))

    do_HEAD = do_OPTIONS = do_GET  # noqa: N815 - as the base has it

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base has it
        """Log no requests: they come every few seconds."""


def _application(
    read: Callable[[], list[Metric]], fault: Callable[[], str | None], max_scrapes: int
) -> "WSGIApplication":
    metrics_application: WSGIApplication = make_wsgi_app(MetricsCollector(read))
    lock, scrapes = Lock(), BoundedSemaphore(max_scrapes)

    def scrape(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        if not scrapes.acquire(blocking=False):
            raise UnreadableError(f"{max_scrapes} requests wait for the metrics already")
        try:
            with lock:  # the tables are read for one request at a time
                return metrics_application(environ | {"QUERY_STRING": ""}, start_response)
        finally:
            scrapes.release()

    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        try:
            if environ["PATH_INFO"] == PATH:
                return scrape(environ, start_response)
            if environ["PATH_INFO"] == HEALTH_PATH:
                reason = fault()
                status, line = (HTTPStatus.OK, "ok") if reason is None else (HTTPStatus.SERVICE_UNAVAILABLE, reason)
            else:
                status, line = HTTPStatus.NOT_FOUND, f"only {PATH} and {HEALTH_PATH} exist here"
        except SurveyorError as error:
            status, line = HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        except Exception as error:  # noqa: BLE001 - the server must answer each request
            _log_unexpected(error)
            status, line = HTTPStatus.SERVICE_UNAVAILABLE, f"unexpected {type(error).__name__}: {error}"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [f"{line}\n".encode(errors="backslashreplace")]

    return application
