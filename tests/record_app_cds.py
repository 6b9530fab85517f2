"""Records the archives of classes of Spark, ZooKeeper and a broker, and says how the JVMs that tests start use Spark's.

`python -m tests.record_app_cds` records them, once for each set of jars; without them everything works, only slower.
They are those of commands (`jobs.adapters.java.app_cds`, `jobs.adapters.spark.spark_app_cds`). With Spark's a
start, a first plan and a first table take 23 s of processor time, 38 s without. Recording those of the servers takes
ten seconds of processor time, and each of some seventy starts then takes two seconds less.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jobs.adapters.embedded.servers import BROKER, ZOOKEEPER, EmbeddedKafka, EmbeddedZooKeeper, zookeeper_class_path
from jobs.adapters.java.app_cds import archive_of
from jobs.adapters.java.jars import kafka_jars
from jobs.adapters.spark.spark_app_cds import JVM_OPTIONS, SPARK, spark_archive, variables
from jobs.core.errors import SurveyorError

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


def record(archives: Mapping[str, Path], run: Callable[[Path, dict[str, Path]], None]) -> None:
    """Record archives, if one is missing; each file is created by a rename once it is complete."""
    if all(archive.is_file() for archive in archives.values()):
        return
    sys.stderr.write(f"recording classes for quicker starts, once: {', '.join(archives)}\n")
    folder = next(iter(archives.values())).parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=folder) as workshop:
        written = {name: Path(workshop, f"{name}.jsa") for name in archives}
        run(Path(workshop), written)
        for name, archive in archives.items():
            if written[name].is_file():
                _remove_outdated(archive)
                written[name].replace(archive)


def _remove_outdated(archive: Path) -> None:
    """Remove unused archives of earlier jars in the same folder; each has up to 190 MB."""
    same_folder, _, _ = archive.name.rpartition("-")
    for earlier in archive.parent.glob(f"{same_folder}-*.jsa"):
        if earlier != archive:
            earlier.unlink(missing_ok=True)


def _run_servers(folder: Path, written: dict[str, Path]) -> None:
    """Start and stop a ZooKeeper and a broker: a JVM writes its archive when it exits."""
    zookeeper = EmbeddedZooKeeper(folder / ZOOKEEPER)
    zookeeper.class_options = [f"-XX:ArchiveClassesAtExit={written[ZOOKEEPER]}"]
    with zookeeper:
        broker = EmbeddedKafka(zookeeper.connect, 0, folder / BROKER)
        broker.class_options = [f"-XX:ArchiveClassesAtExit={written[BROKER]}"]
        with broker:
            broker.stop(_EXIT_SECONDS)
        zookeeper.stop(_EXIT_SECONDS)


def _run_spark(folder: Path, written: dict[str, Path]) -> None:
    """Let a JVM do what most tests do, and wait until it has written what it loaded."""
    os.environ |= variables(f"{JVM} -XX:ArchiveClassesAtExit={written[SPARK]}", _CONF)
    from kazoo.client import KazooClient  # noqa: PLC0415 - Spark reads the variables when it is imported

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


def main() -> None:
    """Record missing archives; a failure is only reported, since everything also starts without archives."""
    servers = {ZOOKEEPER: archive_of(ZOOKEEPER, zookeeper_class_path()), BROKER: archive_of(BROKER, kafka_jars())}
    try:
        record(servers, _run_servers)
        record({SPARK: spark_archive()}, _run_spark)
    except (SurveyorError, OSError) as error:
        sys.stderr.write(f"no archive of classes, starts are slower: {error}\n")


if __name__ == "__main__":
    main()
