"""A real HDFS, a name node and a data node in one process, by Hadoop's MiniDFSCluster."""

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.adapters.embedded.ports import LOOPBACK
from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import hdfs_jars, zookeeper_jars
from jobs.adapters.java.resolvers import class_path


class MiniDfs(Server):
    """HDFS on loopback; its files are in the folder `build` of the server's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("hdfs", folder, None)
        self._details = folder / "details.json"

    user = getpass.getuser()
    """The user of the server's process, who may do everything."""

    @property
    def url(self) -> str:
        return f"hdfs://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        java = [str(find_java()), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._details.unlink(missing_ok=True)
        cluster = ["-writeDetails", str(self._details), "-format", "-datanodes", "1", "-nnport", str(self.port)]
        settings = ["-D", "dfs.replication=1", "-D", "dfs.permissions.enabled=true"]
        main = ["org.apache.hadoop.test.MiniDFSClusterManager", *cluster, *settings]
        return [*java, "-cp", class_path([*zookeeper_jars(), *hdfs_jars()]), *main]

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
        (self.folder / "core-site.xml").write_text("<configuration/>", encoding="utf-8")  # the shell requires one
        listed = self._run("org.apache.hadoop.fs.FsShell", "-ls", "-C", folder)
        return [line.rpartition("/")[2] for line in listed.splitlines()]

    def _administer(self, *arguments: str) -> None:
        self._run("org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", self.url, *arguments)

    def _run(self, main: str, *arguments: str) -> str:
        path = f"{self.folder}:{class_path([*zookeeper_jars(), *hdfs_jars()])}"
        command = [str(find_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, main, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
