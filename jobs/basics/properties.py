"""Java properties, as Kafka reads them, that say how a server is spoken to, and as whom; passwords among them.

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
    import javaproperties  # noqa: PLC0415 - imports asyncio, which who has no such file need not wait for

    try:
        properties = javaproperties.loads(path.read_text(encoding="utf-8"))
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise UsageError(f"cannot read {option} {path}: {_why(error)}") from None
    found = {key: value.strip() for key, value in properties.items()}  # as Kafka's ConfigDef does
    for key, value in found.items():
        if key not in known or not value:
            raise UsageError(f"{option} {path}: {key!r} is not known or has no value; known are {', '.join(known)}")
    if mode & stat.S_IROTH and any(_is_secret(key) for key in found):
        raise UsageError(f"{option} {path} has a password in it and everybody may read it: chmod o= {path}")
    return found


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8 text"
    return "a \\u in it is not followed by four digits"


def _is_secret(key: str) -> bool:
    """Whether a key's value must be kept.

    >>> [_is_secret(key) for key in ("sasl.password", "ssl.key.password", "ssl.ca.location")]
    [True, True, False]
    """
    return key.endswith("password")
