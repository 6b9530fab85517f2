"""Warnings about clients, at most one a minute for each."""

import logging
import time
from dataclasses import dataclass, field
from typing import Final

from jobs.core.logs import module_logger

_LOG: Final = module_logger(__name__)

WARNING_SECONDS: Final = 60.0
"""Seconds between two warnings about the same client."""

MAX_WARNED_CLIENTS: Final = 2000
"""Number of clients after which all are forgotten."""


@dataclass(slots=True)
class ClientWarnings:
    """When the last warning about each client was logged."""

    _last: dict[str, float] = field(default_factory=dict)

    def warn(self, client: str, message: str, *, with_traceback: bool = False) -> None:
        """Log a warning about a client, unless there was one in the last minute."""
        now = time.monotonic()
        if now - self._last.get(client, -WARNING_SECONDS) < WARNING_SECONDS:
            return
        if len(self._last) > MAX_WARNED_CLIENTS:
            self._last.clear()
        self._last[client] = now
        _LOG.log(logging.ERROR if with_traceback else logging.WARNING, "surveyor: %s", message, exc_info=with_traceback)
