"""Find the Java that runs Spark, the embedded servers and Ivy.

JAVA_HOME decides if it is set, as it does for Spark itself; otherwise the `java` on PATH.
Spark 4 needs at least 17; Kafka 3.9 with ZooKeeper is released for nothing newer than 21.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from jobs.core.errors import MissingError

OLDEST, NEWEST = 17, 21
_VERSION = re.compile(r'version "([^"]+)"')
_MAJOR = re.compile(r"(?:1\.)?(\d+)")
_ADVICE = (
    f"Surveyor needs Java {OLDEST} to {NEWEST}: install one (`apt-get install openjdk-17-jdk-headless`) "
    "or set JAVA_HOME to it"
)


def find_java() -> Path:
    """Return the `java` to run; raise MissingError if there is none of a supported version."""
    java = _from_home() or _from_path()
    major = _MAJOR.match(java_version(java))
    if major is None:
        raise MissingError(f"{java} does not report its version; {_ADVICE}")
    if not OLDEST <= int(major[1]) <= NEWEST:
        raise MissingError(f"{java} is Java {major[1]}; {_ADVICE}")
    return java


def java_home() -> Path:
    """Return the folder of that Java, as in JAVA_HOME."""
    return find_java().resolve().parents[1]


def _from_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    java = Path(home, "bin", "java")
    if not os.access(java, os.X_OK):
        raise MissingError(f"JAVA_HOME is {home}, but there is no program {java}; {_ADVICE}")
    return java


def _from_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise MissingError(f"cannot find Java: JAVA_HOME is not set and there is no `java` on PATH; {_ADVICE}")
    return Path(java)


@cache
def java_version(java: Path) -> str:
    """Return 17.0.15 for `openjdk version "17.0.15"`, 1.8.0_292 for `java version "1.8.0_292"`, "" if unknown."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{java} cannot be run: {error}; {_ADVICE}") from error
    match = _VERSION.search(output.stderr)
    return match[1] if match else ""


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_java()}\n")
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(missing.exit_code)
