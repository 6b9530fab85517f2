"""The files of a Delta table on disk, and the removal of files to which no needed version refers.

deltalake's vacuum finds the data files. The log is cleaned here, because deltalake cleans it by age alone and a version
that a snapshot refers to may be of any age. The log is removed up to a checkpoint, as Delta itself does.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from deltalake import DeltaTable
from pyarrow import fs

from jobs.adapters.delta.arrow_reads import file_system
from jobs.adapters.delta.warehouse_paths import is_local

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
        (source, source_folder), (target, to) = (file_system(table.path) for table in (self, other))
        for name, copy in names.items():
            if is_local(other.path):  # stores have no folders
                target.create_dir(_joined(to, copy).rpartition("/")[0])
            fs.copy_files(_joined(source_folder, name), _joined(to, copy), source, target)

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
        system, root = file_system(self.path)
        base = _joined(root, folder)
        infos = system.get_file_info(fs.FileSelector(base, recursive=True))
        files = {info.path.removeprefix(base).lstrip("/"): info.size for info in infos if info.is_file}
        return {name: size for name, size in files.items() if not name.startswith(f"{LOG}/")}

    def _remove(self, name: str) -> None:
        system, root = file_system(self.path)
        with suppress(FileNotFoundError):
            system.delete_file(_joined(root, name))


def _joined(folder: str, name: str) -> str:
    return "/".join(part for part in (folder, name) if part)
