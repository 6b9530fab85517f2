"""Azurite, Microsoft's emulator of Azure's Blob storage, in a process of its own; it keeps everything in memory."""

import base64
import hashlib
import hmac
import shutil
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.embedded.processes import Server
from jobs.core.addresses import LOOPBACK

PROGRAM: Final = "azurite-blob"
MISSING: Final = f"no {PROGRAM} on this machine: `npm install --global azurite`"

CONTAINER: Final = "lake"
_ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The published key of the emulator's only account, which deltalake knows, too."""
_VERSION: Final = "2021-08-06"

_OF_EMULATOR: Final = {
    "fns.account.service.type": "BLOB",
    "account.hns.enabled": "false",
    "always.use.https": "false",
    "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one needs TLS
}
"""What Hadoop must be told of an emulator, which has the Blob API only."""


class Azurite(Server):
    """The server, with the container CONTAINER once it is ready."""

    def __init__(self, folder: Path) -> None:
        super().__init__("azurite", folder, None)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which deltalake and Hadoop find the emulator and its key."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://{LOOPBACK}:{self.port}",
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "HADOOP_CONF_DIR": str(self.folder),
        }

    @property
    def url(self) -> str:
        """The container; Hadoop takes a URL that begins with abfss for one with TLS."""
        return f"abfs://{CONTAINER}@{_ACCOUNT}.dfs.core.windows.net"

    def command(self) -> list[str]:
        program = shutil.which(PROGRAM)
        if program is None:
            pytest.skip(MISSING)
        properties = "".join(
            f"<property><name>fs.azure.{name}</name><value>{value}</value></property>"
            for name, value in (_OF_EMULATOR | {"abfs.endpoint": f"{LOOPBACK}:{self.port}"}).items()
        )
        configuration = f"<configuration>{properties}</configuration>"
        (self.folder / "core-site.xml").write_text(configuration, encoding="utf-8")
        where = ["--blobHost", LOOPBACK, "--blobPort", str(self.port)]
        return [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", *where]

    def is_ready(self) -> bool:
        try:
            return self._create_container() in {201, 409}
        except OSError:
            return False

    def _create_container(self) -> int:
        path, date = f"/{_ACCOUNT}/{CONTAINER}", formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": _VERSION}
        canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = "PUT" + "\n" * 12 + f"{canonical}/{_ACCOUNT}{path}\nrestype:container"
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
        connection = HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            authorized = headers | {"Authorization": f"SharedKey {_ACCOUNT}:{signature}", "Content-Length": "0"}
            connection.request("PUT", f"{path}?restype=container", headers=authorized)
            return connection.getresponse().status
        finally:
            connection.close()
