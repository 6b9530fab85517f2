"""A real HDFS, a name node and a data node in one process, by Hadoop's MiniDFSCluster."""

import getpass
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import hdfs_jars, zookeeper_jars
from jobs.adapters.java.resolvers import class_path
from jobs.core.addresses import LOOPBACK


def write_site(path: Path, settings: Mapping[str, object]) -> None:
    """Write settings as Hadoop reads them."""
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]), encoding="utf-8")


class MiniDfs(Server):
    """HDFS on loopback; its files are in the folder `build` of the server's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("hdfs", folder, None)
        self._details = folder / "details.json"

    settings: Mapping[str, str] = {"dfs.replication": "1", "dfs.permissions.enabled": "true"}
    java_options: Sequence[str] = ()

    user = getpass.getuser()
    """The user of the server's process, who may do everything."""

    @property
    def url(self) -> str:
        return f"hdfs://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        java = [str(find_java()), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self.java_options]
        self._details.unlink(missing_ok=True)
        cluster = ["-writeDetails", str(self._details), "-format", "-datanodes", "1", "-nnport", str(self.port)]
        for site in ("core-site.xml", "hdfs-site.xml"):  # defaults override those of core-site.xml
            write_site(self.folder / site, self.settings)
        main = ["org.apache.hadoop.test.MiniDFSClusterManager", *cluster]
        return [*java, "-cp", self._class_path(), *main]

    def is_ready(self) -> bool:
        """The file is written once the data node has registered."""
        return self._details.exists()

    @contextmanager
    def safe_mode(self) -> Iterator[None]:
        """The name node accepts no changes, as while it starts."""
        self._administer("-safemode", "enter")
        try:
            yield
        finally:
            self._administer("-safemode", "leave")

    def children(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        listed = self._run("org.apache.hadoop.fs.FsShell", "-ls", "-C", folder)
        return [line.rpartition("/")[2] for line in listed.splitlines()]

    def _administer(self, *arguments: str) -> None:
        self._run("org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", self.url, *arguments)

    def _run(self, main: str, *arguments: str) -> str:
        java = [str(find_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._class_path()]
        command = [*java, main, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def put(self, file: Path) -> str:
        """Copy a file into the root folder; return its URL."""
        self._run("org.apache.hadoop.fs.FsShell", "-put", "-f", str(file), f"{self.url}/{file.name}")
        return f"{self.url}/{file.name}"

    def _class_path(self) -> str:
        return f"{self.folder}:{class_path([*zookeeper_jars(), *hdfs_jars()])}"
