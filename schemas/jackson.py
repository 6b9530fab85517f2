"""JSON as Kafka's Jackson reads it from a znode, and numbers as Java parses them.

Corresponds to `kafka.utils.Json` over `ObjectMapper.readTree`: it skips a byte order mark, reads the first value and
ignores the text after it. Of a key that occurs twice it keeps the last value. Decoders of znodes use it if their fast
decoder fails, and so read such a znode with the same meaning as Kafka.
"""

import json
import re
import sys
from typing import Any, Final

_WHITESPACE: Final = " \t\r\n"
_INT: Final = re.compile(r"[+-]?\d+")
_INT_LIMIT: Final = 2**31
_MAX_DIGITS: Final = 30

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class NotJsonError(ValueError):
    """Data that Jackson does not parse."""


def first_value(data: bytes) -> Any:  # noqa: ANN401 - JSON
    r"""Parse the first JSON value of a znode; raise NotJsonError if Jackson fails.

    >>> first_value(b'\xef\xbb\xbf{"a": 1} and more')
    {'a': 1}
    """
    content = data.removeprefix(_BYTE_ORDER_MARK).decode(errors="surrogateescape")
    text = content.lstrip(_WHITESPACE)
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_bounded).raw_decode(text)
        text[:end].encode()  # what is not UTF-8 was decoded to surrogates, which cannot be encoded
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)) from None
    follower = text[end : end + 1]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_word = value is None or isinstance(value, bool)
    if follower and ((is_number and follower not in _WHITESPACE) or (is_word and follower.isalnum())):
        raise NotJsonError(f"{follower!r} follows a value")
    return value


def plain_json(data: bytes) -> bytes:
    r"""Return the first JSON value of a znode as plain JSON; raise NotJsonError if Jackson fails.

    >>> plain_json('\ufeff{"a": 1, "a": 2}}'.encode())
    b'{"a": 2}'
    """
    return encoded(first_value(data))


def encoded(value: object) -> bytes:
    """Encode a JSON value; raise NotJsonError if a text in it is not Unicode, such as half of a surrogate pair."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except (RecursionError, UnicodeEncodeError) as error:
        raise NotJsonError(str(error)) from None


def java_int(text: str) -> int | None:
    r"""Parse text as `Integer.parseInt` does, a sign and digits of any script; return None if it throws.

    >>> java_int("+01"), java_int("\u0661"), java_int(" 1"), java_int("2147483648")
    (1, 1, None, None)
    """
    if not _INT.fullmatch(text) or max(text) > "\uffff":
        return None
    digits = text.lstrip("+-").lstrip("0")
    value = int(text) if len(digits) <= len(str(_INT_LIMIT)) else _INT_LIMIT
    return value if -_INT_LIMIT <= value < _INT_LIMIT else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    """Parse a number; JSON has no infinity, and no field of a znode takes so large a number."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(digits)))


def _bounded(digits: str) -> int:
    """Parse a number; of one that no field takes, and Python may refuse, the first digits suffice."""
    return int(digits[:_MAX_DIGITS])
