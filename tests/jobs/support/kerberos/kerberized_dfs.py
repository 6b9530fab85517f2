"""A real HDFS that lets clients in by Kerberos, and what its clients need: Hadoop's settings, and Spark's."""

from pathlib import Path
from typing import Final

from tests.jobs.support.kerberos.kdc import GUEST, HDFS, HTTP, REALM, USER, Kdc
from tests.jobs.support.warehouses.mini_dfs import MiniDfs, write_site

CLIENTS: Final = {
    "hadoop.security.authentication": "kerberos",
    "hadoop.security.authorization": "true",
    "dfs.namenode.kerberos.principal": f"{HDFS}@{REALM}",
    "dfs.datanode.kerberos.principal": f"{HDFS}@{REALM}",
}
_SERVERS: Final = {
    "dfs.web.authentication.kerberos.principal": f"{HTTP}@{REALM}",
    "dfs.block.access.token.enable": "true",
    "hadoop.user.group.static.mapping.overrides": f"{USER}=supergroup;{GUEST}=",
    "ignore.secure.ports.for.testing": "true",  # else it needs root, or TLS
}


class KerberizedDfs(MiniDfs):
    """Its user `surveyor` may write everywhere, its `guest` nowhere."""

    def __init__(self, folder: Path, kdc: Kdc) -> None:
        super().__init__(folder)
        self.kdc = kdc
        keytabs = ("dfs.namenode.keytab.file", "dfs.datanode.keytab.file", "dfs.web.authentication.kerberos.keytab")
        self.settings = {**super().settings, **CLIENTS, **_SERVERS, **dict.fromkeys(keytabs, str(kdc.keytab))}
        self.java_options = (self.java_option,)

    @property
    def java_option(self) -> str:
        """Where Java finds the KDC; it reads /etc/krb5.conf else."""
        return f"-Djava.security.krb5.conf={self.kdc.krb5_conf()}"

    @property
    def url(self) -> str:
        return f"hdfs://localhost:{self.port}"

    def client_conf(self, folder: Path) -> Path:
        """Write what HADOOP_CONF_DIR names."""
        folder.mkdir()
        write_site(folder / "core-site.xml", {**CLIENTS, "fs.defaultFS": self.url})
        write_site(folder / "hdfs-site.xml", dict(CLIENTS))
        return folder
