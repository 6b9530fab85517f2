"""Checks of a warehouse's folder before any work starts, and one-line messages for failed writes.

deltalake converts local paths to URLs, and panics or looks elsewhere for characters that a URL cannot contain. Spark
reads paths as glob patterns. deltalake, Arrow and Spark agree on all other paths, including blanks and umlauts.
"""

import errno
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from jobs.core.errors import SurveyorError, UnreadableError, UsageError

_IMPOSSIBLE: Final = re.compile(r"[\[\]{}*?^|\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

MAX_NAME_CHARS: Final = 200
"""Maximum characters of an encoded cluster name, so that `cluster=NAME` is a valid folder name."""

_REASONS: Final = {
    "No space left on device": "no space is left on the disk",
    "Disk quota exceeded": "the disk quota is used up",
    "Read-only file system": "the file system is read-only",
    "Permission denied": "permission was denied",
}
"""Messages of the operating system, which appear in the errors of all libraries."""


def is_local(path: str) -> bool:
    return "://" not in path


def absolute(warehouse: str) -> str:
    """Return a warehouse's absolute path, for processes with another working directory."""
    return str(Path(warehouse).absolute()) if is_local(warehouse) else warehouse


def no_warehouse(folder: str, hint: str = "") -> UnreadableError:
    """Return the error for a folder that is not a warehouse; `hint` is a further remedy."""
    more = f", or {hint}" if hint else ""
    return UnreadableError(f"no warehouse at {absolute(folder)}; check --warehouse (SURVEYOR_WAREHOUSE){more}")


def refuse_invalid_path(warehouse: str) -> None:
    """Raise UsageError for a path that cannot be a warehouse, UnreadableError if part of it is a file."""
    if not is_local(warehouse):
        return
    folder = Path(warehouse).absolute()
    if odd := _IMPOSSIBLE.search(str(folder)):
        raise UsageError(
            f"--warehouse {warehouse!r}: {odd[0]!r} in the path {str(folder)!r} cannot be part of a Delta table's "
            r"address, nor can [ ] { } * ? ^ | \, control characters, and % before two hexadecimal digits; "
            "choose another folder, or a symbolic link without them",
        )
    for part in (folder, *folder.parents):
        if part.exists():
            if not part.is_dir():
                raise UnreadableError(
                    f"no warehouse at {warehouse}: {part} is a file; name a folder with --warehouse "
                    "(SURVEYOR_WAREHOUSE)"
                )
            return


def refuse_invalid_cluster_name(cluster: str) -> None:
    """Raise UsageError for a cluster name that cannot be a partition value, which is part of a folder name."""
    if not cluster.strip() or _CONTROL.search(cluster) or len(quote(cluster, safe="")) > MAX_NAME_CHARS:
        raise UsageError(
            f"{cluster!r} cannot be the name of a cluster: give --cluster one of printable characters, "
            f"{MAX_NAME_CHARS} of them at most, those beyond ASCII and punctuation counting as several",
        )


def refuse_unwritable(warehouse: str) -> None:
    """Raise SurveyorError if the folder, or its first existing parent, is not writable."""
    if not is_local(warehouse):
        return
    folder = Path(warehouse).absolute()
    existing = next(part for part in (folder, *folder.parents) if part.is_dir())
    try:
        Path(
            tempfile.mkdtemp(prefix=".surveyor-", dir=existing)
        ).rmdir()  # for root, permissions do not tell: /proc looks writable
    except OSError as error:
        raise SurveyorError(
            f"--warehouse {warehouse} cannot be written: no folder can be made in {existing}: "
            f"{_REASONS.get(error.strerror or '', error.strerror)}; "
            "choose another folder, or fix its permissions",
        ) from None


def refuse_without_log(table: str, path: str) -> None:
    """Raise UnreadableError for a table's folder that has files but no log."""
    folder = Path(path)
    if is_local(path) and folder.is_dir() and any(folder.iterdir()) and not any(folder.glob("_delta_log/*")):
        raise UnreadableError(
            f"table {table} has no _delta_log at {folder.absolute()}, so its files cannot be read; restore that log, "
            "or move the whole warehouse away and start again with `surveyor snapshot`",
        )


def make_all(warehouse: str, names: Sequence[str], make: Callable[[list[str]], object]) -> None:
    """Create new tables; on a local disk either all of them are created or none.

    They are created in a temporary folder of the warehouse and moved to their places. A table that another process has
    created in the meantime is kept.
    """
    if not is_local(warehouse):
        make([f"{warehouse.rstrip('/')}/{name}" for name in names])
        return
    folder = Path(warehouse)
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    building = folder / f".new-{uuid4()}"
    try:
        building.mkdir(parents=True)
        make([str(building / name) for name in names])
        for name in names:
            _move(building / name, folder / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
        for part in made:
            _remove_empty(part)


def _move(table: Path, place: Path) -> None:
    try:
        table.rename(place)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # it is not empty, or does not exist
        return


def disk_error_message(error: BaseException) -> str | None:
    """Return a one-line message for a disk error, None for any other error.

    JVM and deltalake report errors as text only, so the text is searched.
    """
    text = str(error)
    for phrase, reason in _REASONS.items():
        if phrase in text:
            return (
                f"{reason}, of the warehouse, the temporary folder (TMPDIR) or the output: unfinished work was "
                "discarded; fix that and run the same command again"
            )
    return None
