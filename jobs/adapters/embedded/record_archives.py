"""Record the archives of `jobs.adapters.java.class_archives` by starting and stopping a ZooKeeper and a broker once.

A JVM writes its archive when it exits, which takes some ten seconds of processor time. Each later start of a server
saves two seconds, so this pays off for tests, which start some seventy, and not for one demo. Existing archives are
kept.
"""

import os
import sys
import tempfile
from pathlib import Path

from jobs.adapters.embedded.servers import BROKER, ZOOKEEPER, EmbeddedKafka, EmbeddedZooKeeper, zookeeper_class_path
from jobs.adapters.java.class_archives import archive_of, remove_outdated
from jobs.adapters.java.jars import kafka_jars
from jobs.core.errors import SurveyorError

_STOP_SECONDS = 120.0


def record() -> None:
    """Record both archives; each file is created by a rename once it is complete."""
    archives = {ZOOKEEPER: archive_of(ZOOKEEPER, zookeeper_class_path()), BROKER: archive_of(BROKER, kafka_jars())}
    if all(archive.is_file() for archive in archives.values()):
        return
    sys.stderr.write("recording the classes of the embedded servers, once, for quicker starts\n")
    folder = archives[BROKER].parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=folder) as workshop:
        written = {name: Path(workshop, f"{name}.jsa") for name in archives}
        _run_servers(Path(workshop), written)
        for name, archive in archives.items():
            if written[name].is_file():
                remove_outdated(archive)
                written[name].replace(archive)


def _run_servers(folder: Path, written: dict[str, Path]) -> None:
    options = {name: [f"-XX:ArchiveClassesAtExit={path}"] for name, path in written.items()}
    zookeeper = EmbeddedZooKeeper(folder / ZOOKEEPER)
    zookeeper.class_options = options[ZOOKEEPER]
    with zookeeper:
        broker = EmbeddedKafka(zookeeper.connect, 0, folder / BROKER)
        broker.class_options = options[BROKER]
        with broker:
            broker.stop(_STOP_SECONDS)
        zookeeper.stop(_STOP_SECONDS)


def main() -> int:
    """Record missing archives; a failure is only reported, since servers also start without archives."""
    try:
        record()
    except (SurveyorError, OSError) as error:
        sys.stderr.write(f"no archive of classes, servers start slower: {error}\n")
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
