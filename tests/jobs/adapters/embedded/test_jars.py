"""The cache of jars, with a shell script in place of Maven; the two real ways are run for Delta's two jars."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from jobs.adapters.java import jars
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import cache_folder, delta_jars, kafka_jars, main, spark_jars, zookeeper_jars
from jobs.core.errors import ExitCode, MissingError

DELTA = ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]

# Puts one jar into the folder that Maven should fill, and notes that it ran.
FAKE_MVN = """\
#!/bin/sh
echo ran >> "{notes}"
for option; do case $option in -DoutputDirectory=*) folder="${{option#*=}}";; esac; done
echo content > "$folder/some.jar"
{ending}
"""


CHECKSUM = "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53"
"""Of what it puts there."""


@pytest.fixture
def some_jar_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "jars.sha256"
    known.write_text(f"{CHECKSUM}  some.jar\n")
    monkeypatch.setattr(jars, "CHECKSUM_FILE", known)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SURVEYOR_CACHE", str(folder))
    return folder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def put_mvn_on_path(notes: Path, monkeypatch: pytest.MonkeyPatch, ending: str = "exit 0") -> None:
    folder = notes.parent / "bin"
    folder.mkdir(exist_ok=True)
    mvn = folder / "mvn"
    mvn.write_text(FAKE_MVN.format(notes=notes, ending=ending))
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in (cache / "jars").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("way", ["mvn, where it is there", "ivy"])
def test_delta_is_its_own_two_jars(
    way: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "ivy":
        (tmp_path / "java").symlink_to(find_java())
        monkeypatch.setenv("PATH", str(tmp_path))

    assert names(delta_jars()) == DELTA
    assert leftovers(cache) == []
    assert capsys.readouterr().err.startswith("resolving Delta 4.4.0 jars with ")


def test_a_folder_without_its_jars_does_not_count(cache: Path) -> None:
    (cache / "jars" / "delta-spark_4.2_2.13-4.4.0").mkdir(parents=True)
    again = r"move this folder aside, and run `python -m jobs\.adapters\.java\.jars delta` again"
    with pytest.raises(MissingError, match=f"has no jars: {again}"):
        delta_jars()


def fill(cache: Path, set_name: str, *jars: str) -> Path:
    folder = cache / "jars" / set_name
    folder.mkdir(parents=True)
    for jar in jars:
        (folder / jar).touch()
    return folder


OF_DELTA = "delta-spark_4.2_2.13-4.4.0"
"""The folder of Delta's jars."""


@pytest.mark.parametrize(
    "jars",
    [
        ["delta-spark_4.2_2.13-4.4.0-patched.jar", "delta-storage-4.4.1.jar"],
        ["io.delta_delta-spark_4.2_2.13-4.4.0.jar", "io.delta_delta-storage-4.4.0.jar"],  # as spark-submit --packages
    ],
)
def test_a_folder_that_was_filled_by_hand_is_used(
    cache: Path, capsys: pytest.CaptureFixture[str], jars: list[str]
) -> None:
    fill(cache, OF_DELTA, *jars)
    assert names(delta_jars()) == jars
    assert capsys.readouterr().err == ""


def test_the_bundle_of_amazons_sdk_is_used(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cache, OF_DELTA, *DELTA)
    fill(cache, "hadoop-aws-3.5.0", "bundle-2.35.4.jar", "hadoop-aws-3.5.0.jar")
    assert names(spark_jars("s3://bucket/surveyor")) == [*DELTA, "bundle-2.35.4.jar", "hadoop-aws-3.5.0.jar"]
    assert capsys.readouterr().err == ""


def test_a_jar_that_seems_to_be_missing_is_named_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fill(cache, OF_DELTA, DELTA[0])
    assert names(delta_jars() + delta_jars()) == [DELTA[0], DELTA[0]]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{folder} seems to lack delta-storage; if classes are missing, move this folder aside")


@pytest.mark.parametrize("removed", DELTA)
def test_a_set_that_lost_an_artifact_of_its_own_is_refused(
    cache: Path, capsys: pytest.CaptureFixture[str], removed: str
) -> None:
    """Any version of it is enough."""
    folder = fill(cache, OF_DELTA, *({*DELTA} - {removed}))
    (folder / "jars.txt").write_text("\n".join(DELTA))
    with pytest.raises(MissingError, match=r"lacks delta-.*: move this folder aside"):
        delta_jars()

    (folder / removed.replace("4.4.0", "4.4.0-patched")).touch()
    assert len(delta_jars()) == len(DELTA)
    assert f"seems to lack {removed}; if" in capsys.readouterr().err


def test_a_set_that_lost_another_jar_is_used(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fill(cache, OF_DELTA, *DELTA)
    (folder / "jars.txt").write_text("\n".join([*DELTA, "other-1.jar"]))
    assert names(delta_jars()) == DELTA
    assert "seems to lack other-1.jar; if" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["d\u00e9j\u00e0.jar".encode("latin-1"), None])
def test_a_list_that_cannot_be_read_is_none(cache: Path, content: bytes | None) -> None:
    listed = fill(cache, OF_DELTA, *DELTA) / "jars.txt"
    if content is None:
        listed.mkdir()
    else:
        listed.write_bytes(content)
    assert names(delta_jars()) == DELTA


def test_a_download_of_nothing_is_no_set(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven copies nothing for a faulty POM, and ends without an error."""
    monkeypatch.setattr(jars, "choose_resolver", lambda _: ("mvn", lambda *_: None))
    with pytest.raises(MissingError, match=r"mvn reported no error, and fetched none of the Delta 4\.4\.0 jars"):
        delta_jars()
    assert leftovers(cache) == []


def test_an_unknown_set_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["S3"]) == ExitCode.USAGE
    assert "'S3' is not a set of jars; expected one of delta, s3, azure, gcs, kafka" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("warehouse", "expected"),
    [
        ("s3://bucket/surveyor", ["delta.jar", "s3.jar"]),
        ("s3a://bucket/surveyor", ["delta.jar", "s3.jar"]),
        ("abfss://lake@account.dfs.core.windows.net/surveyor", ["delta.jar", "adls.jar"]),
        ("gs://bucket/surveyor", ["delta.jar", "gcs.jar"]),
        ("hdfs://name/surveyor", ["delta.jar"]),
        ("/data/surveyor", ["delta.jar"]),
        ("", ["delta.jar"]),
    ],
)
def test_a_warehouse_on_an_object_store_needs_more(
    warehouse: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_cached", lambda jar_set: [Path(f"{jar_set.title.split()[0].lower()}.jar")])

    assert names(spark_jars(warehouse)) == expected


def test_kafka_class_path_has_one_slf4j_binding() -> None:
    slf4j = [name for name in names(kafka_jars()) if name.startswith("slf4j")]

    assert slf4j == ["slf4j-api-1.7.36.jar", "slf4j-reload4j-1.7.36.jar"]


def test_zookeeper_is_pysparks_own() -> None:
    assert "zookeeper-3.9.5.jar" in names(zookeeper_jars())


@pytest.mark.usefixtures("some_jar_is_known")
def test_a_set_is_resolved_once(cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn_on_path(notes, monkeypatch)

    first, second = delta_jars(), delta_jars()

    assert first == second == [cache / "jars" / "delta-spark_4.2_2.13-4.4.0" / "some.jar"]
    assert notes.read_text() == "ran\n"


@pytest.mark.usefixtures("some_jar_is_known")
def test_two_at_once_do_no_harm(cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn_on_path(notes, monkeypatch, ending="sleep 0.5")

    with ThreadPoolExecutor(2) as both:
        jars = list(both.map(lambda _: delta_jars(), range(2)))

    assert names(jars[0]) == names(jars[1]) == ["some.jar"]
    assert notes.read_text() == "ran\nran\n"
    assert leftovers(cache) == []


def test_another_jar_than_was_tested_is_not_used(cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn_on_path(notes, monkeypatch)

    with pytest.raises(
        MissingError, match=rf"some.jar: SHA-256 {CHECKSUM}, expected no jar of that name(?s:.*)jars delta` again"
    ):
        delta_jars()
    assert list((cache / "jars").iterdir()) == []


@pytest.mark.usefixtures("some_jar_is_known")
def test_other_versions_are_listed_and_used_then(cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn_on_path(notes, monkeypatch)
    jars.CHECKSUM_FILE.write_text(f"{'0' * 64}  gone.jar\n")

    assert main(["checksums"]) == 0

    assert jars.CHECKSUM_FILE.read_text() == f"{CHECKSUM}  some.jar\n"
    assert not cache.exists()
    assert names(delta_jars()) == ["some.jar"]


def test_failure_shows_what_the_tool_said_and_leaves_nothing(
    cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_mvn_on_path(notes, monkeypatch, ending="echo 'Could not transfer artifact'; exit 1")

    with pytest.raises(MissingError, match=r"(?s)Delta 4.4.0.*Could not transfer artifact.*jobs.adapters.java.jars"):
        delta_jars()
    assert list((cache / "jars").iterdir()) == []


def test_cache_that_cannot_be_written_is_named(cache: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn_on_path(notes, monkeypatch)
    cache.write_text("a file where a folder should be")

    with pytest.raises(MissingError, match=r"cannot write .*SURVEYOR_CACHE") as raised:
        delta_jars()
    assert raised.value.exit_code is ExitCode.MISSING


@pytest.mark.parametrize(
    ("surveyor", "xdg", "expected"),
    [
        ("/a", "/b", "/a"),
        ("", "/b", "/b/kafka-surveyor"),
        ("", "", "/home/me/.cache/kafka-surveyor"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, surveyor: str, xdg: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SURVEYOR_CACHE", surveyor)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)

    assert cache_folder() == Path(expected)


def test_no_home_directory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SURVEYOR_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)

    with pytest.raises(MissingError, match="set SURVEYOR_CACHE"):
        cache_folder()


def test_a_cache_that_cannot_be_looked_into_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path.is_dir raises there, and what is not seen is not there."""
    cache.parent.joinpath("file").touch()
    monkeypatch.setenv("SURVEYOR_CACHE", str(cache.parent / "file" / "cache"))

    with pytest.raises(MissingError, match="cannot write"):
        delta_jars()


def use_spark(monkeypatch: pytest.MonkeyPatch, package: Path, home: Path) -> None:
    monkeypatch.setattr("jobs.adapters.java.jars.find_spec", lambda _: SimpleNamespace(origin=package / "__init__.py"))
    monkeypatch.setenv("SPARK_HOME", str(home))


@pytest.mark.parametrize("in_package", [True, False])
def test_where_sparks_jars_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_package: bool) -> None:
    """In the package pyspark, or under spark-submit, which imports it from a zip, in the folder of its Spark."""
    package = tmp_path / "python" / "lib" / "pyspark.zip" / "pyspark"
    spark = package if in_package else tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "some.jar").touch()
    use_spark(monkeypatch, package, tmp_path / "spark")

    assert zookeeper_jars() == [spark / "jars" / "some.jar"]


def test_no_jars_of_spark_anywhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_spark(monkeypatch, tmp_path, tmp_path / "spark")

    with pytest.raises(MissingError, match="set SPARK_HOME to a Spark"):
        zookeeper_jars()
