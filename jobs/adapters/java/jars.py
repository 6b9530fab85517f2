"""The jars that are not in pyspark: Delta's two for Spark, and a whole Kafka for the embedded brokers.

Each set is downloaded once into `<cache>/jars/<first artifact>-<version>/`, where the cache is $SURVEYOR_CACHE, else
$XDG_CACHE_HOME/kafka-surveyor, else ~/.cache/kafka-surveyor. A set's folder appears by one rename when everything is
in it, so what is there is complete, and each jar is the one that `checksums` lists. `python -m jobs.adapters.java.jars`
fetches all sets ahead of time.
"""

import os
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from jobs.adapters.java.checksums import refuse_unlisted, write_list
from jobs.adapters.java.resolvers import Artifact, JarSet, choose_resolver
from jobs.core.errors import MissingError

KAFKA_VERSION = "3.9.2"
OLDER_KAFKA = "2.8.2"
"""What tests of older brokers run; nobody else fetches it."""
_SCALA = "2.13"

SPARK_HOME = "SPARK_HOME"
"""Environment variable that names the folder of a Spark; spark-submit sets it for what it runs."""


def delta_jars() -> list[Path]:
    """Delta's own two jars, for `spark.jars`; everything else they need is in pyspark."""
    return _cached(_delta())


def _delta() -> JarSet:
    delta = version("delta-spark")
    spark = ".".join(version("pyspark").split(".")[:2])
    artifacts = (
        Artifact("io.delta", f"delta-spark_{spark}_{_SCALA}", delta),
        Artifact("io.delta", "delta-storage", delta),
    )
    return JarSet(f"Delta {delta}", artifacts, transitive=False)


def has_delta_jars() -> bool:
    """Whether they are there already; to ask for them fetches them."""
    return os.path.isdir(_folder(_delta()))  # noqa: PTH112 - false where the folder may not be looked at


def kafka_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """The class path of a Kafka broker, its ZooKeeper client and logging included."""
    return _cached(_kafka(version))


def _kafka(version: str) -> JarSet:
    tools = () if version == OLDER_KAFKA else (Artifact("org.apache.kafka", "kafka-tools", version),)
    artifacts = (
        Artifact("org.apache.kafka", f"kafka_{_SCALA}", version),
        *tools,  # which were part of it then
        Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
        # Named because Maven and Ivy would each choose another one.
        Artifact("ch.qos.reload4j", "reload4j", "1.2.25"),
    )
    return JarSet(f"Kafka {version}", artifacts, transitive=True)


def zookeeper_jars() -> list[Path]:
    """The class path of a ZooKeeper server: Spark's own jars.

    They lie in the package pyspark. Under spark-submit that is a zip without jars, and they are those of SPARK_HOME.
    """
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise MissingError("pyspark is not installed beside Surveyor: run `make setup`, or install Surveyor again.")
    folders = [Path(pyspark.origin).parent, *([Path(os.environ[SPARK_HOME])] if SPARK_HOME in os.environ else [])]
    jars = next(filter(None, (_jars_in(folder / "jars") for folder in folders)), None)
    if jars is None:
        looked_at = " nor in ".join(str(folder / "jars") for folder in folders)
        raise MissingError(f"Spark's jars are not in {looked_at}: run `make setup`, or set SPARK_HOME to a Spark.")
    return jars


def cache_folder() -> Path:
    chosen = os.environ.get("SURVEYOR_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-surveyor")
    except RuntimeError as error:
        raise MissingError(
            "the jars belong into a folder of the home directory, and this user has none: set SURVEYOR_CACHE to a "
            "folder that can be written."
        ) from error


def _folder(request: JarSet) -> Path:
    root = request.artifacts[0]
    return cache_folder().absolute() / "jars" / f"{root.name}-{root.version}"


def _cached(request: JarSet) -> list[Path]:
    folder = _folder(request)
    if not os.path.isdir(folder):  # noqa: PTH112 - as above
        _download(request, folder)
    return _jars_in(folder)


def _download(request: JarSet, folder: Path) -> None:
    tool, resolve = choose_resolver(zookeeper_jars())
    sys.stderr.write(f"resolving {request.title} jars with {tool}, once, into {folder}\n")
    with _working_folder(folder) as workshop:
        jars = Path(workshop, "jars")
        jars.mkdir()
        resolve(request, jars)
        refuse_unlisted(request.title, _jars_in(jars))
        _publish(jars, folder)


def _working_folder(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder on the same file system, so that a rename out of it is atomic."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent)
    except OSError as error:
        raise MissingError(
            f"The jars belong into {folder.parent}, which cannot be written: {error.strerror}. "
            "Set SURVEYOR_CACHE to a folder that can."
        ) from error


def _publish(jars: Path, folder: Path) -> None:
    try:
        jars.rename(folder)
    except OSError:
        # Another process was quicker; its set is as good as ours.
        if not folder.is_dir():
            raise


def _jars_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _rewrite_checksums() -> None:
    """List what each set is resolved to now; the cache holds only what is listed already, so it is not asked."""
    _, resolve = choose_resolver(zookeeper_jars())
    with tempfile.TemporaryDirectory() as workshop:
        for number, request in enumerate((_delta(), _kafka(KAFKA_VERSION), _kafka(OLDER_KAFKA))):
            jars = Path(workshop, str(number))
            jars.mkdir()
            resolve(request, jars)
        write_list(Path(workshop).glob("*/*.jar"))


def main(arguments: list[str]) -> int:
    """Fetch all sets; with the argument `delta`, Delta's alone, and print them as `spark-submit --jars` takes them.

    With the argument `checksums`, write down what each jar must be from now on.
    """
    try:
        if arguments == ["checksums"]:
            _rewrite_checksums()
            return 0
        delta = delta_jars()
        if arguments == ["delta"]:
            sys.stdout.write(",".join(map(str, delta)) + "\n")
        else:
            kafka_jars()
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
