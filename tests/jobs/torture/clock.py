"""A wall clock that can be set for some processes only, including their JVMs: clock.c, preloaded with LD_PRELOAD."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

COMPILER: Final = shutil.which("cc")
"""Without a compiler all clocks are true."""

_SOURCE: Final = Path(__file__).with_suffix(".c")


class Clock:
    """True until it is set; processes started with `environment` use it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock.so"
        self.environment: dict[str, str] = {}
        self.set(0)
        if COMPILER is not None:
            subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE], check=True)
            self.environment = {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set the clock so many seconds ahead of the true time, or behind it if negative."""
        self._file.touch()
        with self._file.open("r+b") as opened:  # the same file, because the processes have it mapped
            opened.write(struct.pack("@l", seconds))
