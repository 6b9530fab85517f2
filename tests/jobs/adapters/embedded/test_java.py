"""Which Java is found, and what is said when none fits; the Javas are shell scripts."""

from pathlib import Path

import pytest

from jobs.adapters.java.home import find_java
from jobs.core.errors import ExitCode, MissingError


def fake_java(folder: Path, answer: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def _only_fake_javas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("answer", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"'])
def test_java_on_path_is_taken(tmp_path: Path, answer: str) -> None:
    java = fake_java(tmp_path, answer)

    assert find_java() == java


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.1"')
    chosen = fake_java(tmp_path / "jdk" / "bin", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    assert find_java() == chosen


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ('openjdk version "11.0.2" 2019-01-15', " is Java 11;"),
        ('java version "1.8.0_292"', " is Java 8;"),
        ('openjdk version "25-ea" 2025-09-16', " is Java 25;"),
        ("What?", "does not report its version"),
    ],
)
def test_unfit_java_is_named_with_the_way_out(tmp_path: Path, answer: str, complaint: str) -> None:
    java = fake_java(tmp_path, answer)

    with pytest.raises(MissingError, match=f"{complaint}.*needs Java 17 to 21.*openjdk-17-jdk-headless") as raised:
        find_java()
    assert str(java) in str(raised.value)


def test_no_java_at_all_is_missing() -> None:
    with pytest.raises(MissingError, match=r"cannot find Java.*openjdk-17-jdk-headless") as raised:
        find_java()
    assert raised.value.exit_code is ExitCode.MISSING


def test_java_home_without_java_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    with pytest.raises(MissingError, match=r"JAVA_HOME is .*nowhere, but there is no program"):
        find_java()


def test_java_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "")
    java.write_text("#!/nowhere/sh\n")

    with pytest.raises(MissingError, match=f"{java} cannot be run"):
        find_java()
