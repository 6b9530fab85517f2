"""The loops of docs/restarts.md, run as the page shows them, and a producer that sees what a restart breaks.

In place of ssh a loop has a script that asks the test to do what it was given.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.docs.blocks import page_path
from tests.docs.markdown import code_blocks
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.user_shell import SHELL
from tests.jobs.support.kafka.real_cluster import Traffic, eventually

TOO_FEW = {KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}

SSH = """#!/bin/sh
echo "$4 $1" > asked.new && mv asked.new asked
while [ -e asked ]; do sleep 0.1; done
"""
"""Called as `ssh kafka3 sudo systemctl restart kafka`."""


class ImpatientTraffic(Traffic):
    """A producer that retries nothing, so that each error of a broker is seen; `codes` has them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        self.codes: set[int] = set()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "retries": 0})

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        if error is not None:
            self.codes.add(error.code())


def run_loop(
    mark: str, address: Mapping[str, str], surveyor: Surveyor, folder: Path, act: Callable[[str, int], object]
) -> list[tuple[str, int]]:
    """Run the loop of the page that contains `mark`; return what it asked for, as actions and brokers in order.

    `address` is the environment variable that gives the cluster, and `act` does what is asked.
    """
    blocks = code_blocks(page_path("restarts.md").read_text())
    (loop,) = (block for block in blocks if "for broker in" in block and mark in block)
    ssh = folder / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    own = os.pathsep.join([str(folder), str(Path(sys.prefix, "bin")), os.environ["PATH"]])
    environment = {**os.environ, "PATH": own, "SURVEYOR_WAREHOUSE": str(surveyor.folder), **address}
    asked_for: list[tuple[str, int]] = []
    asked, log = folder / "asked", folder / "loop.log"
    quick = loop.replace("sleep 10", "sleep 1")
    with log.open("w") as output:
        running = subprocess.Popen([SHELL, "-c", quick], cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        while not eventually(lambda: running.poll() is not None, 0):
            if asked.exists():
                action, _, host = asked.read_text().strip().partition(" kafka")
                act(action, int(host))
                asked_for.append((action, int(host)))
                asked.unlink()
            assert eventually(lambda: asked.exists() or running.poll() is not None, 300), log.read_text()
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, log.read_text()
    return asked_for
