"""Where a Spark that others run is said to be, and what an error means that it gave; needs no Spark itself.

A URL is `sc://HOST[:PORT]`, and after `/;` what the connection is told, as `use_ssl=true` and `token=...`. No message
shows more of it than host and port.
"""

import re
from typing import Final
from urllib.parse import urlsplit

from jobs.core.errors import UsageError

REMOTE: Final = "SPARK_REMOTE"
"""Environment variable of Spark's own that names a server."""

DEFAULT_PORT: Final = 15002
"""Where a server listens unless told."""

_CAUSES: Final = {
    r"StatusCode.UNAVAILABLE|RETRIES_EXCEEDED|SESSION_CLOSED|SESSION_NOT_FOUND|OPERATION_NOT_FOUND": (
        "the Spark Connect server was lost; see that it runs, then run the same command again, which goes on"
    ),
    r"\[PATH_NOT_FOUND\] Path does not exist: (\S+)": (
        "where Spark runs there is no {}: the warehouse must be a folder that this machine, Spark's driver and its "
        "executors share, under one name"
    ),
    r"ModuleNotFoundError: No module named '([\w.]+)'": (
        "Python has no module {} where Spark's executors run: give them an environment with kafka-surveyor, as "
        "docs/deploy.md shows"
    ),
}
"""What an error of Spark's says, in the midst of much else, and what that means."""

_SPARK_EXCEPTIONS: Final = {"PySparkException", "Py4JError", "RetriesExceeded"}
"""Names of Spark's exceptions: to import them is to import Spark."""


def address(url: str) -> tuple[str, int]:
    """Return host and port of a URL as Spark Connect takes it.

    >>> address("sc://spark.example/;use_ssl=true;token=s3cret"), address("sc://[::1]:15003")
    (('spark.example', 15002), ('::1', 15003))
    """
    plain = url.partition(";")[0]
    try:
        parts = urlsplit(plain)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host, port = None, DEFAULT_PORT
    else:
        if parts.scheme != "sc" or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username:
            host = None
    if host is None:
        raise UsageError(
            f"--remote {plain!r} is no address of a Spark Connect server: expected sc://HOST[:PORT][/;KEY=VALUE;...], "
            f"as the option or in the environment's {REMOTE}",
        )
    return host, port


def remote_error_message(error: BaseException) -> str | None:
    """Say in a line what is wrong where Spark runs, None for any other error."""
    if not {kind.__name__ for kind in type(error).__mro__} & _SPARK_EXCEPTIONS:
        return None
    text = str(error)
    told = ((re.search(pattern, text), meaning) for pattern, meaning in _CAUSES.items())
    return next((meaning.format(*match.groups()) for match, meaning in told if match), None)
