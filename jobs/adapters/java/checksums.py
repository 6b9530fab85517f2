"""SHA-256 checksums of the jars, in the file `jars.sha256` next to this module, in the format of `sha256sum`.

Maven and Ivy compare a download with checksums from the same server, whereas these are part of Surveyor. A jar with
other content, or one that is not listed, is never put on a class path. `python -m jobs.adapters.java.jars checksums`
rewrites the list, for a maintainer who changes versions and has checked the new jars.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from jobs.core.errors import MissingError

CHECKSUM_FILE: Final = Path(__file__).with_name("jars.sha256")


def refuse_unlisted(title: str, jars: Iterable[Path]) -> None:
    """Raise MissingError if a jar is not listed, or differs from its listed checksum."""
    listed = {name: digest for digest, name in (line.split() for line in CHECKSUM_FILE.read_text("utf-8").splitlines())}
    wrong = {jar.name: sha256 for jar in jars if (sha256 := _digest(jar)) != listed.get(jar.name)}
    if not wrong:
        return
    differences = "\n  ".join(
        f"{name}: SHA-256 {sha256}, expected {listed.get(name, 'no jar of that name')}"
        for name, sha256 in wrong.items()
    )
    raise MissingError(
        f"what was downloaded as the {title} jars is not what Surveyor was tested with, and is not used:\n"
        f"  {differences}\nFind out what the mirror or proxy serves (`sha256sum`, Maven's settings.xml); then run "
        "`python -m jobs.adapters.java.jars` again."
    )


def _digest(jar: Path) -> str:
    with jar.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_list(jars: Iterable[Path]) -> None:
    """Replace the list by the checksums of these jars; each name is listed once."""
    digests = {jar.name: _digest(jar) for jar in jars}
    CHECKSUM_FILE.write_text("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)), "utf-8")
