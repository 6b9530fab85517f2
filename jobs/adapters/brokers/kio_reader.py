"""kio, imported as if Hypothesis were not installed; other modules must import this one before kio.

If Hypothesis is installed, kio imports it and registers its types there, which slows each start down and creates a
folder `.hypothesis` in the working directory.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["SerialError", "entity_reader"]


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    was_imported = package in sys.modules
    previous = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment] # makes `import` fail
    try:
        yield
    finally:
        if was_imported and previous is not None:
            sys.modules[package] = previous
        else:
            del sys.modules[package]


with _hidden("hypothesis"):
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError
