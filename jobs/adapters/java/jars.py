"""The jars that are not in pyspark: Delta's for Spark, those for warehouses on S3, ADLS or GCS, and Kafka's.

Each set is downloaded once into `<cache>/jars/<first artifact>-<version>/`, where the cache is $SURVEYOR_CACHE, else
$XDG_CACHE_HOME/kafka-surveyor, else ~/.cache/kafka-surveyor. A set's folder is created by a rename once it is
complete. `python -m jobs.adapters.java.jars SET` downloads one ahead of time.

Each jar is checked against its SHA-256 checksum in `jars.sha256` next to this module, in the format of `sha256sum`.
Maven and Ivy compare a download with checksums from the same server, whereas these are part of Surveyor. A jar with
other content, or one that is not listed, is never put on a class path. `python -m jobs.adapters.java.jars checksums`
rewrites the list, for a maintainer who changes versions and has checked the new jars.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from jobs.adapters.java.resolvers import Artifact, JarSet, choose_resolver
from jobs.core.errors import ExitCode, MissingError
from jobs.core.logs import module_logger
from schemas.text import abbreviate

KAFKA_VERSION = "3.9.2"
OLDER_KAFKAS = ("2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2")
"""The versions for tests with older brokers; they are not downloaded otherwise."""
NEWER_KAFKA = "4.4.0"
"""The version for tests with brokers that have no ZooKeeper; it is not downloaded otherwise."""
OTHER_KRAFT_KAFKAS = ("3.3.2", "3.7.2", "3.8.1", "4.0.0", "4.1.1")
"""The versions for tests with other brokers in KRaft; they are not downloaded otherwise."""
AWS_SDK = "2.35.4"
"""The version of Amazon's SDK that hadoop-aws was built with."""
GCS_CONNECTOR = "4.0.4"
"""The version of Google's connector. Hadoop's own for GCS is as young as the Hadoop in pyspark, and has no endpoint."""
_SCALA = "2.13"

S3: Final = frozenset({"s3", "s3a"})
"""Schemes of URLs on S3."""
AZURE: Final = frozenset({"abfs", "abfss"})
"""Schemes of URLs on ADLS."""
GCS: Final = frozenset({"gs"})
"""Schemes of URLs on GCS."""

CHECKSUM_FILE: Final = Path(__file__).with_name("jars.sha256")

_LIST: Final = "jars.txt"
"""The file of a set's folder that lists the jars that were downloaded into it."""

SPARK_HOME = "SPARK_HOME"
"""Environment variable with the folder of a Spark installation; spark-submit sets it for its processes."""


def spark_jars(warehouse: str) -> list[Path]:
    """Return the jars for `spark.jars` with which Spark reads a warehouse: Delta's, and those for its object store."""
    return [jar for jars in _spark_sets(warehouse) for jar in _cached(jars)]


def missing_spark_jars(warehouse: str) -> dict[str, str]:
    """Return the sets among `spark_jars` that `spark_jars` would download: titles, and commands that do only that."""
    return {jars.title: jars.download_command for jars in _spark_sets(warehouse) if not _is_cached(jars)}


class MissingJars(NamedTuple):
    """The jars that a set seems to lack, and the remedy.

    Classes may still be there: jars may have been copied manually, patched, or taken from another download, which names
    them differently. So it is only a warning.
    """

    found: str
    advice: str


def incomplete_spark_jars(warehouse: str) -> list[MissingJars]:
    """Return the gaps of the cached sets among `spark_jars`; raise MissingError for a set that cannot be used."""
    return [gap for jars in _spark_sets(warehouse) if _is_cached(jars) if (gap := _usable(jars)[1])]


def _spark_sets(warehouse: str) -> list[JarSet]:
    scheme = urlsplit(warehouse).scheme
    for_store = next((jars() for schemes, jars in ((S3, _s3), (AZURE, _azure), (GCS, _gcs)) if scheme in schemes), None)
    return [_delta(), *([for_store] if for_store else [])]


def delta_jars() -> list[Path]:
    """Return Delta's two jars, for `spark.jars`; their dependencies are in pyspark."""
    return _cached(_delta())


def _delta() -> JarSet:
    delta = version("delta-spark")
    spark = ".".join(version("pyspark").split(".")[:2])
    artifacts = (
        Artifact("io.delta", f"delta-spark_{spark}_{_SCALA}", delta),
        Artifact("io.delta", "delta-storage", delta),
    )
    return JarSet(f"Delta {delta}", artifacts, transitive=False, argument="delta")


def _s3() -> JarSet:
    """Return Hadoop's access to S3 and what it needs of Amazon's SDK, for Spark's reading of a warehouse there."""
    hadoop = _hadoop_in_pyspark()
    parts = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    artifacts = (
        Artifact("org.apache.hadoop", "hadoop-aws", hadoop),
        *(Artifact("software.amazon.awssdk", part, AWS_SDK) for part in parts),
    )
    # the bundle has the whole SDK, 700 MB; the others are in pyspark
    excluded = (
        ("software.amazon.awssdk", "bundle"),
        ("org.slf4j", "slf4j-api"),
        ("commons-codec", "commons-codec"),
        ("commons-logging", "commons-logging"),
    )
    return JarSet(f"S3 {hadoop}", artifacts, transitive=True, excluded=excluded, argument="s3")


def _azure() -> JarSet:
    """Return Hadoop's access to ADLS and what it needs, for Spark's reading of a warehouse there."""
    hadoop = _hadoop_in_pyspark()
    in_pyspark = (("commons-codec", "commons-codec"), ("commons-logging", "commons-logging"))
    artifacts = (Artifact("org.apache.hadoop", "hadoop-azure", hadoop),)
    return JarSet(f"ADLS {hadoop}", artifacts, transitive=True, excluded=in_pyspark, argument="azure")


def _gcs() -> JarSet:
    """Return Google's connector with all that it needs in one jar, for Spark's reading of a warehouse on GCS."""
    artifact = Artifact("com.google.cloud.bigdataoss", "gcs-connector", GCS_CONNECTOR, "shaded")
    return JarSet(f"GCS {GCS_CONNECTOR}", (artifact,), transitive=False, argument="gcs")


def kdc_jars() -> list[Path]:
    """Return the class path of a Kerberos KDC for tests, Hadoop's MiniKdc; it is not downloaded otherwise."""
    return _cached(_kdc())


def _kdc() -> JarSet:
    hadoop = _hadoop_in_pyspark()
    return JarSet(f"MiniKdc {hadoop}", (Artifact("org.apache.hadoop", "hadoop-minikdc", hadoop),), transitive=True)


def hdfs_jars() -> list[Path]:
    """Return what a server of HDFS for tests, MiniDFSCluster, needs beyond pyspark; not downloaded otherwise."""
    return _cached(_hdfs())


def _hdfs() -> JarSet:
    hadoop = _hadoop_in_pyspark()
    artifacts = (
        Artifact("org.apache.hadoop", "hadoop-client-minicluster", hadoop),
        Artifact("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),  # MiniDFSCluster uses its assertions
        Artifact("org.junit.platform", "junit-platform-commons", "1.13.4"),
        Artifact("org.opentest4j", "opentest4j", "1.3.0"),
    )
    return JarSet(f"MiniDFS {hadoop}", artifacts, transitive=False)


def yarn_jars() -> list[Path]:
    """Return what YARN's servers, for tests, need beyond pyspark and `hdfs_jars`; not downloaded otherwise."""
    return _cached(_yarn())


def _yarn() -> JarSet:
    # the version that Hadoop was built with; the resource manager makes certificates for applications
    return JarSet("YARN", (Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.82"),), transitive=True)


def _hadoop_in_pyspark() -> str:
    """Return the version of Hadoop's client that pyspark brings."""
    name = "hadoop-client-api"
    jar = next((jar for jar in zookeeper_jars() if jar.name.startswith(f"{name}-")), None)
    if jar is None:
        raise MissingError(
            f"this Spark has no {name}, whose version the jars for S3 and ADLS must have: take one with Hadoop"
        )
    return jar.stem.removeprefix(f"{name}-")


def kafka_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """Return the class path of a Kafka broker, including its ZooKeeper client and logging."""
    return _cached(_kafka(version))


def _kafka(version: str) -> JarSet:
    tools = () if version in OLDER_KAFKAS else (Artifact("org.apache.kafka", "kafka-tools", version),)
    artifacts = (
        Artifact("org.apache.kafka", f"kafka_{_SCALA}", version),
        *tools,  # part of the main artifact in the older versions
        Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
        # pinned, because Maven and Ivy would choose different versions
        Artifact("ch.qos.reload4j", "reload4j", "1.2.25"),
    )
    argument = "kafka" if version == KAFKA_VERSION else None
    return JarSet(f"Kafka {version}", artifacts, transitive=True, argument=argument)


def tiered_storage_jars() -> list[Path]:
    """Return Kafka's LocalTieredStorage, a remote storage for tests in a folder; it is not downloaded otherwise."""
    return _cached(_tiered_storage())


def _tiered_storage() -> JarSet:
    artifact = Artifact("org.apache.kafka", "kafka-storage", KAFKA_VERSION, "test")
    return JarSet(f"LocalTieredStorage {KAFKA_VERSION}", (artifact,), transitive=False)


def zookeeper_jars() -> list[Path]:
    """Return the class path of a ZooKeeper server, which consists of Spark's own jars.

    They are in the package pyspark or, under spark-submit, whose pyspark is a zip file without jars, in SPARK_HOME.
    """
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise MissingError("pyspark is not installed with Surveyor: run `make setup`, or install Surveyor again")
    folders = [Path(pyspark.origin).parent, *([Path(os.environ[SPARK_HOME])] if SPARK_HOME in os.environ else [])]
    jars = next(filter(None, (_jars_in(folder / "jars") for folder in folders)), None)
    if jars is None:
        looked_at = " nor in ".join(str(folder / "jars") for folder in folders)
        raise MissingError(f"Spark's jars are not in {looked_at}: run `make setup`, or set SPARK_HOME to a Spark")
    return jars


def cache_folder() -> Path:
    chosen = os.environ.get("SURVEYOR_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-surveyor")
    except RuntimeError as error:
        raise MissingError(
            "the jars are stored in the home directory, and this user has none: set SURVEYOR_CACHE to a writable "
            "folder."
        ) from error


def _folder(request: JarSet) -> Path:
    root = request.artifacts[0]
    return cache_folder().absolute() / "jars" / f"{root.name}-{root.version}"


def _is_cached(request: JarSet) -> bool:
    return os.path.isdir(_folder(request))  # noqa: PTH112 - it is false for a folder without permission


def _cached(request: JarSet) -> list[Path]:
    if not _is_cached(request):
        _download(request, _folder(request))
    jars, gap = _usable(request)
    if gap:
        _warn_once("; ".join(gap))
    return jars


@cache
def _warn_once(message: str) -> None:
    """Log a warning, once in a process."""
    module_logger(__name__).warning("%s", message)


def _usable(request: JarSet) -> tuple[list[Path], MissingJars | None]:
    """Return the jars of a cached set, and its gap; raise MissingError if there are none, or a main one was removed."""
    folder = _folder(request)
    jars, listed = _jars_in(folder), _listed_in(folder)
    if not jars:
        raise MissingError(f"{folder} has no jars: {_download_again(request)}")
    removed = sorted(listed.difference(jar.name for jar in jars))
    main = [it for it in request.artifacts if it.group == request.artifacts[0].group and it.name in " ".join(removed)]
    if missing := _absent(main, jars):
        raise MissingError(f"{folder} lacks {abbreviate(missing)}: {_download_again(request)}")
    # an artifact that is left out may contain its whole group, as the bundle of Amazon's SDK does
    contained = {group for group, name in request.excluded if any(name in jar.name for jar in jars)}
    missing = removed if listed else _absent((it for it in request.artifacts if it.group not in contained), jars)
    if not missing:
        return jars, None
    advice = f"if classes are missing, {_download_again(request)}"
    return jars, MissingJars(f"{folder} seems to lack {abbreviate(missing)}", advice)


def _download_again(request: JarSet) -> str:
    return f"move this folder aside, and run {request.download_command} again"


def _absent(artifacts: Iterable[Artifact], jars: list[Path]) -> list[str]:
    """Return the names of the artifacts that are part of no jar's name, whatever its version.

    >>> ours, theirs = Path("delta-storage-4.4.0-patched.jar"), Path("io.delta_delta-spark_4.2_2.13-4.4.0.jar")
    >>> _absent([Artifact("io.delta", "delta-storage", "4.4.0"), Artifact("io.delta", "delta-spark", "4.4.0")], [ours])
    ['delta-spark']
    >>> _absent([Artifact("io.delta", "delta-spark_4.2_2.13", "4.4.0")], [ours, theirs])
    []
    """
    return [artifact.name for artifact in artifacts if not any(artifact.name in jar.name for jar in jars)]


def _listed_in(folder: Path) -> set[str]:
    """Return the names of the jars that were downloaded into a folder, none if its list is absent or unreadable."""
    with suppress(OSError, UnicodeDecodeError):
        return {*Path(folder, _LIST).read_text("utf-8").split()}
    return set()


def _download(request: JarSet, folder: Path) -> None:
    tool, resolve = choose_resolver(zookeeper_jars())
    module_logger(__name__).info("resolving %s jars with %s, once, into %s", request.title, tool, folder)
    with _working_folder(folder) as workshop:
        jars = Path(workshop, "jars")
        jars.mkdir()
        resolve(request, jars)
        _refuse_unlisted(request, _jars_in(jars))
        if not _jars_in(jars):
            raise MissingError(f"{tool} reported no error, and fetched none of the {request.title} jars")
        Path(jars, _LIST).write_text("\n".join(jar.name for jar in _jars_in(jars)) + "\n", "utf-8")
        _publish(jars, folder)


def _working_folder(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder on the same file system, so that a rename out of it is atomic."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent)
    except OSError as error:
        raise MissingError(
            f"cannot write {folder.parent}, where the jars are stored: {error.strerror}; "
            "set SURVEYOR_CACHE to a writable folder"
        ) from error


def _publish(jars: Path, folder: Path) -> None:
    try:
        jars.rename(folder)
    except OSError:
        # another process was faster, and its set is complete
        if not folder.is_dir():
            raise


def _jars_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _refuse_unlisted(request: JarSet, jars: Iterable[Path]) -> None:
    """Raise MissingError if a jar is not listed, or differs from its listed checksum."""
    listed = {name: digest for digest, name in (line.split() for line in CHECKSUM_FILE.read_text("utf-8").splitlines())}
    wrong = {jar.name: sha256 for jar in jars if (sha256 := _digest(jar)) != listed.get(jar.name)}
    if not wrong:
        return
    differences = "\n  ".join(
        f"{name}: SHA-256 {sha256}, expected {listed.get(name, 'no jar of that name')}"
        for name, sha256 in wrong.items()
    )
    raise MissingError(
        f"what was downloaded as the {request.title} jars is not what Surveyor was tested with, and is not used:\n"
        f"  {differences}\nFind out what the mirror or proxy serves (`sha256sum`, Maven's settings.xml); then run "
        f"{request.download_command} again."
    )


def _digest(jar: Path) -> str:
    with jar.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


_KAFKAS: Final = (*OLDER_KAFKAS, KAFKA_VERSION, NEWER_KAFKA, *OTHER_KRAFT_KAFKAS)


def _rewrite_checksums() -> None:
    """Rewrite the list from the jars that each set resolves to now, without the cache, which has listed jars only.

    Each name is listed once.
    """
    _, resolve = choose_resolver(zookeeper_jars())
    sets = (_delta(), _s3(), _azure(), _gcs(), _kdc(), _hdfs(), _yarn(), _tiered_storage(), *map(_kafka, _KAFKAS))
    with tempfile.TemporaryDirectory() as workshop:
        for number, request in enumerate(sets):
            jars = Path(workshop, str(number))
            jars.mkdir()
            resolve(request, jars)
        digests = {jar.name: _digest(jar) for jar in Path(workshop).glob("*/*.jar")}
    CHECKSUM_FILE.write_text("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)), "utf-8")


_SETS: Final[dict[str, Callable[[], list[Path]]]] = {
    "delta": lambda: spark_jars(""),
    "s3": lambda: spark_jars("s3://"),
    "azure": lambda: spark_jars("abfss://"),
    "gcs": lambda: spark_jars("gs://"),
    "kafka": kafka_jars,
}
"""The jars of a set, by the argument that selects it."""


def main(arguments: list[str]) -> int:
    """Print the jars of a set, as `spark-submit --jars` takes them, and download them if they are missing.

    With `s3`, `azure` or `gcs` these are Delta's and those for warehouses on S3, ADLS or GCS. With `checksums`, rewrite
    the list of checksums.
    """
    try:
        if arguments == ["checksums"]:
            _rewrite_checksums()
            return 0
        if len(arguments) != 1 or arguments[0] not in _SETS:
            expected = ", ".join(_SETS)
            sys.stderr.write(
                f"{' '.join(arguments)!r} is not a set of jars; expected one of {expected} (HDFS needs delta)\n"
            )
            return ExitCode.USAGE
        sys.stdout.write(",".join(map(str, _SETS[arguments[0]]())) + "\n")
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
