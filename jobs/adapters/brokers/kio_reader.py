"""kio, imported as if Hypothesis were not installed; whoever needs kio imports it from here first.

Where Hypothesis is installed, kio imports it at once and registers its types with it, which takes time at each start
and leaves a folder `.hypothesis` wherever the user is.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["SerialError", "entity_reader"]


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    was_imported = package in sys.modules
    previous = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment] # what `import` takes for "not to be had"
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
