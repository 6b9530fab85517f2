"""A real KDC, Apache Kerby by Hadoop's MiniKdc, and the krb5.conf and keytabs of its clients."""

from pathlib import Path
from typing import Final

from jobs.adapters.embedded.ports import LOOPBACK
from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import kdc_jars
from jobs.adapters.java.resolvers import class_path

REALM: Final = "SURVEYOR.TEST"
USER, GUEST, BROKER, ZOOKEEPER = "surveyor", "guest", "kafka/localhost", "zookeeper/localhost"
"""Principals: two users, and the services on this machine."""

LIFETIME_SECONDS: Final = 20
"""How long a ticket of a short-lived user's krb5.conf is valid."""

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
        return [*java, "-cp", class_path(kdc_jars()), *main, USER, GUEST, BROKER, ZOOKEEPER]

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

    def jaas(self, principal: str, section: str) -> str:
        """A section of a JAAS file for Java's side."""
        return f"{section} {{\n  {self.login_module(principal)}\n}};\n"

    def login_module(self, principal: str) -> str:
        """The value of sasl.jaas.config, as in Kafka's documentation."""
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self.keytab}" principal="{principal}@{REALM}";'
        )
