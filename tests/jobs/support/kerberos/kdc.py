"""A real KDC, Apache Kerby by Hadoop's MiniKdc, and the krb5.conf and keytabs of its clients."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import kdc_jars
from jobs.adapters.java.resolvers import class_path
from jobs.core.addresses import LOOPBACK

REALM: Final = "SURVEYOR.TEST"
USER, GUEST, BROKER, ZOOKEEPER = "surveyor", "guest", "kafka/localhost", "zookeeper/localhost"
HDFS, HTTP = "hdfs/localhost", "HTTP/localhost"
"""Principals: two users, and the services on this machine."""

LIFETIME_SECONDS: Final = 20
"""How long a ticket of a short-lived user's krb5.conf is valid."""

_AES128: Final = 17

_PROPERTIES: Final = """\
org.name=SURVEYOR
org.domain=TEST
kdc.bind.address=127.0.0.1
kdc.port={port}
transport=TCP
instance=surveyor
min.ticket.lifetime=1
max.ticket.lifetime=86400000
max.renewable.lifetime=604800000
debug=false
"""
_KRB5_CONF: Final = """\
[libdefaults]
  default_realm = {realm}
  udp_preference_limit = 1
  dns_lookup_kdc = false
  dns_lookup_realm = false
  {lifetime}
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""


class Kdc(Server):
    """A KDC on loopback, whose principals have random keys; `keytab` has the keys of all of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__("kdc", folder, None)
        self.keytab = folder / "all.keytab"

    def command(self) -> list[str]:
        properties = self.folder / "minikdc.properties"
        properties.write_text(_PROPERTIES.format(port=self.port), encoding="utf-8")
        main = ["org.apache.hadoop.minikdc.MiniKdc", str(self.folder), str(properties), str(self.keytab)]
        java = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [*java, "-cp", class_path(kdc_jars()), *main, USER, GUEST, BROKER, ZOOKEEPER, HDFS, HTTP]

    def is_ready(self) -> bool:
        """MiniKdc says so once the keytab is complete."""
        if "Standalone MiniKdc Running" not in self.log.read_text(encoding="utf-8"):
            return False
        self.keytab.chmod(0o600)
        return True

    def krb5_conf(self, *, lifetime: int | None = None, port: int | None = None) -> Path:
        """Write a krb5.conf; `lifetime` (seconds) is that of the tickets that clients ask for."""
        path = self.folder / f"krb5-{lifetime}-{port}.conf"
        text = _KRB5_CONF.format(
            realm=REALM,
            host=LOOPBACK,
            port=port or self.port,
            lifetime="" if lifetime is None else f"ticket_lifetime = {lifetime}s",
        )
        path.write_text(text, encoding="utf-8")
        return path

    def keytab_of(self, principal: str) -> Path:
        """Write a keytab that has the keys of one principal only."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        path.touch(0o600)
        path.write_bytes(b"\x05\x02" + b"".join(entry for name, entry in _entries(self.keytab) if name == principal))
        return path

    def jaas(self, principal: str, section: str) -> str:
        """A section of a JAAS file for Java's side."""
        return f"{section} {{\n  {self.login_module(principal)}\n}};\n"

    def login_module(self, principal: str) -> str:
        """The value of sasl.jaas.config, as in Kafka's documentation."""
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self.keytab}" principal="{principal}@{REALM}";'
        )


def _entries(keytab: Path) -> Iterator[tuple[str, bytes]]:
    """Return the entries of a keytab in MIT's format 0x0502, with the names of their principals, without realm."""
    data, at = keytab.read_bytes(), 2
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        end = at + 4 + abs(size)
        if size > 0:  # else a hole
            (count,) = struct.unpack_from(">H", data, at + 4)
            texts, place = [], at + 6
            for _ in range(count + 1):  # the realm comes first
                (length,) = struct.unpack_from(">H", data, place)
                texts.append(data[place + 2 : place + 2 + length].decode())
                place += 2 + length
            yield "/".join(texts[1:]), data[at:end]
        at = end


def keytab_with_another_key(path: Path, principal: str, realm: str = REALM) -> Path:
    """A keytab with a random key, in MIT's format 0x0502, so that the KDC has another one or does not know it."""

    def counted(data: bytes) -> bytes:
        return struct.pack(">H", len(data)) + data

    names = principal.split("/")
    entry = struct.pack(">H", len(names)) + counted(realm.encode()) + b"".join(counted(name.encode()) for name in names)
    entry += struct.pack(">IIBH", 1, 0, 1, _AES128) + counted(os.urandom(16))
    path.touch(0o600)
    path.write_bytes(b"\x05\x02" + struct.pack(">i", len(entry)) + entry)
    return path


def ticket_cache(path: Path, keytab: Path) -> str:
    """Make a ticket cache as kinit does for USER, by KRB5_CONFIG of this process; return what KRB5CCNAME has then."""
    import gssapi  # noqa: PLC0415 - an extra

    name = gssapi.Name(USER, gssapi.NameType.kerberos_principal)
    store: dict[bytes | str, bytes | str] = {"client_keytab": f"FILE:{keytab}", "ccache": f"FILE:{path}"}
    assert gssapi.Credentials(name=name, usage="initiate", store=store).lifetime
    return f"FILE:{path}"
