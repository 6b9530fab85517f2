"""Memory that was used for a moment and is kept by allocators: a daemon gives it back to the system."""

import ctypes
from contextlib import suppress
from typing import Final

import pyarrow as pa

_C_LIBRARY: Final = ctypes.CDLL(None)


def return_unused() -> None:
    """Give unused memory of Arrow and of the C library back; the latter is possible with glibc only."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):
        _C_LIBRARY.malloc_trim(0)
