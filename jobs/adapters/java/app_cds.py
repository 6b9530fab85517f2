"""Archives of loaded classes (AppCDS), which halve the processor time that an embedded server needs to start.

An archive's name depends on the server, the Java and the jars, so another Java or jar has another archive. Without an
archive, or with one that the JVM rejects, a start only takes longer. No error with an archive reaches the caller.
`make setup` records them by `tests.record_app_cds`.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import cache_folder


def archive_of(server: str, jars: Sequence[Path]) -> Path:
    """Return the path of the archive for a server with this class path, which may not exist."""
    parts = [find_java().resolve(), *jars]
    made_of = "\n".join(f"{part} {part.stat().st_size} {part.stat().st_mtime_ns}" for part in parts)
    name = f"{server}-{_digest(str(jars[0].parent))}-{_digest(made_of)}.jsa"
    return cache_folder().absolute() / "archives" / name


def usable_archive(server: str, jars: Callable[[], Sequence[Path]]) -> Path | None:
    """Return the archive of a server with this class path; None if it is missing or unreadable, or after any error."""
    try:
        archive = archive_of(server, jars())
        return archive if archive.is_file() and os.access(archive, os.R_OK) else None
    except Exception:  # noqa: BLE001 - an archive only saves time, so its errors must not stop a start
        return None


def shared_classes(server: str, jars: Callable[[], Sequence[Path]]) -> list[str]:
    """Return the option that makes Java use the archive; an empty list without an archive."""
    archive = usable_archive(server, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive else []


def _digest(text: str) -> str:
    """Return a hash prefix that is long enough for distinct file names."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
