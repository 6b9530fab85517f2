"""A file that a command writes for others to read, by --out: whole or not at all.

Readers see what it was or what it becomes, never a part of it: the new one is made beside it and moved to its place.
What is no regular file, as a device or a pipe, is written to and stays what it is. In: a path and the text. An error
names the option and leaves the file as it was.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from jobs.core.errors import SurveyorError, UsageError

_READABLE_BY_ALL: Final = 0o644
"""Whoever collects it, or opens it, may be another user."""

_PREFIX_CHARS: Final = 40
"""Characters of its name that the one beside it begins with, after a dot: a name may be as long as names can be."""


def refuse_unwritable(out: Path, option: str = "--out") -> None:
    """Find out before anything is read that the file could not be written; raise UsageError."""
    if str(out) in {".", "-"}:  # which an empty name is, and what other programs take for stdout
        raise UsageError(f"{option} names no file: give the name of one that is to be written")
    special = out.exists() and not out.is_file() and not out.is_dir()
    if not (os.access(out, os.W_OK) if special else not out.is_dir() and _accepts_files(out.absolute().parent)):
        raise UsageError(f"{option} {out} cannot be written: name a file in a folder that exists and can be written")


def _accepts_files(folder: Path) -> bool:
    """Try it: permissions say nothing to root, who may write to /proc by them."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def replace_file(out: Path, text: str) -> int:
    """Write it and return its bytes; a link leads to what is written. Raise SurveyorError where that fails."""
    content = text.encode("utf-8", errors="replace")
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(content)
        else:
            _replace(out.resolve(), content)
    except OSError as error:
        raise SurveyorError(
            f"--out {out} could not be written: {error.strerror}; a file that was there is what it was before, so "
            "mend that and run the command again",
        ) from None
    return len(content)


def _replace(path: Path, content: bytes) -> None:
    """Make it under a name that node_exporter's textfile collector, which reads *.prom, passes over."""
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
