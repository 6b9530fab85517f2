"""Files of `key=value` lines that say how a server is spoken to, and as whom; passwords among them.

A file that holds a password must not be readable for everybody on the machine: then it is refused, not read.
"""

import stat
from collections.abc import Collection
from pathlib import Path

from jobs.basics.errors import UsageError


def read_key_values(path: Path, option: str, known: Collection[str]) -> dict[str, str]:
    """Read a file that `option` named; raise UsageError on what is not known, and where everybody may read a password.

    No value is ever part of a message.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {option} {path}: {_why(error)}") from None
    found = {}
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if key not in known or not equals:
            raise UsageError(f"{option} {path}: {key!r} is not known; known are {', '.join(known)}, each as key=value")
        found[key] = value
    if mode & stat.S_IROTH and any(_is_secret(key) for key in found):
        raise UsageError(f"{option} {path} has a password in it and everybody may read it: chmod o= {path}")
    return found


def _why(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "it is no UTF-8 text"


def _is_secret(key: str) -> bool:
    """Whether a key's value must be kept.

    >>> [_is_secret(key) for key in ("sasl.password", "ssl.key.password", "ssl.ca.location")]
    [True, True, False]
    """
    return key.endswith("password")
