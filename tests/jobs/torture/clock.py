"""A wall clock that can be set for some processes alone, the JVM in them included: clock.c, loaded before all else."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

COMPILER: Final = shutil.which("cc")
"""Without one all clocks are true."""

_SOURCE: Final = Path(__file__).with_suffix(".c")


class Clock:
    """True until it is set; `environment` is that of who goes by it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock.so"
        self.environment: dict[str, str] = {}
        self.set(0)
        if COMPILER is not None:
            subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE], check=True)
            self.environment = {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Be so many seconds ahead of the true time from now on, or behind it."""
        self._file.touch()
        with self._file.open("r+b") as opened:  # the same file: who goes by it has it mapped
            opened.write(struct.pack("@l", seconds))
