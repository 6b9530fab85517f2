"""A stand-in for GCS, in memory: what object_store requests of its XML API, and Spark's connector of its JSON API.

It is no proof of GCS: it answers as its author reads the documentation. It shows that URLs of gs:// reach the two
libraries, that both log in with the key of a service account, and that commits are put on the condition that the object
does not exist.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from uuid import uuid4
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

CONDITIONS = "conditions"
"""Not of GCS: the path at which the conditions of all puts are read, by path of the object."""
MODIFIED = "2026-01-01T00:00:00.000Z"
JSON_API = "storage/v1/b/"
JSON = {"Content-Type": "application/json"}
TOKEN = "token"  # noqa: S105 - not a real one
"""The path at which Spark's connector gets a token for a signed claim, and the token; object_store signs its own."""


class GcsStandIn(BaseHTTPRequestHandler):
    """Objects by path, and the condition of the first put of each."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: ClassVar[dict[str, bytes]] = {}
    conditions: ClassVar[dict[str, str | None]] = {}
    uploads: ClassVar[dict[str, dict[int, bytes]]] = {}
    """Parts by number, of the uploads that are not complete yet."""
    lock: ClassVar = Lock()

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        condition = self.headers.get("x-goog-if-generation-match")
        if "partNumber" in self.query:
            self.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = body
            self._answer(200)
            return
        with self.lock:
            self.conditions.setdefault(self.key, condition)
            if condition == "0" and self.key in self.objects:
                self._answer(412)
                return
            self.objects[self.key] = body
        self._answer(200)

    def do_GET(self) -> None:
        if self.key == CONDITIONS:
            self._answer(200, json.dumps(self.conditions).encode())
        elif not self.headers.get("Authorization", "").startswith("Bearer "):
            self._answer(401)
        elif JSON_API in self.key:
            self._answer_json(*self.key.partition(JSON_API)[2].partition("/o")[::2])
        elif "list-type" in self.query:
            self._answer(200, self._listed())
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

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.key == TOKEN:
            token = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
            self._answer(200, json.dumps(token).encode(), JSON)
        elif "uploads" in self.query:
            upload = str(uuid4())
            self.uploads[upload] = {}
            answer = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, answer.encode())
        else:
            parts = self.uploads.pop(self.query["uploadId"])
            self.objects[self.key] = b"".join(parts[number] for number in sorted(parts))
            self._answer(200, b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')

    def _answer_json(self, bucket: str, name: str) -> None:
        """Answer the JSON API: the list of a folder, what is known of an object, or its content."""
        found = self.objects.get(f"{bucket}{name}")
        if not name:
            keys, folders = self._children(bucket)
            items = [self._metadata(bucket, key) for key in keys]
            self._answer(200, json.dumps({"items": items, "prefixes": folders}).encode(), JSON)
        elif found is None:
            self._answer(404)
        elif self.query.get("alt") == "media":
            self._answer_part(found)
        else:
            self._answer(200, json.dumps(self._metadata(bucket, name.removeprefix("/"))).encode(), JSON)

    def _metadata(self, bucket: str, name: str) -> dict[str, str]:
        size, times = len(self.objects[f"{bucket}/{name}"]), dict.fromkeys(("timeCreated", "updated"), MODIFIED)
        return {"bucket": bucket, "name": name, "size": str(size), "generation": "1", "metageneration": "1"} | times

    def _answer_part(self, body: bytes) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, body)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(body) - int(last), 0)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        self._answer(206, body[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"})

    def _children(self, bucket: str) -> tuple[list[str], list[str]]:
        """Return the names of the objects and of the folders there."""
        prefix, delimiter, after = (self.query.get(name, "") for name in ("prefix", "delimiter", "start-after"))
        names = sorted(key.removeprefix(f"{bucket}/") for key in list(self.objects) if key.startswith(f"{bucket}/"))
        keys, folders = [], set()
        for name in (name for name in names if name.startswith(prefix) and name > after):
            folder, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(f"{prefix}{folder}{delimiter}")
            else:
                keys.append(name)
        return keys, sorted(folders)

    def _listed(self) -> bytes:
        bucket = self.key.strip("/")
        keys, folders = self._children(bucket)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[f'{bucket}/{key}'])}</Size>"
            f'<LastModified>{MODIFIED}</LastModified><ETag>"1"</ETag></Contents>'
            for key in keys
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders)
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


@dataclass(frozen=True)
class GcsServer:
    """Where the stand-in answers, and the files by which deltalake and Hadoop find it."""

    address: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GOOGLE_SERVICE_ACCOUNT": str(self.folder / "account.json"),
            "GOOGLE_ALLOW_HTTP": "true",
            "HADOOP_CONF_DIR": str(self.folder),
        }

    @property
    def conditions(self) -> dict[str, str | None]:
        """The conditions of all puts, by path of the object."""
        with urlopen(f"{self.address}/{CONDITIONS}") as answer:  # noqa: S310 - the stand-in
            conditions: dict[str, str | None] = json.load(answer)
        return conditions

    def write_files(self) -> None:
        """Write the key of an account, with an address that deltalake alone reads, and the address for Hadoop."""
        key = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        account = {
            "type": "service_account",
            "client_id": "1",
            "client_email": "surveyor@project.iam.gserviceaccount.com",
            "private_key": key.decode(),
            "private_key_id": "1",
            "token_uri": f"{self.address}/{TOKEN}",
            "gcs_base_url": self.address,
        }
        (self.folder / "account.json").write_text(json.dumps(account), encoding="utf-8")
        address = f"<property><name>fs.gs.storage.root.url</name><value>{self.address}/</value></property>"
        (self.folder / "core-site.xml").write_text(f"<configuration>{address}</configuration>", encoding="utf-8")


@contextmanager
def gcs_stand_in(folder: Path) -> Iterator[GcsServer]:
    """Run it in a process of its own, as deltalake keeps Python's other threads waiting."""
    command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        server = GcsServer(process.stdout.readline().strip(), folder)
        server.write_files()
        yield server
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
