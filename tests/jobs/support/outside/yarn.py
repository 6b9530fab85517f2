"""A real YARN, a resource manager and a node manager as two processes, whose default file system is an HDFS."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.request import urlopen

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.processes import Server, Servers
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import hdfs_jars, yarn_jars, zookeeper_jars
from jobs.adapters.java.resolvers import class_path
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.warehouses.mini_dfs import write_site

MEMORY_MB, CORES = 6144, 8

READY_SECONDS: Final = 120.0

_QUEUES: Final = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": 100,
    "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
}


class _Daemon(Server):
    main = ""

    def __init__(self, name: str, folder: Path, conf: Path, java_options: Sequence[str]) -> None:
        super().__init__(name, folder, None)
        self.conf, self.java_options = conf, java_options

    def command(self) -> list[str]:
        java = [str(find_java()), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        path = f"{self.conf}:{class_path([*zookeeper_jars(), *hdfs_jars(), *yarn_jars()])}"
        return [*java, *self.java_options, "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", path, self.main]


class ResourceManager(_Daemon):
    """Its port is that of its page."""

    main = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"

    def nodes(self) -> list[str]:
        """The states of the nodes that have registered."""
        try:
            with urlopen(f"http://{LOOPBACK}:{self.port}/ws/v1/cluster/nodes", timeout=10) as answer:
                return [node["state"] for node in json.load(answer)["nodes"].get("node", [])]
        except OSError:
            return []

    def is_ready(self) -> bool:
        return self.nodes() == ["RUNNING"]


class NodeManager(_Daemon):
    main = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

    def is_ready(self) -> bool:
        return True


class Yarn(Servers):
    """YARN on loopback; `conf` is what HADOOP_CONF_DIR names, `logs` has the output of containers.

    Containers have the `inherited` variables of this process, and no others. `more` settings are in all files.
    """

    def __init__(
        self,
        folder: Path,
        file_system: str,
        inherited: Sequence[str] = (),
        more: Mapping[str, str] = MappingProxyType({}),
        java_options: Sequence[str] = (),
    ) -> None:
        self.conf, self.logs = folder / "conf", folder / "logs"
        self.conf.mkdir()
        self.manager = ResourceManager("resource-manager", folder, self.conf, java_options)
        self.node = NodeManager("node-manager", folder, self.conf, java_options)
        manager = ("", "scheduler.", "resource-tracker.", "admin.")
        addresses = {f"yarn.resourcemanager.{part}address": f"{LOOPBACK}:{free_port()}" for part in manager}
        node = {
            f"yarn.nodemanager.{part}address": f"{LOOPBACK}:{free_port()}" for part in ("", "localizer.", "webapp.")
        }
        settings = {
            "yarn.resourcemanager.webapp.address": f"{LOOPBACK}:{self.manager.port}",
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nodemanager.resource.memory-mb": MEMORY_MB,
            "yarn.nodemanager.resource.cpu-vcores": CORES,
            "yarn.nodemanager.local-dirs": folder / "containers",
            "yarn.nodemanager.log-dirs": self.logs,
            "yarn.nodemanager.env-whitelist": ",".join(("JAVA_HOME", *inherited)),
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
        }
        write_site(self.conf / "core-site.xml", {"fs.defaultFS": file_system, **more})
        write_site(self.conf / "hdfs-site.xml", more)
        write_site(self.conf / "yarn-site.xml", {**addresses, **node, **settings, **more})
        write_site(self.conf / "capacity-scheduler.xml", dict(_QUEUES))

    def _start(self, stack: ExitStack) -> None:
        for server, end in ((self.manager, self.manager.kill), (self.node, self.node.stop)):
            stack.callback(end)  # a node manager that is killed leaves containers behind
            server.start()
        self.manager.wait_ready(READY_SECONDS)

    def output(self) -> str:
        """What all containers have written to their stdout and stderr."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.logs.glob("*/*/std*")))
