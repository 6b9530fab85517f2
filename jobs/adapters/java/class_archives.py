"""Archives of loaded classes (AppCDS), so that an embedded server starts in half of the processor time.

An archive lies beside the jars it was made of and is named for them, for the Java and for the server: another Java or
another jar has another archive. A missing one costs nothing but time, and so does one that the JVM does not accept:
no failure around an archive reaches the caller, who starts without it.
`python -m jobs.adapters.embedded.record_archives` makes them.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import cache_folder


def archive_of(server: str, jars: Sequence[Path]) -> Path:
    """Where the archive of a server with this class path is, or belongs."""
    parts = [find_java().resolve(), *jars]
    made_of = "\n".join(f"{part} {part.stat().st_size} {part.stat().st_mtime_ns}" for part in parts)
    name = f"{server}-{_digest(str(jars[0].parent))}-{_digest(made_of)}.jsa"
    return cache_folder().absolute() / "archives" / name


def usable_archive(server: str, jars: Callable[[], Sequence[Path]]) -> Path | None:
    """Return the archive of a server with this class path; None where it is missing, unreadable or cannot be named."""
    try:
        archive = archive_of(server, jars())
        return archive if archive.is_file() and os.access(archive, os.R_OK) else None
    except Exception:  # noqa: BLE001 - an archive saves time alone: whatever is wrong with it must not stop a start
        return None


def shared_classes(server: str, jars: Callable[[], Sequence[Path]]) -> list[str]:
    """Return the option that makes Java use the archive; none where there is no archive."""
    archive = usable_archive(server, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive else []


def remove_outdated(archive: Path) -> None:
    """Remove what was made of earlier jars in the same folder: an archive has up to 190 MB, and nothing uses those."""
    same_folder, _, _ = archive.name.rpartition("-")
    for earlier in archive.parent.glob(f"{same_folder}-*.jsa"):
        if earlier != archive:
            earlier.unlink(missing_ok=True)


def _digest(text: str) -> str:
    """As much of a hash as tells files apart by their names."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
