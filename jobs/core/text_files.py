"""Text files as people have them: with a byte order mark, in UTF-16 as PowerShell writes it, with CRLF.

Every input file is read here: JSON, CSV, TOML and properties. Corresponds to what Kafka's tools take, and takes more.
"""

import codecs
from pathlib import Path
from typing import Final

from jobs.core.errors import UsageError

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and what they stand for; the mark of UTF-32 begins with that of UTF-16."""


def read_text_file(path: Path, name: str = "") -> str:
    """Return the text of a file, each line ending in a newline alone; raise UsageError for what is no text.

    `name` is how messages call the file: the option and the path.
    """
    called = name or str(path)
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {called}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {called}: it is no UTF-8 text, and no UTF-16; save it as UTF-8") from None


def decoded(content: bytes) -> str:
    r"""Return the text of UTF-8, UTF-16 or UTF-32.

    >>> [decoded("a\r\nb".encode(encoding)) for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")]
    ['a\nb', 'a\nb', 'a\nb', 'a\nb', 'a\nb']
    """
    text = content.decode(_encoding(content))
    return text.replace("\r\n", "\n").removeprefix("\ufeff")


def _encoding(content: bytes) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding
    start = content[:2]
    if len(start) == 2 and 0 in start and any(start):  # noqa: PLR2004 - a character of two bytes, one of them zero
        return "utf-16-be" if start[0] == 0 else "utf-16-le"
    return "utf-8"
