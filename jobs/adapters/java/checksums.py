"""What each jar must be: its SHA-256, in `jars.sha256` beside this file, as `sha256sum` writes and reads it.

Maven and Ivy hold what they download against checksums from the same place; these came with Surveyor. A jar of another
content, or one that nobody has listed, is not put on a class path. `python -m jobs.adapters.java.jars checksums` writes
the list anew, for whoever chooses other versions and has looked at them.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from jobs.core.errors import MissingError

CHECKSUM_FILE: Final = Path(__file__).with_name("jars.sha256")


def refuse_unlisted(title: str, jars: Iterable[Path]) -> None:
    """Raise MissingError where a jar is not the one that is listed under its name."""
    listed = {name: digest for digest, name in (line.split() for line in CHECKSUM_FILE.read_text("utf-8").splitlines())}
    wrong = {jar.name: sha256 for jar in jars if (sha256 := _digest(jar)) != listed.get(jar.name)}
    if not wrong:
        return
    told = "\n  ".join(
        f"{name}: SHA-256 {sha256}, expected {listed.get(name, 'no jar of that name')}"
        for name, sha256 in wrong.items()
    )
    raise MissingError(
        f"what was downloaded as the {title} jars is not what Surveyor was tested with, and is not used:\n  {told}\n"
        "Find out what the mirror or proxy serves (`sha256sum`, Maven's settings.xml); then run "
        "`python -m jobs.adapters.java.jars` again."
    )


def _digest(jar: Path) -> str:
    with jar.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_list(jars: Iterable[Path]) -> None:
    """List these jars, each name once, in the place of all that were listed."""
    digests = {jar.name: _digest(jar) for jar in jars}
    CHECKSUM_FILE.write_text("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)), "utf-8")
