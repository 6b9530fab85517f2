"""An HTTP server for one page of text, which is rendered for each request, one request at a time.

It listens on the loopback interface unless another address is given, since any client that connects can read the page.
An error in rendering is answered with 503 and one line, and the next request renders again.
"""

import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

from jobs.core.errors import SurveyorError, UsageError

LOOPBACK: Final = "127.0.0.1"
REQUEST_TIMEOUT_SECONDS: Final = 10.0
"""Seconds after which an idle connection is closed."""

_ADDRESS: Final = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])?:)?(?P<port>[0-9]{1,5})", re.ASCII)
_LAST_PORT: Final = 65535


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT; the default host is the loopback address.

    >>> parse_address("--listen", "9308"), parse_address("--listen", "[::]:9308")
    (('127.0.0.1', 9308), ('::', 9308))
    """
    parts = _ADDRESS.fullmatch(text)
    if parts is None or int(parts["port"]) > _LAST_PORT:
        raise UsageError(f"{option} {text!r} is no address: expected HOST:PORT, or PORT on the loopback")
    return (parts["host"] or LOOPBACK).strip("[]"), int(parts["port"])


class SinglePageServer(ThreadingHTTPServer):
    """Serves the text that `make` returns at `path`, as `content_type`."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], path: str, content_type: str, make: Callable[[], str]) -> None:
        self.path, self.content_type, self.make = path, content_type, make
        self._lock = Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Request)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]} ({error.strerror or error}); give another port, or an "
                "address of this machine",
            ) from None

    @property
    def url(self) -> str:
        """The URL of the page; for port 0 with the port that was chosen."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}{self.path}"

    def answer(self) -> tuple[HTTPStatus, str]:
        """Render the page, or return the error."""
        with self._lock:
            try:
                return HTTPStatus.OK, self.make()
            except SurveyorError as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n"
            except Exception as error:  # noqa: BLE001 - the server must answer each request
                return HTTPStatus.SERVICE_UNAVAILABLE, f"unexpected {type(error).__name__}: {error}\n"


class _Request(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_SECONDS
    server_version, sys_version = "surveyor", ""

    def __init__(self, request: Any, client_address: Any, server: BaseServer) -> None:  # noqa: ANN401 - as the base has it
        assert isinstance(server, SinglePageServer)  # noqa: S101 - only that class creates it
        self.page = server
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        self._answer(with_text=True)

    def do_HEAD(self) -> None:
        self._answer(with_text=False)

    def _answer(self, *, with_text: bool) -> None:
        if urlsplit(self.path).path != self.page.path:
            status, text = HTTPStatus.NOT_FOUND, f"only {self.page.path} exists here\n"
        else:
            status, text = self.page.answer()
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", self.page.content_type if status is HTTPStatus.OK else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_text:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base has it
        """Log no requests: they come every few seconds."""
