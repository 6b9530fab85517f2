"""A shell as a user has it: PATH and HOME, and nothing of what the tests set to be quick.

The home directory is empty, but for the jars: those that this machine has downloaded are not downloaded again.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import cache_folder, delta_jars

SHELL: Final = "/bin/bash"

_TESTS_OWN: Final = str(Path(sys.prefix, "bin"))

_SECONDS: Final = 1800.0


def path() -> str:
    """Return PATH without the tests' own environment; a Java that JAVA_HOME alone names is on it."""
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != _TESTS_OWN]
    return os.pathsep.join([*folders, str(java_home() / "bin")])


def home(folder: Path) -> Path:
    """Make a home directory of which the cache has the machine's jars."""
    delta_jars()
    cache = folder / ".cache" / "kafka-surveyor"
    cache.mkdir(parents=True)
    (cache / "jars").symlink_to(cache_folder().absolute() / "jars")
    return folder


def bare(command: str, folder: Path, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in a folder; `variables` are those that the page which shows it names."""
    given = {"PATH": path(), "HOME": str(home), **variables}
    return subprocess.run(
        [SHELL, "-c", command],
        cwd=folder,
        env=given,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
