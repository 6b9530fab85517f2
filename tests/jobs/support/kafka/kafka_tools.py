"""Kafka's own command line tools, as Kafka 3.9.2 brings them."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import kafka_jars
from jobs.adapters.java.resolvers import class_path
from tests.jobs.support.kafka.secured_kafka import write_properties

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
MOVES: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTIONS: Final = "org.apache.kafka.tools.LeaderElectionCommand"

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that is over soon."""

AS_SHIPPED: Final = (
    *("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
"""The options with which bin/kafka-run-class.sh starts a tool."""


def java_of_tools(options: Sequence[str] = QUICK) -> list[str]:
    """Begin a command line of a tool of Kafka."""
    return [str(find_java()), *options, "-cp", class_path(kafka_jars())]


@dataclass
class Tools:
    """The tools, at a bootstrap server."""

    bootstrap: str
    command_config: Path | None = None
    options: Sequence[str] = QUICK

    def run(self, tool: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run a tool; none may wait longer than a minute."""
        option = "--admin.config" if tool == ELECTIONS else "--command-config"
        login = () if self.command_config is None else (option, str(self.command_config))
        command = [*java_of_tools(self.options), tool, "--bootstrap-server", self.bootstrap, *login, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def shown(self, tool: str, *options: str) -> str:
        """Run a tool that succeeds; return what it prints."""
        result = self.run(tool, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def refusal(self, tool: str, *options: str) -> str:
        """Run a tool that Surveyor refuses; return what it prints. It has not waited until a time-out."""
        result = self.run(tool, *options)
        printed = result.stdout + result.stderr
        assert "TimeoutException" not in printed, printed
        assert "Surveyor is the controller" in printed, printed
        return printed


def java_login(folder: Path, authority: Path, password: str, mechanism: str | None = None, user: str = "") -> Path:
    """Write a file of `--command-config`: over TLS, with the password of a user if a mechanism is named."""
    values = {
        "security.protocol": "SSL" if mechanism is None else "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    if mechanism is not None:
        module = _LOGIN_MODULES[mechanism]
        values["sasl.mechanism"] = mechanism
        values["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return write_properties(folder / f"{user or 'tls'}.properties", values)
