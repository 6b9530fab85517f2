"""The archive of Spark's classes recorded, and how the JVMs that tests start use it.

A start, a first plan and a first table take 23 s of processor time with it, 38 s without.
`python -m tests.spark_archive` records it, once for each set of jars; without it everything works, only slower. It is
the one that commands start with (`jobs.adapters.spark.class_archive`).
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jobs.adapters.java.class_archives import remove_outdated
from jobs.adapters.spark.class_archive import JVM_OPTIONS, spark_archive, variables

JVM: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:ReservedCodeCacheSize=400m -XX:-UseCodeCacheFlushing -XX:MetaspaceSize=400m"
)
"""The JVM's second compiler takes half of the processor time of tests, which are over before it pays; also in commands
that a test starts. Four tests of one file: 126 s of the JVM's processor time without, 64 s with.

Without it the JVM also keeps no more than 48 MB of compiled code, which a few dozen tests fill: methods were thrown
away and compiled again for ever. Six rounds of snapshots and plans: 166 s of processor time so, 120 s with more room.
"""

_CONF: Final = Path(__file__).parents[1] / "conf"
_EXIT_SECONDS: Final = 180.0


def environment() -> dict[str, str]:
    """The variables of Spark with which its JVM starts quickly; nothing is said of an archive that does not fit."""
    archive = spark_archive()
    if not archive.is_file():
        return {JVM_OPTIONS: JVM}
    return dict(variables(f"{JVM} -XX:SharedArchiveFile={archive}", _CONF))


def record() -> None:
    """Let a JVM do what most tests do, and wait until it has written what it loaded."""
    archive = spark_archive()
    if archive.is_file():
        return
    sys.stderr.write("recording the classes of Spark, once, for quicker tests: a minute or two\n")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=archive.parent) as workshop:
        written = Path(workshop, "spark.jsa")
        _run(Path(workshop), variables(f"{JVM} -XX:ArchiveClassesAtExit={written}", _CONF))
        if written.is_file():
            remove_outdated(archive)
            written.replace(archive)


def _run(folder: Path, variables: Mapping[str, str]) -> None:
    os.environ |= variables
    from kazoo.client import KazooClient  # noqa: PLC0415 - Spark reads the variables when it is imported

    from jobs.adapters.embedded.servers import EmbeddedZooKeeper  # noqa: PLC0415
    from jobs.adapters.spark.session import start_session  # noqa: PLC0415
    from tests.jobs.support.commands.commands import Surveyor  # noqa: PLC0415
    from tests.jobs.support.zookeeper.kafka_tree import KafkaTree  # noqa: PLC0415
    from tests.shared_spark import OWN, QUICK  # noqa: PLC0415

    with EmbeddedZooKeeper(folder / "zookeeper") as server:
        client = KazooClient(server.connect)
        client.start()
        tree = KafkaTree(server.connect, client)
        tree.lay_out()
        tree.elect(0, epoch=7)
        tree.add_topic("orders", {number: [0, 1, 2] for number in range(6)})
        session = start_session("recording", QUICK | OWN)
        surveyor = Surveyor(server.connect, folder / "warehouse")
        surveyor.json("snapshot")
        tree.unregister(2)
        surveyor.json("snapshot")
        for question in (("reconcile",), ("elect", "--preferred"), ("reassign", "--rebalance")):
            surveyor.json("plan", *question)
        surveyor.json("whatif", "--lose", "brokers=1")
        client.stop()
        client.close()
        jvm = session.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001 - PySpark does not wait for it
        session.stop()
        jvm.stdin.close()
        jvm.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    record()
