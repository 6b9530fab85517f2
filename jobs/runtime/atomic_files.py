"""Atomic writes of output files (--out), so that readers see the old or the new content and never a part.

The new file is written next to the old one and renamed. A device or pipe is written to directly. An error message
contains the option, and the old file is unchanged then.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from jobs.core.errors import SurveyorError, UsageError

_READABLE_BY_ALL: Final = 0o644
"""Mode of the file, as other users may read or collect it."""

_PREFIX_CHARS: Final = 40
"""Characters of the file's name in the temporary name, which must not become too long."""


def refuse_unwritable(out: Path, option: str = "--out") -> None:
    """Raise UsageError if the file cannot be written; called before any other work."""
    if str(out) in {".", "-"}:  # "." is an empty name, and "-" means stdout in other programs
        raise UsageError(f"{option} names no file: give the name of the file to write")
    special = out.exists() and not out.is_file() and not out.is_dir()
    if not (os.access(out, os.W_OK) if special else not out.is_dir() and _accepts_files(out.absolute().parent)):
        raise UsageError(f"{option} {out} cannot be written: name a file in a folder that exists and can be written")


def _accepts_files(folder: Path) -> bool:
    """Return whether a file can be created in the folder; permissions alone do not decide that for root."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def replace_file(out: Path, text: str) -> int:
    """Replace the file, following links, and return its size in bytes; raise SurveyorError on failure."""
    content = text.encode("utf-8", errors="replace")
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(content)
        else:
            _replace(out.resolve(), content)
    except OSError as error:
        raise SurveyorError(
            f"--out {out} could not be written: {error.strerror}; an existing file is unchanged; fix that and run the "
            "command again",
        ) from None
    return len(content)


def _replace(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it; node_exporter's textfile collector only reads *.prom, so it ignores it."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:_PREFIX_CHARS]}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_READABLE_BY_ALL)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
