"""The files of a Delta table on disk, and the removal of those that no needed version refers to.

deltalake's vacuum finds the data files. The log is cleaned here, because deltalake cleans it by age alone and a version
that a snapshot refers to may be of any age. The log is removed up to a checkpoint, as Delta itself does.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from pyarrow import fs

LOG: Final = "_delta_log"
_LOG_ENTRY: Final = re.compile(r"\.?([0-9]{20})\.(json|crc|checkpoint\.parquet)(\.crc)?")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table's folder."""

    path: str

    def data(self) -> dict[str, int]:
        """Return the bytes of all data files by path within the table, referenced or not."""
        return {name: size for name, size in self._list("").items() if name.endswith(".parquet")}

    def unneeded(self, kept_versions: Iterable[int], grace_hours: int) -> list[str]:
        """Return the data files that neither the newest version nor one of `kept_versions` refers to.

        Files that were replaced or written within `grace_hours` are kept, since another process may read them or be
        about to refer to them.
        """
        existing = {
            name.rpartition("/")[2]: name for name in self.data()
        }  # deltalake also returns files that no longer exist
        vacuumed = (name.rpartition("/")[2] for name in self._vacuum(kept_versions, grace_hours, dry_run=True))
        return [existing[name] for name in vacuumed if name in existing]

    def remove_unneeded(self, kept_versions: Iterable[int], grace_hours: int) -> int:
        """Remove the unneeded files; return their number. Without such files the table gets no new version."""
        kept_versions = set(kept_versions)
        unneeded = self.unneeded(kept_versions, grace_hours)
        if unneeded:
            self._vacuum(kept_versions, grace_hours, dry_run=False)
        return len(unneeded)

    def clean_log(self, kept_versions: Iterable[int]) -> int:
        """Remove log entries older than the last checkpoint at or before every needed version; return their number.

        The oldest are removed first, so after a crash the log is complete from some version on.
        """
        entries = self._log_entries()
        oldest = min([*self._readable(kept_versions), DeltaTable(self.path).version()])
        starts = [version for version, kind in entries.values() if kind.startswith("checkpoint") and version <= oldest]
        old = sorted((version, name) for name, (version, _) in entries.items() if version < max(starts, default=0))
        for _, name in old:
            self._remove(f"{LOG}/{name}")
        return len(old)

    def copy_to(self, other: "TableFiles", names: Mapping[str, str]) -> None:
        """Copy data files; `names` maps paths in this table to paths in `other`. Neither table's log changes."""
        (source, of), (target, to) = (table._system() for table in (self, other))  # noqa: SLF001 - one of its kind
        for name, copy in names.items():
            target.create_dir(f"{to}/{copy}".rpartition("/")[0])
            fs.copy_files(f"{of}/{name}", f"{to}/{copy}", source, target)

    def _vacuum(self, kept_versions: Iterable[int], grace_hours: int, *, dry_run: bool) -> list[str]:
        table = DeltaTable(self.path)
        quick = {"retention_hours": grace_hours, "enforce_retention_duration": False, "full": True}
        candidates = table.vacuum(dry_run=True, **quick)  # type: ignore[arg-type]
        if not candidates:
            return []
        return table.vacuum(dry_run=dry_run, keep_versions=sorted(self._readable(kept_versions)), **quick)  # type: ignore[arg-type]

    def _readable(self, kept_versions: Iterable[int]) -> list[int]:
        """Return the versions that the log can still restore."""
        entries = self._log_entries().values()
        checkpoints = [version for version, kind in entries if kind.startswith("checkpoint")]
        first = 0 if (0, "json") in entries else min(checkpoints, default=0)
        return [version for version in kept_versions if version >= first]

    def _log_entries(self) -> dict[str, tuple[int, str]]:
        matches = {name: _LOG_ENTRY.fullmatch(name) for name in self._list(LOG)}
        return {name: (int(match[1]), match[2]) for name, match in matches.items() if match}

    def _list(self, folder: str) -> dict[str, int]:
        """Return the bytes of files below a folder of the table by path within it; log files only for folder LOG."""
        system, root = self._system()
        base = f"{root}/{folder}".rstrip("/")
        infos = system.get_file_info(fs.FileSelector(base, recursive=True))
        files = {info.path[len(base) + 1 :]: info.size for info in infos if info.is_file}
        return {name: size for name, size in files.items() if not name.startswith(f"{LOG}/")}

    def _remove(self, name: str) -> None:
        system, root = self._system()
        with suppress(FileNotFoundError):
            system.delete_file(f"{root}/{name}")

    def _system(self) -> tuple[fs.FileSystem, str]:
        if "://" in self.path:
            system_and_root: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(self.path)
            return system_and_root
        return fs.LocalFileSystem(), str(Path(self.path).absolute())
