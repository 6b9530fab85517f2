"""An S3 server as a process of its own: `python -m tests.jobs.support.s3_server [OPTION]`.

It prints its address, and ends with its input. In the process of a test it could not answer: deltalake keeps Python's
lock while it waits for the store.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

IGNORE_CONDITIONS = "--ignore-conditions"
REFUSE_BY = "--refuse-by"


def ignore_conditions() -> None:
    """Let a PUT overwrite an object in any case, as stores did that imitated S3 before it had conditional writes."""
    put = S3Response.put_object

    def put_in_any_case(response: S3Response) -> Any:  # noqa: ANN401 - moto's
        response.headers = {name: value for name, value in response.headers.items() if name != "If-None-Match"}
        return put(response)

    patched: Any = S3Response
    patched.put_object = put_in_any_case


def refuse_by(file: Path) -> None:
    """Answer every request with the error in `file`, such as `403 AccessDenied`, unless the file is empty."""
    serve = DomainDispatcherApplication.__call__

    def refuse_or_serve(
        app: DomainDispatcherApplication, request: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        error = file.read_text("utf-8").split()
        if not error:
            served: Iterable[bytes] = serve(app, request, start)
            return served
        status, code = error
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>refused</Message></Error>".encode()
        start(f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [b"" if request["REQUEST_METHOD"] == "HEAD" else body]

    patched: Any = DomainDispatcherApplication
    patched.__call__ = refuse_or_serve


def main() -> None:
    if REFUSE_BY in sys.argv:
        refuse_by(Path(sys.argv[sys.argv.index(REFUSE_BY) + 1]))
    if IGNORE_CONDITIONS in sys.argv:
        ignore_conditions()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
