"""Reading of text files in common encodings: with a byte order mark, in UTF-16 as PowerShell writes it, with CRLF.

Every input file is read here: JSON, CSV, TOML and properties. All files that Kafka's tools accept are accepted.
"""

import codecs
import csv
import io
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
"""Byte order marks and their encodings; UTF-32 comes before UTF-16, because its mark begins with the mark of UTF-16."""


def read_text_file(path: Path, name: str = "") -> str:
    r"""Return the text of a file with \n as line ends; raise UsageError if it cannot be read or decoded.

    `name` is the file's name in messages: the option and the path.
    """
    called = name or str(path)
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {called}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {called}: it is neither UTF-8 nor UTF-16; save it as UTF-8") from None


def decoded(content: bytes) -> str:
    r"""Decode UTF-8, UTF-16 or UTF-32, with or without a byte order mark.

    >>> [decoded("a\r\nb".encode(encoding)) for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")]
    ['a\nb', 'a\nb', 'a\nb', 'a\nb', 'a\nb']
    """
    text = content.decode(_encoding(content))
    return text.replace("\r\n", "\n").removeprefix("\ufeff")


def refuse_open_quote(path: Path, text: str, delimiter: str = ",") -> None:
    """Raise UsageError for a quote of CSV that is not closed, which takes the following rows into one field."""
    if text.count('"') % 2 == 0:
        return
    rows, line = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True), 1
    try:
        for _ in rows:
            line = rows.line_num + 1
    except csv.Error:
        raise UsageError(f"{path} line {line}: a quote is not closed; expected one at the end of its field") from None


def _encoding(content: bytes) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding
    start = content[:2]
    if len(start) == 2 and 0 in start and any(start):  # noqa: PLR2004 - a two-byte character with one zero byte
        return "utf-16-be" if start[0] == 0 else "utf-16-le"
    return "utf-8"
