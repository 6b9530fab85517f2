"""Sparks that others run, out of pyspark's own jars, on the loopback interface: a Connect server, a cluster of two.

They start as users start them, by pyspark's scripts, and end by their process ids as every embedded server does. The
settings that make JVMs quick in tests hold for them, too.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pyspark

from jobs.adapters.embedded.ports import accepts, free_port
from jobs.adapters.embedded.processes import Server
from jobs.adapters.java.home import java_home
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.commands.documented_commands import ROOT, shown
from tests.spark_settings import QUICK, QUICK_JVM

HOME: Final = Path(pyspark.__file__).parent

JVM_VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Where Spark's scripts look for options of the JVMs that they start."""


def begun_with(line: str, *options: str) -> str:
    """Give spark-submit these options before those that a line gives it."""
    return line.replace("spark-submit", shlex.join(["spark-submit", *options]), 1)


def as_options(settings: Mapping[str, str]) -> list[str]:
    """Write settings as spark-submit takes them."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def environment() -> dict[str, str]:
    """The environment of Spark's scripts: Java, the executors' Python, and addresses of this machine only."""
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SUBMIT_OPTS": QUICK_JVM,
        "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR", str(HOME / "conf")),
    }


class _SparkServer(Server):
    """One of Spark's servers, by one of its scripts."""

    variables: Mapping[str, str] = {}

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def command(self) -> list[str]:
        temporary = f" -Djava.io.tmpdir={self.folder}"  # a killed process leaves everything where it is
        variables = environment() | {**self.variables}
        variables |= {name: variables[name] + temporary for name in JVM_VARIABLES if name in variables}
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *self.arguments()]

    def is_ready(self) -> bool:
        return accepts(self.port)


class ConnectServer(_SparkServer):
    """A Spark Connect server with Delta, started as docs/deploy.md shows it, on a port of its own, with some `jars`."""

    def __init__(self, folder: Path, jars: str = "delta") -> None:
        super().__init__("connect", folder, None)
        self.jars = jars

    @property
    def url(self) -> str:
        return f"sc://{LOOPBACK}:{self.port}"

    def arguments(self) -> list[str]:
        (self.folder / "conf").unlink(missing_ok=True)
        (self.folder / "conf").symlink_to(ROOT / "conf")
        (line,) = (line for line in shown("docs/deploy.md", "Spark Connect") if "SparkConnectServer" in line)
        options = as_options(QUICK | {"spark.connect.grpc.binding.port": str(self.port)})
        line = line.replace("jobs.adapters.java.jars delta", f"jobs.adapters.java.jars {self.jars}")
        return ["/bin/bash", "-c", f"exec {begun_with(line, *options)}"]


class _Daemon(_SparkServer):
    """A master or a worker, and the port of its page."""

    variables: Mapping[str, str] = {"SPARK_DAEMON_JAVA_OPTS": QUICK_JVM, "SPARK_DAEMON_MEMORY": "256m"}

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, None)
        self.page = free_port()

    def daemon(self, kind: str, *arguments: str) -> list[str]:
        script = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        return [*script, "--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self.page), *arguments]


class Master(_Daemon):
    """The master of a standalone cluster."""

    def __init__(self, folder: Path) -> None:
        super().__init__("master", folder)

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    def arguments(self) -> list[str]:
        return self.daemon("master.Master")

    def workers(self) -> list[int] | None:
        """The ports of the workers that have registered; None before the page is whole, which is another at first."""
        try:
            with urlopen(f"http://{LOOPBACK}:{self.page}/json/", timeout=10) as answer:
                return [worker["port"] for worker in json.load(answer)["workers"]]
        except (OSError, json.JSONDecodeError):
            return None

    def is_ready(self) -> bool:
        return accepts(self.port) and self.workers() is not None


class Worker(_Daemon):
    """A worker of one core."""

    def __init__(self, number: int, folder: Path, master: Master) -> None:
        super().__init__(f"worker-{number}", folder)
        self.master = master

    def arguments(self) -> list[str]:
        work = ["--work-dir", str(self.folder / self.name)]
        return self.daemon("worker.Worker", "--cores", "1", "--memory", "1g", *work, self.master.url)

    def is_ready(self) -> bool:
        return self.port in (self.master.workers() or [])


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a master and two workers of one core each; give the master's URL."""
    with ExitStack() as running:
        master = running.enter_context(Master(folder))
        workers = [Worker(number, folder, master) for number in (1, 2)]
        for worker in workers:
            running.callback(worker.kill)
            worker.start()
        for worker in workers:
            worker.wait_ready()
        yield master.url
