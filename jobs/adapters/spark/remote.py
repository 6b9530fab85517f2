"""The address of a Spark Connect server, and the meaning of its errors; this module does not import Spark.

A URL is `sc://HOST[:PORT]`, followed by connection parameters after `/;`, such as `use_ssl=true` and `token=...`.
Messages only show host and port.
"""

import re
from typing import Final
from urllib.parse import urlsplit

from jobs.core.addresses import refuse_credentials
from jobs.core.errors import UsageError

REMOTE: Final = "SPARK_REMOTE"
"""Spark's environment variable for the URL of a server."""

DEFAULT_PORT: Final = 15002
"""Default port of a server."""

_CAUSES: Final = {
    r"StatusCode.UNAVAILABLE|RETRIES_EXCEEDED|SESSION_CLOSED|SESSION_NOT_FOUND|OPERATION_NOT_FOUND": (
        "the Spark Connect server was lost; check that it runs, then run the same command again, which continues"
    ),
    r"\[PATH_NOT_FOUND\] Path does not exist: (\S*[^\s.])": (
        "{} does not exist where Spark runs: the warehouse must be a folder that this machine, Spark's driver and its "
        "executors share, under one path"
    ),
    r"ModuleNotFoundError: No module named '([\w.]+)'": (
        "Python has no module {} where Spark's executors run: give them an environment with kafka-surveyor, as "
        "docs/deploy.md shows"
    ),
}
"""Patterns in the text of Spark's errors, and their meanings."""

_SPARK_EXCEPTIONS: Final = {"PySparkException", "Py4JError", "RetriesExceeded"}
"""Class names of Spark's exceptions, as importing the classes would import Spark."""


def address(url: str, place: str = f"--remote ({REMOTE})") -> tuple[str, int]:
    """Return host and port of a Spark Connect URL of an option or a variable; raise UsageError if it is invalid.

    >>> address("sc://spark.example/;use_ssl=true;token=s3cret"), address("sc://[::1]:15003")
    (('spark.example', 15002), ('::1', 15003))
    """
    plain = re.split("[;?#]", url)[0]
    try:
        parts = urlsplit(plain)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host, port = None, DEFAULT_PORT
    else:
        if parts.scheme != "sc" or parts.path not in {"", "/"} or "@" in plain or url[len(plain) :][:1] in {"?", "#"}:
            host = None
    if host is None:
        refuse_credentials(place, url, "give sc://HOST:PORT, and a token as sc://HOST:PORT/;token=...")
        raise UsageError(
            f"{place} {plain!r} is not an address of a Spark Connect server: expected sc://HOST[:PORT][/;KEY=VALUE;...]"
        )
    return host, port


def remote_error_message(error: BaseException) -> str | None:
    """Return a one-line message for an error of a remote Spark, None for any other error."""
    if not {kind.__name__ for kind in type(error).__mro__} & _SPARK_EXCEPTIONS:
        return None
    text = str(error)
    matches = ((re.search(pattern, text), meaning) for pattern, meaning in _CAUSES.items())
    return next((meaning.format(*match.groups()) for match, meaning in matches if match), None)
