"""A stand-in for the XML API of GCS, in memory, with the requests that object_store makes of it.

It is no proof of GCS: it answers as its author reads the documentation. It shows that URLs of gs:// reach the library,
and that the library puts commits on the condition that the object does not exist.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CONDITIONS = "conditions"
"""Not of GCS: the path at which the conditions of all puts are read, by path of the object."""
MODIFIED = "2026-01-01T00:00:00.000Z"


class GcsStandIn(BaseHTTPRequestHandler):
    """Objects by path, and the condition of the first put of each."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    conditions: ClassVar[dict[str, str | None]] = {}
    lock: ClassVar = Lock()

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        condition = self.headers.get("x-goog-if-generation-match")
        with self.lock:
            self.conditions.setdefault(self.key, condition)
            if condition == "0" and self.key in self.objects:
                self._answer(412)
                return
            self.objects[self.key] = body
        self._answer(200)

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if "list-type" in query:
            self._answer(200, self._listed(query.get("prefix", ""), query.get("delimiter")))
        elif self.key == CONDITIONS:
            self._answer(200, json.dumps(self.conditions).encode())
        elif self.key in self.objects:
            self._answer_part(self.objects[self.key])
        else:
            self._answer(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self.lock:
            found = self.objects.pop(self.key, None)
        self._answer(404 if found is None else 204)

    def _answer_part(self, body: bytes) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, body)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(body) - int(last), 0)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        self._answer(206, body[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"})

    def _listed(self, prefix: str, delimiter: str | None) -> bytes:
        bucket = self.key.strip("/")
        names = sorted(key.removeprefix(f"{bucket}/") for key in list(self.objects) if key.startswith(f"{bucket}/"))
        keys, folders = [], set()
        for name in (name for name in names if name.startswith(prefix)):
            folder, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(f"{prefix}{folder}{delimiter}")
            else:
                keys.append(name)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[f'{bucket}/{key}'])}</Size>"
            f'<LastModified>{MODIFIED}</LastModified><ETag>"1"</ETag></Contents>'
            for key in keys
        )
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)
        )
        return f"<ListBucketResult>{contents}{prefixes}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        common = {"ETag": '"1"', "x-goog-generation": "1", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        for name, value in (common | (headers or {}) | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the server's
        """Keep quiet."""


@contextmanager
def gcs_stand_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Run it in a process of its own, as deltalake keeps Python's other threads waiting.

    Yield the file for GOOGLE_SERVICE_ACCOUNT, which has its address, and the URL of the conditions.
    """
    command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        account = folder / "account.json"
        unused = {"client_email": "", "private_key": "", "private_key_id": ""}
        account.write_text(json.dumps({"gcs_base_url": address, "disable_oauth": True} | unused), encoding="utf-8")
        yield account, f"{address}/{CONDITIONS}"
        assert process.stdin
        process.stdin.close()
        process.wait(30)


def main() -> None:
    """Serve until stdin ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), GcsStandIn) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
