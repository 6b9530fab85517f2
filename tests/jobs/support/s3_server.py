"""An S3 server as a process of its own: `python -m tests.jobs.support.s3_server [--ignore-conditions]`.

It prints its address, and ends with its input. In the process of a test it could not answer: deltalake keeps Python's
lock while it waits for the store.
"""

import sys
from typing import Any

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

IGNORE_CONDITIONS = "--ignore-conditions"


def ignore_conditions() -> None:
    """Let a PUT overwrite an object in any case, as stores did that imitated S3 before it had conditional writes."""
    put = S3Response.put_object

    def put_in_any_case(response: S3Response) -> Any:  # noqa: ANN401 - moto's
        response.headers = {name: value for name, value in response.headers.items() if name != "If-None-Match"}
        return put(response)

    patched: Any = S3Response
    patched.put_object = put_in_any_case


def main() -> None:
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
